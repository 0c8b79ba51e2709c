/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Points the views of a step at the builder's arrays. */
#include "builder.h"

/* The first `count` elements of an array. */
static void show_array(const struct attn_builder_impl *b, struct attn_view *view,
                       const struct attn__array *array, uint64_t count)
{
    view->kind = array->kind;
    view->dtype = array->dtype;
    view->rank = 1;
    view->shape[0] = count;
    view->host = array->host;
    view->device.data = NULL;
    view->device.byte_offset = 0;
    if (array->kind == ATTN_VIEW_ARRAY && !b->host_only) {
        view->device.data = b->device.data;
        view->device.byte_offset = b->device.byte_offset + array->offset;
    }
}

static void show_table(const struct attn_builder_impl *b, struct attn_view *view,
                       const struct attn__table *table, uint32_t first, uint32_t rows, uint32_t width)
{
    view->kind = ATTN_VIEW_ARRAY;
    view->dtype = table->dtype;
    view->rank = 2;
    view->shape[0] = rows;
    view->shape[1] = width;
    view->stride = table->device_stride;
    view->host = table->cells + (int64_t)first * table->stride;
    view->device = (struct attn_buffer){NULL, 0};
    if (b->host_only)
        return;
    view->device = table->device;
    view->device.byte_offset += (uint64_t)first * (uint64_t)table->device_stride;
}

static bool has(const struct attn_builder_impl *b, uint32_t field)
{
    return (attn__field_infos[field].flavours & ATTN__IN(b->params.flavour)) != 0;
}

static void show_number(struct attn_builder_impl *b, uint32_t field, int64_t value)
{
    if (has(b, field))
        attn__set_number(attn__field(&b->whole, field, 0), value);
}

static void show_numbers(struct attn_builder_impl *b, uint32_t graph, uint32_t pad)
{
    const uint32_t tokens = b->prompt_tokens + b->decode_tokens + pad;
    const uint32_t decodes = graph == 0             ? b->decode_tokens
                             : b->flash || b->infer ? tokens - b->prompt_tokens
                                                    : tokens;

    show_number(b, ATTN_FIELD_NUM_PREFILLS, b->prefills);
    show_number(b, ATTN_FIELD_NUM_PREFILL_TOKENS, b->prompt_tokens);
    show_number(b, ATTN_FIELD_NUM_DECODE_TOKENS, decodes);
    show_number(b, ATTN_FIELD_MAX_PREFILL_SEQ_LEN, b->max_prefill);
    show_number(b, ATTN_FIELD_USE_CUDA_GRAPH, graph);
    show_number(b, ATTN_FIELD_MAX_QUERY_LEN, b->max_q);
    const uint32_t decode_q = b->seqs > b->prefills ? b->max_decode_q : 1;
    if (b->flash)
        show_number(b, ATTN_FIELD_MAX_DECODE_QUERY_LEN, decode_q);
    show_number(b, ATTN_FIELD_DECODE_QUERY_LEN, decode_q);
    show_number(b, ATTN_FIELD_NUM_QO_HEADS, b->params.heads);
    show_number(b, ATTN_FIELD_NUM_KV_HEADS, b->params.kv_heads);
    show_number(b, ATTN_FIELD_HEAD_DIM, b->params.head_dim);
    show_number(b, ATTN_FIELD_DATA_TYPE, b->params.kv_dtype);
    show_number(b, ATTN_FIELD_Q_DATA_TYPE, b->params.q_dtype);
    show_number(b, ATTN_FIELD_IS_PROFILE_RUN, b->profile ? 1 : 0);
}

static void show_group(struct attn_builder_impl *b, uint32_t g, uint32_t graph, uint32_t pad, uint32_t rows)
{
    const struct attn__group *group = &b->group[g];
    const uint64_t seqs = b->seqs + pad, paged = group->paged + pad;
    const uint32_t width = graph == 1 ? group->params.graph_blocks : group->longest;
    const struct {
        uint32_t field;
        uint64_t count;
    } arrays[] = {{ATTN_FIELD_SLOT_MAPPING, group->slots + (uint64_t)pad},
                  {ATTN_FIELD_SEQ_LENS, seqs},
                  {ATTN_FIELD_SEQ_LENS_TENSOR, seqs},
                  {ATTN_FIELD_SEQ_START_LOC, seqs + 1},
                  {ATTN_FIELD_PAGED_KV_INDPTR, paged + 1},
                  {ATTN_FIELD_PAGED_KV_LAST_PAGE_LEN, paged},
                  {ATTN_FIELD_BLOCK_TABLE_BOUND, paged},
                  {ATTN_FIELD_PAGED_KV_INDICES, group->total_blocks}};

    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        if (has(b, arrays[i].field))
            show_array(b, attn__field(&b->whole, arrays[i].field, g), &group->arrays[arrays[i].field],
                       arrays[i].count);
    show_table(b, attn__field(&b->whole, ATTN_FIELD_BLOCK_TABLES, g), &group->table, b->first_row, rows,
               width);
    if (has(b, ATTN_FIELD_MAX_DECODE_SEQ_LEN))
        attn__set_number(attn__field(&b->whole, ATTN_FIELD_MAX_DECODE_SEQ_LEN, g), group->max_decode);
    if (!b->infer)
        return;
    attn__set_number(attn__field(&b->whole, ATTN_FIELD_PAGE_SIZE, g), group->params.block);
    memset(group->arrays[ATTN_FIELD_BLOCK_TABLE_BOUND].host, 0, paged * sizeof(int32_t));
}

static void show_encoder(struct attn_builder_impl *b, uint32_t graph, uint32_t pad)
{
    struct attn_metadata_impl *m = &b->whole;
    const struct attn__group *group = b->cross;
    const uint64_t seqs = b->seqs + pad;
    const uint32_t width = b->prefills == b->seqs ? 0
                           : graph == 1           ? group->params.graph_blocks
                                                  : group->longest;
    const int32_t *starts =
        (const int32_t *)(const void *)group->arrays[ATTN_FIELD_ENCODER_SEQ_START_LOC].host;

    show_array(b, attn__field(m, ATTN_FIELD_ENCODER_SEQ_LENS, 0), &group->arrays[ATTN_FIELD_ENCODER_SEQ_LENS],
               seqs);
    show_array(b, attn__field(m, ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR, 0),
               &group->arrays[ATTN_FIELD_ENCODER_SEQ_LENS_TENSOR], seqs);
    show_array(b, attn__field(m, ATTN_FIELD_ENCODER_SEQ_START_LOC, 0),
               &group->arrays[ATTN_FIELD_ENCODER_SEQ_START_LOC], seqs + 1);
    show_number(b, ATTN_FIELD_MAX_ENCODER_SEQ_LEN, b->max_encoder == 0 && pad > 0 ? 1 : b->max_encoder);
    show_number(b, ATTN_FIELD_NUM_ENCODER_TOKENS, starts[seqs]);
    if (group->params.max_blocks == 0)
        return;
    show_array(b, attn__field(m, ATTN_FIELD_CROSS_SLOT_MAPPING, 0),
               &group->arrays[ATTN_FIELD_CROSS_SLOT_MAPPING], group->slots);
    show_table(b, attn__field(m, ATTN_FIELD_CROSS_BLOCK_TABLES, 0), &group->table, b->first_row,
               (uint32_t)seqs, width);
}

/* Prompts whose blocks no row shows. FlashInfer has none: its page indices have the blocks. */
static uint32_t count_prefills_without_table(const struct attn_builder_impl *b)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < b->prefills && !b->infer && !b->on_device; i++)
        count += b->group->members[i].shown == ATTN__SHOWN_NONE ||
                 b->group->members[i].shown == ATTN__SHOWN_ON_PREFIX_HIT;
    return count;
}

void attn__builder_show(struct attn_builder_impl *b, const struct attn_builder_build_args *args,
                        uint32_t rows)
{
    struct attn_metadata_impl *m = &b->whole;

    m->seqs = b->seqs + args->pad;
    m->queries = b->seqs;
    m->prefills = b->prefills;
    m->prompt_tokens = b->prompt_tokens;
    m->tokens = b->prompt_tokens + b->decode_tokens + args->pad;
    m->first_row = b->first_row;
    m->max_q = b->max_q;
    m->graph = args->graph;
    m->prefills_without_table = count_prefills_without_table(b);
    show_numbers(b, args->graph, args->pad);
    show_array(b, attn__field(m, ATTN_FIELD_QUERY_START_LOC, 0),
               attn__array(b, ATTN_FIELD_QUERY_START_LOC, 0), (uint64_t)b->seqs + 1);
    if (has(b, ATTN_FIELD_CONTEXT_LENS_TENSOR))
        show_array(b, attn__field(m, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0),
                   attn__array(b, ATTN_FIELD_CONTEXT_LENS_TENSOR, 0), b->seqs);
    for (uint32_t g = 0; g < b->params.groups; g++)
        show_group(b, g, args->graph, args->pad, rows);
    if (b->cross != NULL)
        show_encoder(b, args->graph, args->pad);
    for (uint32_t i = 0; i < b->params.modality_count; i++) {
        show_array(b, attn__field(m, ATTN_FIELD_MULTI_MODAL_SOURCES, i), &b->maps[2 * i], b->map_count[i]);
        show_array(b, attn__field(m, ATTN_FIELD_MULTI_MODAL_DESTINATIONS, i), &b->maps[2 * i + 1],
                   b->map_count[i]);
    }
}
