/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes calls that are recorded. */
#define _GNU_SOURCE
#include "fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROBLEM "heads=4 kv_heads=2 head_dim=16 q=f32 block=4 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

static void keep(void *user, uint32_t level, const char *subsystem, const char *text)
{
    struct fixture *fixture = user;
    const size_t used = strlen(fixture->log);

    snprintf(fixture->log + used, sizeof fixture->log - used, "%u %s: %s\n", level, subsystem, text);
}

static void open_backend(struct fixture *fixture, const char *option)
{
    struct attn_context_options options;
    struct attn_decision *decision;
    char record[256];
    const char *variables[] = {"ATTN_LOG=info", "ATTN_THREADS=2", "ATTN_PROBE=never", record};

    ATTN_INIT(&options);
    snprintf(record, sizeof record, "ATTN_RECORD=%s%s", option != NULL ? fixture->directory : "",
             option != NULL ? option : "");
    options.given = ATTN_GIVEN_LOG;
    options.log = keep;
    options.log_user = fixture;
    options.variables = variables;
    options.variable_count = 4;
    cr_assert_eq(attn_context_create(&options, &fixture->context, &fixture->err), ATTN_OK);
    cr_assert_eq(attn_problem_parse(PROBLEM, &fixture->problem, &fixture->err), ATTN_OK);
    cr_assert_eq(attn_select(fixture->context, &fixture->problem, 1, NULL, &decision, &fixture->err), ATTN_OK,
                 "%s", fixture->err.message);
    cr_assert_eq(attn_backend_open(fixture->context, decision, NULL, &fixture->backend, &fixture->err),
                 ATTN_OK);
    attn_decision_destroy(decision);
}

/* Memory of the plan. */
static struct attn_span block(uint64_t size)
{
    struct attn_span span = {{aligned_alloc(64, (size + 64) / 64 * 64), 0}, size};

    memset(span.buffer.data, 0, size);
    return span;
}

static void open_plan(struct fixture *fixture)
{
    struct attn_plan_sizes sizes;

    ATTN_INIT(&sizes);
    cr_assert_eq(attn_plan_create(fixture->backend, &fixture->problem, &fixture->plan, &fixture->err),
                 ATTN_OK);
    cr_assert_eq(attn_plan_get_sizes(fixture->plan, &sizes, &fixture->err), ATTN_OK);
    fixture->schedule = block(sizes.schedule);
    ATTN_INIT(&fixture->given);
    fixture->given.scratch = fixture->scratch = block(sizes.scratch);
    fixture->given.counters = fixture->counters = block(sizes.counters);
}

static void fill(struct fixture *fixture)
{
    static const int32_t pages[SEQS][WIDTH] = {{7, 2, 5, 99, 99}, {2, 8, 99, 99, 99}};
    float *cache = &fixture->cache[0][0][0][0][0], *q = &fixture->q[0][0][0];

    fixture->q_offsets[1] = 3;
    fixture->q_offsets[2] = TOKENS;
    fixture->kv_lens[0] = KEYS;
    fixture->kv_lens[1] = 5;
    for (int i = 0; i < SEQS; i++)
        memcpy(fixture->table[i], pages[i], sizeof pages[i]);
    for (size_t i = 0; i < sizeof fixture->cache / sizeof(float); i++)
        cache[i] = (float)(i * 7919 % 1013) / 1013 - 0.5F;
    for (size_t i = 0; i < sizeof fixture->q / sizeof(float); i++)
        q[i] = (float)(i * 104729 % 509) / 509 - 0.5F;
}

static void point(struct fixture *fixture)
{
    struct attn_batch *batch = &fixture->batch;
    struct attn_tensors *tensors = &fixture->tensors;
    struct attn_kv_desc *desc = &fixture->desc;

    ATTN_INIT(batch);
    batch->seqs = SEQS;
    batch->num_tokens = TOKENS;
    batch->max_q = 3;
    batch->max_kv = KEYS;
    batch->q_offsets.data = fixture->q_offsets;
    batch->kv_lens.data = fixture->kv_lens;
    batch->table.data = fixture->table;
    batch->table_width = WIDTH;
    batch->table_stride = sizeof fixture->table[0];
    ATTN_INIT(desc);
    desc->k_dtype = desc->v_dtype = ATTN_F32;
    desc->pages = PAGES;
    desc->block = BLOCK;
    desc->kv_heads = KV_HEADS;
    desc->head_dim = desc->head_dim_vo = DIM;
    desc->k.data = fixture->cache;
    desc->v = (struct attn_buffer){fixture->cache, sizeof fixture->cache[0][0]};
    desc->k_page_stride = desc->v_page_stride = sizeof fixture->cache[0];
    desc->k_token_stride = desc->v_token_stride = sizeof fixture->cache[0][0][0];
    desc->k_head_stride = desc->v_head_stride = sizeof fixture->cache[0][0][0][0];
    ATTN_INIT(tensors);
    tensors->softmax_scale = 0.25F;
    tensors->q = attn_tensor_of(fixture->q, ATTN_F32, HEADS, DIM);
    tensors->q.token_stride = sizeof fixture->q[0];
    tensors->out = attn_tensor_of(fixture->out, ATTN_F32, HEADS, DIM);
    tensors->kv_desc = desc;
}

struct fixture *fixture_open(const char *option)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    ATTN_INIT(&fixture->err);
    strcpy(fixture->directory, "/tmp/attn-record-XXXXXX");
    cr_assert_not_null(mkdtemp(fixture->directory));
    open_backend(fixture, option);
    open_plan(fixture);
    fill(fixture);
    point(fixture);
    return fixture;
}

int32_t fixture_run(struct fixture *fixture)
{
    cr_assert_eq(attn_plan_prepare(fixture->plan, &fixture->batch, &fixture->schedule, NULL, fixture->stream,
                                   &fixture->err),
                 ATTN_OK, "%s", fixture->err.message);
    return attn_plan_run(fixture->plan, &fixture->batch, &fixture->tensors, &fixture->schedule,
                         &fixture->given, fixture->stream, &fixture->err);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

unsigned fixture_files(const struct fixture *fixture, unsigned number, char path[256])
{
    struct dirent **list;
    const int count = scandir(fixture->directory, &list, is_file, by_name);

    cr_assert_geq(count, 0);
    for (int i = 0; i < count; i++) {
        cr_assert_str_eq(strrchr(list[i]->d_name, '.'), ".record", "%s", list[i]->d_name);
        if (path != NULL && (unsigned)i == number)
            snprintf(path, 256, "%s/%.180s", fixture->directory, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return (unsigned)count;
}

unsigned char *fixture_load(const struct fixture *fixture, size_t *out_size)
{
    char path[256];

    cr_assert_eq(fixture_files(fixture, 0, path), 1, "%s", fixture->log);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    *out_size = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*out_size);
    cr_assert_eq(fread(data, 1, *out_size, file), *out_size);
    fclose(file);
    return data;
}

void fixture_close(struct fixture *fixture)
{
    char path[256];

    attn_plan_destroy(fixture->plan);
    attn_backend_destroy(fixture->backend);
    attn_context_destroy(fixture->context);
    while (fixture_files(fixture, 0, path) > 0)
        cr_assert_eq(unlink(path), 0);
    rmdir(fixture->directory);
    free(fixture->schedule.buffer.data);
    free(fixture->scratch.buffer.data);
    free(fixture->counters.buffer.data);
    free(fixture);
}
