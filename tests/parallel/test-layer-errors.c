/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What builder, state and layers with ranks refuse, and what the failure of another rank looks like. */
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"
#include "ranks.h"

static const struct engine_options two = {2, 2, ATTN_CP_HEADS_ALL, false};
static const struct engine_options none = {0};

static struct shape_fixture cpu;

static void open_cpu(void)
{
    fixture_open(&cpu, NULL);
}

static void close_cpu(void)
{
    fixture_close(&cpu);
}

TestSuite(layer_errors, .init = open_cpu, .fini = close_cpu);

static void expect(int32_t status, const struct attn_error *err, int32_t wanted, const char *field,
                   const char *message)
{
    cr_assert_eq(status, wanted, "status %d for %d, %s: %s", status, wanted, field, err->message);
    cr_assert_str_eq(err->field, field);
    cr_assert_str_eq(err->message, message);
}

/* ---------------------------------------------------------------- builder */

static void refuse_builder(const struct attn_builder_params *params, int32_t wanted, const char *field,
                           const char *message)
{
    struct attn_builder *builder = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    expect(attn_builder_create(NULL, params, &builder, &err), &err, wanted, field, message);
    cr_assert_null(builder);
}

Test(layer_errors, parameters_of_a_builder)
{
    struct attn_builder_params right, params;
    struct attn_builder_group group;
    struct engine e;

    engine_describe(&e, &two, 1);
    engine_builder_params(&e, &right);
    params = right;
    params.cp_rank = 2;
    refuse_builder(&params, ATTN_E_INVALID, "cp_rank", "cp_rank is 2; accepted: below cp_world, 2");
    params = right;
    params.cp_world = 0;
    refuse_builder(&params, ATTN_E_INVALID, "cp_world",
                   "cp_world is 0, cp_rank 1 and cp_interleave 2; accepted: all 0, or 1 rank and more");
    for (uint32_t interleave = 0; interleave <= 8; interleave += 8) {
        params = right;
        params.cp_interleave = interleave;
        refuse_builder(&params, ATTN_E_INVALID, "cp_interleave",
                       interleave == 0
                           ? "cp_interleave is 0; accepted: divisors of the block of each cache group, 4"
                           : "cp_interleave is 8; accepted: divisors of the block of each cache group, 4");
    }
    params = right;
    params.chunked = 0;
    refuse_builder(&params, ATTN_E_INVALID, "chunked",
                   "chunked is 0 and cp_world 2; with ranks prompts are read from the caches too: 1 is "
                   "accepted");
    params = right;
    params.max_encoder_tokens = 7;
    refuse_builder(&params, ATTN_E_UNSUPPORTED, "max_encoder_tokens",
                   "max_encoder_tokens is 7 and cp_world 2; encoders and cross-attention have no ranks: 0 is "
                   "accepted");
    params = right;
    params.flavour = ATTN_FLASHINFER;
    refuse_builder(
        &params, ATTN_E_UNSUPPORTED, "flavour",
        "flavour is flashinfer and cp_world 2; with ranks flavours whose kernels read block tables "
        "are accepted: flash-attn, rocm-flash, xformers");
    params = right;
    group = *right.group;
    group.given = ATTN_GIVEN_WINDOW;
    group.window = 9;
    params.group = &group;
    refuse_builder(
        &params, ATTN_E_UNSUPPORTED, "window",
        "window is 9 and cp_world 2; with ranks no rows are trimmed to a window: none is accepted, "
        "and layers have theirs");
}

static struct attn_builder *make_builder(struct engine *e, const struct engine_options *options)
{
    struct attn_builder_params params;
    struct attn_error err;

    ATTN_INIT(&err);
    engine_describe(e, options, options->world > 0);
    engine_builder_params(e, &params);
    cr_assert_eq(attn_builder_create(NULL, &params, &e->builder, &err), ATTN_OK, "%s", err.message);
    return e->builder;
}

Test(layer_errors, sequences_of_a_builder)
{
    const int64_t pages[] = {0, 1, 2};
    struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST, .blocks = pages, .count = 1};
    struct attn_builder_add_args args;
    struct attn_error err;
    struct engine e;
    struct attn_builder *builder = make_builder(&e, &two);

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    args.prompt = 1;
    args.query_len = 11; /* 5 of these are here */
    args.blocks = &blocks;
    expect(attn_builder_add(builder, &args, &err), &err, ATTN_E_INVALID, "blocks",
           "the sequence has 1 blocks of 4 tokens; 2 are needed");
    blocks.count = 2;
    blocks.seq_len = 10;
    expect(attn_builder_add(builder, &args, &err), &err, ATTN_E_UNSUPPORTED, "seq_len",
           "seq_len is 10 and cp_world 2; with ranks no lengths are trimmed to a window: 0 and 11 are "
           "accepted");
    blocks.seq_len = 0;
    blocks.window_blocks = 1;
    expect(attn_builder_add(builder, &args, &err), &err, ATTN_E_UNSUPPORTED, "window_blocks",
           "window_blocks is 1 and cp_world 2; with ranks no rows are trimmed to a window: 0 is accepted");
    blocks.window_blocks = 0;
    for (uint32_t kind = 0; kind <= ATTN_BLOCKS_NULL; kind += ATTN_BLOCKS_NULL) {
        blocks.kind = kind;
        expect(attn_builder_add(builder, &args, &err), &err, ATTN_E_UNSUPPORTED, "kind",
               kind == 0 ? "kind is 0 and cp_world 2; with ranks keys are read from the caches alone: "
                           "ATTN_BLOCKS_LIST and ATTN_BLOCKS_ROW are accepted"
                         : "kind is 2 and cp_world 2; with ranks keys are read from the caches alone: "
                           "ATTN_BLOCKS_LIST and ATTN_BLOCKS_ROW are accepted");
    }
    blocks.kind = ATTN_BLOCKS_LIST;
    cr_assert_eq(attn_builder_add(builder, &args, &err), ATTN_OK, "%s", err.message);
    attn_builder_destroy(builder);
}

static void refuse_device(struct attn_builder *builder)
{
    static int32_t zeros[2] = {0, 1};
    const struct attn_batch *batches[1];
    struct attn_builder_device_args args;
    struct attn_batch batch;
    struct attn_error err;

    ATTN_INIT(&args);
    ATTN_INIT(&batch);
    ATTN_INIT(&err);
    batch.seqs = batch.num_tokens = batch.max_q = batch.max_kv = 1;
    batch.q_offsets.data = batch.kv_lens.data = batch.table.data = zeros;
    batch.table_width = 1;
    batch.table_stride = sizeof zeros;
    batches[0] = &batch;
    args.batches = batches;
    expect(attn_builder_set_device(builder, &args, &err), &err, ATTN_E_UNSUPPORTED, "cp_world",
           "cp_world is 2; steps of ranks are added, not set on the device");
}

Test(layer_errors, steps_of_a_builder)
{
    static const char written[] = "cp_world is 2; steps of ranks are neither written nor restored, as each "
                                  "rank has slots and blocks of "
                                  "its own: its builder is given the sequences";
    const struct engine_part decode[] = {{0, 1, false, 0, 0, false}};
    static char data[1 << 16];
    struct attn_builder_build_args args;
    struct attn_metadata *metadata = NULL;
    struct attn_error err;
    struct engine e, plain;
    struct attn_builder *builder = make_builder(&e, &two);
    uint64_t size = 0;

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    refuse_device(builder);
    engine_build(&e, decode, 1);
    expect(attn_metadata_serialise(e.metadata, data, sizeof data, &size, &err), &err, ATTN_E_UNSUPPORTED,
           "cp_world", written);
    make_builder(&plain, &none);
    engine_build(&plain, decode, 1);
    cr_assert_eq(attn_metadata_serialise(plain.metadata, data, sizeof data, &size, &err), ATTN_OK, "%s",
                 err.message);
    expect(attn_builder_restore(builder, data, size, NULL, &metadata, &err), &err, ATTN_E_UNSUPPORTED,
           "cp_world", written);
    attn_builder_destroy(plain.builder);
    attn_builder_destroy(builder);
}

/* Token 12 is the first of this rank's second block of 4, which the row does not have. */
Test(layer_errors, an_advance_beyond_the_blocks_of_the_rank)
{
    const struct engine_options options = {2, 4, ATTN_CP_HEADS_ALL, false};
    const struct engine_part decode[] = {{0, 1, false, 0, 0, false}};
    struct attn_advance_args args;
    struct attn_error err;
    struct engine e;

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    make_builder(&e, &options);
    e.sequences[0].len = 10;
    engine_build(&e, decode, 1);
    args.seqs = args.queries = 1;
    expect(attn_metadata_advance_step(e.metadata, &args, NULL, &err), &err, ATTN_OK, "", "");
    expect(attn_metadata_advance_step(e.metadata, &args, NULL, &err), &err, ATTN_E_INVALID, "block_tables",
           "sequence 0 grows to 5 tokens on this rank, but its row of block_tables has 1 blocks of 4");
    attn_builder_destroy(e.builder);
}

/* ---------------------------------------------------------------- state */

static void refuse_state(struct engine *e, const struct attn_state_params *params, int32_t wanted,
                         const char *field, const char *message)
{
    struct attn_state *state = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    expect(attn_state_create(cpu.backend, e->classes, CLASSES, params, &state, &err), &err, wanted, field,
           message);
    cr_assert_null(state);
}

static void create_wrong(struct rank *rank)
{
    struct attn_state_params right, params;
    struct engine e;

    engine_describe(&e, &two, rank->number);
    engine_state_params(&e, &rank->net, &right);
    params = right;
    params.collectives = NULL;
    refuse_state(&e, &params, ATTN_E_INVALID, "cp",
                 "classes[0]: cp is 1, and the state has no collectives; give it those of the ranks, or a "
                 "problem with cp=0");
    engine_describe(&e, &none, 0);
    refuse_state(&e, &params, ATTN_E_INVALID, "cp_heads",
                 "cp_heads is 2, but collectives is NULL; 0 is accepted without them");
    params.cp_heads = 0;
    params.cp_interleave = 4;
    refuse_state(&e, &params, ATTN_E_INVALID, "cp_interleave",
                 "cp_interleave is 4, but collectives is NULL; 0 is accepted without them");
    engine_describe(&e, &two, rank->number);
    params = right;
    params.cp_heads = 0;
    refuse_state(&e, &params, ATTN_E_INVALID, "cp_heads",
                 "cp_heads is 0; accepted: ATTN_CP_HEADS_SPLIT or ATTN_CP_HEADS_ALL");
    params.cp_heads = ATTN_CP_TOKENS;
    refuse_state(&e, &params, ATTN_E_INVALID, "cp_heads",
                 "cp_heads is 3; accepted: ATTN_CP_HEADS_SPLIT or ATTN_CP_HEADS_ALL");
    params = right;
    params.flavour = ATTN_FLASHINFER;
    for (uint32_t i = 0; i < CLASSES; i++)
        e.problem[i].addressing = ATTN_CSR;
    refuse_state(&e, &params, ATTN_E_UNSUPPORTED, "collectives",
                 "collectives are given to a state of flavour flashinfer; with ranks flavours whose kernels "
                 "read block tables are accepted: flash-attn, rocm-flash, xformers");
    engine_describe(&e, &two, rank->number);
    e.problem[1].lse = 0;
    refuse_state(&e, &right, ATTN_E_INVALID, "lse",
                 "classes[1]: lse of the problem is 0; accepted: 1, as parts of ranks are merged by their "
                 "LSE");
    e.problem[1].lse = 1;
    e.problem[1].cp = 0;
    refuse_state(
        &e, &right, ATTN_E_INVALID, "cp",
        "classes[1]: cp of the problem is 0; accepted: 1, as parts of ranks are merged by their LSE");
    e.problem[1].cp = 1;
    e.problem[1].kv_source = ATTN_KV_NEW;
    refuse_state(&e, &right, ATTN_E_INVALID, "kv_source",
                 "classes[1]: kv_source is new; with cp=1 keys are read from the cache alone: "
                 "kv_source=cache");
}

Test(layer_errors, parameters_of_a_state)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 30, create_wrong, NULL);
}

/* A step of ranks for a state without, the reverse, and one of another rank. */
static void begin_wrong(struct rank *rank)
{
    const struct engine_part decode[] = {{0, 1, false, 0, 0, false}};
    struct engine with, without, other;
    struct attn_error err;

    ATTN_INIT(&err);
    engine_open(&with, cpu.backend, &two, rank->number, &rank->net);
    engine_open(&without, cpu.backend, &none, 0, NULL);
    engine_build(&with, decode, 1);
    engine_build(&without, decode, 1);
    expect(attn_state_begin_forward(without.state, with.metadata, NULL, &err), &err, ATTN_E_INVALID,
           "cp_world",
           rank->number == 0 ? "the step was built with cp_rank=0 cp_world=2; the state has no collectives: "
                               "cp_rank=0 cp_world=0 are accepted"
                             : "the step was built with cp_rank=1 cp_world=2; the state has no collectives: "
                               "cp_rank=0 cp_world=0 are accepted");
    expect(attn_state_begin_forward(with.state, without.metadata, NULL, &err), &err, ATTN_E_INVALID,
           "cp_world",
           rank->number == 0 ? "the step was built with cp_rank=0 cp_world=0; the state has collectives: "
                               "cp_rank=0 cp_world=2 are accepted"
                             : "the step was built with cp_rank=0 cp_world=0; the state has collectives: "
                               "cp_rank=1 cp_world=2 are accepted");
    engine_open(&other, cpu.backend, &two, 1 - rank->number, &rank->net);
    engine_build(&other, decode, 1);
    cr_assert_eq(engine_begin(&other, &err), ATTN_E_INVALID);
    expect(attn_state_wait(without.state, NULL, &err), &err, ATTN_E_INVALID, "state",
           "attn_state_wait: the state has no collectives; attn_stream_synchronize waits for one rank");
    engine_close(&other);
    engine_close(&without);
    engine_close(&with);
}

Test(layer_errors, steps_of_other_ranks)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 30, begin_wrong, NULL);
}

/* ---------------------------------------------------------------- a device with memory of its own */

static struct attn_backend *open_device(struct attn_context **context)
{
    char path[1024];
    const char *variables[] = {path}, *directory = getenv("DEVICE_MEMORY_DIR");
    struct attn_context_options options;
    struct attn_select_options select;
    struct attn_open_config config;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_problem problem;
    struct attn_error err;

    ATTN_INIT(&options);
    ATTN_INIT(&select);
    ATTN_INIT(&config);
    ATTN_INIT(&err);
    cr_assert_not_null(directory);
    snprintf(path, sizeof path, "ATTN_PLUGIN_PATH=%s", directory);
    options.variables = variables;
    options.variable_count = 1;
    select.backend = "device-memory/flash-attn";
    fixture_problem("heads=4 kv_heads=2 head_dim=16 q=f32 block=4 lse=1 cp=1", &problem);
    cr_assert_eq(attn_context_create(&options, context, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_select(*context, &problem, 1, &select, &decision, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_backend_open(*context, decision, &config, &backend, &err), ATTN_OK, "%s", err.message);
    attn_decision_destroy(decision);
    return backend;
}

static void refuse_on_device(struct rank *rank)
{
    const struct engine_part decode[] = {{0, 1, false, 0, 2, false}};
    struct attn_context *context = NULL;
    struct attn_builder_params builder;
    struct attn_state_params params;
    struct attn_advance_args args;
    struct attn_state *state = NULL;
    struct attn_error err;
    struct engine e;

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    engine_describe(&e, &two, rank->number);
    e.backend = open_device(&context);
    engine_builder_params(&e, &builder);
    cr_assert_eq(attn_builder_create(e.backend, &builder, &e.builder, &err), ATTN_OK, "%s", err.message);
    engine_build(&e, decode, 1);
    args.seqs = args.queries = 1;
    expect(attn_metadata_advance_step(e.metadata, &args, NULL, &err), &err, ATTN_E_UNSUPPORTED, "cp_world",
           "device-memory/flash-attn: metadata advance: cp_world is 2; on a device with memory of its own "
           "steps of ranks do not advance: the next one is to be built");
    engine_state_params(&e, &rank->net, &params);
    expect(
        attn_state_create(e.backend, e.classes, CLASSES, &params, &state, &err), &err, ATTN_E_UNSUPPORTED,
        "collectives.device",
        "classes[0]: the collectives work on host memory, and device-memory/flash-attn computes in that of "
        "device-memory:0; accepted: collectives with device=1");
    attn_builder_destroy(e.builder);
    attn_backend_destroy(e.backend);
    attn_context_destroy(context);
}

Test(layer_errors, a_device_with_memory_of_its_own)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 30, refuse_on_device, NULL);
}

/* ---------------------------------------------------------------- graphs */

static int32_t capture(struct engine *e, struct attn_error *err)
{
    const struct engine_part decode[] = {{0, 1, false, 0, 0, false}};
    struct attn_layer_tensors tensors;
    struct attn_graph *graph = NULL;
    struct attn_error own;
    void *stream = NULL;
    static float q[HEADS][DIM];

    ATTN_INIT(&tensors);
    ATTN_INIT(&own);
    tensors.q = tensors.out = fixture_tensor(q, sizeof q, sizeof q[0]);
    tensors.k_new = tensors.v_new = tensors.q;
    engine_build(e, decode, 1);
    cr_assert_eq(attn_stream_create(e->backend, &stream, &own), ATTN_OK);
    cr_assert_eq(attn_state_begin_forward(e->state, e->metadata, stream, &own), ATTN_OK, "%s", own.message);
    cr_assert_eq(attn_graph_begin(e->backend, stream, &graph, &own), ATTN_OK, "%s", own.message);
    const int32_t status =
        attn_layer_forward(e->layers[0], e->state, e->metadata, e->kv[0], &tensors, stream, err);
    (void)attn_graph_end(graph, &own);
    attn_graph_destroy(graph);
    attn_stream_destroy(e->backend, stream);
    return status;
}

static void capture_wrong(struct rank *rank)
{
    struct attn_error err;
    struct engine e;

    ATTN_INIT(&err);
    engine_open(&e, cpu.backend, &two, rank->number, &rank->net);
    expect(
        attn_state_begin_capture(e.state, 4, NULL, &err), &err, ATTN_E_UNSUPPORTED, "collectives",
        "attn_state_begin_capture: the collectives of 2 ranks are work of the host, which is not captured; "
        "those with device=1 are accepted");
    const int32_t status = capture(&e, &err);
    expect(status, &err, ATTN_E_UNSUPPORTED, "stream",
           "layers over the keys of several ranks are not captured: cpu/flash-attn: stream synchronize: "
           "nothing can be waited for while it is captured");
    engine_close(&e);
    rank->net.device = 1;
    engine_open(&e, cpu.backend, &two, rank->number, &rank->net);
    expect(attn_state_begin_capture(e.state, 4, NULL, &err), &err, ATTN_E_INVALID, "cp_interleave",
           "attn_state_begin_capture: cp_interleave of the state is 0; that of the builders is accepted");
    engine_close(&e);
}

/* A state whose graphs have tables of two columns, and so room for 8 keys on a rank. */
static struct attn_state *capture_few(struct engine *e, const struct attn_collectives *net,
                                      struct attn_state **clone)
{
    struct attn_state_capture_args args;
    struct attn_state_params params;
    struct attn_state *state = NULL;
    struct attn_metadata *metadata = NULL;
    struct attn_error err;

    ATTN_INIT(&args);
    ATTN_INIT(&err);
    e->group.graph_blocks = 2;
    engine_state_params(e, net, &params);
    args.batch = GRAPH_SEQS;
    args.num_tokens = GRAPH_TOKENS;
    cr_assert_eq(attn_state_create(cpu.backend, e->classes, CLASSES, &params, &state, &err), ATTN_OK, "%s",
                 err.message);
    cr_assert_eq(attn_state_begin_capture(state, GRAPH_SEQS, NULL, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_state_get_capture_metadata(state, &args, NULL, &metadata, &err), ATTN_OK, "%s",
                 err.message);
    cr_assert_eq(attn_state_clone(state, GRAPH_SEQS, clone, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_state_end_capture(state, &err), ATTN_OK, "%s", err.message);
    return state;
}

/* Steps of another interleave than the graphs', and of more keys, in all and on this rank, than these were
 * captured for. */
static void begin_captured(struct rank *rank)
{
    const struct engine_options graphs = {2, 2, ATTN_CP_HEADS_ALL, true},
                                other = {2, 4, ATTN_CP_HEADS_ALL, false};
    const struct engine_part decode[] = {{0, 1, false, 0, 0, false}};
    struct attn_builder_params params;
    const struct engine_part prompt[] = {{1, 10, true, 0, 0, false}};
    struct attn_state *clone = NULL;
    struct attn_error err;
    struct engine e, builder;

    ATTN_INIT(&err);
    rank->net.device = 1;
    engine_open(&e, cpu.backend, &graphs, rank->number, &rank->net);
    engine_describe(&builder, &other, rank->number);
    engine_builder_params(&builder, &params);
    cr_assert_eq(attn_builder_create(cpu.backend, &params, &builder.builder, &err), ATTN_OK, "%s",
                 err.message);
    engine_build(&builder, decode, 1);
    expect(attn_state_begin_forward(e.state, builder.metadata, NULL, &err), &err, ATTN_E_INVALID,
           "cp_interleave", "the step was built with cp_interleave=4; 2, the state's, is accepted");
    attn_builder_destroy(builder.builder);
    e.sequences[0].len = LONGEST;
    engine_build(&e, decode, 1);
    expect(engine_begin(&e, &err), &err, ATTN_E_SIZE, "seq_lens_tensor",
           "seq_lens_tensor[0] is 65; graphs were captured for 0 to 64 tokens");
    struct attn_state *few = capture_few(&e, &rank->net, &clone);
    e.sequences[1].len = 10;
    engine_build(&e, prompt, 1); /* the builder has kept its wide tables */
    expect(attn_state_begin_forward(few, e.metadata, NULL, &err), &err, ATTN_E_SIZE, "kv_lens",
           "kv_lens[0] is 10; graphs were captured for 0 to 8 tokens");
    attn_state_destroy(clone);
    attn_state_destroy(few);
    engine_close(&e);
}

Test(layer_errors, captures)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 30, capture_wrong, NULL);
    ranks_run(ranks, 2, 30, begin_captured, NULL);
}

/* ---------------------------------------------------------------- another rank */

/* Rank 1 has no step for its layer, so that rank 0 meets nobody. */
static void fail_alone(struct rank *rank)
{
    const struct engine_part prompt[] = {{0, 9, true, 0, 0, false}};
    struct engine_result *out = calloc(CLASSES, sizeof *out);
    struct engine e;

    cr_assert_not_null(out);
    engine_open(&e, cpu.backend, &two, rank->number, &rank->net);
    engine_build(&e, prompt, 1);
    if (rank->number == 0)
        cr_assert_eq(engine_begin(&e, &rank->err), ATTN_OK, "%s", rank->err.message);
    rank->status = engine_run(&e, out, &rank->err);
    engine_close(&e);
    free(out);
}

Test(layer_errors, a_rank_that_does_not_come_is_told)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 0.2, fail_alone, NULL);
    cr_assert_eq(ranks[1].status, ATTN_E_STATE, "%s", ranks[1].err.message);
    cr_assert_eq(ranks[0].status, ATTN_E_PEER);
    cr_assert_str_eq(ranks[0].err.message, "rank 1 of 2 did not come to all_gather within 0.2 s");
}
