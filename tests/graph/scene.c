/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scenes: a stack, its crowd, and the two ways to run a step. */
#include "scene.h"

#include <stdlib.h>

#include "queue.h"
#include "tap.h"

struct scene *scene_create(struct attn_backend *backend, const struct stack_config *config)
{
    struct scene *scene = calloc(1, sizeof *scene);

    if (scene == NULL)
        exit(1);
    queue_init(backend, config->late);
    must(stack_init(&scene->stack, backend, config, &err));
    crowd_init(&scene->crowd, 5, config->cross, stack_tokens(&scene->stack));
    while (scene->crowd.seqs < 3)
        (void)crowd_change(&scene->crowd);
    while (scene->crowd.seqs > 3)
        scene->crowd.seqs--;
    for (uint32_t i = 0; i < 3; i++)
        scene->crowd.seq[i].len = 20 + i;
    crowd_reserve(&scene->crowd);
    return scene;
}

void scene_destroy(struct scene *scene, struct attn_backend *backend)
{
    stack_finish(&scene->stack);
    queue_finish(backend);
    free(scene);
}

struct attn_metadata *scene_step(struct scene *scene, int32_t pad)
{
    struct attn_metadata *metadata = NULL;

    must(crowd_decodes(&scene->crowd, pad < 0 ? &scene->stack.eager : &scene->stack.replay, pad, &metadata,
                       &err));
    return metadata;
}

void scene_eager(struct scene *scene)
{
    struct stack *stack = &scene->stack;
    struct attn_metadata *metadata = scene_step(scene, -1);

    stack_draw(stack, &scene->crowd, &scene->inputs);
    must(stack_copy_in(stack, 0, &scene->inputs, NULL, &err));
    must(stack_copy_in(stack, 1, &scene->inputs, NULL, &err));
    must(attn_state_begin_forward(stack->state, metadata, NULL, &err));
    must(stack_forward(stack, stack->state, metadata, 0, &stack->way[0].outputs, NULL, &err));
    must(stack_copy_out(stack, 0, &scene->eager, NULL, &err));
}

bool scene_launch(struct scene *scene)
{
    struct stack *stack = &scene->stack;
    const size_t bytes = crowd_rows(&scene->crowd) * (size_t)STACK_HEADS * STACK_DIM * stack->element;
    bool same = true;

    must(attn_graph_launch(stack_find(stack, &scene->crowd)->graph, stack->stream, &err));
    must(attn_stream_synchronize(stack->backend, stack->stream, &err));
    must(stack_copy_out(stack, 1, &scene->replay, NULL, &err));
    for (uint32_t i = 0; i < STACK_LAYERS; i++)
        same = same && memcmp(scene->eager.out[i], scene->replay.out[i], bytes) == 0;
    return same && queue_status() == ATTN_OK && stack_same_caches(stack);
}
