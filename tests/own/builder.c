/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The builder of own/mystyle: keeps one packed record per sequence instead of arrays of starts and lengths.
 */
#include "own.h"

struct attn_builder_impl {
    uint32_t max_seqs, max_tokens, block;
    uint32_t first_row;     /* of the block table, of the first sequence */
    uint32_t count, tokens; /* of the step without padding */
    struct attn_metadata_impl metadata;
};

/* ---------------------------------------------------------------- metadata */

int32_t own_metadata_init(struct attn_metadata_impl *metadata, uint32_t seqs, uint32_t tokens, uint32_t width,
                          struct attn_error *err)
{
    *metadata = (struct attn_metadata_impl){.width = width};
    metadata->records = calloc(seqs, sizeof *metadata->records);
    metadata->slots = calloc(tokens, sizeof *metadata->slots);
    metadata->blocks = calloc(seqs, sizeof *metadata->blocks * width);
    return metadata->records != NULL && metadata->slots != NULL && metadata->blocks != NULL
               ? ATTN_OK
               : own_fail(err, ATTN_E_MEMORY, "metadata", "no memory for %u sequences", seqs);
}

void own_metadata_finish(struct attn_metadata_impl *metadata)
{
    free(metadata->records);
    free(metadata->slots);
    free(metadata->blocks);
}

void own_metadata_pad(struct attn_metadata_impl *metadata, uint32_t pad)
{
    for (uint32_t i = 0; i < pad; i++) {
        metadata->records[metadata->count++] =
            (struct own_record){{0, 1}, 0, metadata->tokens, metadata->blocks};
        metadata->slots[metadata->tokens++] = -1;
    }
}

static void show(struct attn_view *out, uint32_t dtype, uint64_t rows, uint64_t columns, int64_t stride,
                 void *at)
{
    out->kind = ATTN_VIEW_ARRAY;
    out->dtype = dtype;
    out->rank = columns > 0 ? 2 : 1;
    out->shape[0] = rows;
    out->shape[1] = columns;
    out->stride = stride;
    out->host = out->device.data = at;
}

int32_t own_metadata_get(const struct attn_metadata_impl *m, uint32_t field, uint32_t index,
                         struct attn_view *out, struct attn_error *err)
{
    const struct {
        uint32_t field, value;
    } numbers[] = {{ATTN_FIELD_NUM_PREFILLS, m->prompts},
                   {ATTN_FIELD_NUM_PREFILL_TOKENS, m->prompt_tokens},
                   {ATTN_FIELD_NUM_DECODE_TOKENS, m->tokens - m->prompt_tokens}};

    if (field == 0 || field >= ATTN_FIELDS || index > 0)
        return own_fail(err, ATTN_E_INVALID, index > 0 ? "index" : "field",
                        "it is %u of field %u; fields 1 to %d of group 0 are accepted", index, field,
                        ATTN_FIELDS - 1);
    out->kind = ATTN_VIEW_NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].field == field) {
            out->kind = ATTN_VIEW_NUMBER;
            out->value = numbers[i].value;
        }
    if (field == ATTN_FIELD_SLOT_MAPPING)
        show(out, ATTN_INT64, m->tokens, 0, 0, m->slots);
    else if (field == ATTN_FIELD_SEQ_LENS_TENSOR && m->count > 0) /* a column of the records */
        show(out, ATTN_INT32, m->count, 1, sizeof *m->records, &m->records->len);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- builder */

static void destroy(struct attn_builder_impl *b)
{
    own_metadata_finish(&b->metadata);
    free(b);
}

static int32_t create(const struct attn_serving_host *host, const struct attn_builder_params *p,
                      struct attn_builder_impl **out, struct attn_error *err)
{
    const struct attn_builder_group *group = p->group;

    (void)host; /* the memory of a shelf is the host's: nothing is allocated on it or copied to it */
    if (p->flavour != 0 || p->groups > 1 || p->cross != NULL || p->max_encoder_tokens > 0 ||
        p->modality_count > 0)
        return own_fail(err, ATTN_E_UNSUPPORTED, p->flavour != 0 ? "flavour" : "groups",
                        "one cache group of a decoder of text, with flavour 0, is served");
    if (group == NULL || group->block == 0 || group->max_blocks == 0 || p->max_seqs == 0 ||
        p->max_tokens == 0)
        return own_fail(err, ATTN_E_INVALID, group == NULL ? "group" : "max_seqs",
                        "a group with blocks, and at least 1 sequence and token, are accepted");
    if ((group->given & ATTN_GIVEN_WINDOW) != 0 || group->table.buffer.data != NULL)
        return own_fail(err, ATTN_E_UNSUPPORTED, "group",
                        "no window and no table of the engine's are served");
    struct attn_builder_impl *b = calloc(1, sizeof *b);
    if (b == NULL)
        return own_fail(err, ATTN_E_MEMORY, "builder", "out of memory");
    b->max_seqs = p->max_seqs;
    b->max_tokens = p->max_tokens;
    b->block = group->block;
    const int32_t status =
        own_metadata_init(&b->metadata, p->max_seqs, p->max_tokens, group->max_blocks, err);
    if (status != ATTN_OK)
        destroy(b);
    else
        *out = b;
    return status;
}

static int32_t reset(struct attn_builder_impl *b, struct attn_error *err)
{
    struct attn_metadata_impl *m = &b->metadata;

    (void)err;
    m->graph = m->count = m->prompts = m->prompt_tokens = m->tokens = 0;
    b->first_row = b->count = b->tokens = 0;
    return ATTN_OK;
}

/* Cells of a row of the block table, which stay from step to step; what is no page's number becomes -1. */
static void take_blocks(struct attn_builder_impl *b, uint32_t row, uint32_t first, const int64_t *blocks,
                        uint32_t count)
{
    int32_t *cells = b->metadata.blocks + (size_t)row * b->metadata.width + first;

    for (uint32_t i = 0; i < count; i++)
        cells[i] = blocks[i] >= 0 && blocks[i] <= INT32_MAX ? (int32_t)blocks[i] : -1;
}

static void find_slots(const struct attn_builder_impl *b, const struct own_record *r)
{
    for (int32_t i = 0; i < r->starts[1]; i++) {
        const uint32_t key = (uint32_t)(r->len - r->starts[1] + i);
        const int64_t page = r->blocks[key / b->block];
        b->metadata.slots[r->first + (uint32_t)i] = page < 0 ? -1 : page * b->block + key % b->block;
    }
}

static int32_t check_add(const struct attn_builder_impl *b, const struct attn_builder_add_args *args,
                         uint32_t row, struct attn_error *err)
{
    const struct attn_metadata_impl *m = &b->metadata;
    const struct attn_blocks *blocks = args->blocks;

    if (blocks == NULL || (blocks->kind == ATTN_BLOCKS_LIST && blocks->blocks == NULL && blocks->count > 0))
        return own_fail(err, ATTN_E_INVALID, "blocks", "it is NULL; the sequence's list is needed");
    if ((blocks->kind != ATTN_BLOCKS_LIST && blocks->kind != ATTN_BLOCKS_ROW) || blocks->window_blocks > 0 ||
        args->cross != NULL || args->encoder_len > 0 || args->map_count > 0)
        return own_fail(err, ATTN_E_UNSUPPORTED, "blocks",
                        "a decoder's whole list of blocks alone is served");
    if (row >= b->max_seqs || args->query_len > b->max_tokens - m->tokens || blocks->count > m->width)
        return own_fail(err, ATTN_E_SIZE, "args",
                        "row %u, %u tokens, %u blocks; %u rows, %u tokens, %u blocks fit", row,
                        args->query_len, blocks->count, b->max_seqs, b->max_tokens - m->tokens, m->width);
    if (args->query_len == 0 || row != b->first_row + m->count)
        return own_fail(err, ATTN_E_INVALID, args->query_len == 0 ? "query_len" : "row",
                        "row %u with %u tokens; row %u with at least 1 is accepted", row, args->query_len,
                        b->first_row + m->count);
    if ((uint64_t)args->context_len + args->query_len > (uint64_t)blocks->count * b->block ||
        args->context_len > INT32_MAX - args->query_len)
        return own_fail(err, ATTN_E_INVALID, "blocks", "%u blocks of %u do not hold %u + %u tokens",
                        blocks->count, b->block, args->context_len, args->query_len);
    return args->prompt == 0 || m->prompts == m->count
               ? ATTN_OK
               : own_fail(err, ATTN_E_INVALID, "prompt", "a prompt follows a decode; add prompts first");
}

static int32_t add(struct attn_builder_impl *b, const struct attn_builder_add_args *args,
                   struct attn_error *err)
{
    struct attn_metadata_impl *m = &b->metadata;
    const uint32_t row = (args->given & ATTN_GIVEN_ROW) != 0 ? args->row : b->first_row + m->count;
    const uint32_t before = b->first_row;

    b->first_row = m->count == 0 ? row : before;
    const int32_t status = check_add(b, args, row, err);
    if (status != ATTN_OK) {
        b->first_row = before;
        return status;
    }
    if (args->blocks->kind == ATTN_BLOCKS_LIST)
        take_blocks(b, row, 0, args->blocks->blocks, args->blocks->count);
    struct own_record *r = &m->records[m->count++];
    *r = (struct own_record){.starts = {0, (int32_t)args->query_len},
                             .len = (int32_t)(args->context_len + args->query_len),
                             .first = m->tokens,
                             .blocks = m->blocks + (size_t)row * m->width};
    m->tokens += args->query_len;
    m->prompts += args->prompt;
    m->prompt_tokens += args->prompt * args->query_len;
    b->count = m->count;
    b->tokens = m->tokens;
    find_slots(b, r);
    return ATTN_OK;
}

static int32_t set_row(struct attn_builder_impl *b, const struct attn_builder_row_args *args,
                       struct attn_error *err)
{
    const struct attn_metadata_impl *m = &b->metadata;

    if (args->group > 0 || args->row >= b->max_seqs || args->first > m->width ||
        args->count > m->width - args->first || (args->count > 0 && args->blocks == NULL))
        return own_fail(err, ATTN_E_INVALID, "row",
                        "group %u, row %u, %u cells from %u; %u rows of %u are there", args->group, args->row,
                        args->count, args->first, b->max_seqs, m->width);
    take_blocks(b, args->row, args->first, args->blocks, args->count);
    if (args->row >= b->first_row && args->row - b->first_row < b->count)
        find_slots(b, &m->records[args->row - b->first_row]);
    return ATTN_OK;
}

static int32_t build(struct attn_builder_impl *b, const struct attn_builder_build_args *args, void *stream,
                     struct attn_metadata_impl **out, struct attn_error *err)
{
    struct attn_metadata_impl *m = &b->metadata;

    (void)stream;
    if (args->graph == 1 && m->prompts > 0)
        return own_fail(err, ATTN_E_INVALID, "graph", "the step has %u prompts; decodes alone are captured",
                        m->prompts);
    if (args->pad > b->max_seqs - b->count || args->pad > b->max_tokens - b->tokens)
        return own_fail(err, ATTN_E_SIZE, "pad", "it is %u behind %u of %u sequences", args->pad, b->count,
                        b->max_seqs);
    m->count = b->count; /* an earlier build may have padded */
    m->tokens = b->tokens;
    own_metadata_pad(m, args->graph == 1 ? args->pad : 0);
    m->graph = args->graph;
    m->step++;
    *out = m;
    return ATTN_OK;
}

/* begin builder */
const struct attn_builder_table own_builder = {
    .struct_size = sizeof own_builder,
    ATTN_BUILDER_SIZES,
    .create = create,
    .destroy = destroy,
    .reset = reset,
    .add = add,
    .set_row = set_row,
    .build = build,
    .get = own_metadata_get, /* part, advance, serialise, restore and set_device are left out */
};
/* end builder */
