/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The builder of own/mystyle: keeps one packed record per sequence instead of arrays of starts and lengths.
 */
#include <stdbool.h>

#include "own.h"

struct attn_builder_impl {
    uint32_t max_seqs, max_tokens;
    uint32_t block[OWN_GROUPS];
    uint32_t first_row;     /* of the block tables, of the first sequence */
    uint32_t count, tokens; /* of the step without padding */
    struct attn_metadata_impl metadata;
};

/* ---------------------------------------------------------------- metadata */

int32_t own_metadata_init(struct attn_metadata_impl *metadata, const struct attn_builder_group *groups,
                          uint32_t count, uint32_t seqs, uint32_t tokens, struct attn_error *err)
{
    bool good;

    *metadata = (struct attn_metadata_impl){.groups = count};
    metadata->records = calloc(seqs, sizeof *metadata->records);
    good = metadata->records != NULL;
    for (uint32_t g = 0; g < count; g++) {
        struct own_group *group = &metadata->group[g];
        group->width = groups[g].max_blocks;
        group->blocks = calloc(seqs, sizeof *group->blocks * group->width);
        group->slots = calloc(tokens, sizeof *group->slots);
        good = good && group->blocks != NULL && group->slots != NULL;
    }
    return good ? ATTN_OK : own_fail(err, ATTN_E_MEMORY, "metadata", "no memory for %u sequences", seqs);
}

void own_metadata_finish(struct attn_metadata_impl *metadata)
{
    free(metadata->records);
    for (uint32_t g = 0; g < metadata->groups; g++) {
        free(metadata->group[g].blocks);
        free(metadata->group[g].slots);
    }
}

void own_metadata_pad(struct attn_metadata_impl *metadata, uint32_t pad)
{
    for (uint32_t i = 0; i < pad; i++) {
        metadata->records[metadata->count++] = (struct own_record){{0, 1}, 0, metadata->tokens, 0};
        for (uint32_t g = 0; g < metadata->groups; g++)
            metadata->group[g].slots[metadata->tokens] = -1;
        metadata->tokens++;
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

    if (field == 0 || field >= ATTN_FIELDS || index >= m->groups)
        return own_fail(err, ATTN_E_INVALID, index >= m->groups ? "index" : "field",
                        "field %u of group %u; fields 1 to %d of %u groups are accepted", field, index,
                        ATTN_FIELDS - 1, m->groups);
    out->kind = ATTN_VIEW_NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].field == field) {
            out->kind = ATTN_VIEW_NUMBER;
            out->value = numbers[i].value;
        }
    if (field == ATTN_FIELD_SLOT_MAPPING)
        show(out, ATTN_INT64, m->tokens, 0, 0, m->group[index].slots);
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

static int32_t check_group(const struct attn_builder_group *group, struct attn_error *err)
{
    if (group->block == 0 || group->max_blocks == 0)
        return own_fail(err, ATTN_E_INVALID, group->block == 0 ? "block" : "max_blocks",
                        "block is %u and max_blocks %u; at least 1 is accepted", group->block,
                        group->max_blocks);
    return (group->given & ATTN_GIVEN_WINDOW) == 0 && group->table.buffer.data == NULL
               ? ATTN_OK
               : own_fail(err, ATTN_E_UNSUPPORTED, "group",
                          "no window and no table of the engine's are served");
}

static int32_t check_params(const struct attn_builder_params *p, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (p->flavour != 0 || p->groups > OWN_GROUPS || p->max_encoder_tokens > 0 || p->modality_count > 0)
        return own_fail(err, ATTN_E_UNSUPPORTED, p->flavour != 0 ? "flavour" : "groups",
                        "%d cache groups of a decoder of text, with flavour 0, are served", OWN_GROUPS);
    if (p->group == NULL || p->max_seqs == 0 || p->max_tokens == 0)
        return own_fail(err, ATTN_E_INVALID, p->group == NULL ? "group" : "max_seqs",
                        "a group, and at least 1 sequence and token, are accepted");
    for (uint32_t g = 0; (g == 0 || g < p->groups) && status == ATTN_OK; g++)
        status = check_group(&p->group[g], err);
    return status;
}

static int32_t create(const struct attn_serving_host *host, const struct attn_builder_params *p,
                      struct attn_builder_impl **out, struct attn_error *err)
{
    const uint32_t groups = p->groups > 0 ? p->groups : 1;
    int32_t status = check_params(p, err);

    (void)host; /* the memory of a shelf is the host's: nothing is allocated on it or copied to it */
    if (status != ATTN_OK)
        return status;
    struct attn_builder_impl *b = calloc(1, sizeof *b);
    if (b == NULL)
        return own_fail(err, ATTN_E_MEMORY, "builder", "out of memory");
    b->max_seqs = p->max_seqs;
    b->max_tokens = p->max_tokens;
    for (uint32_t g = 0; g < groups; g++)
        b->block[g] = p->group[g].block;
    status = own_metadata_init(&b->metadata, p->group, groups, p->max_seqs, p->max_tokens, err);
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

/* Cells of a row of a block table, which stay from step to step; what is no page's number becomes -1. */
static void take_blocks(struct attn_builder_impl *b, uint32_t group, uint32_t row, uint32_t first,
                        const int64_t *blocks, uint32_t count)
{
    int32_t *cells = own_row(&b->metadata, group, row) + first;

    for (uint32_t i = 0; i < count; i++)
        cells[i] = blocks[i] >= 0 && blocks[i] <= INT32_MAX ? (int32_t)blocks[i] : -1;
}

static void find_slots(const struct attn_builder_impl *b, uint32_t group, const struct own_record *r)
{
    const int32_t *row = own_row(&b->metadata, group, r->row);

    for (int32_t i = 0; i < r->starts[1]; i++) {
        const uint32_t key = (uint32_t)(r->len - r->starts[1] + i), block = b->block[group];
        const int64_t page = row[key / block];
        b->metadata.group[group].slots[r->first + (uint32_t)i] = page < 0 ? -1 : page * block + key % block;
    }
}

static int32_t check_blocks(const struct attn_builder_impl *b, uint32_t group,
                            const struct attn_builder_add_args *args, struct attn_error *err)
{
    const struct attn_blocks *blocks = &args->blocks[group];
    const uint32_t width = b->metadata.group[group].width;

    if (blocks->kind != ATTN_BLOCKS_LIST && blocks->kind != ATTN_BLOCKS_ROW)
        return own_refuse_new(err);
    if (blocks->kind == ATTN_BLOCKS_LIST && blocks->blocks == NULL && blocks->count > 0)
        return own_fail(err, ATTN_E_INVALID, "blocks", "the list of group %u is NULL", group);
    if (blocks->window_blocks > 0)
        return own_fail(err, ATTN_E_UNSUPPORTED, "window_blocks", "rows that show a window are not served");
    if (blocks->count > width)
        return own_fail(err, ATTN_E_SIZE, "blocks", "there are %u; a row has %u", blocks->count, width);
    return (uint64_t)args->context_len + args->query_len <= (uint64_t)blocks->count * b->block[group]
               ? ATTN_OK
               : own_fail(err, ATTN_E_INVALID, "blocks", "%u blocks of %u do not hold %u + %u tokens",
                          blocks->count, b->block[group], args->context_len, args->query_len);
}

static int32_t check_add(const struct attn_builder_impl *b, const struct attn_builder_add_args *args,
                         uint32_t row, struct attn_error *err)
{
    const uint32_t next = b->count > 0 ? b->first_row + b->count : row;
    int32_t status = ATTN_OK;

    if (row >= b->max_seqs || args->query_len > b->max_tokens - b->tokens ||
        args->context_len > INT32_MAX - b->max_tokens)
        return own_fail(err, ATTN_E_SIZE, "args", "row %u with %u tokens; %u rows and %u tokens fit", row,
                        args->query_len, b->max_seqs, b->max_tokens - b->tokens);
    if (args->query_len == 0 || row != next)
        return own_fail(err, ATTN_E_INVALID, args->query_len == 0 ? "query_len" : "row",
                        "row %u with %u tokens; row %u with at least 1 is accepted", row, args->query_len,
                        next);
    if (args->prompt == 1 && b->metadata.prompts < b->count)
        return own_fail(err, ATTN_E_INVALID, "prompt", "a prompt follows a decode; add prompts first");
    if (args->blocks == NULL || args->cross != NULL || args->encoder_len > 0 || args->map_count > 0)
        return own_fail(err, args->blocks == NULL ? ATTN_E_INVALID : ATTN_E_UNSUPPORTED, "blocks",
                        "blocks of a decoder of text, and no others, are accepted");
    for (uint32_t g = 0; g < b->metadata.groups && status == ATTN_OK; g++)
        status = check_blocks(b, g, args, err);
    return status;
}

static int32_t add(struct attn_builder_impl *b, const struct attn_builder_add_args *args,
                   struct attn_error *err)
{
    struct attn_metadata_impl *m = &b->metadata;
    const uint32_t row = (args->given & ATTN_GIVEN_ROW) != 0 ? args->row : b->first_row + b->count;
    const int32_t status = check_add(b, args, row, err);

    if (status != ATTN_OK)
        return status;
    struct own_record *r = &m->records[b->count];
    *r = (struct own_record){.starts = {0, (int32_t)args->query_len},
                             .len = (int32_t)(args->context_len + args->query_len),
                             .first = b->tokens,
                             .row = row};
    b->first_row = row - b->count;
    m->count = ++b->count;
    m->tokens = b->tokens += args->query_len;
    m->prompts += args->prompt;
    m->prompt_tokens += args->prompt * args->query_len;
    for (uint32_t g = 0; g < m->groups; g++) {
        if (args->blocks[g].kind == ATTN_BLOCKS_LIST)
            take_blocks(b, g, row, 0, args->blocks[g].blocks, args->blocks[g].count);
        find_slots(b, g, r);
    }
    return ATTN_OK;
}

static int32_t set_row(struct attn_builder_impl *b, const struct attn_builder_row_args *args,
                       struct attn_error *err)
{
    const struct attn_metadata_impl *m = &b->metadata;
    const uint32_t width = args->group < m->groups ? m->group[args->group].width : 0;

    if (width == 0 || args->row >= b->max_seqs || args->first > width || args->count > width - args->first ||
        (args->count > 0 && args->blocks == NULL))
        return own_fail(err, ATTN_E_INVALID, "row",
                        "group %u, row %u, %u cells from %u; %u groups of %u rows of %u are there",
                        args->group, args->row, args->count, args->first, m->groups, b->max_seqs, width);
    take_blocks(b, args->group, args->row, args->first, args->blocks, args->count);
    if (args->row >= b->first_row && args->row - b->first_row < b->count)
        find_slots(b, args->group, &m->records[args->row - b->first_row]);
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
