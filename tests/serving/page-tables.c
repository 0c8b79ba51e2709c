/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One mixed batch through every builder, as tables. */
#include "page.h"

#include <string.h>

#include "attn/input.h"
#include "attn/layer.h"

enum { BLOCK = 16, MAX_SEQS = 8, MAX_BLOCKS = 6, MAX_TOKENS = 128 };

/* The batch of the page. */
static const struct sequence {
    const char *name;
    const char *story;
    struct attn_input_request request;
    int64_t blocks[4];
    uint32_t count;
} sequences[] = {
    {"A", "a prompt that begins", {0, 1, 5, 0, 5, 0}, {40}, 1},
    {"B",
     "a prompt whose first two blocks another request has computed",
     {0, 1, 37, 0, 37, 2},
     {7, 8, 21},
     3},
    {"C", "decodes", {0, 0, 17, 16, 1, 0}, {11, 12}, 2},
    {"D", "decodes", {0, 0, 35, 34, 1, 0}, {30, 31, 32}, 3},
};
enum { COUNT = sizeof sequences / sizeof *sequences };

static int32_t prepare(uint32_t index, struct attn_input *out)
{
    struct attn_input_rules rules;
    struct attn_input_request request = sequences[index].request;

    ATTN_INIT(&rules);
    ATTN_INIT(out);
    request.struct_size = sizeof request;
    rules.block = BLOCK;
    rules.max_seqs = MAX_SEQS;
    rules.max_capture_len = MAX_BLOCKS * BLOCK;
    rules.chunked_prefill = 1;
    return attn_input_prepare(&rules, &request, out, NULL);
}

static int32_t create(uint32_t flavour, struct attn_builder **out)
{
    struct attn_builder_group group = {.block = BLOCK, .max_blocks = MAX_BLOCKS};
    struct attn_builder_params params;

    ATTN_INIT(&params);
    params.flavour = flavour;
    params.chunked = 1;
    params.group = &group;
    params.max_seqs = MAX_SEQS;
    params.max_tokens = MAX_TOKENS;
    params.heads = 8;
    params.kv_heads = 2;
    params.head_dim = 128;
    params.q_dtype = ATTN_BF16;
    params.kv_dtype = ATTN_BF16;
    return attn_builder_create(NULL, &params, out, NULL);
}

/* Sequences from `first` on; with `graph` padded to the next captured size. */
static int32_t build(struct attn_builder *builder, uint32_t first, uint32_t graph, struct attn_metadata **out)
{
    struct attn_builder_build_args args;
    int32_t status = attn_builder_reset(builder, NULL);

    for (uint32_t i = first; i < COUNT && status == ATTN_OK; i++) {
        struct attn_builder_add_args add;
        struct attn_input input;
        struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST,
                                     .count = sequences[i].count,
                                     .blocks = sequences[i].blocks,
                                     .computed = sequences[i].request.cached_blocks};
        status = prepare(i, &input);
        ATTN_INIT(&add);
        add.prompt = sequences[i].request.prompt;
        add.prefix_hit = input.prefix_hit;
        add.context_len = input.context_len;
        add.query_len = input.query_len;
        add.blocks = &blocks;
        if (status == ATTN_OK)
            status = attn_builder_add(builder, &add, NULL);
    }
    ATTN_INIT(&args);
    args.graph = graph;
    args.pad = graph != 0 ? attn_graph_padded(3) - (COUNT - first) : 0;
    return status == ATTN_OK ? attn_builder_build(builder, &args, NULL, out, NULL) : status;
}

static int64_t element(const struct attn_view *view, uint64_t row, uint64_t column)
{
    const char *at = (const char *)view->host + (int64_t)row * view->stride;

    return view->dtype == ATTN_INT64 ? ((const int64_t *)(const void *)at)[column]
                                     : ((const int32_t *)(const void *)at)[column];
}

/* Runs of neighbours are written as 5..9. */
static void print_list(FILE *out, const struct attn_view *view, uint64_t row, uint64_t count)
{
    for (uint64_t i = 0; i < count;) {
        uint64_t end = i + 1;
        while (end < count && element(view, row, end) == element(view, row, end - 1) + 1)
            end++;
        fprintf(out, "%s%lld", i == 0 ? "" : " ", (long long)element(view, row, i));
        if (end - i > 2)
            fprintf(out, "..%lld", (long long)element(view, row, end - 1));
        else
            end = i + 1;
        i = end;
    }
}

static void print_view(FILE *out, const struct attn_view *view, uint32_t field)
{
    switch (view->kind) {
    case ATTN_VIEW_NULL:
        fputs("-", out);
        break;
    case ATTN_VIEW_NUMBER:
        if (field == ATTN_FIELD_DATA_TYPE || field == ATTN_FIELD_Q_DATA_TYPE)
            fputs(attn_dtype_name((uint32_t)view->value), out);
        else
            fprintf(out, "%lld", (long long)view->value);
        break;
    default:
        if (view->rank == 1)
            print_list(out, view, 0, view->shape[0]);
        for (uint64_t r = 0; view->rank == 2 && r < view->shape[0]; r++) {
            fputs(r == 0 ? "" : " / ", out);
            print_list(out, view, r, view->shape[1]);
        }
    }
}

static void print_cell(FILE *out, const struct attn_metadata *metadata, uint32_t field)
{
    struct attn_view view;

    ATTN_INIT(&view);
    fputs(" | ", out);
    if (metadata == NULL || attn_metadata_get(metadata, field, 0, &view, NULL) != ATTN_OK)
        fputs("-", out);
    else
        print_view(out, &view, field);
}

/* Fields that have a value somewhere, one a line. */
static void print_fields(FILE *out, const struct attn_metadata *const *columns, uint32_t count)
{
    for (uint32_t field = 1; field < ATTN_FIELDS; field++) {
        int any = 0;
        for (uint32_t c = 0; c < count; c++) {
            struct attn_view view;
            ATTN_INIT(&view);
            if (attn_field_name(field) != NULL && columns[c] != NULL &&
                attn_metadata_get(columns[c], field, 0, &view, NULL) == ATTN_OK)
                any |= view.kind != ATTN_VIEW_NULL;
        }
        if (!any)
            continue;
        fprintf(out, "| `%s`", attn_field_name(field));
        for (uint32_t c = 0; c < count; c++)
            print_cell(out, columns[c], field);
        fputs(" |\n", out);
    }
}

static int table_sequences(FILE *out)
{
    fputs(
        "\n| sequence | what it does | tokens known | in the cache | blocks | `context_len` | `query_len` | "
        "`seq_len` |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
        out);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct sequence *s = &sequences[i];
        struct attn_input input;
        if (prepare(i, &input) != ATTN_OK)
            return 0;
        fprintf(out, "| %s | %s | %u | %u |", s->name, s->story, s->request.total_len,
                s->request.computed_len + s->request.cached_blocks * BLOCK);
        for (uint32_t b = 0; b < s->count; b++)
            fprintf(out, " %lld", (long long)s->blocks[b]);
        fprintf(out, " | %u | %u | %u |\n", input.context_len, input.query_len, input.seq_len);
    }
    fputc('\n', out);
    return 1;
}

static int table_fields(FILE *out, uint32_t flavour, uint32_t parts)
{
    struct attn_builder *builder = NULL;
    struct attn_metadata *columns[3] = {NULL};
    int good = create(flavour, &builder) == ATTN_OK && build(builder, 0, 0, &columns[0]) == ATTN_OK;

    for (uint32_t part = 1; part < parts && good; part++)
        good = attn_metadata_get_part(columns[0], part == 1 ? ATTN_PART_PREFILL : ATTN_PART_DECODE,
                                      &columns[part], NULL) == ATTN_OK;
    fputs(parts == 3 ? "\n| field | whole | prefill part | decode part |\n| --- | --- | --- | --- |\n"
                     : "\n| field | value |\n| --- | --- |\n",
          out);
    if (good)
        print_fields(out, (const struct attn_metadata *const *)columns, parts);
    fputc('\n', out);
    attn_builder_destroy(builder);
    return good;
}

/* C and D alone, without and with a graph. */
static int table_graph(FILE *out)
{
    struct attn_builder *builders[2] = {NULL};
    struct attn_metadata *columns[2] = {NULL};
    int good = 1;

    for (uint32_t i = 0; i < 2 && good; i++)
        good = create(ATTN_FLASH_ATTN, &builders[i]) == ATTN_OK &&
               build(builders[i], 2, i, &columns[i]) == ATTN_OK;
    fputs("\n| field | without a graph | for a graph of 4 |\n| --- | --- | --- |\n", out);
    if (good)
        print_fields(out, (const struct attn_metadata *const *)columns, 2);
    fputc('\n', out);
    attn_builder_destroy(builders[0]);
    attn_builder_destroy(builders[1]);
    return good;
}

/* C and D alone, and what one step in place makes of them. */
static int table_advance(FILE *out)
{
    struct attn_builder *builders[2] = {NULL};
    struct attn_metadata *columns[2] = {NULL};
    struct attn_advance_args args;
    int64_t tokens[2] = {0};
    int64_t positions[2] = {0};
    int64_t sampled[2] = {1234, 77};
    int good = 1;

    for (uint32_t i = 0; i < 2 && good; i++)
        good = create(ATTN_FLASH_ATTN, &builders[i]) == ATTN_OK &&
               build(builders[i], 2, 0, &columns[i]) == ATTN_OK;
    ATTN_INIT(&args);
    args.seqs = args.queries = 2;
    args.sampled.data = sampled;
    args.tokens.data = tokens;
    args.positions.data = positions;
    good = good && attn_metadata_advance_step(columns[1], &args, NULL, NULL) == ATTN_OK;
    fputs("\n| field | before | after |\n| --- | --- | --- |\n", out);
    fprintf(out, "| tokens | | %lld %lld |\n| positions | | %lld %lld |\n", (long long)tokens[0],
            (long long)tokens[1], (long long)positions[0], (long long)positions[1]);
    if (good)
        print_fields(out, (const struct attn_metadata *const *)columns, 2);
    fputc('\n', out);
    attn_builder_destroy(builders[0]);
    attn_builder_destroy(builders[1]);
    return good;
}

int page_table(FILE *out, const char *name)
{
    if (strcmp(name, "sequences") == 0)
        return table_sequences(out);
    if (strcmp(name, "flash-attn") == 0)
        return table_fields(out, ATTN_FLASH_ATTN, 3);
    if (strcmp(name, "flashinfer") == 0)
        return table_fields(out, ATTN_FLASHINFER, 1);
    if (strcmp(name, "rocm-flash") == 0)
        return table_fields(out, ATTN_ROCM_FLASH, 3);
    if (strcmp(name, "advance") == 0)
        return table_advance(out);
    if (strcmp(name, "graph") == 0)
        return table_graph(out);
    return 0;
}
