/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Steps of prompts, of both kinds and of decodes through the public calls on the backends of libattn-own.so,
 * each held against the oracle; captured sizes that are the plugin's own; and what one backend refuses of
 * another.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <attn/device.h>
#include <attn/layer.h>
#include <attn/parallel.h>

#include "oracle.h"

enum {
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 8,
    BLOCK = 4,
    WIDTH = 8,
    PAGES = 40,
    SEQS = 4,
    LEN = WIDTH * BLOCK,
    ROWS = 48
};

static uint32_t count, failed;
static struct attn_error err = {.struct_size = sizeof err};

static void check(bool good, const char *what, const char *why)
{
    printf("%s %u - %s\n", good ? "ok" : "not ok", ++count, what);
    if (!good)
        printf("# %s\n", why);
    failed += !good;
}

static void need(int32_t status)
{
    if (status == ATTN_OK)
        return;
    printf("Bail out! %s: %s\n", attn_status_name(status), err.message);
    exit(1);
}

/* A refusal: its status, its field, and words of its message. */
static void refused(int32_t status, int32_t wanted, const char *field, const char *words, const char *what)
{
    char why[700];

    snprintf(why, sizeof why, "%s, %s: %s", attn_status_name(status), err.field, err.message);
    check(status == wanted && strcmp(err.field, field) == 0 && strstr(err.message, words) != NULL, what, why);
}

/* ---------------------------------------------------------------- a model of one layer */

struct model {
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_problem problem;
    struct attn_builder_group group;
    struct attn_layer_class class;
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_layer *layer;
    struct attn_kv *kv;
    struct attn_buffer cache, q, k, v, out;
};

static struct attn_builder *make_builder(struct attn_backend *backend, uint32_t flavour,
                                         const struct attn_builder_group *group)
{
    const struct attn_builder_params params = {.struct_size = sizeof params,
                                               .flavour = flavour,
                                               .group = group,
                                               .chunked = 1,
                                               .max_seqs = 9,
                                               .max_tokens = ROWS};
    struct attn_builder *builder;

    need(attn_builder_create(backend, &params, &builder, &err));
    return builder;
}

static void make_parts(struct model *model)
{
    const struct attn_state_params params = {.struct_size = sizeof params, .group = &model->group};
    const struct attn_layer_desc desc = {
        .struct_size = sizeof desc, .layer_class = &model->class, .softmax_scale = 0.3F};
    struct attn_kv_shape shape;
    struct attn_kv_desc kv;

    model->builder = make_builder(model->backend, 0, &model->group);
    need(attn_state_create(model->backend, &model->class, 1, &params, &model->state, &err));
    need(attn_layer_create(model->backend, &desc, &model->layer, &err));
    ATTN_INIT(&shape);
    need(attn_kv_get_shape(model->backend, &model->problem, PAGES, &shape, &err));
    need(attn_memory_alloc(model->backend, shape.bytes, &model->cache, &err));
    attn_kv_desc_init(&kv, &shape, &model->cache);
    need(attn_kv_create(model->backend, &kv, &model->kv, &err));
    need(attn_memory_alloc(model->backend, 4 * ROWS * HEADS * DIM, &model->q, &err));
    need(attn_memory_alloc(model->backend, 4 * ROWS * HEADS * DIM, &model->out, &err));
    need(attn_memory_alloc(model->backend, 4 * ROWS * KV_HEADS * DIM, &model->k, &err));
    need(attn_memory_alloc(model->backend, 4 * ROWS * KV_HEADS * DIM, &model->v, &err));
}

static void model_open(struct model *model, const char *backend, const char *device)
{
    const struct attn_select_options options = {
        .struct_size = sizeof options, .backend = backend, .device = device};
    struct attn_decision *decision;

    memset(model, 0, sizeof *model);
    need(attn_context_create(NULL, &model->context, &err));
    need(attn_problem_parse(
        "heads=4 kv_heads=2 head_dim=8 q=f32 block=4 max_seqs=9 max_q=32 max_kv=32 max_rows=48",
        &model->problem, &err));
    need(attn_select(model->context, &model->problem, 1, &options, &decision, &err));
    need(attn_backend_open(model->context, decision, NULL, &model->backend, &err));
    attn_decision_destroy(decision);
    model->group = (struct attn_builder_group){.block = BLOCK, .max_blocks = WIDTH};
    model->class.problem = &model->problem;
    make_parts(model);
}

static void model_close(struct model *model)
{
    const struct attn_buffer *const buffers[] = {&model->q, &model->k, &model->v, &model->out, &model->cache};

    attn_layer_destroy(model->layer);
    attn_state_destroy(model->state);
    attn_builder_destroy(model->builder);
    attn_kv_destroy(model->kv);
    for (int i = 0; i < 5; i++)
        attn_memory_free(model->backend, buffers[i]);
    attn_backend_destroy(model->backend);
    attn_context_destroy(model->context);
}

/* ---------------------------------------------------------------- steps */

/* Keys and values of every sequence, one after the other: what the oracle reads instead of a cache. */
static float keys[SEQS][LEN][KV_HEADS][DIM], values[SEQS][LEN][KV_HEADS][DIM];
static uint32_t lens[SEQS];

/* One sequence of a step; query_len 0 ends the list. */
struct entry {
    uint32_t seq;
    uint32_t prompt;
    uint32_t query_len;
};

static struct {
    float q[ROWS][HEADS][DIM], k[ROWS][KV_HEADS][DIM], v[ROWS][KV_HEADS][DIM], out[ROWS][HEADS][DIM];
    uint32_t rows;
} host;

static void fill(float *to, size_t elements)
{
    static uint32_t state = 1;

    for (size_t i = 0; i < elements; i++) {
        state = state * 1664525 + 1013904223;
        to[i] = (float)(state >> 8) / (1 << 23) - 1;
    }
}

/* The blocks of a sequence, in an order of their own. */
static int64_t block_of(uint32_t seq, uint32_t i)
{
    return 1 + (seq + SEQS * (i * 5 % WIDTH));
}

static struct attn_metadata *build(struct attn_builder *builder, const struct entry *entries,
                                   const struct attn_builder_build_args *args)
{
    int64_t blocks[SEQS][WIDTH];
    struct attn_metadata *metadata;

    need(attn_builder_reset(builder, &err));
    for (const struct entry *entry = entries; entry->query_len > 0; entry++) {
        for (uint32_t i = 0; i < WIDTH; i++)
            blocks[entry->seq][i] = block_of(entry->seq, i);
        const struct attn_blocks list = {
            .kind = ATTN_BLOCKS_LIST, .count = WIDTH, .blocks = blocks[entry->seq]};
        const struct attn_builder_add_args add = {.struct_size = sizeof add,
                                                  .prompt = entry->prompt,
                                                  .context_len = lens[entry->seq],
                                                  .query_len = entry->query_len,
                                                  .blocks = &list};
        need(attn_builder_add(builder, &add, &err));
    }
    need(attn_builder_build(builder, args, NULL, &metadata, &err));
    return metadata;
}

static void copy(struct model *model, const struct attn_buffer *device, void *memory, uint64_t size,
                 bool back)
{
    const struct attn_buffer here = {memory, 0};

    need(attn_memory_copy(model->backend, back ? &here : device, back ? device : &here, size,
                          back ? ATTN_COPY_TO_HOST : ATTN_COPY_TO_DEVICE, NULL, &err));
}

/* New numbers for a step; the sequences grow by its tokens. */
static void begin(struct model *model, const struct entry *entries)
{
    host.rows = 0;
    fill(&host.q[0][0][0], sizeof host.q / 4);
    fill(&host.k[0][0][0], sizeof host.k / 4);
    fill(&host.v[0][0][0], sizeof host.v / 4);
    for (const struct entry *entry = entries; entry->query_len > 0; entry++) {
        memcpy(keys[entry->seq][lens[entry->seq]], host.k[host.rows], entry->query_len * sizeof host.k[0]);
        memcpy(values[entry->seq][lens[entry->seq]], host.v[host.rows], entry->query_len * sizeof host.v[0]);
        host.rows += entry->query_len;
    }
    copy(model, &model->q, host.q, sizeof host.q, false);
    copy(model, &model->k, host.k, sizeof host.k, false);
    copy(model, &model->v, host.v, sizeof host.v, false);
    for (size_t i = 0; i < sizeof host.out / 4; i++)
        (&host.out[0][0][0])[i] = 77;
    copy(model, &model->out, host.out, sizeof host.out, false);
}

static int32_t forward(struct model *model, struct attn_state *state, const struct attn_metadata *metadata)
{
    const struct attn_tensor wide = {.token_stride = 4 * HEADS * DIM, .head_stride = 4 * DIM};
    const struct attn_tensor narrow = {.token_stride = 4 * KV_HEADS * DIM, .head_stride = 4 * DIM};
    struct attn_layer_tensors t = {
        .struct_size = sizeof t, .q = wide, .k_new = narrow, .v_new = narrow, .out = wide};

    t.q.buffer = model->q;
    t.k_new.buffer = model->k;
    t.v_new.buffer = model->v;
    t.out.buffer = model->out;
    return attn_layer_forward(model->layer, state, metadata, model->kv, &t, NULL, &err);
}

/* ---------------------------------------------------------------- the oracle */

static double results[ROWS][HEADS][DIM], log_sums[ROWS][HEADS];
static uint32_t seen[ROWS][HEADS];

/* What rows of one sequence are to be, from `first` on: its keys are page `seq` of a cache with pages of LEN.
 */
static void ask_oracle(const struct model *model, const struct entry *entry, uint32_t first)
{
    int32_t starts[2] = {0, (int32_t)entry->query_len}, table[1] = {(int32_t)entry->seq};
    int32_t len = (int32_t)(lens[entry->seq] + entry->query_len);
    const int64_t head = 4 * DIM, token = KV_HEADS * head, page = LEN * token;
    struct attn_problem problem = model->problem;
    const struct attn_batch batch = {.struct_size = sizeof batch,
                                     .seqs = 1,
                                     .num_tokens = entry->query_len,
                                     .max_q = LEN,
                                     .max_kv = LEN,
                                     .q_offsets = {starts, 0},
                                     .kv_lens = {&len, 0},
                                     .table = {table, 0},
                                     .table_stride = 4,
                                     .table_width = 1};
    const struct attn_tensors tensors = {
        .struct_size = sizeof tensors,
        .softmax_scale = 0.3F,
        .q = {.buffer = {host.q[first], 0}, .token_stride = 4 * HEADS * DIM, .head_stride = head}};
    const struct attn_kv_desc cache = {.struct_size = sizeof cache,
                                       .k_dtype = ATTN_F32,
                                       .v_dtype = ATTN_F32,
                                       .layout = ATTN_STRIDED,
                                       .pages = SEQS,
                                       .block = LEN,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .head_dim_vo = DIM,
                                       .k = {keys, 0},
                                       .v = {values, 0},
                                       .k_page_stride = page,
                                       .k_token_stride = token,
                                       .k_head_stride = head,
                                       .v_page_stride = page,
                                       .v_token_stride = token,
                                       .v_head_stride = head};
    struct oracle_result result = {&results[first][0][0], &log_sums[first][0], &seen[first][0], 0, 0, NULL};

    need(attn_problem_resolve(&problem, &problem, &err));
    problem.block = LEN;
    if (!oracle_attention(&problem, &batch, &tensors, &cache, NULL, NULL, &result))
        need(ATTN_E_MEMORY);
}

/* Whether `out` is what the oracle says of each row, and as it was behind them. The sequences grow. */
static void judge(struct model *model, const struct entry *entries, uint32_t padding, const char *what)
{
    double worst = 0;
    uint32_t row = 0;
    bool kept = true;
    char why[100];

    copy(model, &model->out, host.out, sizeof host.out, true);
    for (const struct entry *entry = entries; entry->query_len > 0; row += entry->query_len, entry++) {
        ask_oracle(model, entry, row);
        lens[entry->seq] += entry->query_len;
    }
    for (size_t i = 0; i < (size_t)row * HEADS * DIM; i++)
        worst = fmax(worst, fabs((double)(&host.out[0][0][0])[i] - (&results[0][0][0])[i]));
    for (size_t i = (size_t)(row + padding) * HEADS * DIM; i < sizeof host.out / 4; i++)
        kept = kept && (&host.out[0][0][0])[i] == 77.0F;
    snprintf(why, sizeof why, "%s: the largest error is %g, what is behind was %s", what, worst,
             kept ? "kept" : "written");
    check(row > 0 && worst < 1e-5 && kept, what, why);
}

static void run_step(struct model *model, const struct entry *entries, const char *what)
{
    char name[100];

    snprintf(name, sizeof name, "%s: %s", attn_backend_get_name(model->backend), what);
    begin(model, entries);
    struct attn_metadata *metadata = build(model->builder, entries, NULL);
    need(attn_state_begin_forward(model->state, metadata, NULL, &err));
    need(forward(model, model->state, metadata));
    judge(model, entries, 0, name);
}

static void test_steps(struct model *model)
{
    static const struct entry prompts[] = {{0, 1, 17}, {1, 1, 3}, {0}};
    static const struct entry both[] = {{2, 1, 5}, {3, 1, 9}, {1, 0, 1}, {0, 0, 1}, {0}};
    static const struct entry chunk[] = {{2, 1, 6}, {3, 0, 1}, {0, 0, 2}, {1, 0, 1}, {0}};
    static const struct entry decodes[] = {{3, 0, 1}, {0, 0, 1}, {2, 0, 1}, {1, 0, 1}, {0}};

    memset(lens, 0, sizeof lens);
    run_step(model, prompts, "prompts");
    run_step(model, both, "prompts and decodes");
    run_step(model, chunk, "a chunk of a prompt and decodes, one of two tokens");
    run_step(model, decodes, "decodes");
    run_step(model, decodes, "more of them");
}

/* ---------------------------------------------------------------- captured sizes */

static struct attn_state *capture(struct model *model, uint32_t size, struct attn_metadata **out)
{
    const struct attn_state_capture_args args = {.struct_size = sizeof args, .batch = size};
    struct attn_state *clone;

    need(attn_state_get_capture_metadata(model->state, &args, NULL, out, &err));
    need(attn_state_clone(model->state, size, &clone, &err));
    return clone;
}

/* Two decodes, padded to a captured size of three, twice: as an engine replays it, and begun with its state.
 */
static void run_captured(struct model *model, struct attn_state *clone, const struct attn_metadata *captured)
{
    static const struct entry two[] = {{1, 0, 1}, {3, 0, 1}, {0}};
    const struct attn_builder_build_args graph = {.struct_size = sizeof graph, .graph = 1, .pad = 1};
    struct attn_view lengths;

    ATTN_INIT(&lengths);
    begin(model, two);
    struct attn_metadata *metadata = build(model->builder, two, &graph);
    need(attn_state_prepare(model->state, metadata, NULL, &err));
    need(attn_state_begin_forward(clone, captured, NULL, &err));
    need(forward(model, clone, captured));
    need(attn_state_get_input(clone, ATTN_FIELD_SEQ_LENS_TENSOR, 0, &lengths, &err));
    const char *at = lengths.host;
    check(lengths.shape[0] == 3 && *(const int32_t *)(const void *)at == (int32_t)lens[1] + 1 &&
              *(const int32_t *)(const void *)(at + 2 * lengths.stride) == 0,
          "the buffers of three sequences hold the two and one without keys", "other lengths");
    judge(model, two, 1, "a step in captured buffers");
    begin(model, two);
    metadata = build(model->builder, two, &graph);
    need(attn_state_begin_forward(model->state, metadata, NULL, &err));
    need(forward(model, model->state, metadata));
    refused(forward(model, clone, captured), ATTN_E_STATE, "metadata", "begin_forward",
            "which ends that of the clone");
    judge(model, two, 1, "a step of a captured size, begun with the state");
}

static void test_captures(struct model *model)
{
    static const struct entry two[] = {{1, 0, 1}, {3, 0, 1}, {0}};
    static const uint32_t own[] = {9, 3, 1}, others[] = {2, 4, 8};
    const struct attn_builder_build_args graph = {.struct_size = sizeof graph, .graph = 1};
    const struct attn_builder_build_args padded = {.struct_size = sizeof padded, .graph = 1, .pad = 1};
    struct attn_metadata *metadata[3], *step;
    struct attn_state *clones[3];
    char name[60];

    need(attn_state_begin_capture(model->state, 9, NULL, &err));
    for (int i = 0; i < 3; i++) {
        const struct attn_state_capture_args args = {.struct_size = sizeof args, .batch = others[i]};
        snprintf(name, sizeof name, "a size of %u is not captured", others[i]);
        refused(attn_state_get_capture_metadata(model->state, &args, NULL, &step, &err), ATTN_E_UNSUPPORTED,
                "batch", "1, 3, 9 and so on", name);
        clones[i] = capture(model, own[i], &metadata[i]);
    }
    const struct attn_state_capture_args drafted = {.struct_size = sizeof drafted, .batch = 3, .tokens = 2};
    refused(attn_state_get_capture_metadata(model->state, &drafted, NULL, &step, &err), ATTN_E_UNSUPPORTED,
            "batch", "of one token", "nor is a size of two tokens each");
    need(attn_state_end_capture(model->state, &err));
    run_captured(model, clones[1], metadata[1]);
    refused(attn_state_prepare(model->state, build(model->builder, two, &graph), NULL, &err), ATTN_E_STATE,
            "batch", "no size of 2", "a step of another size finds no clone");
    step = build(model->builder, two, &padded);
    need(attn_state_begin_forward(model->state, step, NULL, &err));
    attn_state_destroy(clones[1]);
    refused(forward(model, model->state, step), ATTN_E_STATE, "metadata", "begin_forward",
            "a step in the buffers of a clone ends with it");
    refused(attn_state_prepare(model->state, step, NULL, &err), ATTN_E_STATE, "batch", "no size of 3",
            "and no other one finds it");
    attn_state_destroy(clones[0]);
    attn_state_destroy(clones[2]);
}

/* ---------------------------------------------------------------- refusals */

static void test_refusals(struct model *own, struct model *other)
{
    static const struct entry one[] = {{0, 0, 1}, {0}};
    struct attn_builder *bare = make_builder(NULL, ATTN_FLASH_ATTN, &own->group);
    struct attn_metadata *mine = build(own->builder, one, NULL), *theirs = build(other->builder, one, NULL);
    struct attn_layer *layer = own->layer;
    struct attn_kv *kv = own->kv;
    char words[100];

    snprintf(words, sizeof words, "built for %s and the state for own/mystyle",
             attn_backend_get_name(other->backend));
    refused(attn_state_begin_forward(own->state, theirs, NULL, &err), ATTN_E_INVALID, "metadata", words,
            "metadata of another backend's builder");
    refused(attn_state_prepare(own->state, theirs, NULL, &err), ATTN_E_INVALID, "metadata", words,
            "the same, to be prepared");
    refused(attn_state_begin_forward(other->state, mine, NULL, &err), ATTN_E_INVALID, "metadata",
            "built for own/mystyle", "and the other way round");
    refused(attn_state_begin_forward(own->state, build(bare, one, NULL), NULL, &err), ATTN_E_INVALID,
            "metadata", "built for no backend", "metadata of a builder without a backend");
    need(attn_state_begin_forward(own->state, mine, NULL, &err));
    own->layer = other->layer;
    refused(forward(own, own->state, mine), ATTN_E_INVALID, "layer", "and the state for own/mystyle",
            "a layer of another backend");
    own->layer = layer;
    own->kv = other->kv;
    refused(forward(own, own->state, mine), ATTN_E_INVALID, "kv", "and the state for own/mystyle",
            "a cache of another backend");
    own->kv = kv;
    refused(forward(own, own->state, theirs), ATTN_E_INVALID, "metadata", words,
            "a layer with foreign metadata");
    attn_builder_destroy(bare);
}

static int64_t slot_of(const struct attn_metadata *metadata)
{
    struct attn_view slots;

    ATTN_INIT(&slots);
    need(attn_metadata_get(metadata, ATTN_FIELD_SLOT_MAPPING, 0, &slots, &err));
    return *(const int64_t *)slots.host;
}

/* Blocks of a built step are changed, and stay in the row for the next one. */
static void test_rows(struct model *model)
{
    static const struct entry one[] = {{0, 0, 1}, {0}};
    const int64_t block = 38;
    const struct attn_builder_row_args row = {
        .struct_size = sizeof row, .first = lens[0] / BLOCK, .count = 1, .blocks = &block};
    const struct attn_blocks as_is = {.kind = ATTN_BLOCKS_ROW, .count = WIDTH};
    const struct attn_builder_add_args add = {
        .struct_size = sizeof add, .context_len = lens[0], .query_len = 1, .blocks = &as_is};
    const struct attn_builder_add_args late = {
        .struct_size = sizeof late, .prompt = 1, .query_len = 1, .blocks = &as_is};
    struct attn_metadata *metadata = build(model->builder, one, NULL);
    const int64_t before = slot_of(metadata), wanted = block * BLOCK + lens[0] % BLOCK;

    refused(attn_builder_set_row(model->builder, NULL, &err), ATTN_E_INVALID, "args", "args is NULL",
            "a change of no row");
    need(attn_builder_set_row(model->builder, &row, &err));
    check(before != wanted && slot_of(metadata) == wanted, "a changed block changes the slot", "it did not");
    need(attn_builder_reset(model->builder, &err));
    need(attn_builder_add(model->builder, &add, &err));
    refused(attn_builder_add(model->builder, &late, &err), ATTN_E_INVALID, "prompt", "add prompts first",
            "a prompt behind a decode");
    need(attn_builder_build(model->builder, NULL, NULL, &metadata, &err));
    check(slot_of(metadata) == wanted, "a row as it stands has it too", "it has not");
}

static void test_mystyle(struct model *model)
{
    static const struct entry one[] = {{0, 0, 1}, {0}};
    struct attn_builder_params params = {.struct_size = sizeof params,
                                         .flavour = ATTN_FLASHINFER,
                                         .group = &model->group,
                                         .max_seqs = 1,
                                         .max_tokens = 1};
    const struct attn_builder_device_args device = {.struct_size = sizeof device};
    const struct attn_collectives net = {.struct_size = sizeof net};
    const struct attn_state_params ranks = {
        .struct_size = sizeof ranks, .group = &model->group, .collectives = &net};
    struct attn_metadata *metadata = build(model->builder, one, NULL), *part;
    struct attn_builder *builder;
    struct attn_state *state;

    need(attn_state_begin_forward(model->state, metadata, NULL, &err));
    build(model->builder, one, NULL);
    refused(forward(model, model->state, metadata), ATTN_E_STATE, "metadata", "begin_forward",
            "a step that was built again has to be begun again");
    refused(attn_metadata_get_part(metadata, ATTN_PART_DECODE, &part, &err), ATTN_E_UNSUPPORTED, "metadata",
            "builder has none", "a call that the builder leaves out");
    need(attn_builder_reset(model->builder, &err));
    refused(attn_builder_set_device(model->builder, &device, &err), ATTN_E_UNSUPPORTED, "set_device",
            "the backend's builder has no set_device", "another one");
    refused(attn_builder_create(model->backend, &params, &builder, &err), ATTN_E_UNSUPPORTED, "flavour",
            "flavour 0", "a flavour of the list");
    refused(attn_state_create(model->backend, &model->class, 1, &ranks, &state, &err), ATTN_E_UNSUPPORTED,
            "collectives", "the state of own/mystyle has no ranks",
            "ranks, of which the state knows nothing");
    refused(attn_state_wait(model->state, NULL, &err), ATTN_E_UNSUPPORTED, "state",
            "the state of own/mystyle has none", "nor does it wait for them");
}

static void test_borrowed(struct model *model)
{
    const struct attn_builder_build_args graph = {.struct_size = sizeof graph, .graph = 1};
    struct attn_metadata *metadata;

    need(attn_builder_reset(model->builder, &err));
    refused(attn_builder_build(model->builder, &graph, NULL, &metadata, &err), ATTN_E_UNSUPPORTED, "graph",
            "own/borrowed captures nothing", "the function that replaces one of libattn-serving");
}

/* ---------------------------------------------------------------- parts of a model */

/* Prompts on one backend of the plugin, decodes on the other: the builders differ, a cache can be shared. */
static void test_parts(struct model *model)
{
    struct attn_model_part parts[2];
    const struct attn_part_decision *decodes;
    struct attn_parts *out;

    for (uint32_t i = 0; i < 2; i++) {
        ATTN_INIT(&parts[i]);
        parts[i].phase = i == 0 ? ATTN_PHASE_PREFILL : ATTN_PHASE_DECODE;
        parts[i].problem = &model->problem;
        parts[i].backend = i == 0 ? "own/mystyle" : "own/borrowed";
    }
    need(attn_select_parts(model->context, parts, 2, NULL, &out, &err));
    decodes = attn_parts_get_decision(out, 1);
    check(decodes->metadata_part == 1 &&
              strcmp(decodes->metadata_text, "parts[0]: builder: own/mystyle and own/borrowed") == 0,
          "a builder of the plugin's own serves its own backend alone", decodes->metadata_text);
    check(decodes->cache_part == 0, "both write and read one cache", decodes->cache_text);
    attn_parts_destroy(out);
}

int main(void)
{
    static struct model mystyle, borrowed, cpu;

    model_open(&mystyle, "own/mystyle", "shelf:0");
    model_open(&borrowed, "borrowed", "shelf");
    model_open(&cpu, "cpu/flash-attn", "cpu");
    test_steps(&mystyle);
    test_captures(&mystyle);
    test_refusals(&mystyle, &borrowed);
    test_refusals(&mystyle, &cpu);
    test_mystyle(&mystyle);
    test_rows(&mystyle);
    test_steps(&borrowed);
    test_borrowed(&borrowed);
    test_parts(&mystyle);
    model_close(&cpu);
    model_close(&borrowed);
    model_close(&mystyle);
    printf("1..%u\n", count);
    return failed != 0;
}
