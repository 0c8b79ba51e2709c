/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin without a host, and a small step to run on it. */
#include "plugin.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static void take_log(void *ctx, uint32_t level, const char *subsystem, const char *text)
{
    struct services *services = ctx;

    (void)subsystem;
    if (level == ATTN_LOG_WARN) {
        services->warnings++;
        snprintf(services->warning, sizeof services->warning, "%s", text);
    }
}

static const char *get_option(void *ctx, const char *key)
{
    const struct services *services = ctx;

    if (strcmp(key, "ATTN_CPU_FLAGS") == 0)
        return services->flags;
    return strcmp(key, "ATTN_THREADS") == 0 ? services->threads : NULL;
}

void plugin_enter(struct entered *entered, const char *flags, const char *threads)
{
    struct attn_host host;
    const struct attn_backend_table *const *tables;
    uint32_t count;

    memset(entered, 0, sizeof *entered);
    entered->services.flags = flags;
    entered->services.threads = threads;
    ATTN_INIT(&host);
    host.abi_minor = ATTN_ABI_MINOR;
    host.ctx = &entered->services;
    host.out_instance = &entered->instance;
    host.log = take_log;
    host.get_option = get_option;
    cr_assert_eq(attn_plugin_entry_v1(&host, &entered->plugin, NULL), ATTN_OK);
    cr_assert_eq(entered->plugin->get_backends(entered->instance, &tables, &count, NULL), ATTN_OK);
    cr_assert_eq(count, 3);
    entered->table = tables[0];
}

void plugin_leave(struct entered *entered)
{
    entered->plugin->finish(entered->instance);
}

struct attn_backend_impl *plugin_open(const struct entered *entered, uint32_t threads)
{
    struct attn_device device = {.type = ATTN_DEVICE_CPU};
    struct attn_open_config config;
    struct attn_backend_impl *backend = NULL;

    ATTN_INIT(&config);
    config.threads = threads;
    cr_assert_eq(entered->table->open(entered->instance, &device, &config, &backend, NULL), ATTN_OK);
    return backend;
}

static void *take_memory(uint64_t size)
{
    void *memory = NULL;

    cr_assert_eq(posix_memalign(&memory, 64, size + 64), 0);
    memset(memory, 0, size + 64);
    return memory;
}

static void describe(struct step *step)
{
    ATTN_INIT(&step->problem);
    step->problem.type = ATTN_DECODER;
    step->problem.q_dtype = step->problem.k_dtype = step->problem.v_dtype = step->problem.out_dtype =
        ATTN_F32;
    step->problem.heads = step->problem.kv_heads = STEP_HEADS;
    step->problem.head_dim = step->problem.head_dim_vo = STEP_DIM;
    step->problem.addressing = ATTN_TABLE;
    step->problem.index_dtype = ATTN_INT32;
    step->problem.block = STEP_BLOCK;
    step->problem.causal = ATTN_CAUSAL_YES;
    step->problem.align = ATTN_ALIGN_END;
    step->problem.window_left = -1;
    step->problem.alibi = ATTN_ALIBI_NONE;
    step->problem.mask = ATTN_MASK_NONE;
    step->problem.span = ATTN_SPAN_SQUARE;
    step->problem.kv_source = ATTN_KV_CACHE;
    step->problem.layout = ATTN_STRIDED;
    step->problem.q_scale = step->problem.k_scale = ATTN_SCALES_NONE;
    step->problem.v_scale = step->problem.out_scale = ATTN_SCALES_NONE;
    step->problem.graph = ATTN_GRAPH_NEVER;
    step->problem.max_seqs = step->problem.max_rows = 2;
    step->problem.max_q = 1;
    step->problem.max_kv = 4200;
}

/* Keys and values are small numbers that differ; the table names the pages backwards. */
static void fill(struct step *step)
{
    uint64_t token = STEP_HEADS * STEP_DIM, half = token * STEP_BLOCK * STEP_PAGES;

    step->cache = take_memory(2 * half * sizeof(float));
    step->q = take_memory(2 * token * sizeof(float));
    step->out = take_memory(2 * token * sizeof(float));
    step->table = take_memory(2 * STEP_PAGES * sizeof(int32_t));
    for (uint64_t i = 0; i < 2 * half; i++)
        step->cache[i] = (float)(i * 2654435761u % 1000) / 500 - 1;
    for (uint64_t i = 0; i < 2 * token; i++)
        step->q[i] = (float)(i % 7) / 3;
    for (int32_t i = 0; i < 2 * STEP_PAGES; i++)
        step->table[i] = STEP_PAGES - 1 - i % STEP_PAGES;
    ATTN_INIT(&step->kv);
    step->kv.k_dtype = step->kv.v_dtype = ATTN_F32;
    step->kv.pages = STEP_PAGES;
    step->kv.block = STEP_BLOCK;
    step->kv.kv_heads = STEP_HEADS;
    step->kv.head_dim = step->kv.head_dim_vo = STEP_DIM;
    step->kv.k.data = step->cache;
    step->kv.v.data = step->cache + half;
    step->kv.k_head_stride = step->kv.v_head_stride = STEP_DIM * sizeof(float);
    step->kv.k_token_stride = step->kv.v_token_stride = (int64_t)(token * sizeof(float));
    step->kv.k_page_stride = step->kv.v_page_stride = (int64_t)(token * STEP_BLOCK * sizeof(float));
}

void step_begin(struct step *step, const struct entered *entered, struct attn_backend_impl *backend)
{
    static const int32_t q_offsets[] = {0, 1, 2}, kv_lens[] = {40, 4100};

    memset(step, 0, sizeof *step);
    describe(step);
    fill(step);
    memcpy(step->q_offsets, q_offsets, sizeof q_offsets);
    memcpy(step->kv_lens, kv_lens, sizeof kv_lens);
    ATTN_INIT(&step->batch);
    step->batch.seqs = step->batch.num_tokens = 2;
    step->batch.max_q = 1;
    step->batch.max_kv = 4200;
    step->batch.q_offsets.data = step->q_offsets;
    step->batch.kv_lens.data = step->kv_lens;
    step->batch.table.data = step->table;
    step->batch.table_stride = STEP_PAGES * sizeof(int32_t);
    step->batch.table_width = STEP_PAGES;
    ATTN_INIT(&step->tensors);
    step->tensors.softmax_scale = 0.5f;
    step->tensors.q.buffer.data = step->q;
    step->tensors.out.buffer.data = step->out;
    step->tensors.q.head_stride = step->tensors.out.head_stride = STEP_DIM * sizeof(float);
    step->tensors.q.token_stride = step->tensors.out.token_stride = STEP_HEADS * STEP_DIM * sizeof(float);
    cr_assert_eq(entered->table->plan->create(backend, &step->problem, &step->plan, NULL), ATTN_OK);
    cr_assert_eq(entered->table->plan->sizes(step->plan, &step->sizes), ATTN_OK);
    ATTN_INIT(&step->scratch);
    step->schedule = (struct attn_span){{take_memory(step->sizes.schedule), 0}, step->sizes.schedule};
    step->scratch.scratch = (struct attn_span){{take_memory(step->sizes.scratch), 0}, step->sizes.scratch};
    step->scratch.counters = (struct attn_span){{take_memory(step->sizes.counters), 0}, step->sizes.counters};
}

void step_end(struct step *step, const struct entered *entered)
{
    entered->table->plan->destroy(step->plan);
    free(step->schedule.buffer.data);
    free(step->scratch.scratch.buffer.data);
    free(step->scratch.counters.buffer.data);
    free(step->cache);
    free(step->q);
    free(step->out);
    free(step->table);
}
