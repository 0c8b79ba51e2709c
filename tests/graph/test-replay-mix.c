/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Graphs of any mix of prompts and decodes: which sizes are captured, which steps go to which of them, what
 * is refused and that it leaves the buffers alone, and layers captured alone. On the CPU, and on a device
 * that the host cannot reach and whose stream is late.
 */
#include "metadata.h"
#include "queue.h"
#include "scene.h"
#include "serving/handle.h"
#include "tap.h"
#include "world.h"

enum { ROOM = 8 }; /* blocks are there for so many new tokens of each */

static bool is_infer(const struct scene *scene)
{
    return scene->stack.config->flavour == ATTN_FLASHINFER;
}

static void make_room(struct scene *scene)
{
    scene->crowd.tokens = ROOM;
    crowd_reserve(&scene->crowd);
    scene->crowd.tokens = 0;
}

static struct scene *make_scene(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);

    make_room(scene);
    return scene;
}

/* The step that comes: query tokens of each sequence, of which the first `prompts` are prompts. */
static struct attn_metadata *mix(struct scene *scene, uint32_t prompts, uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t new_len[] = {a, b, c};

    scene->crowd.seqs = c > 0 ? 3 : 2;
    for (uint32_t i = 0; i < 3; i++) {
        scene->crowd.seq[i].new_len = new_len[i];
        scene->crowd.seq[i].prompt = i < prompts;
    }
    return scene_step(scene, 0);
}

/* ---------------------------------------------------------------- sizes */

static int32_t take_size(struct attn_state *state, const struct attn_state_capture_args *args)
{
    struct attn_metadata *metadata = NULL;

    return attn_state_get_capture_metadata(state, args, NULL, &metadata, &err);
}

static int32_t get_size(struct attn_state *state, uint32_t batch, uint32_t num_tokens)
{
    struct attn_state_capture_args args;

    ATTN_INIT(&args);
    args.batch = batch;
    args.num_tokens = num_tokens;
    return take_size(state, &args);
}

/* Another state of the stack's classes, which captures. */
static struct attn_state *other_state(struct scene *scene, uint32_t capture_num_tokens, uint32_t window)
{
    struct stack *stack = &scene->stack;
    struct attn_builder_group groups[CROWD_GROUPS];
    struct attn_state_params params;
    struct attn_state *state = NULL;

    ATTN_INIT(&params);
    for (uint32_t g = 0; g < CROWD_GROUPS; g++) {
        groups[g] = stack->eager.groups[g];
        groups[g].given |= window > 0 ? ATTN_GIVEN_WINDOW : 0;
        groups[g].window = window;
    }
    params.flavour = stack->config->flavour;
    params.group = groups;
    params.groups = CROWD_GROUPS;
    params.capture_tokens = 2;
    params.capture_num_tokens = capture_num_tokens;
    must(attn_state_create(stack->backend, stack->classes, STACK_CLASSES, &params, &state, &err));
    must(attn_state_begin_capture(state, 8, NULL, &err));
    return state;
}

static void refuse_classes(struct scene *scene)
{
    struct attn_problem *problem = &scene->stack.problems[1], kept = *problem;

    problem->graph = ATTN_GRAPH_UNIFORM;
    struct attn_state *state = other_state(scene, CROWD_ROWS, 0);
    REFUSED(get_size(state, 4, 8), ATTN_E_INVALID, "graph");
    check(strstr(err.message, "classes[1]") != NULL && strstr(err.message, "graph=always") != NULL,
          "the class and the level are named", scene->stack.config->name);
    attn_state_destroy(state);
    must(attn_problem_parse("type=encoder_decoder q=f32 heads=4 kv_heads=2 head_dim=32 block=4 addr=table "
                            "graph=always max_seqs=8 max_q=6 max_kv=88 max_rows=32",
                            problem, &err));
    state = other_state(scene, CROWD_ROWS, 0);
    REFUSED(get_size(state, 4, 8), ATTN_E_INVALID, "type");
    attn_state_destroy(state);
    *problem = kept;
}

static void test_sizes(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = make_scene(backend, config);
    struct attn_state *state = other_state(scene, 0, 0);
    struct attn_state_capture_args args;

    REFUSED(get_size(state, 4, 1), ATTN_E_INVALID, "num_tokens");
    attn_state_destroy(state);
    state = other_state(scene, 2 * CROWD_ROWS, 0);
    REFUSED(get_size(state, 4, 2 * CROWD_ROWS + 1), ATTN_E_INVALID, "num_tokens");
    REFUSED(get_size(state, 8, CROWD_ROWS + 1), ATTN_E_INVALID, "num_tokens");
    REFUSED(get_size(state, 4, 4 * CROWD_CHUNK + 1), ATTN_E_INVALID, "num_tokens");
    ATTN_INIT(&args);
    args.batch = 4;
    args.num_tokens = 8;
    args.tokens = 2;
    REFUSED(take_size(state, &args), ATTN_E_INVALID, "tokens");
    args.tokens = 1;
    check(take_size(state, &args) == ATTN_OK, "one token of each is what there is anyway", config->name);
    args.encoder_decoder = 1;
    REFUSED(take_size(state, &args), ATTN_E_INVALID, "encoder_decoder");
    check(get_size(state, 8, 2) == ATTN_OK, "a graph may have more sequences than query tokens",
          config->name);
    attn_state_destroy(state);
    refuse_classes(scene);
    scene_destroy(scene, backend);
}

/* ---------------------------------------------------------------- which clone */

/* Whether the step goes to the clone of this size. */
static bool goes_to(struct scene *scene, struct attn_state *state, const struct attn_metadata *metadata,
                    uint32_t batch, uint32_t num_tokens)
{
    struct attn_state_step step;

    ATTN_INIT(&step);
    must(attn_state_begin_forward(state, metadata, scene->stack.stream, &err));
    must(attn_stream_synchronize(scene->stack.backend, scene->stack.stream, &err));
    must(attn_state_get_step(state, 0, &step, &err));
    return step.batch->seqs == batch && step.batch->num_tokens == num_tokens;
}

static bool has_starts(const struct attn_state *clone)
{
    struct attn_view view;

    ATTN_INIT(&view);
    must(attn_state_get_input(clone, ATTN_FIELD_QUERY_START_LOC, 0, &view, &err));
    return view.kind == ATTN_VIEW_ARRAY;
}

static void test_choice(struct attn_backend *backend, const struct stack_config *config)
{
    static const uint32_t sizes[][2] = {{3, 0}, {4, 8}, {8, 8}, {2, 12}, {3, 18}};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    struct scene *scene = make_scene(backend, config);
    struct attn_state *clones[COUNT] = {NULL}, *state = other_state(scene, CROWD_ROWS, 0);
    bool good = true;

    for (uint32_t i = 0; i < COUNT; i++) {
        must(get_size(state, sizes[i][0], sizes[i][1]));
        must(attn_state_clone(state, sizes[i][0], &clones[i], &err));
        good = good && has_starts(clones[i]) == (i > 0);
    }
    must(attn_state_end_capture(state, &err));
    check(good, "query starts are an input of graphs of any mix alone", config->name);
    check(goes_to(scene, state, mix(scene, 0, 1, 1, 1), 3, 3), "decodes have a graph of their own",
          config->name);
    check(goes_to(scene, state, mix(scene, 1, 1, 1, 1), 4, 8) &&
              goes_to(scene, state, mix(scene, 0, 1, 1, 0), 4, 8) &&
              goes_to(scene, state, mix(scene, 1, 6, 1, 1), 4, 8),
          "others go where there are the fewest query tokens, then sequences", config->name);
    check(goes_to(scene, state, mix(scene, 2, 6, 3, 0), 2, 12), "or more of them", config->name);
    check(goes_to(scene, state, mix(scene, 2, 6, 2, 1), 3, 18), "or more sequences", config->name);
    REFUSED(attn_state_prepare(clones[3], mix(scene, 1, 6, 1, 1), scene->stack.stream, &err), ATTN_E_INVALID,
            "num_tokens");
    REFUSED(attn_state_prepare(clones[1], mix(scene, 2, 6, 2, 1), scene->stack.stream, &err), ATTN_E_INVALID,
            "num_tokens");
    attn_state_destroy(clones[4]);
    clones[4] = NULL;
    REFUSED(attn_state_prepare(state, mix(scene, 2, 6, 2, 1), scene->stack.stream, &err), ATTN_E_STATE,
            "num_tokens");
    for (uint32_t i = 0; i < COUNT; i++)
        attn_state_destroy(clones[i]);
    attn_state_destroy(state);
    scene_destroy(scene, backend);
}

/* ---------------------------------------------------------------- steps */

/* A step of the first sequence alone, by a builder that gives prompts no rows. */
static struct attn_metadata *without_rows(struct scene *scene, struct attn_builder **builder)
{
    struct attn_builder_params params;
    struct attn_builder_build_args build;
    struct attn_builder_add_args add;
    struct attn_blocks blocks[CROWD_GROUPS];
    struct attn_metadata *metadata = NULL;

    memset(blocks, 0, sizeof blocks);
    for (uint32_t g = 0; g < CROWD_GROUPS; g++)
        blocks[g] = (struct attn_blocks){.kind = ATTN_BLOCKS_LIST,
                                         .count = scene->crowd.seq[0].count[g],
                                         .blocks = scene->crowd.seq[0].blocks[g]};
    ATTN_INIT(&params);
    params.flavour = scene->stack.config->flavour;
    params.groups = CROWD_GROUPS;
    params.group = scene->stack.eager.groups;
    params.max_seqs = params.max_tokens = 8;
    must(attn_builder_create(scene->stack.backend, &params, builder, &err));
    must(attn_builder_reset(*builder, &err));
    ATTN_INIT(&add);
    add.prompt = 1;
    add.query_len = 5;
    add.blocks = blocks;
    must(attn_builder_add(*builder, &add, &err));
    ATTN_INIT(&build);
    build.graph = 1;
    must(attn_builder_build(*builder, &build, NULL, &metadata, &err));
    return metadata;
}

static int32_t prepare(const struct scene *scene, const struct attn_metadata *metadata)
{
    return attn_state_prepare(scene->stack.state, metadata, scene->stack.stream, &err);
}

/* The step again, with a sequence of padding. */
static struct attn_metadata *padded(struct scene *scene)
{
    struct attn_builder_build_args build;
    struct attn_metadata *metadata = mix(scene, 0, 1, 1, 1);

    ATTN_INIT(&build);
    build.graph = build.pad = 1;
    must(attn_builder_build(scene->stack.replay.builder, &build, NULL, &metadata, &err));
    return metadata;
}

/* The step as it would be if only the device knew it. */
static struct attn_metadata *on_device(struct scene *scene, bool starts)
{
    struct attn_metadata *metadata = mix(scene, 1, 4, 1, 1);
    struct attn_step *step = &metadata->impl->step;

    if (starts)
        step->query_starts.host = NULL;
    for (uint32_t g = 0; g < step->groups && !starts; g++)
        step->group[g].slots.host = NULL;
    return metadata;
}

static void refuse_steps(struct scene *scene)
{
    struct attn_builder *builder = NULL;
    struct attn_metadata *metadata = without_rows(scene, &builder);
    struct crowd_seq *seq = &scene->crowd.seq[1];
    const uint32_t len = seq->len;

    if (is_infer(scene)) /* pages have all blocks */
        check(metadata->impl->step.prefills_without_table == 0, "no prompt is without pages", "");
    else
        REFUSED(prepare(scene, metadata), ATTN_E_INVALID, "block_tables");
    attn_builder_destroy(builder);
    REFUSED(prepare(scene, mix(scene, 1, CROWD_CHUNK + 1, 1, 1)), ATTN_E_SIZE, "query_start_loc");
    seq->len = CROWD_LEN;
    make_room(scene);
    REFUSED(prepare(scene, mix(scene, 1, 4, 1, 1)), ATTN_E_SIZE,
            is_infer(scene) ? "paged_kv_indptr" : "seq_lens_tensor");
    seq->len = len;
    REFUSED(prepare(scene, padded(scene)), ATTN_E_STATE, "num_tokens");
    REFUSED(prepare(scene, on_device(scene, true)), ATTN_E_UNSUPPORTED, "query_start_loc");
    REFUSED(prepare(scene, on_device(scene, false)), ATTN_E_UNSUPPORTED,
            is_infer(scene) ? "paged_kv_indptr" : "query_start_loc");
}

/* Prompts that are longer than the window of their blocks. */
static void refuse_windows(struct scene *scene)
{
    struct attn_state *clone = NULL, *state = other_state(scene, CROWD_ROWS, 4);

    must(get_size(state, 4, 24));
    must(attn_state_clone(state, 4, &clone, &err));
    must(attn_state_end_capture(state, &err));
    REFUSED(attn_state_prepare(state, mix(scene, 1, 5, 1, 1), scene->stack.stream, &err), ATTN_E_UNSUPPORTED,
            "window");
    check(attn_state_prepare(state, mix(scene, 1, 4, 1, 1), scene->stack.stream, &err) == ATTN_OK,
          "a prompt as long as the window is accepted", scene->stack.config->name);
    must(attn_stream_synchronize(scene->stack.backend, scene->stack.stream, &err));
    attn_state_destroy(clone);
    attn_state_destroy(state);
}

static void test_refusals(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = make_scene(backend, config);

    must(stack_capture(&scene->stack, true, &err));
    refuse_windows(scene);
    (void)mix(scene, 2, 4, 6, 1);
    scene_eager(scene);
    must(prepare(scene, scene_step(scene, 0)));
    refuse_steps(scene);
    (void)mix(scene, 2, 4, 6, 1);
    check(scene_launch(scene), "after refusals the graph does the step before", config->name);
    scene_destroy(scene, backend);
}

/* Layers captured alone: each step is begun, on the host, and prepares itself. */
static void test_begun(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = make_scene(backend, config);
    struct stack *stack = &scene->stack;
    bool same = true, planned = true;

    must(stack_capture(stack, false, &err));
    for (uint32_t step = 0; step < 20 && same; step++) {
        crowd_reserve(&scene->crowd);
        scene_eager(scene);
        struct attn_metadata *metadata = scene_step(scene, 0);
        queue_clear();
        if (step % 2 == 0)
            must(prepare(scene, metadata));
        must(attn_state_begin_forward(stack->state, metadata, stack->stream, &err));
        const struct queue_counts counts = queue_counts();
        planned =
            planned && counts.prepares == STACK_CLASSES && counts.to_device <= 1 && counts.on_device == 0;
        same = scene_launch(scene);
        crowd_grow(&scene->crowd);
    }
    check(same, "layers captured alone run in steps that are begun", config->name);
    check(planned, "which copies once, and plans every class", config->name);
    scene_destroy(scene, backend);
}

int main(void)
{
    static const struct stack_config configs[] = {
        {"flash-attn", "cpu/flash-attn", ATTN_FLASH_ATTN, ATTN_F32, "q=f32", 0, false, false, STACK_MIX},
        {"flashinfer", "cpu/flashinfer", ATTN_FLASHINFER, ATTN_F32, "q=f32", 0, false, false, STACK_MIX},
        {"rocm-flash", "cpu/rocm-flash", ATTN_ROCM_FLASH, ATTN_F32, "q=f32", 0, false, false, STACK_MIX},
        {"flash-attn, device", "device-memory/flash-attn", ATTN_FLASH_ATTN, ATTN_F32, "q=f32", 0, false, true,
         STACK_MIX},
        {"flashinfer, device", "device-memory/flash-attn", ATTN_FLASHINFER, ATTN_F32, "q=f32", 0, false, true,
         STACK_MIX},
    };

    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        backend_open(configs[i].backend, &context, &backend);
        test_sizes(backend, &configs[i]);
        test_choice(backend, &configs[i]);
        test_refusals(backend, &configs[i]);
        test_begun(backend, &configs[i]);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    return finish_checks();
}
