/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Copies a step to a device with memory of its own: the small arrays by one copy, the large ones by one each,
 * and the changed cells of the block tables row by row. The copies read the host memory of this step, which
 * is written again only after `steps` further steps.
 */
#include "builder.h"

static int32_t copy(struct attn_builder_impl *b, const struct attn_buffer *to, char *from, uint64_t size,
                    void *stream, struct attn_error *err)
{
    const struct attn_buffer source = {from, 0};

    return size == 0 ? ATTN_OK
                     : b->memory->copy(b->backend, to, &source, size, ATTN_COPY_TO_DEVICE, stream, err);
}

static int32_t flush_array(struct attn_builder_impl *b, const struct attn_step_array *array, void *stream,
                           struct attn_error *err)
{
    return array->dtype != 0 ? copy(b, &array->device, array->host,
                                    array->count * attn__index_size(array->dtype), stream, err)
                             : ATTN_OK;
}

static int32_t flush_table(struct attn_builder_impl *b, struct attn__group *group, void *stream,
                           struct attn_error *err)
{
    struct attn__table *table = &group->table;
    const uint32_t size = table->dtype == ATTN_INT64 ? 8 : 4;
    int32_t status = ATTN_OK;

    while (table->dirty_count > 0 && status == ATTN_OK) {
        const uint32_t row = table->dirty[table->dirty_count - 1];
        struct attn__table_row *state = &table->row[row];
        const uint64_t cell = (uint64_t)state->dirty_from * size;
        const uint64_t bytes = (uint64_t)(state->dirty_to - state->dirty_from) * size;
        const uint64_t at = (uint64_t)row * (uint64_t)table->stride + cell;
        struct attn_buffer to = table->device;
        char *staged = b->blocks[b->copy] + group->staged + at;
        to.byte_offset += (uint64_t)row * (uint64_t)table->device_stride + cell;
        memcpy(staged, table->cells + at, bytes);
        status = copy(b, &to, staged, bytes, stream, err);
        if (status == ATTN_OK) {
            state->dirty_from = state->dirty_to = 0;
            table->dirty_count--;
        }
    }
    return status;
}

int32_t attn__builder_flush_tables(struct attn_builder_impl *b, void *stream, struct attn_error *err)
{
    const uint32_t groups = b->params.groups + (b->cross != NULL ? 1u : 0u);
    int32_t status = ATTN_OK;

    for (uint32_t g = 0; g < groups && status == ATTN_OK; g++)
        status = flush_table(b, &b->group[g], stream, err);
    return status;
}

int32_t attn__builder_flush(struct attn_builder_impl *b, void *stream, struct attn_error *err)
{
    int32_t status = copy(b, &b->device, b->blocks[b->copy], b->small_bytes, stream, err);

    for (uint32_t g = 0; g < b->params.groups && status == ATTN_OK; g++) {
        status = flush_array(b, &b->group[g].step->slots, stream, err);
        if (status == ATTN_OK)
            status = flush_array(b, &b->group[g].step->page_indices, stream, err);
    }
    if (status == ATTN_OK)
        status = flush_array(b, &b->whole.step.encoder.slots, stream, err);
    return status == ATTN_OK ? attn__builder_flush_tables(b, stream, err) : status;
}
