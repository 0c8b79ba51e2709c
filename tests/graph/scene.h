/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A stack with a crowd of three, whose steps run without a graph and on one. */
#ifndef TEST_GRAPH_SCENE_H
#define TEST_GRAPH_SCENE_H

#include "stack.h"

struct scene {
    struct stack stack;
    struct crowd crowd;
    struct stack_inputs inputs;
    struct stack_outputs eager, replay;
};

struct scene *scene_create(struct attn_backend *backend, const struct stack_config *config);
void scene_destroy(struct scene *scene, struct attn_backend *backend);
/* The step that comes; `pad` as of crowd_decodes. */
struct attn_metadata *scene_step(struct scene *scene, int32_t pad);
/* Runs it without a graph. */
void scene_eager(struct scene *scene);
/* Launches what was prepared; true if it did what the step without a graph did. */
bool scene_launch(struct scene *scene);

#endif
