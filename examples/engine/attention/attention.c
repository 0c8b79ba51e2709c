/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Backend, builder, state and layers of a model: one cache group and one layer class for each kind of layer.
 */
#include "attention-impl.h"
#include "ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- builder, state and layers */

static void describe_groups(struct attention *a)
{
    for (uint32_t g = 0; g < a->shape.groups; g++) {
        /* Blocks before the window are -1 in the lists; without a window in the builder rows are not trimmed,
         * so that a step can advance. */
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
    params.max_tokens = a->options.max_batch_tokens;
    params.heads = p->heads;
    params.kv_heads = p->kv_heads;
    params.head_dim = p->head_dim;
    params.q_dtype = p->q_dtype;
    params.kv_dtype = p->k_dtype;
    if (a->net.size) {
        params.cp_rank = a->net.rank;
        params.cp_world = a->net.size;
        params.cp_interleave = 1; /* so that all ranks have as many keys, or one more */
    }
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
    if (a->net.size) {
        params.collectives = &a->net;
        params.cp_heads = ATTN_CP_HEADS_ALL;
    }
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

static int make_model(struct attention *a, struct failure *err)
{
    describe_groups(a);
    if (make_builder(a, err) < 0 || make_state(a, err) < 0)
        return -1;
    return make_layers(a, err);
}

static void free_model(struct attention *a)
{
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++)
        attn_layer_destroy(a->groups[g].layer);
    attn_state_destroy(a->state);
    attn_builder_destroy(a->builder);
}

/* ---------------------------------------------------------------- backend */

uint32_t attention_cache_type(const char *name)
{
    static const uint32_t types[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,     ATTN_E4M3,
                                     ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, attn_dtype_name(types[i])) == 0)
            return types[i];
    return 0;
}

static int describe_problem(struct attention *a, uint32_t group, struct failure *err)
{
    struct attn_problem *p = &a->groups[group].problem;
    struct attn_error error;
    ATTN_INIT(p);
    ATTN_INIT(&error);
    p->q_dtype = a->options.q ? attention_cache_type(a->options.q) : ATTN_F32;
    p->k_dtype = attention_cache_type(a->options.kv);
    p->v_dtype = p->k_dtype;
    if (attn_dtype_size(p->q_dtype) < 2)
        return failure_set(err, "activations of type %s; accepted are f32, f16, bf16", a->options.q);
    if (!p->k_dtype)
        return failure_set(err, "cache type %s; accepted are " ATTENTION_CACHE_TYPES, a->options.kv);
    if (attn_dtype_size(p->k_dtype) == 1) {
        p->k_scale = ATTN_SCALES_TOKEN_HEAD;
        p->v_scale = ATTN_SCALES_TOKEN_HEAD;
    }
    p->heads = a->shape.heads;
    p->kv_heads = a->shape.kv_heads;
    p->head_dim = a->shape.head_dim;
    p->block = a->options.block;
    p->max_seqs = a->options.max_seqs;
    p->max_q = a->options.max_chunk;
    p->max_rows = a->options.max_batch_tokens;
    p->max_kv = a->options.max_tokens;
    if (a->shape.window[group]) {
        p->given |= ATTN_GIVEN_WINDOW_LEFT;
        p->window_left = (int32_t)a->shape.window[group] - 1; /* the query's own token is not counted */
    }
    if (a->options.graph)
        p->graph = ATTN_GRAPH_SINGLE;
    if (a->net.size)
        p->cp = p->lse = 1;
    if (attn_problem_resolve(p, p, &error) < 0)
        return device_fail(err, "problem", &error);
    return 0;
}

/* FlashInfer's layers read index lists. */
static int fit_addressing(struct attention *a, struct failure *err)
{
    const char *flavour = strchr(attn_backend_get_name(a->backend), '/');
    struct attn_error error;
    ATTN_INIT(&error);
    if (!flavour || strcmp(flavour + 1, attn_flavour_name(ATTN_FLASHINFER)) != 0)
        return 0;
    for (uint32_t g = 0; g < a->shape.groups; g++) {
        struct attn_problem *p = &a->groups[g].problem;
        p->addressing = ATTN_CSR;
        if (attn_problem_resolve(p, p, &error) < 0)
            return device_fail(err, "problem", &error);
    }
    return 0;
}

/* Kernels of all classes. */
static int name_kernels(struct attention *a, struct failure *err)
{
    for (uint32_t g = 0; g < a->shape.groups; g++)
        if (device_name_kernels(&a->device, &a->groups[g].problem, a->kernels, sizeof a->kernels, err) < 0)
            return -1;
    return 0;
}

static int choose(struct attention *a, struct failure *err)
{
    struct attn_problem problems[SCHEDULER_GROUPS];
    struct attn_context_options context;
    struct attn_open_config config;
    struct attn_error error;
    ATTN_INIT(&context);
    ATTN_INIT(&config);
    ATTN_INIT(&error);
    context.variables = a->options.variables;
    context.variable_count = a->options.variable_count;
    config.threads = a->options.threads;
    for (uint32_t g = 0; g < a->shape.groups; g++)
        problems[g] = a->groups[g].problem;
    if (attn_context_create(&context, &a->context, &error) < 0)
        return device_fail(err, "context", &error);
    if (device_select(a->context, problems, a->shape.groups, a->options.backend, &a->decision, err) < 0)
        return -1;
    if (attn_backend_open(a->context, a->decision, &config, &a->backend, &error) < 0)
        return device_fail(err, "backend", &error);
    if (device_open(&a->device, a->context, a->backend, err) < 0 || fit_addressing(a, err) < 0)
        return -1;
    return name_kernels(a, err);
}

static int check_options(const struct attention_shape *shape, const struct attention_options *options,
                         struct failure *err)
{
    if (!shape->layers || !shape->heads || !shape->kv_heads || !shape->head_dim)
        return failure_set(err, "a model has %u layers, %u heads, %u kv heads of %u; accepted are 1 and more",
                           shape->layers, shape->heads, shape->kv_heads, shape->head_dim);
    if (!options->block || !options->max_tokens || !options->max_chunk ||
        options->max_tokens > INT32_MAX / 2 || options->block > INT32_MAX / 2 ||
        (options->ranks && options->block > INT32_MAX / 2 / options->ranks))
        return failure_set(err, "block %u, tokens %u, chunk %u; accepted are 1 to %d", options->block,
                           options->max_tokens, options->max_chunk, INT32_MAX / 2);
    if (options->ranks > 1 && options->graph)
        return failure_set(err, "graph is on with %u ranks, whose steps are not captured; accepted is off",
                           options->ranks);
    for (uint32_t i = 0; shape->group && i < shape->layers; i++)
        if (shape->group[i] >= (shape->groups ? shape->groups : 1))
            return failure_set(err, "layer %u is in cache group %u; accepted are 0 to %u", i, shape->group[i],
                               shape->groups ? shape->groups - 1 : 0);
    if (shape->groups > SCHEDULER_GROUPS)
        return failure_set(err, "%u cache groups; accepted are 1 to %d", shape->groups, SCHEDULER_GROUPS);
    return 0;
}

static int make(struct attention *a, struct failure *err)
{
    for (uint32_t g = 0; g < a->shape.groups; g++)
        if (describe_problem(a, g, err) < 0)
            return -1;
    if (choose(a, err) < 0 || attention_allocate(a, err) < 0 || make_model(a, err) < 0)
        return -1;
    return a->options.graph ? attention_capture(a, err) : 0;
}

int attention_create_rank(const struct attention_shape *shape, const struct attention_options *options,
                          const struct attn_collectives *net, struct attention **out, struct failure *err)
{
    struct attention *a = calloc(1, sizeof *a);
    if (!a)
        return failure_set(err, "no memory for the attention layers");
    a->shape = *shape;
    a->options = *options;
    if (net)
        a->net = *net;
    if (!a->options.max_seqs)
        a->options.max_seqs = 1;
    if (!a->options.max_batch_tokens)
        a->options.max_batch_tokens = options->max_chunk;
    if (a->options.max_batch_tokens < a->options.max_seqs) /* padding of graphs counts */
        a->options.max_batch_tokens = a->options.max_seqs;
    if (!a->shape.groups)
        a->shape.groups = 1;
    if (make(a, err) < 0) {
        attention_destroy(a);
        return -1;
    }
    *out = a;
    return 0;
}

int attention_create(const struct attention_shape *shape, const struct attention_options *options,
                     struct attention **out, struct failure *err)
{
    if (check_options(shape, options, err) < 0)
        return -1;
    return options->ranks > 1 ? ranks_create(shape, options, out, err)
                              : attention_create_rank(shape, options, NULL, out, err);
}

void attention_destroy(struct attention *a)
{
    if (!a)
        return;
    struct attention_ranks *ranks = a->ranks;
    ranks_stop(ranks);
    device_synchronize(&a->device);
    attention_free_graphs(a);
    free_model(a);
    attention_free(a);
    device_close(&a->device);
    attn_backend_destroy(a->backend);
    attn_decision_destroy(a->decision);
    attn_context_destroy(a->context);
    free(a);
    ranks_free(ranks); /* the state's collectives are gone */
}

void attention_get_info(const struct attention *a, struct attention_info *out)
{
    out->backend = attn_backend_get_name(a->backend);
    out->device = attn_backend_get_device(a->backend);
    out->device_name = a->device.name;
    out->kernels = a->kernels;
    out->generic = device_find_generic(a->decision);
    out->ranks = a->net.size ? a->net.size : 1;
    out->graphs = a->size_count;
    out->replayed = a->replayed;
    out->advanced = a->advanced;
}
