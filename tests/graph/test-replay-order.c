/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Replays that are refused and what a refusal leaves, other ways to a graph's step, and what a replay does to
 * steps before it: on the CPU, and on a device that the host cannot reach and whose stream is late.
 */
#include "metadata.h"
#include "queue.h"
#include "scene.h"
#include "serving/handle.h"
#include "tap.h"
#include "world.h"

/* ---------------------------------------------------------------- refusals */

/* A builder of other widths, or of other indices. */
static struct attn_metadata *other_step(struct scene *scene, struct attn_builder **builder,
                                        uint32_t index_dtype)
{
    struct attn_builder_params params;
    struct attn_builder_build_args build;
    struct attn_builder_group groups[CROWD_GROUPS];
    struct attn_builder_add_args add;
    struct attn_blocks blocks[CROWD_GROUPS];
    struct attn_metadata *metadata = NULL;

    memset(blocks, 0, sizeof blocks);
    ATTN_INIT(&params);
    for (uint32_t g = 0; g < CROWD_GROUPS; g++) {
        groups[g] = scene->stack.eager.groups[g];
        groups[g].graph_blocks -= index_dtype == 0;
        blocks[g] = (struct attn_blocks){.kind = ATTN_BLOCKS_LIST,
                                         .count = scene->crowd.seq[0].count[g],
                                         .blocks = scene->crowd.seq[0].blocks[g]};
    }
    params.flavour = scene->stack.config->flavour;
    params.groups = CROWD_GROUPS;
    params.group = groups;
    params.max_seqs = params.max_tokens = 4;
    params.index_dtype = index_dtype;
    must(attn_builder_create(scene->stack.backend, &params, builder, &err));
    must(attn_builder_reset(*builder, &err));
    ATTN_INIT(&add);
    add.context_len = 20;
    add.query_len = 1;
    add.blocks = blocks;
    must(attn_builder_add(*builder, &add, &err));
    ATTN_INIT(&build);
    build.graph = 1;
    must(attn_builder_build(*builder, &build, NULL, &metadata, &err));
    return metadata;
}

static void refuse_steps(struct scene *scene)
{
    struct stack *stack = &scene->stack;
    const bool infer = stack->config->flavour == ATTN_FLASHINFER;
    struct attn_builder *other = NULL;

    REFUSED(attn_state_prepare(stack->state, scene_step(scene, -1), stack->stream, &err), ATTN_E_INVALID,
            "use_cuda_graph");
    REFUSED(attn_state_prepare(stack->state, scene_step(scene, 2), stack->stream, &err), ATTN_E_STATE,
            "num_decode_tokens");
    REFUSED(attn_state_prepare(stack->sizes[0].clone, scene_step(scene, 1), stack->stream, &err),
            ATTN_E_INVALID, "num_decode_tokens");
    REFUSED(attn_state_prepare(stack->sizes[0].clone, stack->sizes[0].metadata, stack->stream, &err),
            ATTN_E_INVALID, "metadata");
    REFUSED(attn_state_prepare(stack->state, other_step(scene, &other, infer ? ATTN_INT64 : 0), stack->stream,
                               &err),
            ATTN_E_INVALID, infer ? "paged_kv_indices" : "block_tables");
    attn_builder_destroy(other);
    const uint32_t len = scene->crowd.seq[1].len;
    scene->crowd.seq[1].len = CROWD_LEN;
    crowd_reserve(&scene->crowd);
    REFUSED(attn_state_prepare(stack->state, scene_step(scene, 1), stack->stream, &err), ATTN_E_SIZE,
            infer ? "paged_kv_indptr" : "seq_lens_tensor");
    scene->crowd.seq[1].len = len;
    for (uint32_t g = 0; g < CROWD_GROUPS; g++)
        scene->crowd.seq[1].count[g] = (len + crowd_block[g]) / crowd_block[g];
}

/* What was refused is not in the buffers; a copy that fails leaves no step, and the next one is as good as
 * any. */
static void test_refusals(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct stack *stack = &scene->stack;

    must(stack_capture(stack, true, &err));
    scene_eager(scene);
    struct attn_metadata *metadata = scene_step(scene, 1);
    must(attn_state_prepare(stack->state, metadata, stack->stream, &err));
    refuse_steps(scene);
    check(scene_launch(scene), "after refusals the graph does the step before", config->name);
    metadata = scene_step(scene, 1);
    if (config->late) {
        queue_fail_copies(1);
        REFUSED(attn_state_prepare(stack->state, metadata, stack->stream, &err), ATTN_E_DEVICE, "");
    }
    scene_eager(scene);
    must(attn_state_prepare(stack->state, scene_step(scene, 1), stack->stream, &err));
    check(scene_launch(scene), "and then the next one", config->name);
    scene_destroy(scene, backend);
}

/* ---------------------------------------------------------------- other ways */

/* Layers captured alone: each step is begun, on the host, and prepares itself. */
static void test_begun(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct stack *stack = &scene->stack;
    bool same = true, planned = true;

    must(stack_capture(stack, false, &err));
    for (uint32_t step = 0; step < 20 && same; step++) {
        scene_eager(scene);
        struct attn_metadata *metadata = scene_step(scene, 1);
        queue_clear();
        if (step % 2 == 0)
            must(attn_state_prepare(stack->state, metadata, stack->stream, &err));
        must(attn_state_begin_forward(stack->state, metadata, stack->stream, &err));
        const struct queue_counts counts = queue_counts();
        planned =
            planned && counts.prepares == STACK_CLASSES && counts.to_device <= 1 && counts.on_device == 0;
        same = scene_launch(scene);
        crowd_grow(&scene->crowd);
        crowd_reserve(&scene->crowd);
    }
    check(same, "layers captured alone run in steps that are begun", config->name);
    check(planned, "which copies once, and plans every class", config->name);
    scene_destroy(scene, backend);
}

/* The clone of a size, and a graph of it captured in a step that the host planned. */
static void capture_planned(struct scene *scene, struct stack_size *size)
{
    struct stack *stack = &scene->stack;
    struct attn_state_capture_args args;
    struct attn_metadata *metadata = NULL;

    ATTN_INIT(&args);
    args.batch = size->seqs = 4;
    must(attn_state_begin_capture(stack->state, 4, NULL, &err));
    must(attn_state_get_capture_metadata(stack->state, &args, NULL, &metadata, &err));
    must(attn_state_clone(stack->state, 4, &size->clone, &err));
    REFUSED(attn_state_begin_forward(size->clone, metadata, NULL, &err), ATTN_E_UNSUPPORTED, "");
    metadata = scene_step(scene, 1);
    must(attn_state_begin_forward(size->clone, metadata, NULL, &err));
    must(attn_graph_begin(stack->backend, stack->stream, &size->graph, &err));
    must(stack_forward(stack, size->clone, metadata, 1, &stack->way[1].outputs, stack->stream, &err));
    must(attn_graph_end(size->graph, &err));
    must(attn_state_end_capture(stack->state, &err));
    stack->size_count = 1;
}

/* A backend that plans on the host alone. */
static void test_host_plans(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct stack *stack = &scene->stack;
    bool same = true;

    queue_refuse_device_plans(1);
    capture_planned(scene, &stack->sizes[0]);
    for (uint32_t step = 0; step < 20 && same; step++) {
        scene_eager(scene);
        must(attn_state_begin_forward(stack->state, scene_step(scene, 1), stack->stream, &err));
        same = scene_launch(scene);
        crowd_grow(&scene->crowd);
        crowd_reserve(&scene->crowd);
    }
    check(same, "a backend that plans on the host alone", config->name);
    scene_destroy(scene, backend);
}

/* Only the device knows the step: field by field, or not at all. */
static void test_device_steps(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct stack *stack = &scene->stack;
    struct attn_builder_build_args build;
    struct attn_metadata *metadata = NULL;

    must(stack_capture(stack, true, &err));
    scene_eager(scene);
    (void)scene_step(scene, 1);
    ATTN_INIT(&build);
    build.graph = build.pad = 1;
    must(attn_builder_build(stack->replay.builder, &build, NULL, &metadata, &err)); /* again, to the device */
    for (uint32_t g = 0; g < metadata->impl->step.groups; g++) {
        struct attn_step_group *group = &metadata->impl->step.group[g];
        group->slots.host = group->seq_lens.host = group->table.host = group->page_starts.host = NULL;
    }
    queue_clear();
    if (config->flavour == ATTN_FLASHINFER) {
        REFUSED(attn_state_prepare(stack->state, metadata, NULL, &err), ATTN_E_UNSUPPORTED,
                "paged_kv_indptr");
    } else {
        must(attn_state_prepare(stack->state, metadata, NULL, &err));
        check(queue_counts().to_device == 0 && queue_counts().on_device > 0 && scene_launch(scene),
              "a step that only the device knows is moved there", config->name);
    }
    scene_destroy(scene, backend);
}

/* ---------------------------------------------------------------- order */

/* A replay ends the step that was begun; sizes can be added behind it, and their warm-up writes no cache. */
static void test_steps(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct stack *stack = &scene->stack;
    struct attn_state_capture_args args;
    struct attn_metadata *late = NULL;
    struct attn_state *clone = NULL;

    must(attn_state_begin_capture(stack->state, 8, NULL, &err));
    ATTN_INIT(&args);
    args.batch = 4;
    must(attn_state_get_capture_metadata(stack->state, &args, NULL, &late, &err));
    must(attn_state_clone(stack->state, 4, &clone, &err));
    must(attn_state_begin_forward(clone, late, NULL, &err));
    struct attn_metadata *metadata = scene_step(scene, 1);
    must(attn_state_prepare(clone, metadata, NULL, &err));
    REFUSED(stack_forward(stack, clone, late, 1, &stack->way[1].outputs, NULL, &err), ATTN_E_STATE, "state");
    struct attn_state *small = NULL;
    args.batch = 2;
    must(attn_state_get_capture_metadata(stack->state, &args, NULL, &metadata, &err));
    must(attn_state_clone(stack->state, 2, &small, &err));
    must(attn_state_begin_forward(small, metadata, NULL, &err));
    must(stack_forward(stack, small, metadata, 1, &stack->way[1].outputs, NULL, &err));
    check(stack_same_caches(stack), "a warm-up after a step writes no cache", config->name);
    must(attn_state_end_capture(stack->state, &err));
    attn_state_destroy(small);
    attn_state_destroy(clone);
    scene_destroy(scene, backend);
}

/* Steps for the host alone: what they are, and what they are not for. */
static void test_host_only(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct attn_builder_build_args build;
    struct attn_advance_args advance;
    struct attn_metadata *metadata = scene_step(scene, 1), *none = NULL;
    struct attn_view view;

    ATTN_INIT(&view);
    must(attn_metadata_get(metadata, ATTN_FIELD_SLOT_MAPPING, 1, &view, &err));
    check(view.host != NULL && (view.device.data == NULL) == config->late, "a step for the host alone",
          config->name);
    ATTN_INIT(&advance);
    advance.seqs = 4;
    advance.queries = 3;
    if (config->late)
        REFUSED(attn_metadata_advance_step(metadata, &advance, NULL, &err), ATTN_E_STATE, "host_only");
    ATTN_INIT(&build);
    build.host_only = 1;
    REFUSED(attn_builder_build(scene->stack.replay.builder, &build, NULL, &none, &err), ATTN_E_INVALID,
            "host_only");
    build.graph = 1;
    build.host_only = 2;
    REFUSED(attn_builder_build(scene->stack.replay.builder, &build, NULL, &none, &err), ATTN_E_INVALID,
            "host_only");
    scene_destroy(scene, backend);
}

/* Steps in place are steps like others. */
static void test_advance(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = scene_create(backend, config);
    struct stack *stack = &scene->stack;
    struct attn_advance_args advance;
    int64_t tokens[4] = {1, 2, 3, 0};
    bool same = true;

    for (uint32_t k = 0; k < 8; k++) { /* room for all steps */
        crowd_reserve(&scene->crowd);
        crowd_grow(&scene->crowd);
    }
    for (uint32_t i = 0; i < 3; i++)
        scene->crowd.seq[i].len -= 8;
    must(stack_capture(stack, true, &err));
    struct attn_metadata *metadata = scene_step(scene, 1);
    ATTN_INIT(&advance);
    advance.seqs = 4;
    advance.queries = 3;
    advance.sampled.data = advance.tokens.data = tokens;
    for (uint32_t step = 0; step < 8 && same; step++) {
        scene_eager(scene);
        must(attn_state_prepare(stack->state, metadata, NULL, &err));
        same = scene_launch(scene);
        crowd_grow(&scene->crowd);
        must(step < 7 ? attn_metadata_advance_step(metadata, &advance, NULL, &err) : ATTN_OK);
    }
    check(same, "steps that are made in place", config->name);
    scene_destroy(scene, backend);
}

int main(void)
{
    static const struct stack_config configs[] = {
        {"flash-attn", "cpu/flash-attn", ATTN_FLASH_ATTN, ATTN_F32, "q=f32", 0, false, false, 0},
        {"flashinfer", "cpu/flashinfer", ATTN_FLASHINFER, ATTN_F32, "q=f32", 0, false, false, 0},
        {"flash-attn, device", "device-memory/flash-attn", ATTN_FLASH_ATTN, ATTN_F32, "q=f32", 0, false, true,
         0},
        {"flashinfer, device", "device-memory/flash-attn", ATTN_FLASHINFER, ATTN_F32, "q=f32", 0, false, true,
         0},
    };

    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        backend_open(configs[i].backend, &context, &backend);
        test_refusals(backend, &configs[i]);
        test_begun(backend, &configs[i]);
        test_host_plans(backend, &configs[i]);
        test_steps(backend, &configs[i]);
        test_host_only(backend, &configs[i]);
        if (configs[i].late)
            test_device_steps(backend, &configs[i]);
        else
            test_advance(backend, &configs[i]);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    return finish_checks();
}
