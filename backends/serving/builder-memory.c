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

static uint32_t cell_size(uint32_t dtype)
{
    return dtype == ATTN_INT64 ? 8 : 4;
}

/* Places an array behind those that have been placed. */
static void place(struct attn_builder_impl *b, struct attn__array *array, uint64_t capacity, uint32_t dtype,
                  uint32_t kind)
{
    array->offset = b->bytes;
    array->capacity = capacity;
    array->dtype = dtype;
    array->kind = kind;
    b->bytes += (capacity * cell_size(dtype) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void place_small(struct attn_builder_impl *b)
{
    const uint64_t n = b->params.max_seqs;

    place(b, attn__array(b, ATTN_FIELD_QUERY_START_LOC, 0), n + 1, ATTN_INT32, ATTN_VIEW_ARRAY);
    place(b, attn__array(b, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0), n, ATTN_INT32, ATTN_VIEW_ARRAY);
    place(b, &b->decode_start, n + 1, ATTN_INT32, ATTN_VIEW_ARRAY);
    place(b, &b->zeros, n, ATTN_INT32, ATTN_VIEW_ARRAY);
    for (uint32_t g = 0; g < b->params.groups; g++) {
        place(b, attn__array(b, ATTN_FIELD_SEQ_LENS_TENSOR, g), n, ATTN_INT32, ATTN_VIEW_ARRAY);
        place(b, attn__array(b, ATTN_FIELD_SEQ_START_LOC, g), n + 1, ATTN_INT32, ATTN_VIEW_ARRAY);
        if (!b->infer)
            continue;
        place(b, attn__array(b, ATTN_FIELD_PAGED_KV_INDPTR, g), n + 1, ATTN_INT32, ATTN_VIEW_ARRAY);
        place(b, attn__array(b, ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, g), n, ATTN_INT32, ATTN_VIEW_ARRAY);
        place(b, attn__array(b, ATTN_FIELD_BLOCK_TABLE_BOUND, g), n, ATTN_INT32, ATTN_VIEW_ARRAY);
    }
    if (b->cross != NULL) {
        struct attn__array *arrays = b->cross->arrays;
        place(b, &arrays[ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR], n, ATTN_INT32, ATTN_VIEW_ARRAY);
        place(b, &arrays[ATTN_FIELD_ENCODER_SEQ_START_LOC], n + 1, ATTN_INT32, ATTN_VIEW_ARRAY);
    }
    b->small_bytes = b->bytes;
}

static void place_rest(struct attn_builder_impl *b)
{
    const uint64_t n = b->params.max_seqs;

    for (uint32_t g = 0; g < b->params.groups; g++) {
        place(b, attn__array(b, ATTN_FIELD_SLOT_MAPPING, g), b->params.max_tokens, ATTN_INT64,
              ATTN_VIEW_ARRAY);
        if (b->infer)
            place(b, attn__array(b, ATTN_FIELD_PAGED_KV_INDICES, g), b->group[g].params.max_indices,
                  b->params.index_dtype, ATTN_VIEW_ARRAY);
    }
    if (b->cross != NULL)
        place(b, &b->cross->arrays[ATTN_FIELD_CROSS_SLOT_MAPPING], b->params.max_encoder_tokens, ATTN_INT64,
              ATTN_VIEW_ARRAY);
    b->array_bytes = b->bytes;
    for (uint32_t g = 0; g < b->params.groups; g++)
        place(b, attn__array(b, ATTN_FIELD_SEQ_LENS, g), n, ATTN_INT32, ATTN_VIEW_LIST);
    if (b->cross != NULL)
        place(b, &b->cross->arrays[ATTN_FIELD_ENCODER_SEQ_LENS], n, ATTN_INT32, ATTN_VIEW_LIST);
    for (uint32_t m = 0; m < 2 * b->params.modality_count; m++)
        place(b, &b->maps[m], b->params.max_map, ATTN_INT64, ATTN_VIEW_LIST);
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
    const uint64_t cell = cell_size(b->params.index_dtype), row = group->params.max_blocks * cell;
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

static int32_t make_views(struct attn_builder_impl *b, struct attn_error *err)
{
    const uint32_t groups = b->params.groups, modalities = b->params.modality_count;
    const size_t views = (size_t)(groups > modalities ? groups : modalities) * ATTN_FIELDS;
    struct attn_metadata_impl *metadata[] = {&b->whole, &b->prefill, &b->decode};

    b->views = calloc(3 * views, sizeof *b->views);
    if (b->views == NULL)
        return no_memory("views", 3 * views * sizeof *b->views, err);
    for (size_t i = 0; i < 3 * views; i++) {
        b->views[i].struct_size = (uint32_t)sizeof b->views[i];
        b->views[i].kind = ATTN_VIEW_NULL;
    }
    for (uint32_t i = 0; i < 3; i++) {
        metadata[i]->builder = b;
        metadata[i]->flavour = b->params.flavour;
        metadata[i]->groups = groups;
        metadata[i]->modalities = modalities;
        metadata[i]->views = b->views + i * views;
    }
    return ATTN_OK;
}

int32_t attn__builder_allocate(struct attn_builder_impl *b, struct attn_error *err)
{
    const uint32_t groups = b->params.groups + (b->cross != NULL ? 1u : 0u);
    const uint64_t n = b->params.max_seqs, modalities = b->params.modality_count;
    int32_t status = make_views(b, err);

    b->sequence = calloc(n, sizeof *b->sequence);
    b->maps = calloc(2 * modalities + 1, sizeof *b->maps);
    b->map_rows = calloc(modalities + 1, sizeof *b->map_rows);
    b->map_count = calloc(modalities + 1, sizeof *b->map_count);
    if (b->sequence == NULL || b->maps == NULL || b->map_rows == NULL || b->map_count == NULL)
        return no_memory("sequences", n * sizeof *b->sequence, err);
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
    free(b->maps);
    free(b->map_rows);
    free(b->map_count);
    free(b->views);
    free(b);
}
