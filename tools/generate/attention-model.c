/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builder, state and layers of the model: one cache group and one layer class for each kind of layer. */
#include "attention-impl.h"

#include <math.h>

static void describe_groups(struct attention *a)
{
    for (uint32_t g = 0; g < a->shape.groups; g++) {
        /* What lies behind a window is -1 in the lists: rows are not trimmed, so that a step can advance. */
        a->builder_groups[g] = (struct attn_builder_group){.block = a->options.block, .max_blocks = a->width};
        a->classes[g] = (struct attn_layer_class){.problem = &a->groups[g].problem, .group = g};
    }
}

static int make_builder(struct attention *a, struct failure *err)
{
    const struct attn_problem *p = &a->groups[0].problem;
    struct attn_builder_params params;
    struct attn_error error;
    ATTN_INIT(&params);
    ATTN_INIT(&error);
    params.groups = a->shape.groups;
    params.group = a->builder_groups;
    params.chunked = 1;
    params.max_seqs = a->options.max_seqs;
    params.max_tokens = a->options.max_rows;
    params.heads = p->heads;
    params.kv_heads = p->kv_heads;
    params.head_dim = p->head_dim;
    params.q_dtype = p->q_dtype;
    params.kv_dtype = p->k_dtype;
    if (attn_builder_create(a->backend, &params, &a->builder, &error) < 0)
        return device_fail(err, "builder", &error);
    return 0;
}

static int make_state(struct attention *a, struct failure *err)
{
    struct attn_state_params params;
    struct attn_error error;
    ATTN_INIT(&params);
    ATTN_INIT(&error);
    params.groups = a->shape.groups;
    params.group = a->builder_groups;
    if (attn_state_create(a->backend, a->classes, a->shape.groups, &params, &a->state, &error) < 0)
        return device_fail(err, "state", &error);
    return 0;
}

static int make_layers(struct attention *a, struct failure *err)
{
    for (uint32_t g = 0; g < a->shape.groups; g++) {
        struct attn_layer_desc desc;
        struct attn_error error;
        ATTN_INIT(&desc);
        ATTN_INIT(&error);
        desc.class_index = g;
        desc.layer_class = &a->classes[g];
        desc.softmax_scale = 1.0f / sqrtf((float)a->shape.head_dim);
        if (attn_layer_create(a->backend, &desc, &a->groups[g].layer, &error) < 0)
            return device_fail(err, "layer", &error);
    }
    return 0;
}

int attention_make_model(struct attention *a, struct failure *err)
{
    describe_groups(a);
    if (make_builder(a, err) < 0 || make_state(a, err) < 0)
        return -1;
    return make_layers(a, err);
}

void attention_free_model(struct attention *a)
{
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        attn_layer_destroy(a->groups[g].layer);
    attn_state_destroy(a->state);
    attn_builder_destroy(a->builder);
}
