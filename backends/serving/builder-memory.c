/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Memory of a builder. All arrays of a step lie in one allocation, so that few copies bring them to the
 * device: first those with a few elements a sequence, then those of tokens and pages, then those that stay on
 * the host.
 */
#include <stdlib.h>

#include "builder-memory.h"
#include "fail.h"

#define ALIGNMENT UINT64_C(64)

/* Places an array behind those that have been placed. */
static void place(struct attn_builder_impl *b, struct attn_step_array *array, uint64_t capacity,
                  uint32_t dtype)
{
    b->places[b->place_count++] =
        (struct attn__array_place){.array = array, .offset = b->bytes, .capacity = capacity, .dtype = dtype};
    b->bytes += (capacity * attn__index_size(dtype) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void place_small(struct attn_builder_impl *b)
{
    const uint64_t n = b->params.max_seqs;
    struct attn_step *step = &b->whole.step;

    place(b, &step->query_starts, n + 1, ATTN_INT32);
    place(b, &step->context_lens, n, ATTN_INT32);
    place(b, &step->decode_starts, n + 1, ATTN_INT32);
    place(b, &b->zeros, n, ATTN_INT32);
    for (uint32_t g = 0; g < b->params.groups; g++) {
        struct attn_step_group *group = &step->group[g];
        place(b, &group->seq_lens, n, ATTN_INT32);
        place(b, &group->seq_starts, n + 1, ATTN_INT32);
        if (b->shard.world != 0)
            place(b, &group->rank_lens, n, ATTN_INT32);
        if (!b->flavour->pages)
            continue;
        place(b, &group->page_starts, n + 1, ATTN_INT32);
        place(b, &group->last_page_lens, n, ATTN_INT32);
        place(b, &group->pages_in_use, n, ATTN_INT32);
    }
    if (b->cross != NULL) {
        place(b, &step->encoder.seq_lens, n, ATTN_INT32);
        place(b, &step->encoder.seq_starts, n + 1, ATTN_INT32);
    }
    b->small_bytes = b->bytes;
}

static void place_rest(struct attn_builder_impl *b)
{
    const uint64_t n = b->params.max_seqs;
    struct attn_step *step = &b->whole.step;

    for (uint32_t g = 0; g < b->params.groups; g++) {
        place(b, &step->group[g].slots, b->params.max_tokens, ATTN_INT64);
        if (b->flavour->pages)
            place(b, &step->group[g].page_indices, b->group[g].params.max_indices, b->params.index_dtype);
    }
    if (b->cross != NULL && b->cross->params.max_blocks > 0)
        place(b, &step->encoder.slots, b->params.max_encoder_tokens, ATTN_INT64);
    b->array_bytes = b->bytes;
    for (uint32_t g = 0; g < b->params.groups; g++)
        place(b, &step->group[g].seq_lens_list, n, ATTN_INT32);
    if (b->cross != NULL)
        place(b, &step->encoder.seq_lens_list, n, ATTN_INT32);
    for (uint32_t m = 0; m < b->params.modality_count; m++) {
        place(b, &step->map[m].sources, b->params.max_map, ATTN_INT64);
        place(b, &step->map[m].destinations, b->params.max_map, ATTN_INT64);
    }
}

static int32_t no_memory(const char *name, uint64_t size, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_MEMORY, 0, name, "no memory for %s of %llu bytes", name,
                      (unsigned long long)size);
}

/* Memory that kernels read. */
static int32_t device_memory(struct attn_builder_impl *b, uint64_t size, struct attn_buffer *out,
                             struct attn_error *err)
{
    if (b->memory != NULL)
        return b->memory->alloc(b->backend, size, out, err);
    out->byte_offset = 0;
    return posix_memalign(&out->data, ALIGNMENT, size) == 0 ? ATTN_OK : no_memory("arrays", size, err);
}

static void device_free(struct attn_builder_impl *b, const struct attn_buffer *buffer)
{
    if (buffer->data == NULL)
        return;
    if (b->memory != NULL)
        b->memory->free(b->backend, buffer);
    else
        free(buffer->data);
}

static int32_t make_table(struct attn_builder_impl *b, struct attn__group *group, struct attn_error *err)
{
    struct attn__table *table = &group->table;
    const uint64_t cell = attn__index_size(b->params.index_dtype), row = group->params.max_blocks * cell;
    const uint64_t stride = group->params.table_stride != 0 ? (uint64_t)group->params.table_stride : row;
    const uint64_t size = stride * b->params.max_seqs;
    int32_t status = ATTN_OK;

    table->rows = b->params.max_seqs;
    table->width = group->params.max_blocks;
    table->dtype = b->params.index_dtype;
    table->direct = b->direct;
    /* A view has one stride for host and device. */
    table->stride = table->device_stride = (int64_t)stride;
    table->device = group->params.table.buffer;
    table->row = calloc(table->rows, sizeof *table->row);
    table->dirty = calloc(table->rows, sizeof *table->dirty);
    if (table->row == NULL || table->dirty == NULL)
        return no_memory("rows", table->rows * sizeof *table->row, err);
    if (table->device.data == NULL) {
        status = device_memory(b, size, &table->device, err);
        group->own_table = status == ATTN_OK;
    }
    if (status != ATTN_OK)
        return status;
    if (b->direct) {
        table->cells = (char *)table->device.data + table->device.byte_offset;
    } else {
        table->cells = calloc(1, size);
        group->own_cells = table->cells != NULL;
        group->staged = b->bytes;
        b->bytes += size;
    }
    if (table->cells == NULL)
        return no_memory("block table", size, err);
    for (uint32_t i = 0; i < table->rows; i++) {
        memset(table->cells + (int64_t)i * table->stride, 0, row);
        if (!b->direct) {
            table->row[i].dirty_to = table->width;
            table->dirty[table->dirty_count++] = i;
        }
    }
    return ATTN_OK;
}

static int32_t make_blocks(struct attn_builder_impl *b, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    b->blocks = calloc(b->params.steps, sizeof *b->blocks);
    if (b->blocks == NULL)
        return no_memory("steps", b->params.steps * sizeof *b->blocks, err);
    if (b->direct) {
        /* Kernels read the host's arrays and are done when a call returns, so that all steps share one block.
         */
        status = device_memory(b, b->bytes, &b->device, err);
        b->blocks[0] = status == ATTN_OK ? (char *)b->device.data + b->device.byte_offset : NULL;
        if (status == ATTN_OK)
            memset(b->blocks[0], 0, b->small_bytes);
        b->params.steps = 1;
        return status;
    }
    b->pinned = b->memory->alloc_pinned != NULL && b->memory->free_pinned != NULL;
    for (uint32_t i = 0; i < b->params.steps && status == ATTN_OK; i++) {
        void *block = NULL;
        if (b->pinned)
            status = b->memory->alloc_pinned(b->backend, b->bytes, &block, err);
        else if (posix_memalign(&block, ALIGNMENT, b->bytes) != 0)
            status = no_memory("arrays", b->bytes, err);
        b->blocks[i] = status == ATTN_OK ? block : NULL;
        if (status == ATTN_OK)
            memset(block, 0, b->small_bytes);
    }
    return status == ATTN_OK ? device_memory(b, b->array_bytes, &b->device, err) : status;
}

/* The step and its parts. */
static int32_t make_steps(struct attn_builder_impl *b, struct attn_error *err)
{
    const uint32_t groups = b->params.groups, modalities = b->params.modality_count;
    struct attn_metadata_impl *metadata[] = {&b->whole, &b->prefill, &b->decode};
    const size_t places = 16 + 10 * (size_t)groups + 2 * (size_t)modalities;

    b->step_groups = calloc((size_t)3 * groups, sizeof *b->step_groups);
    b->step_maps = calloc((size_t)3 * modalities + 1, sizeof *b->step_maps);
    b->map_rows = calloc(modalities + (size_t)1, sizeof *b->map_rows);
    b->places = calloc(places, sizeof *b->places);
    if (b->step_groups == NULL || b->step_maps == NULL || b->map_rows == NULL || b->places == NULL)
        return no_memory("step", places * sizeof *b->places, err);
    for (uint32_t i = 0; i < 3; i++) {
        metadata[i]->builder = b;
        metadata[i]->flavour = b->flavour;
        metadata[i]->part = i;
        metadata[i]->step =
            (struct attn_step){.groups = groups,
                               .modalities = modalities,
                               .heads = b->params.heads,
                               .kv_heads = b->params.kv_heads,
                               .head_dim = b->params.head_dim,
                               .kv_dtype = b->params.kv_dtype,
                               .q_dtype = b->params.q_dtype,
                               .cp_rank = b->params.cp_rank,
                               .cp_world = b->params.cp_world,
                               .cp_interleave = b->params.cp_interleave,
                               .encoder = {.max_len = ATTN_STEP_NONE, .num_tokens = ATTN_STEP_NONE},
                               .group = b->step_groups + (size_t)i * groups,
                               .map = b->step_maps + (size_t)i * modalities};
    }
    for (uint32_t g = 0; g < groups; g++) {
        b->group[g].step = &b->whole.step.group[g];
        for (uint32_t i = 0; i < 3; i++)
            metadata[i]->step.group[g].block = b->group[g].params.block;
    }
    return ATTN_OK;
}

int32_t attn__builder_allocate(struct attn_builder_impl *b, struct attn_error *err)
{
    const uint32_t groups = b->params.groups + (b->cross != NULL ? 1u : 0u);
    const uint64_t n = b->params.max_seqs;
    int32_t status = make_steps(b, err);

    b->sequence = calloc(n, sizeof *b->sequence);
    if (status == ATTN_OK && b->sequence == NULL)
        status = no_memory("sequences", n * sizeof *b->sequence, err);
    for (uint32_t g = 0; g < groups && status == ATTN_OK; g++) {
        b->group[g].members = calloc(n, sizeof *b->group[g].members);
        if (b->group[g].members == NULL)
            status = no_memory("members", n * sizeof *b->group[g].members, err);
    }
    if (status != ATTN_OK)
        return status;
    place_small(b);
    place_rest(b);
    for (uint32_t g = 0; g < groups && status == ATTN_OK; g++)
        if (b->group[g].params.max_blocks > 0)
            status = make_table(b, &b->group[g], err);
    return status == ATTN_OK ? make_blocks(b, err) : status;
}

void attn__builder_destroy(struct attn_builder_impl *b)
{
    const uint32_t groups =
        b != NULL && b->group != NULL ? b->params.groups + (b->cross != NULL ? 1u : 0u) : 0;

    if (b == NULL)
        return;
    for (uint32_t g = 0; g < groups; g++) {
        struct attn__group *group = &b->group[g];
        if (group->own_table)
            device_free(b, &group->table.device);
        if (group->own_cells)
            free(group->table.cells);
        free(group->table.row);
        free(group->table.dirty);
        free(group->members);
    }
    for (uint32_t i = 0; b->blocks != NULL && !b->direct && i < b->params.steps; i++)
        if (b->blocks[i] != NULL && b->pinned)
            b->memory->free_pinned(b->backend, b->blocks[i]);
        else
            free(b->blocks[i]);
    device_free(b, &b->device);
    free(b->blocks);
    free(b->group);
    free(b->sequence);
    free(b->map_rows);
    free(b->step_maps);
    free(b->step_groups);
    free(b->places);
    free(b);
}
