/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* State and layers of own/mystyle: a plan for each layer class, and captured steps of 1, 3, 9, 27, ...
 * sequences. */
#include <math.h>

#include "own.h"

enum { CLASSES = 8, SIZES = 20 }; /* powers of three that 31 bits hold */

/* What a state shares with its clones: plans, the step, and which of them there are. */
struct model {
    struct attn_serving_host host;
    uint32_t refs, count, groups;
    uint32_t capture_len; /* most keys of a captured sequence */
    struct attn_problem problems[CLASSES];
    struct attn_plan *plans[CLASSES];
    uint32_t group[CLASSES];                   /* of a class */
    struct attn_builder_group all[OWN_GROUPS]; /* max_blocks: cells of a captured row */
    struct attn_state_impl *clones[SIZES];     /* by exponent */
    const struct attn_state_impl *owner;       /* that has begun the step; NULL: there is none */
    const struct attn_metadata_impl *begun;    /* what begin_forward was given */
    const struct attn_metadata_impl *step;     /* what layers read: the same, or a clone's */
    uint64_t number;                           /* of the step */
};

struct attn_state_impl {
    struct model *model;
    uint32_t size;                      /* of a clone: its sequences */
    uint32_t max_batch;                 /* while a capture goes on */
    struct attn_metadata_impl *capture; /* of a clone; else what the next one is made of */
};

/* ---------------------------------------------------------------- create and destroy */

static void drop_capture(struct attn_state_impl *state)
{
    if (state->capture != NULL)
        own_metadata_finish(state->capture);
    free(state->capture);
    state->capture = NULL;
}

static void destroy(struct attn_state_impl *state)
{
    struct model *model = state->model;

    for (int i = 0; i < SIZES; i++)
        model->clones[i] = model->clones[i] == state ? NULL : model->clones[i];
    if (model->owner == state || (model->owner != NULL && model->step == state->capture))
        model->owner = NULL;
    for (uint32_t i = 0; i < model->count && model->refs == 1; i++)
        model->host.plan_destroy(model->plans[i]);
    if (--model->refs == 0)
        free(model);
    drop_capture(state);
    free(state);
}

/* libattn asks the query when a plan is made, so that its reasons come before what else is wrong. */
static int32_t add_class(struct model *model, const struct attn_layer_class *class, struct attn_error *err)
{
    const struct attn_serving_host *host = &model->host;
    struct attn_problem *problem = &model->problems[model->count];

    if (class->problem == NULL)
        return own_fail(err, ATTN_E_INVALID, "problem", "that of class %u is NULL", model->count);
    int32_t status = host->problem_resolve(host->backend, class->problem, problem, err);
    if (status == ATTN_OK)
        status = host->plan_create(host->backend, problem, &model->plans[model->count], err);
    if (status != ATTN_OK)
        return status;
    model->group[model->count++] = class->group;
    model->capture_len = problem->max_kv < model->capture_len ? problem->max_kv : model->capture_len;
    return class->new_dtype == 0 || class->new_dtype == ATTN_F32
               ? ATTN_OK
               : own_fail(err, ATTN_E_UNSUPPORTED, "new_dtype", "it is 0x%x; f32 is written",
                          class->new_dtype);
}

static int32_t take_groups(struct model *model, const struct attn_state_params *params,
                           struct attn_error *err)
{
    const uint32_t groups = params->groups > 0 ? params->groups : 1;

    if (params->flavour != 0 || groups > OWN_GROUPS || params->group == NULL)
        return own_fail(err, params->group == NULL ? ATTN_E_INVALID : ATTN_E_UNSUPPORTED,
                        params->flavour != 0 ? "flavour" : "group",
                        "1 to %d cache groups of a decoder, with flavour 0, are accepted", OWN_GROUPS);
    model->groups = groups;
    for (uint32_t g = 0; g < groups; g++) {
        struct attn_builder_group *group = &model->all[g];
        *group = params->group[g];
        group->max_blocks = group->graph_blocks > 0 ? group->graph_blocks : group->max_blocks;
        const uint64_t room = (uint64_t)group->max_blocks * group->block;
        model->capture_len = room < model->capture_len ? (uint32_t)room : model->capture_len;
    }
    for (uint32_t i = 0; i < model->count; i++)
        if (model->group[i] >= groups || model->problems[i].block != model->all[model->group[i]].block)
            return own_fail(err, ATTN_E_INVALID, model->group[i] >= groups ? "group" : "block",
                            "class %u is of group %u with blocks of %u; those of the %u groups are accepted",
                            i, model->group[i], model->problems[i].block, groups);
    return ATTN_OK;
}

static int32_t create(const struct attn_serving_host *host, const struct attn_layer_class *classes,
                      uint32_t count, const struct attn_state_params *params, struct attn_state_impl **out,
                      struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (count > CLASSES)
        return own_fail(err, ATTN_E_UNSUPPORTED, "classes", "there are %u; up to %d are served", count,
                        CLASSES);
    struct attn_state_impl *state = calloc(1, sizeof *state);
    struct model *model = calloc(1, sizeof *model);
    if (state == NULL || model == NULL) {
        free(state);
        free(model);
        return own_fail(err, ATTN_E_MEMORY, "state", "out of memory");
    }
    *model = (struct model){.host = *host, .refs = 1, .capture_len = INT32_MAX};
    if (params->max_capture_len > 0 && params->max_capture_len < INT32_MAX)
        model->capture_len = params->max_capture_len;
    state->model = model;
    for (uint32_t i = 0; i < count && status == ATTN_OK; i++)
        status = add_class(model, &classes[i], err);
    if (status == ATTN_OK)
        status = take_groups(model, params, err);
    if (status != ATTN_OK)
        destroy(state);
    else
        *out = state;
    return status;
}

/* ---------------------------------------------------------------- captured sizes */

/* SIZES if it is no power of three. */
static uint32_t exponent(uint32_t size)
{
    uint32_t i = 0;

    for (uint64_t power = 1; i < SIZES && power != size; power *= 3)
        i++;
    return i;
}

static int32_t begin_capture(struct attn_state_impl *state, uint32_t max_batch, void *stream,
                             struct attn_error *err)
{
    (void)stream;
    if (state->size > 0 || state->max_batch > 0)
        return own_fail(err, ATTN_E_STATE, "state", "it is a clone, or a capture was begun; end that first");
    state->max_batch = max_batch;
    return ATTN_OK;
}

static int32_t end_capture(struct attn_state_impl *state, struct attn_error *err)
{
    (void)err;
    if (state->size == 0)
        drop_capture(state);
    state->max_batch = 0;
    return ATTN_OK;
}

static int32_t get_capture_metadata(struct attn_state_impl *state, const struct attn_state_capture_args *args,
                                    void *stream, struct attn_metadata_impl **out, struct attn_error *err)
{
    (void)stream;
    if (args->batch == 0 || args->batch > state->max_batch)
        return own_fail(err, ATTN_E_INVALID, "batch", "it is %u; 1 to %u are accepted", args->batch,
                        state->max_batch);
    if (exponent(args->batch) == SIZES || args->tokens > 1 || args->num_tokens > 0 ||
        args->encoder_decoder == 1)
        return own_fail(err, ATTN_E_UNSUPPORTED, "batch",
                        "it is %u; 1, 3, 9 and so on, of decodes of one token, are captured", args->batch);
    struct attn_metadata_impl *capture = calloc(1, sizeof *capture);
    if (capture == NULL)
        return own_fail(err, ATTN_E_MEMORY, "batch", "out of memory");
    drop_capture(state);
    state->capture = capture;
    const int32_t status =
        own_metadata_init(capture, state->model->all, state->model->groups, args->batch, args->batch, err);
    if (status != ATTN_OK) {
        drop_capture(state);
        return status;
    }
    capture->graph = 1;
    own_metadata_pad(capture, args->batch);
    *out = capture;
    return ATTN_OK;
}

static int32_t clone(struct attn_state_impl *state, uint32_t batch, struct attn_state_impl **out,
                     struct attn_error *err)
{
    if (state->max_batch == 0 || state->capture == NULL || state->capture->count != batch)
        return own_fail(err, ATTN_E_INVALID, "batch", "it is %u; that of the capture metadata is accepted",
                        batch);
    struct attn_state_impl *made = calloc(1, sizeof *made);
    if (made == NULL)
        return own_fail(err, ATTN_E_MEMORY, "batch", "out of memory");
    *made = (struct attn_state_impl){.model = state->model, .size = batch, .capture = state->capture};
    made->model->refs++;
    made->model->clones[exponent(batch)] = made;
    state->capture = NULL;
    *out = made;
    return ATTN_OK;
}

static int32_t get_input(const struct attn_state_impl *state, uint32_t field, uint32_t index,
                         struct attn_view *out, struct attn_error *err)
{
    return state->size > 0 ? own_metadata_get(state->capture, field, index, out, err)
                           : own_fail(err, ATTN_E_INVALID, "state",
                                      "it is no clone; that of a captured size is accepted");
}

/* ---------------------------------------------------------------- steps */

static const struct attn_state_impl *find_clone(const struct attn_state_impl *state, uint32_t size)
{
    const uint32_t i = exponent(size);

    if (state->size > 0)
        return state->size == size ? state : NULL;
    return i < SIZES ? state->model->clones[i] : NULL;
}

static int32_t prepare(struct attn_state_impl *state, const struct attn_metadata_impl *m, void *stream,
                       struct attn_error *err)
{
    const struct attn_state_impl *found = find_clone(state, m->count);

    (void)stream;
    if (found == NULL || m->tokens != m->count || m->prompts > 0)
        return own_fail(err, ATTN_E_STATE, "batch", "no size of %u sequences of one token was captured",
                        m->count);
    struct attn_metadata_impl *to = found->capture;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->records[i].len > (int64_t)state->model->capture_len)
            return own_fail(err, ATTN_E_SIZE, "max_capture_len",
                            "a sequence has %d tokens; up to %u are captured", m->records[i].len,
                            state->model->capture_len);
    for (uint32_t i = 0; i < m->count && m != to; i++) {
        to->records[i].len = m->records[i].len;
        to->records[i].row = i;
        for (uint32_t g = 0; g < to->groups && g < m->groups; g++) {
            const uint32_t from = m->group[g].width,
                           width = to->group[g].width < from ? to->group[g].width : from;
            to->group[g].slots[i] = m->group[g].slots[i];
            memcpy(own_row(to, g, i), own_row(m, g, m->records[i].row), sizeof(int32_t) * width);
        }
    }
    state->model->owner = NULL;
    return ATTN_OK;
}

/* There is nothing to plan: the plans of this plugin have no schedules, and kernels read the records. */
static int32_t begin_forward(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                             void *stream, struct attn_error *err)
{
    struct model *model = state->model;

    model->owner = NULL;
    if (metadata->graph == 1) {
        const int32_t status = prepare(state, metadata, stream, err);
        if (status != ATTN_OK)
            return status;
    }
    model->step = metadata->graph == 1 ? find_clone(state, metadata->count)->capture : metadata;
    model->begun = metadata;
    model->number = metadata->step;
    model->owner = state;
    return ATTN_OK;
}

/* begin state */
const struct attn_state_table own_state = {
    .struct_size = sizeof own_state,
    ATTN_STATE_SIZES,
    .create = create,
    .destroy = destroy,
    .begin_forward = begin_forward,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .get_capture_metadata = get_capture_metadata,
    .clone = clone,
    .get_input = get_input,
    .prepare = prepare, /* get_step is left out: a step has a run for each sequence */
};
/* end state */

/* ---------------------------------------------------------------- layers */

struct attn_layer_impl {
    struct attn_serving_host host;
    struct attn_problem problem;
    uint32_t class_index;
    uint32_t group;
    float softmax_scale;
};

static int32_t create_layer(const struct attn_serving_host *host, const struct attn_layer_desc *desc,
                            struct attn_layer_impl **out, struct attn_error *err)
{
    const struct attn_problem *problem = desc->layer_class->problem;
    const int32_t status = host->problem_ask(host->backend, problem, err);

    if (status != ATTN_OK)
        return status;
    if (!isfinite(desc->softmax_scale) || desc->softmax_scale <= 0)
        return own_fail(err, ATTN_E_INVALID, "softmax_scale", "it is %g; accepted: finite and > 0",
                        (double)desc->softmax_scale);
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return own_fail(err, ATTN_E_MEMORY, "layer", "out of memory");
    **out = (struct attn_layer_impl){*host, *problem, desc->class_index, desc->layer_class->group,
                                     desc->softmax_scale};
    return ATTN_OK;
}

static void destroy_layer(struct attn_layer_impl *layer)
{
    free(layer);
}

static int32_t write_cache(const struct attn_layer_impl *layer, const struct attn_metadata_impl *step,
                           uint32_t group, struct attn_kv *kv, const struct attn_layer_tensors *t,
                           void *stream, struct attn_error *err)
{
    struct attn_kv_write_args args;

    ATTN_INIT(&args);
    args.k_dtype = args.v_dtype = ATTN_F32;
    args.num_tokens = step->tokens;
    args.k_new = t->k_new;
    args.v_new = t->v_new;
    args.kv = kv;
    args.slot_mapping.data = step->group[group].slots;
    return layer->host.kv_write(layer->host.backend, &args, stream, err);
}

static struct attn_tensor from_token(struct attn_tensor tensor, uint32_t token)
{
    if (tensor.buffer.data != NULL)
        tensor.buffer.byte_offset += (uint64_t)(token * tensor.token_stride);
    return tensor;
}

/* One sequence: its record is the batch. */
static int32_t run(const struct attn_layer_impl *layer, const struct model *model, struct own_record *r,
                   struct attn_kv *kv, const struct attn_layer_tensors *t, void *stream,
                   struct attn_error *err)
{
    const uint32_t group = model->group[layer->class_index], width = model->step->group[group].width;
    const struct attn_span schedule = {{NULL, 0}, 0};
    struct attn_scratch scratch = {.struct_size = sizeof scratch};
    struct attn_batch batch = {.struct_size = sizeof batch,
                               .seqs = 1,
                               .num_tokens = (uint32_t)r->starts[1],
                               .max_q = (uint32_t)r->starts[1],
                               .max_kv = (uint32_t)r->len,
                               .q_offsets = {r->starts, 0},
                               .kv_lens = {&r->len, 0},
                               .table = {own_row(model->step, group, r->row), 0},
                               .table_stride = 4 * (int64_t)width,
                               .table_width = width};
    struct attn_tensors tensors = {.struct_size = sizeof tensors,
                                   .softmax_scale = layer->softmax_scale,
                                   .q = from_token(t->q, r->first),
                                   .out = from_token(t->out, r->first),
                                   .lse = from_token(t->lse, r->first),
                                   .kv = kv};
    return layer->host.plan_run(model->plans[layer->class_index], &batch, &tensors, &schedule, &scratch,
                                stream, err);
}

static int32_t forward(const struct attn_layer_impl *layer, struct attn_state_impl *state,
                       const struct attn_metadata_impl *metadata, struct attn_kv *kv,
                       const struct attn_layer_tensors *tensors, void *stream, struct attn_error *err)
{
    const struct model *model = state->model;
    const uint32_t i = layer->class_index;
    int32_t status = ATTN_OK;

    if (model->owner != state || model->begun != metadata || model->number != metadata->step)
        return own_fail(err, ATTN_E_STATE, "metadata",
                        "no step was begun with it; call attn_state_begin_forward");
    if (i >= model->count || memcmp(&layer->problem, &model->problems[i], sizeof layer->problem) != 0)
        return own_fail(err, ATTN_E_INVALID, "class_index",
                        "the layer was not made for class %u of the state", i);
    if (layer->group != model->group[i] || layer->group >= model->step->groups)
        return own_fail(err, ATTN_E_INVALID, "class_index", "the layer is of group %u, class %u of %u",
                        layer->group, i, model->group[i]);
    if (kv == NULL)
        return own_refuse_new(err);
    if (tensors->k_new.buffer.data != NULL)
        status = write_cache(layer, model->step, layer->group, kv, tensors, stream, err);
    for (uint32_t s = 0; s < model->step->count && status == ATTN_OK; s++)
        status = run(layer, model, &model->step->records[s], kv, tensors, stream, err);
    return status;
}

/* begin layer */
const struct attn_layer_table own_layer = {
    .struct_size = sizeof own_layer,
    ATTN_LAYER_SIZES,
    .create = create_layer,
    .destroy = destroy_layer,
    .forward = forward,
};
/* end layer */
