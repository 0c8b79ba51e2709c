/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Builders over device memory, in the flavours of a GPU's plugin: random steps, blocks that are changed in
 * the rows of a built step, steps that are advanced in place and steps whose arrays are on the device
 * already. Every field, also as it lies on the device, is that of the same flavour's builder on the CPU.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../graph/crowd.h"
#include "../graph/tap.h"
#include "../graph/world.h"
#include "attn/device.h"

enum { NEAR, FAR, SIDES, ADVANCES = 3 };

/* A backend with the builders of one side. */
struct side {
    struct attn_context *context;
    struct attn_backend *backend;
    struct crowd_builder lists; /* steps from lists */
    struct crowd_builder other; /* steps from what those have on the device */
    struct attn_buffer tokens, positions;
};

struct pair {
    struct side side[SIDES];
    struct crowd crowd;
    const char *name;
    bool same;
    uint32_t compared, steps, rows, advances, on_device;
};

static void side_init(struct side *side, const char *name)
{
    backend_open(name, &side->context, &side->backend);
    must(crowd_builder_init(&side->lists, side->backend, 0, false, &err));
    must(crowd_builder_init(&side->other, side->backend, 0, false, &err));
    must(attn_memory_alloc(side->backend, CROWD_ROWS * sizeof(int64_t), &side->tokens, &err));
    must(attn_memory_alloc(side->backend, CROWD_ROWS * sizeof(int64_t), &side->positions, &err));
}

static void side_finish(struct side *side)
{
    attn_memory_free(side->backend, &side->tokens);
    attn_memory_free(side->backend, &side->positions);
    attn_builder_destroy(side->lists.builder);
    attn_builder_destroy(side->other.builder);
    attn_backend_destroy(side->backend);
    attn_context_destroy(side->context);
}

/* ---------------------------------------------------------------- comparing */

static uint64_t bytes_of(const struct attn_view *view, uint64_t *rows, uint64_t *row)
{
    const uint64_t size = view->dtype == ATTN_INT64 ? 8 : 4;

    *rows = view->rank == 2 ? view->shape[0] : 1;
    *row = size * (view->rank == 2 ? view->shape[1] : view->shape[0]);
    return *rows * *row;
}

static bool same_row(const struct side *far, const struct attn_view *view, uint64_t offset,
                     const void *wanted, uint64_t size)
{
    static unsigned char room[1 << 16];
    const struct attn_buffer to = {room, 0}, from = {view->device.data, view->device.byte_offset + offset};

    if (size > sizeof room)
        return false;
    must(attn_memory_copy(far->backend, &to, &from, size, ATTN_COPY_TO_HOST, NULL, &err));
    must(attn_stream_synchronize(far->backend, NULL, &err));
    return memcmp(room, wanted, size) == 0;
}

/* The rows of an array as the host of the near side sees them. */
static bool same_array(const struct pair *pair, const struct attn_view *near, const struct attn_view *far)
{
    const char *wanted =
        near->host != NULL ? near->host : (char *)near->device.data + near->device.byte_offset;
    uint64_t rows, row;
    bool same = true;

    if (bytes_of(near, &rows, &row) == 0)
        return true;
    for (uint64_t i = 0; i < rows && same; i++) {
        const char *line = wanted + (int64_t)i * near->stride;
        same = same_row(&pair->side[FAR], far, i * (uint64_t)far->stride, line, row) &&
               (far->host == NULL || memcmp((char *)far->host + (int64_t)i * far->stride, line, row) == 0);
    }
    return same;
}

static bool same_field(const struct pair *pair, struct attn_view view[SIDES], uint64_t pages)
{
    uint64_t rows, row;

    if (pages != UINT64_MAX) /* behind those in use nothing is said */
        view[NEAR].shape[0] = view[FAR].shape[0] = pages;
    if (view[NEAR].kind != view[FAR].kind || view[NEAR].dtype != view[FAR].dtype ||
        view[NEAR].rank != view[FAR].rank || view[NEAR].value != view[FAR].value ||
        view[NEAR].shape[0] != view[FAR].shape[0] || view[NEAR].shape[1] != view[FAR].shape[1])
        return false;
    if (view[NEAR].kind == ATTN_VIEW_LIST)
        return memcmp(view[NEAR].host, view[FAR].host, bytes_of(&view[NEAR], &rows, &row)) == 0;
    return view[NEAR].kind != ATTN_VIEW_ARRAY || same_array(pair, &view[NEAR], &view[FAR]);
}

/* How many pages a step has in use, UINT64_MAX for a flavour without. */
static uint64_t pages_of(struct attn_metadata *metadata, uint32_t group, uint32_t seqs)
{
    struct attn_view starts;

    ATTN_INIT(&starts);
    must(attn_metadata_get(metadata, ATTN_FIELD_PAGED_KV_INDPTR, group, &starts, &err));
    if (starts.kind != ATTN_VIEW_ARRAY)
        return UINT64_MAX;
    return (
        uint64_t)((const int32_t *)(void *)((char *)starts.device.data + starts.device.byte_offset))[seqs];
}

static void compare(struct pair *pair, struct attn_metadata *const metadata[SIDES], const char *what)
{
    struct attn_view view[SIDES];

    for (uint32_t field = 1; field < ATTN_FIELDS && pair->same; field++) {
        for (uint32_t group = 0; group < CROWD_GROUPS && pair->same; group++) {
            int32_t status[SIDES];
            for (uint32_t i = 0; i < SIDES; i++) {
                ATTN_INIT(&view[i]);
                status[i] = attn_metadata_get(metadata[i], field, group, &view[i], &err);
            }
            if (status[NEAR] != ATTN_OK && status[NEAR] == status[FAR])
                continue; /* a field that exists once */
            const uint64_t pages = field == ATTN_FIELD_PAGED_KV_INDICES
                                       ? pages_of(metadata[NEAR], group, pair->crowd.seqs)
                                       : UINT64_MAX;
            pair->same = status[FAR] == status[NEAR] && same_field(pair, view, pages);
            pair->compared++;
            if (!pair->same)
                printf("# step %u, %s: %s of group %u differs\n", pair->steps, what, attn_field_name(field),
                       group);
        }
    }
}

/* ---------------------------------------------------------------- steps */

static void prompts(struct pair *pair, uint32_t came)
{
    struct attn_metadata *metadata[SIDES];
    struct crowd after = pair->crowd;

    for (uint32_t i = 0; i < SIDES; i++) {
        uint32_t rows;
        after = pair->crowd;
        must(crowd_prompts(&after, &pair->side[i].lists, after.seqs - came, &metadata[i], &rows, &err));
    }
    const uint32_t seqs = pair->crowd.seqs;
    pair->crowd.seqs = came;
    compare(pair, metadata, "prompts");
    pair->crowd = after;
    pair->crowd.seqs = seqs;
    for (uint32_t i = 0; i < SIDES; i++) /* these rows are those of prompts now */
        memset(pair->side[i].lists.rows, 0, sizeof pair->side[i].lists.rows);
}

/* Another page in a cell of the step's table. */
static void change_row(struct pair *pair, struct attn_metadata *metadata[SIDES])
{
    struct attn_builder_row_args args;
    const uint32_t n = crowd_random(&pair->crowd, pair->crowd.seqs);
    struct crowd_seq *seq = &pair->crowd.seq[n];

    ATTN_INIT(&args);
    args.group = crowd_random(&pair->crowd, CROWD_GROUPS);
    args.row = n;
    args.first = crowd_random(&pair->crowd, seq->count[args.group]);
    args.count = 1;
    const int64_t page = crowd_random(&pair->crowd, CROWD_PAGES);
    args.blocks = &page;
    seq->blocks[args.group][args.first] = page;
    for (uint32_t i = 0; i < SIDES; i++) {
        struct crowd_builder *builder = &pair->side[i].lists;
        builder->rows[n].blocks[args.group][args.first] = page;
        must(attn_builder_set_row(builder->builder, &args, &err));
        must(attn_builder_build(builder->builder, NULL, NULL, &metadata[i], &err));
    }
    compare(pair, metadata, "a changed row");
    pair->rows++;
}

static void put(const struct side *side, const struct attn_buffer *to, const int64_t *values)
{
    const struct attn_buffer from = {(void *)(uintptr_t)values, 0};

    must(attn_memory_copy(side->backend, to, &from, CROWD_ROWS * sizeof *values, ATTN_COPY_TO_DEVICE, NULL,
                          &err));
    must(attn_stream_synchronize(side->backend, NULL, &err));
}

static bool same_numbers(const struct pair *pair, const struct attn_buffer *near,
                         const struct attn_buffer *far)
{
    const struct attn_view view = {.device = *far};

    return same_row(&pair->side[FAR], &view, 0, near->data, pair->crowd.seqs * sizeof(int64_t));
}

static void advance(struct pair *pair, struct attn_metadata *const metadata[SIDES])
{
    int64_t tokens[CROWD_ROWS];
    struct attn_advance_args args;

    for (uint32_t i = 0; i < CROWD_ROWS; i++)
        tokens[i] = crowd_random(&pair->crowd, 30000);
    for (uint32_t i = 0; i < SIDES; i++) {
        const struct side *side = &pair->side[i];
        put(side, &side->tokens, tokens);
        ATTN_INIT(&args);
        args.seqs = args.queries = pair->crowd.seqs;
        args.sampled = args.tokens = side->tokens;
        args.positions = side->positions;
        must(attn_metadata_advance_step(metadata[i], &args, NULL, &err));
    }
    crowd_grow(&pair->crowd);
    compare(pair, metadata, "advanced");
    pair->same = pair->same && same_numbers(pair, &pair->side[NEAR].positions, &pair->side[FAR].positions) &&
                 same_numbers(pair, &pair->side[NEAR].tokens, &pair->side[FAR].tokens);
    pair->advances++;
}

static struct attn_view array_of(struct attn_metadata *metadata, uint32_t field, uint32_t group)
{
    struct attn_view view;

    ATTN_INIT(&view);
    must(attn_metadata_get(metadata, field, group, &view, &err));
    return view;
}

/* The same step once more, from its arrays. */
static void from_device(struct pair *pair, struct attn_metadata *const built[SIDES])
{
    struct attn_metadata *metadata[SIDES];

    for (uint32_t i = 0; i < SIDES; i++) {
        struct attn_builder *builder = pair->side[i].other.builder;
        const struct attn_batch *batches[CROWD_GROUPS];
        struct attn_batch batch[CROWD_GROUPS];
        struct attn_builder_device_args args;
        for (uint32_t g = 0; g < CROWD_GROUPS; g++) {
            const struct attn_view table = array_of(built[i], ATTN_FIELD_BLOCK_TABLES, g);
            ATTN_INIT(&batch[g]);
            batch[g].seqs = batch[g].num_tokens = pair->crowd.seqs;
            batch[g].max_q = 1;
            batch[g].max_kv = CROWD_LEN;
            batch[g].q_offsets = array_of(built[i], ATTN_FIELD_QUERY_START_LOC, 0).device;
            batch[g].kv_lens = array_of(built[i], ATTN_FIELD_SEQ_LENS_TENSOR, g).device;
            batch[g].table = table.device;
            batch[g].table_stride = table.stride;
            batch[g].table_width = (uint32_t)table.shape[1];
            batches[g] = &batch[g];
        }
        ATTN_INIT(&args);
        args.batches = batches;
        args.max_decode_query_len = 1;
        args.positions = pair->side[i].positions;
        must(attn_builder_reset(builder, &err));
        must(attn_builder_set_device(builder, &args, &err));
        must(attn_builder_build(builder, NULL, NULL, &metadata[i], &err));
    }
    compare(pair, metadata, "from the device");
    pair->same = pair->same && same_numbers(pair, &pair->side[NEAR].positions, &pair->side[FAR].positions);
    pair->on_device++;
}

/* Room for what is advanced, so that blocks are there already. */
static void reserve_ahead(struct pair *pair, uint32_t steps)
{
    struct crowd *crowd = &pair->crowd;

    for (uint32_t k = 0; k < steps; k++) {
        crowd_reserve(crowd);
        crowd_grow(crowd);
    }
    for (uint32_t i = 0; i < crowd->seqs; i++)
        crowd->seq[i].len -= steps;
}

static void one_step(struct pair *pair)
{
    struct attn_metadata *metadata[SIDES] = {NULL, NULL};
    const uint32_t came = crowd_change(&pair->crowd);

    if (came > 0)
        prompts(pair, came);
    uint32_t ahead = crowd_random(&pair->crowd, ADVANCES + 1);
    for (uint32_t i = 0; i < pair->crowd.seqs; i++)
        ahead = pair->crowd.seq[i].len + 1 + ahead > CROWD_LEN ? 0 : ahead;
    reserve_ahead(pair, 1 + ahead);
    for (uint32_t i = 0; i < SIDES; i++)
        must(crowd_decodes(&pair->crowd, &pair->side[i].lists, -1, &metadata[i], &err));
    compare(pair, metadata, "decodes");
    if (crowd_random(&pair->crowd, 2) == 0)
        change_row(pair, metadata);
    if (crowd_random(&pair->crowd, 2) == 0)
        from_device(pair, metadata);
    for (uint32_t k = 0; k < ahead && pair->same; k++)
        advance(pair, metadata);
    crowd_grow(&pair->crowd);
    pair->steps++;
}

static void test_flavour(const char *near, const char *far, uint32_t steps)
{
    struct pair *pair = calloc(1, sizeof *pair);

    if (pair == NULL)
        exit(1);
    pair->name = far;
    pair->same = true;
    side_init(&pair->side[NEAR], near);
    side_init(&pair->side[FAR], far);
    crowd_init(&pair->crowd, 4711, false, 1);
    while (pair->steps < steps && pair->same)
        one_step(pair);
    printf("# %u fields compared; %u rows changed, %u steps advanced, %u from the device\n", pair->compared,
           pair->rows, pair->advances, pair->on_device);
    check(pair->same && pair->steps == steps, "builders on the device give what those of the CPU give", far);
    check(pair->rows > 0 && pair->advances > 0 && pair->on_device > 0, "and were asked for everything", far);
    for (uint32_t i = 0; i < SIDES; i++)
        side_finish(&pair->side[i]);
    free(pair);
}

/* Arguments: steps of each flavour; a backend of the CPU and one of a GPU, else those of CUDA. */
int main(int argc, char **argv)
{
    const uint32_t steps = argc > 1 ? (uint32_t)atoi(argv[1]) : 200;

    ATTN_INIT(&err);
    if (argc > 3) {
        test_flavour(argv[2], argv[3], steps);
        return finish_checks();
    }
    test_flavour("cpu/flash-attn", "cuda/flash-attn", steps);
    test_flavour("cpu/flashinfer", "cuda/flashinfer", steps);
    return finish_checks();
}
