/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The step: writes, attention, own work, merge, and every operation on caches. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

#define MUST(call)                                                                                           \
    do {                                                                                                     \
        struct attn_error err_;                                                                              \
        ATTN_INIT(&err_);                                                                                    \
        struct attn_error *const err = &err_;                                                                \
        if ((call) != ATTN_OK) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, err_.message);                                \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define VIEW(array)                                                                                          \
    {                                                                                                        \
        .buffer = {(array), 0}, .token_stride = sizeof(array)[0], .head_stride = sizeof(array)[0][0]         \
    }

void backend_open(const char *name, struct attn_context **out_context, struct attn_backend **out)
{
    struct attn_select_options options;
    struct attn_open_config config;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;

    ATTN_INIT(&options);
    ATTN_INIT(&config);
    options.backend = name;
    config.threads = 2;
    MUST(attn_context_create(NULL, out_context, err));
    MUST(attn_problem_parse("heads=4 head_dim=32 q=bf16 graph=always", &problem, err));
    MUST(attn_select(*out_context, &problem, 1, &options, &decision, err));
    MUST(attn_backend_open(*out_context, decision, &config, out, err));
    attn_decision_destroy(decision);
}

/* Strides are those of f32 in every type. */
static void describe(struct attn_kv_desc *desc, void *cache, uint32_t dtype, float *scale)
{
    const int64_t head = DIM * sizeof(float);

    ATTN_INIT(desc);
    desc->k_dtype = desc->v_dtype = dtype;
    desc->pages = PAGES;
    desc->block = BLOCK;
    desc->kv_heads = KV_HEADS;
    desc->head_dim = DIM;
    desc->k.data = cache;
    desc->v = (struct attn_buffer){cache, (uint64_t)head * KV_HEADS * BLOCK * PAGES};
    desc->k_head_stride = desc->v_head_stride = head;
    desc->k_token_stride = desc->v_token_stride = head * KV_HEADS;
    desc->k_page_stride = desc->v_page_stride = head * KV_HEADS * BLOCK;
    if (dtype == ATTN_F32)
        return;
    desc->k_scale = (struct attn_scale){.kind = ATTN_SCALE_HOST, .granularity = ATTN_SCALES_TENSOR};
    desc->k_scale.buffer.data = scale;
    desc->v_scale = desc->k_scale;
}

static struct attn_span make_span(uint64_t size, uint32_t alignment)
{
    struct attn_span span = {{aligned_alloc(alignment, (size / alignment + 1) * alignment), 0}, size};

    memset(span.buffer.data, 0, size);
    return span;
}

void world_init(struct world *world, struct attn_backend *backend, uint32_t kv_dtype)
{
    struct attn_problem problem;
    struct attn_plan_sizes sizes;
    struct attn_kv_desc desc;
    char text[256];

    memset(world, 0, sizeof *world);
    world->backend = backend;
    world->kv_dtype = kv_dtype;
    world->scale = 0.03f;
    world->memory = calloc(1, sizeof *world->memory);
    snprintf(text, sizeof text,
             "q=f32 kv=%s heads=4 kv_heads=2 head_dim=32 block=4 lse=1 graph=always max_seqs=5 max_q=4 "
             "max_kv=48 max_rows=8",
             kv_dtype == ATTN_F32 ? "f32" : "e4m3 scales=tensor");
    ATTN_INIT(&sizes);
    ATTN_INIT(&world->scratch);
    MUST(attn_problem_parse(text, &problem, err));
    MUST(attn_plan_create(backend, &problem, &world->plan, err));
    MUST(attn_plan_get_sizes(world->plan, &sizes, err));
    world->schedule = make_span(sizes.schedule, sizes.alignment);
    world->scratch.scratch = make_span(sizes.scratch, sizes.alignment);
    world->scratch.counters = make_span(sizes.counters, sizes.alignment);
    describe(&desc, world->memory->cache, kv_dtype, &world->scale);
    MUST(attn_kv_create(backend, &desc, &world->kv, err));
}

void world_finish(struct world *world)
{
    attn_plan_destroy(world->plan);
    attn_kv_destroy(world->kv);
    free(world->schedule.buffer.data);
    free(world->scratch.scratch.buffer.data);
    free(world->scratch.counters.buffer.data);
    free(world->memory);
}

static uint32_t next(uint32_t *state)
{
    *state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
    return *state >> 8;
}

static void fill(float *values, size_t count, uint32_t *state)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)next(state) / (1 << 23) - 1;
}

/* Query tokens are dealt to sequences one by one, so that each step has another mix of phases. */
static void change_lengths(struct memory *memory, uint32_t *state)
{
    int32_t q_lens[SEQS] = {0};

    for (uint32_t row = 0; row < ROWS;) {
        uint32_t seq = next(state) % SEQS;
        if (q_lens[seq] == MOST_Q)
            continue;
        q_lens[seq]++;
        row++;
    }
    for (uint32_t seq = 0; seq < SEQS; seq++) {
        memory->q_offsets[seq + 1] = memory->q_offsets[seq] + q_lens[seq];
        memory->kv_lens[seq] = q_lens[seq] + (int32_t)(next(state) % (MOST_KV - (uint32_t)q_lens[seq] + 1));
        memory->gather_offsets[seq + 1] = memory->gather_offsets[seq] + memory->kv_lens[seq];
    }
}

void world_change(struct world *world, uint32_t seed)
{
    struct memory *memory = world->memory;
    uint32_t state = seed * UINT32_C(2654435761) + 1, pages[PAGES];

    change_lengths(memory, &state);
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t other = next(&state) % (i + 1);
        pages[i] = pages[other];
        pages[other] = i;
    }
    for (uint32_t i = 0; i < SEQS * WIDTH; i++)
        memory->table[i / WIDTH][i % WIDTH] = (int32_t)pages[i];
    for (uint32_t row = 0; row < ROWS; row++) /* each in a page of its own; some rows nowhere */
        memory->slots[row] =
            next(&state) % 5 == 0 ? -1 : (int64_t)pages[row] * BLOCK + (int64_t)(next(&state) % BLOCK);
    for (uint32_t i = 0; i < PAIRS; i++) {
        memory->pairs[i][0] = next(&state) % PAGES;
        memory->pairs[i][1] = next(&state) % PAGES;
    }
    fill(&memory->q[0][0][0], sizeof memory->q / sizeof(float), &state);
    fill(&memory->k_new[0][0][0], sizeof memory->k_new / sizeof(float), &state);
    fill(&memory->v_new[0][0][0], sizeof memory->v_new / sizeof(float), &state);
}

static void make_batch(const struct world *world, struct attn_batch *batch)
{
    struct memory *memory = world->memory;

    ATTN_INIT(batch);
    batch->seqs = SEQS;
    batch->num_tokens = ROWS;
    batch->max_q = MOST_Q;
    batch->max_kv = MOST_KV;
    batch->q_offsets.data = memory->q_offsets;
    batch->kv_lens.data = memory->kv_lens;
    batch->table.data = memory->table;
    batch->table_stride = sizeof memory->table[0];
    batch->table_width = WIDTH;
    batch->pages = PAGES;
}

int32_t world_prepare(struct world *world, bool host, void *stream, struct attn_error *err)
{
    struct memory *memory = world->memory;
    struct attn_batch batch;
    struct attn_batch_host copies;

    make_batch(world, &batch);
    ATTN_INIT(&copies);
    copies.q_offsets = memory->q_offsets;
    copies.kv_lens = memory->kv_lens;
    copies.table = &memory->table[0][0];
    batch.given = host ? ATTN_GIVEN_HOST_COPIES : 0;
    batch.host = host ? &copies : NULL;
    return attn_plan_prepare(world->plan, &batch, &world->schedule, NULL, stream, err);
}

static void attend(struct world *world, void *stream)
{
    struct memory *memory = world->memory;
    struct attn_kv_write_args write;
    struct attn_tensors tensors;
    struct attn_batch batch;

    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = ROWS;
    write.k_new = (struct attn_tensor)VIEW(memory->k_new);
    write.v_new = (struct attn_tensor)VIEW(memory->v_new);
    write.kv = world->kv;
    write.slot_mapping.data = memory->slots;
    MUST(attn_kv_write(world->backend, &write, stream, err));
    ATTN_INIT(&tensors);
    tensors.softmax_scale = 0.2f;
    tensors.q = (struct attn_tensor)VIEW(memory->q);
    tensors.out = (struct attn_tensor)VIEW(memory->out);
    tensors.lse = (struct attn_tensor)VIEW(memory->lse);
    tensors.kv = world->kv;
    make_batch(world, &batch);
    MUST(attn_plan_run(world->plan, &batch, &tensors, &world->schedule, &world->scratch, stream, err));
    memset(&tensors, 0xee, sizeof tensors); /* what a graph keeps is a copy */
    memset(&batch, 0xee, sizeof batch);
    memset(&write, 0xee, sizeof write);
}

/* What a model does between layers. */
static void own_work(void *arg)
{
    struct memory *memory = arg;

    for (uint32_t i = 0; i < ROWS * HEADS * DIM; i++)
        (&memory->twice[0][0][0])[i] = 2 * (&memory->out[0][0][0])[i];
    memory->own_works++;
}

static void combine(struct world *world, void *stream)
{
    struct memory *memory = world->memory;
    struct attn_merge_part parts[] = {{VIEW(memory->out), VIEW(memory->lse)},
                                      {VIEW(memory->twice), VIEW(memory->lse)}};
    struct attn_tensor all[] = {VIEW(memory->lse), VIEW(memory->lse)};
    struct attn_buffer to = {memory->copied, 0}, from = {memory->merged, 0}, whole = {memory->rescaled, 0};
    struct attn_merge_args merge;
    struct attn_rescale_args rescale;

    ATTN_INIT(&merge);
    merge.count = 2;
    merge.parts = parts;
    merge.dtype = ATTN_F32;
    merge.lse_base = ATTN_LSE_NATURAL;
    merge.num_tokens = ROWS;
    merge.heads = HEADS;
    merge.head_dim = DIM;
    merge.out = (struct attn_tensor)VIEW(memory->merged);
    MUST(attn_merge(world->backend, &merge, stream, err));
    MUST(attn_memory_copy(world->backend, &to, &from, sizeof memory->copied, ATTN_COPY_ON_DEVICE, stream,
                          err));
    MUST(attn_memory_copy(world->backend, &whole, &from, sizeof memory->rescaled, ATTN_COPY_ON_DEVICE, stream,
                          err));
    ATTN_INIT(&rescale);
    rescale.dtype = ATTN_F32;
    rescale.out = (struct attn_tensor)VIEW(memory->rescaled);
    rescale.own = all[0];
    rescale.all = all;
    rescale.count = 2;
    rescale.lse_base = ATTN_LSE_NATURAL;
    rescale.num_tokens = ROWS;
    rescale.heads = HEADS;
    rescale.head_dim = DIM;
    MUST(attn_rescale(world->backend, &rescale, stream, err));
    memset(parts, 0xee, sizeof parts);
    memset(all, 0xee, sizeof all);
}

/* Pages within the cache, and single tokens. */
static void move_within(struct world *world, void *stream)
{
    struct memory *memory = world->memory;
    struct attn_kv_copy_blocks_args blocks;
    struct attn_kv_copy_slots_args slots;
    struct attn_kv *kvs[] = {world->kv};

    ATTN_INIT(&blocks);
    blocks.count = PAIRS;
    blocks.layers = 1;
    blocks.kvs = kvs;
    blocks.pairs.data = memory->pairs;
    MUST(attn_kv_copy_blocks(world->backend, &blocks, stream, err));
    kvs[0] = NULL;
    ATTN_INIT(&slots);
    slots.count = PAIRS;
    slots.from = slots.to = world->kv;
    slots.pairs.data = memory->pairs;
    MUST(attn_kv_copy_slots(world->backend, &slots, stream, err));
}

/* Between caches. The description of the other one, and all pairs of a swap, are the caller's for the call.
 */
static void move_between(struct world *world, void *stream)
{
    struct memory *memory = world->memory;
    struct attn_kv_swap_blocks_args swap;
    struct attn_kv_convert_args convert;
    struct attn_kv_desc desc;
    float scale = world->scale;

    describe(&desc, memory->host_cache, world->kv_dtype, &scale);
    ATTN_INIT(&swap);
    swap.count = PAIRS;
    swap.from = world->kv;
    swap.to_desc = &desc;
    swap.pairs = &world->swaps[0][0];
    swap.kind = ATTN_COPY_TO_HOST;
    MUST(attn_kv_swap_blocks(world->backend, &swap, stream, err));
    describe(&desc, memory->converted, ATTN_F32, NULL);
    ATTN_INIT(&convert);
    convert.count = PAIRS;
    convert.from = world->kv;
    convert.to_desc = &desc;
    convert.pairs.data = memory->pairs;
    MUST(attn_kv_convert(world->backend, &convert, stream, err));
    memset(&desc, 0xee, sizeof desc);
    scale = -1;
}

/* New keys without slots: where the batch says that their tokens are. */
static void write_where_tokens_are(struct world *world, const struct attn_batch *batch, void *stream)
{
    struct attn_kv_write_args write;

    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.k_new = (struct attn_tensor)VIEW(world->memory->k_new);
    write.v_new = (struct attn_tensor)VIEW(world->memory->v_new);
    write.kv = world->kv;
    write.num_tokens = ROWS;
    write.batch = batch;
    write.addressing = ATTN_TABLE;
    MUST(attn_kv_write(world->backend, &write, stream, err));
}

static void look_up(struct world *world, void *stream)
{
    struct memory *memory = world->memory;
    struct attn_kv_slot_mapping_args slots;
    struct attn_kv_gather_args gather;
    struct attn_batch batch;

    make_batch(world, &batch);
    ATTN_INIT(&slots);
    slots.addressing = ATTN_TABLE;
    slots.block = BLOCK;
    slots.batch = &batch;
    slots.slots.data = memory->found_slots;
    MUST(attn_kv_slot_mapping(world->backend, &slots, stream, err));
    ATTN_INIT(&gather);
    gather.tokens = SEQS * MOST_KV;
    gather.k_dtype = gather.v_dtype = ATTN_F32;
    gather.addressing = ATTN_TABLE;
    gather.kv = world->kv;
    gather.batch = &batch;
    gather.offsets.data = memory->gather_offsets;
    gather.k = (struct attn_tensor)VIEW(memory->gathered);
    MUST(attn_kv_gather(world->backend, &gather, stream, err));
    write_where_tokens_are(world, &batch, stream);
    memset(&batch, 0xee, sizeof batch);
}

void world_step(struct world *world, void *stream, struct attn_graph *graph)
{
    for (uint32_t i = 0; i < PAIRS; i++) {
        world->swaps[i][0] = 2 * i;
        world->swaps[i][1] = PAGES - 1 - i;
    }
    attend(world, stream);
    if (graph != NULL)
        MUST(attn_graph_add_host(graph, own_work, world->memory, err));
    else
        own_work(world->memory);
    combine(world, stream);
    move_within(world, stream);
    move_between(world, stream);
    look_up(world, stream);
    memset(world->swaps, 0xee, sizeof world->swaps);
}

const char *world_difference(const struct world *a, const struct world *b)
{
    static const struct {
        const char *name;
        size_t offset, size;
    } members[] = {
#define MEMBER(name) {#name, offsetof(struct memory, name), sizeof((struct memory *)NULL)->name}
        MEMBER(out),       MEMBER(lse),      MEMBER(twice),       MEMBER(merged),
        MEMBER(rescaled),  MEMBER(copied),   MEMBER(cache),       MEMBER(host_cache),
        MEMBER(converted), MEMBER(gathered), MEMBER(found_slots), MEMBER(own_works)};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (memcmp((const char *)a->memory + members[i].offset, (const char *)b->memory + members[i].offset,
                   members[i].size) != 0)
            return members[i].name;
    return memcmp(a->memory, b->memory, sizeof *a->memory) != 0 ? "an input" : NULL;
}
