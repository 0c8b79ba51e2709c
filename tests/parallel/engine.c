/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An engine on builder, state and layers, whose tokens hold numbers that follow from sequence and position.
 */
#include "engine.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* Which number is asked for. */
enum { Q, K, V };

/* From -1 to 1, and the same on all ranks. */
static float number_of(uint32_t kind, uint32_t class, uint32_t id, uint32_t position, uint32_t column)
{
    uint64_t x = (((((uint64_t)kind * 8 + class) * 64 + id) * 4096 + position) * 4096 + column) *
                 UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 31;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (float)(x >> 40) / (float)(1 << 23) - 1;
}

/* ---------------------------------------------------------------- parameters */

void engine_builder_params(const struct engine *e, struct attn_builder_params *out)
{
    ATTN_INIT(out);
    out->flavour = ATTN_FLASH_ATTN;
    out->group = &e->group;
    out->chunked = 1;
    out->max_seqs = SEQS;
    out->max_tokens = MOST_ROWS;
    if (e->options.world == 0)
        return;
    out->cp_rank = e->number;
    out->cp_world = e->options.world;
    out->cp_interleave = e->options.interleave;
}

void engine_state_params(const struct engine *e, const struct attn_collectives *net,
                         struct attn_state_params *out)
{
    ATTN_INIT(out);
    out->flavour = ATTN_FLASH_ATTN;
    out->group = &e->group;
    out->collectives = net;
    out->cp_heads = net != NULL ? e->options.heads : 0;
    out->cp_interleave = net != NULL && e->options.graphs ? e->options.interleave : 0;
    out->max_capture_len = LONGEST;
    out->capture_num_tokens = e->options.graphs ? GRAPH_TOKENS : 0;
}

void engine_describe(struct engine *e, const struct engine_options *options, uint32_t number)
{
    memset(e, 0, sizeof *e);
    e->options = *options;
    e->number = number;
    e->own_heads = options->heads == ATTN_CP_HEADS_SPLIT ? HEADS / options->world : HEADS;
    e->group = (struct attn_builder_group){.block = BLOCK, .max_blocks = COLUMNS, .graph_blocks = COLUMNS};
    for (uint32_t i = 0; i < CLASSES; i++) {
        fixture_problem(i == 0 ? "heads=4 kv_heads=2 head_dim=16 q=f32 block=4 lse=1"
                               : "heads=4 kv_heads=2 head_dim=16 q=f32 block=4 lse=1 window=10",
                        &e->problem[i]);
        e->problem[i].graph = options->graphs ? ATTN_GRAPH_ALWAYS : ATTN_GRAPH_NEVER;
        e->problem[i].cp = options->world != 0;
        e->classes[i] = (struct attn_layer_class){.problem = &e->problem[i]};
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        e->sequences[i].id = i;
        for (uint32_t n = 0; n < COLUMNS; n++)
            e->sequences[i].blocks[n] = i * COLUMNS + n;
    }
}

/* ---------------------------------------------------------------- caches */

static void make_desc(struct attn_kv_desc *desc, void *keys, void *values)
{
    ATTN_INIT(desc);
    desc->k_dtype = desc->v_dtype = ATTN_F32;
    desc->pages = PAGES;
    desc->block = BLOCK;
    desc->kv_heads = KV_HEADS;
    desc->head_dim = DIM;
    desc->k.data = keys;
    desc->v.data = values;
    desc->k_page_stride = desc->v_page_stride = sizeof(float[BLOCK][KV_HEADS][DIM]);
    desc->k_token_stride = desc->v_token_stride = sizeof(float[KV_HEADS][DIM]);
    desc->k_head_stride = desc->v_head_stride = sizeof(float[DIM]);
}

/* All NaN: a key that was not written shows in results. */
static void make_cache(struct engine *e, uint32_t class, struct attn_error *err)
{
    for (uint32_t i = 0; i < 4; i++) {
        e->memory[class][i] = malloc(PAGES * sizeof *e->memory[class][i]);
        cr_assert_not_null(e->memory[class][i]);
        memset(e->memory[class][i], 0xff, PAGES * sizeof *e->memory[class][i]);
    }
    make_desc(&e->kv_desc[class], e->memory[class][0], e->memory[class][1]);
    make_desc(&e->host_desc[class], e->memory[class][2], e->memory[class][3]);
    cr_assert_eq(attn_kv_create(e->backend, &e->kv_desc[class], &e->kv[class], err), ATTN_OK, "%s",
                 err->message);
}

static void make_layer(struct engine *e, uint32_t class, struct attn_error *err)
{
    struct attn_layer_desc desc;

    ATTN_INIT(&desc);
    desc.class_index = class;
    desc.layer_class = &e->classes[class];
    desc.softmax_scale = 0.25F;
    cr_assert_eq(attn_layer_create(e->backend, &desc, &e->layers[class], err), ATTN_OK, "%s", err->message);
}

/* The graph of a size. Nothing is captured: kernels of the host run over its buffers at once. */
static void make_graph(struct engine *e, uint32_t num_tokens, struct attn_state **out, struct attn_error *err)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata = NULL;

    ATTN_INIT(&args);
    args.batch = GRAPH_SEQS;
    args.num_tokens = num_tokens;
    cr_assert_eq(attn_state_get_capture_metadata(e->state, &args, NULL, &metadata, err), ATTN_OK, "%s",
                 err->message);
    cr_assert_eq(attn_state_clone(e->state, GRAPH_SEQS, out, err), ATTN_OK, "%s", err->message);
}

/* One for decodes of a token each, and one for any mix of few tokens. */
static void make_graphs(struct engine *e, struct attn_error *err)
{
    cr_assert_eq(attn_state_begin_capture(e->state, GRAPH_SEQS, NULL, err), ATTN_OK, "%s", err->message);
    make_graph(e, 0, &e->graphs[0], err);
    make_graph(e, GRAPH_TOKENS, &e->graphs[1], err);
    cr_assert_eq(attn_state_end_capture(e->state, err), ATTN_OK, "%s", err->message);
}

/* Whether a step of so many tokens runs as a graph, and what pads it: decodes are as many as the graph's. */
static void choose_graph(const struct engine *e, struct attn_builder_build_args *out)
{
    bool decodes = true;

    ATTN_INIT(out);
    out->graph = e->options.graphs && e->rows <= GRAPH_TOKENS && e->count <= GRAPH_SEQS;
    for (uint32_t i = 0; i < e->count; i++)
        decodes = decodes && e->parts[i].count == 1 && !e->parts[i].prompt;
    out->pad = out->graph != 0 && decodes ? GRAPH_SEQS - e->count : 0;
}

void engine_open(struct engine *e, struct attn_backend *backend, const struct engine_options *options,
                 uint32_t number, const struct attn_collectives *net)
{
    struct attn_builder_params builder;
    struct attn_state_params state;
    struct attn_error err;

    ATTN_INIT(&err);
    engine_describe(e, options, number);
    e->backend = backend;
    engine_builder_params(e, &builder);
    engine_state_params(e, net, &state);
    cr_assert_eq(attn_builder_create(backend, &builder, &e->builder, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_state_create(backend, e->classes, CLASSES, &state, &e->state, &err), ATTN_OK, "%s",
                 err.message);
    for (uint32_t i = 0; i < CLASSES; i++) {
        make_layer(e, i, &err);
        make_cache(e, i, &err);
    }
    if (options->graphs)
        make_graphs(e, &err);
}

void engine_close(struct engine *e)
{
    for (uint32_t i = 0; i < CLASSES; i++) {
        attn_layer_destroy(e->layers[i]);
        attn_kv_destroy(e->kv[i]);
        for (uint32_t m = 0; m < 4; m++)
            free(e->memory[i][m]);
    }
    attn_state_destroy(e->graphs[0]);
    attn_state_destroy(e->graphs[1]);
    attn_state_destroy(e->state);
    attn_builder_destroy(e->builder);
}

/* ---------------------------------------------------------------- steps */

uint32_t engine_span(const struct engine *e)
{
    return BLOCK * (e->options.world > 0 ? e->options.world : 1);
}

int64_t engine_page(const struct engine *e, int64_t block)
{
    return (block * 7 + e->number * 3) % PAGES;
}

/* As many as the keys that are here need, and no more. */
static uint32_t blocks_for(const struct engine *e, uint32_t tokens)
{
    const struct engine_options *o = &e->options;
    const int64_t keys = o->world > 0 ? attn_cp_count(e->number, o->world, o->interleave, tokens) : tokens;

    return (uint32_t)((keys + BLOCK - 1) / BLOCK);
}

void engine_build(struct engine *e, const struct engine_part *parts, uint32_t count)
{
    static _Thread_local int64_t pages[SEQS][COLUMNS]; /* read by the build */
    struct attn_builder_build_args build;
    struct attn_error err;

    ATTN_INIT(&err);
    memcpy(e->parts, parts, count * sizeof *parts);
    e->count = count;
    e->rows = 0;
    cr_assert_eq(attn_builder_reset(e->builder, &err), ATTN_OK, "%s", err.message);
    for (uint32_t i = 0; i < count; i++) {
        const struct engine_sequence *s = &e->sequences[parts[i].sequence];
        struct attn_builder_add_args args;
        struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST, .blocks = pages[i], .computed = parts[i].hits};
        ATTN_INIT(&args);
        for (uint32_t n = 0; n < COLUMNS; n++)
            pages[i][n] = engine_page(e, s->blocks[n]);
        blocks.count = blocks_for(e, s->len + parts[i].count + parts[i].beyond);
        blocks.unchanged = parts[i].kept ? blocks.count : 0;
        args.prompt = parts[i].prompt;
        args.prefix_hit = parts[i].hits > 0;
        args.context_len = s->len;
        args.query_len = parts[i].count;
        args.blocks = &blocks;
        cr_assert_eq(attn_builder_add(e->builder, &args, &err), ATTN_OK, "%s", err.message);
        e->rows += parts[i].count;
    }
    choose_graph(e, &build);
    e->pad = build.pad;
    cr_assert_eq(attn_builder_build(e->builder, &build, NULL, &e->metadata, &err), ATTN_OK, "%s",
                 err.message);
}

int32_t engine_begin(struct engine *e, struct attn_error *err)
{
    return attn_state_begin_forward(e->state, e->metadata, NULL, err);
}

/* Queries of this rank's heads, and keys and values of all. */
struct rows {
    float q[MOST_ROWS][HEADS][DIM];
    float k[MOST_ROWS][KV_HEADS][DIM], v[MOST_ROWS][KV_HEADS][DIM];
};

static void fill_row(const struct engine *e, uint32_t class, uint32_t id, uint32_t position, uint32_t row,
                     struct rows *out)
{
    const uint32_t first = e->options.heads == ATTN_CP_HEADS_SPLIT ? e->number * e->own_heads : 0;
    float *q = &out->q[0][0][0] + (size_t)row * e->own_heads * DIM;

    for (uint32_t i = 0; i < e->own_heads * DIM; i++)
        q[i] = 3 * number_of(Q, class, id, position, first * DIM + i);
    for (uint32_t i = 0; i < KV_HEADS * DIM; i++) {
        (&out->k[row][0][0])[i] = number_of(K, class, id, position, i);
        (&out->v[row][0][0])[i] = number_of(V, class, id, position, i);
    }
}

static struct attn_tensor rows_of(void *data, uint32_t heads)
{
    return fixture_tensor(data, heads * sizeof(float[DIM]), sizeof(float[DIM]));
}

int32_t engine_run(struct engine *e, struct engine_result *out, struct attn_error *err)
{
    struct rows *rows = calloc(1, sizeof *rows); /* padding has zeros */
    int32_t status = ATTN_OK;

    cr_assert_not_null(rows);
    for (uint32_t class = 0; class < CLASSES && status == ATTN_OK; class ++) {
        struct attn_layer_tensors t;
        ATTN_INIT(&t);
        for (uint32_t i = 0, row = 0; i < e->count; i++)
            for (uint32_t n = 0; n < e->parts[i].count; n++) {
                const struct engine_sequence *s = &e->sequences[e->parts[i].sequence];
                fill_row(e, class, s->id, s->len + n, row++, rows);
            }
        t.q = rows_of(rows->q, e->own_heads);
        t.k_new = rows_of(rows->k, KV_HEADS);
        t.v_new = rows_of(rows->v, KV_HEADS);
        t.out = rows_of(out[class].out, e->own_heads);
        t.lse = fixture_tensor(out[class].lse, e->own_heads * sizeof(float), sizeof(float));
        status = attn_layer_forward(e->layers[class], e->state, e->metadata, e->kv[class], &t, NULL, err);
    }
    free(rows);
    return status;
}

void engine_commit(struct engine *e)
{
    for (uint32_t i = 0; i < e->count; i++)
        e->sequences[e->parts[i].sequence].len += e->parts[i].count;
}

void engine_advance(struct engine *e)
{
    struct attn_advance_args args;
    struct attn_error err;

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    args.queries = e->count;
    args.seqs = e->count + e->pad;
    cr_assert_eq(attn_metadata_advance_step(e->metadata, &args, NULL, &err), ATTN_OK, "%s", err.message);
}

/* ---------------------------------------------------------------- blocks */

static void swap(struct engine *e, const int64_t *pairs, uint32_t count, bool out)
{
    for (uint32_t i = 0; i < CLASSES; i++) {
        struct attn_kv_swap_blocks_args args;
        struct attn_error err;
        ATTN_INIT(&args);
        ATTN_INIT(&err);
        args.count = count;
        args.pairs = pairs;
        args.kind = out ? ATTN_COPY_TO_HOST : ATTN_COPY_TO_DEVICE;
        args.from = out ? e->kv[i] : NULL;
        args.from_desc = out ? NULL : &e->host_desc[i];
        args.to = out ? NULL : e->kv[i];
        args.to_desc = out ? &e->host_desc[i] : NULL;
        cr_assert_eq(attn_kv_swap_blocks(e->backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
    }
}

void engine_swap(struct engine *e, uint32_t sequence)
{
    struct engine_sequence *s = &e->sequences[sequence];
    const uint32_t count = (s->len - 1) / engine_span(e) + 1;
    int64_t out[COLUMNS][2] = {{0}}, in[COLUMNS][2] = {{0}};

    for (uint32_t n = 0; n < count; n++) {
        out[n][0] = engine_page(e, s->blocks[n]);
        out[n][1] = in[n][0] = n;
    }
    swap(e, out[0], count, true);
    for (uint32_t n = 0; n < count; n++) {
        for (uint32_t i = 0; i < CLASSES; i++)
            for (uint32_t m = 0; m < 2; m++)
                memset(e->memory[i][m][out[n][0]], 0xff, sizeof e->memory[i][m][0]);
        s->blocks[n] = SEQS * COLUMNS + n; /* nobody has these */
        in[n][1] = engine_page(e, s->blocks[n]);
    }
    swap(e, in[0], count, false);
}

void engine_fork(struct engine *e, uint32_t from, uint32_t to)
{
    const uint32_t last = (e->sequences[from].len - 1) / engine_span(e);
    const int64_t own = e->sequences[to].blocks[last];
    int64_t pair[2] = {engine_page(e, e->sequences[from].blocks[last]), engine_page(e, own)};
    struct attn_kv_copy_blocks_args args;
    struct attn_error err;

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    args.count = 1;
    args.layers = CLASSES;
    args.kvs = e->kv;
    args.pairs.data = pair;
    cr_assert_eq(attn_kv_copy_blocks(e->backend, &args, NULL, &err), ATTN_OK, "%s", err.message);
    for (uint32_t n = 0; n < last; n++)
        e->sequences[to].blocks[n] = e->sequences[from].blocks[n];
    e->sequences[to].len = e->sequences[from].len;
}
