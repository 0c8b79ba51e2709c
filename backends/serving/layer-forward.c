/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs one layer of one step: writes new keys and values to the cache, and computes attention. */
#include "fail.h"
#include "state.h"

/* The arguments of a call. */
struct forward {
    const struct attn_layer_impl *layer;
    struct attn__state_core *core;
    const struct attn__class_step *step;
    const struct attn_layer_tensors *tensors;
    struct attn_kv *kv;
    void *stream;
    size_t first; /* of the runs of the class */
};

/* ---------------------------------------------------------------- checks */

static int32_t check_step(const struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                          struct attn_error *err)
{
    const int32_t status = attn__state_owner(state, "attn_layer_forward", err);

    return status != ATTN_OK || state->core->begun == metadata
               ? status
               : attn__fail(err, ATTN_E_STATE, 0, "metadata",
                            "the step was begun with other metadata; give that to attn_layer_forward");
}

/* The class under the layer's number has to be the one that the layer was made for. */
static int32_t check_class(const struct attn_layer_impl *layer, const struct attn__state_core *core,
                           struct attn_error *err)
{
    const uint32_t i = layer->desc.class_index;

    if (i >= core->count)
        return attn__fail(err, ATTN_E_INVALID, 0, "class_index",
                          "class_index of the layer is %u; the state has %u classes", i, core->count);
    const struct attn_layer_class *a = &layer->layer_class, *b = &core->classes[i];
    if (a->group == b->group && (a->new_dtype == 0 || a->new_dtype == b->new_dtype) &&
        memcmp(&layer->problem, &core->problems[i], sizeof layer->problem) == 0)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, "class_index",
                      "the layer was made for another class than class %u of the state: problem, group "
                      "and new_dtype must be the same",
                      i);
}

static bool is_given(const struct attn_tensor *tensor)
{
    return tensor->buffer.data != NULL;
}

static int32_t check_keys(const struct forward *f, struct attn_error *err)
{
    const struct attn_layer_tensors *t = f->tensors;
    const bool one = f->layer->problem.mla == 1;

    if (is_given(&t->k_new) != is_given(&t->v_new) && !(one && is_given(&t->k_new)))
        return attn__fail(err, ATTN_E_INVALID, 0, is_given(&t->k_new) ? "v_new" : "k_new",
                          "one of k_new and v_new is given; both or none are accepted%s",
                          one ? ", and of an MLA cache k_new alone" : "");
    return ATTN_OK;
}

/* ---------------------------------------------------------------- the cache */

/* Whether this call writes the cache; encoders cache nothing. */
static bool writes(const struct forward *f)
{
    return f->kv != NULL && is_given(&f->tensors->k_new) && f->layer->problem.type != ATTN_ENCODER &&
           f->step->slot_count > 0;
}

static int32_t write_cache(const struct forward *f, struct attn_error *err)
{
    const struct attn_problem *problem = &f->layer->problem;
    const bool own = problem->kv_source != ATTN_KV_CACHE; /* then the problem has the type of k_new */
    const uint32_t dtype = f->core->classes[f->layer->desc.class_index].new_dtype;
    struct attn_kv_write_args args;

    ATTN_INIT(&args);
    args.k_dtype = own ? problem->k_dtype : dtype;
    args.v_dtype = own ? problem->v_dtype : dtype;
    args.num_tokens = f->step->slot_count;
    args.k_new = f->tensors->k_new;
    args.v_new = f->tensors->v_new;
    args.k_rope = f->tensors->k_rope;
    args.kv = f->kv;
    args.slot_mapping = f->step->slots;
    return f->core->host.kv_write(f->core->host.backend, &args, f->stream, err);
}

/* ---------------------------------------------------------------- runs */

static void skip_tokens(struct attn_tensor *tensor, uint32_t tokens)
{
    if (is_given(tensor))
        tensor->buffer.byte_offset += (uint64_t)(tokens * tensor->token_stride);
}

static void set_tensors(const struct forward *f, enum attn__run_kind kind, struct attn_tensors *out)
{
    const struct attn_layer_tensors *t = f->tensors;
    const struct attn_layer_desc *desc = &f->layer->desc;
    const uint32_t source = kind == ATTN__RUN_NEW ? (uint32_t)ATTN_KV_NEW : f->layer->problem.kv_source;

    ATTN_INIT(out);
    out->softmax_scale = desc->softmax_scale;
    out->q = t->q;
    out->q_rope = t->q_rope;
    out->out = t->out;
    out->lse = t->lse;
    out->alibi_slopes = desc->alibi_slopes;
    out->sinks = desc->sinks;
    out->sinks_dtype = desc->sinks_dtype;
    out->mask_packed = t->mask_packed;
    out->mask = t->mask;
    out->mask_starts = t->mask_starts;
    out->mask_seq_stride = t->mask_seq_stride;
    out->mask_head_stride = t->mask_head_stride;
    out->mask_row_stride = t->mask_row_stride;
    out->q_scale = t->q_scale;
    out->out_scale = t->out_scale;
    if (source != ATTN_KV_NEW)
        out->kv = f->kv;
    if (source != ATTN_KV_CACHE) {
        out->k_new = t->k_new;
        out->v_new = t->v_new;
        out->k_new_scale = t->k_new_scale;
        out->v_new_scale = t->v_new_scale;
    }
    if (kind != ATTN__RUN_MAIN)
        return;
    skip_tokens(&out->q, f->step->skipped);
    skip_tokens(&out->q_rope, f->step->skipped);
    skip_tokens(&out->out, f->step->skipped);
    skip_tokens(&out->lse, f->step->skipped);
}

/* Masks and scales by sequence are laid out for the whole step, and cannot be split. */
static int32_t check_separate_runs(const struct forward *f, struct attn_error *err)
{
    const struct attn_problem *problem = &f->layer->problem;
    const char *key = problem->mask != ATTN_MASK_NONE                    ? "mask"
                      : problem->q_scale >= ATTN_SCALES_HEAD             ? "q_scale"
                      : problem->out_scale >= ATTN_SCALES_HEAD           ? "out_scale"
                      : f->layer->problem.kv_source == ATTN_KV_CACHE_NEW ? "kv_source"
                                                                         : NULL;

    return f->step->skipped == 0 || key == NULL
               ? ATTN_OK
               : attn__fail(
                     err, ATTN_E_UNSUPPORTED, 0, key,
                     "prompts and decodes of this step run separately, which %s cannot; a builder made with "
                     "chunked = 1 gives prompts rows in the block tables",
                     key);
}

/* The main run, which a step of ranks has alone, over the keys of all of them. */
static int32_t run_ranks(const struct forward *f, const struct attn_plan *plan,
                         const struct attn_tensors *tensors, const struct attn_span *schedule,
                         struct attn_error *err)
{
    struct attn_cp_run_args args;

    ATTN_INIT(&args);
    args.plan = plan;
    args.batch = &f->core->batches[f->first + ATTN__RUN_MAIN];
    args.tensors = tensors;
    args.schedule = schedule;
    args.scratch = &f->core->scratch;
    return f->core->host.cp_run(f->core->ranks[f->layer->desc.class_index], &args, f->stream, err);
}

static int32_t run(const struct forward *f, enum attn__run_kind kind, struct attn_error *err)
{
    const struct attn_batch *batch = &f->core->batches[f->first + kind];
    const struct attn__plan_set *set = f->core->owner->set;
    const struct attn_plan *plan = attn__set_plan(set, f->layer->desc.class_index, kind);
    const struct attn_error *why = &f->core->no_new[f->layer->desc.class_index];
    struct attn_tensors tensors;

    if (batch->seqs == 0)
        return ATTN_OK;
    if (plan == NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, why->reason, "kv_source",
                          "the step has prompts without blocks, which attend to k_new and v_new: %s",
                          why->message);
    set_tensors(f, kind, &tensors);
    if (is_given(&tensors.k_new) && is_given(&f->tensors->k_rope))
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "k_rope",
            "k_rope is given, but this step reads keys from k_new, and only a cache takes them in "
            "two pieces; all columns in k_new are accepted");
    const struct attn_span *schedule = &set->schedules[f->first + kind];
    const int32_t status = f->core->ranks != NULL ? run_ranks(f, plan, &tensors, schedule, err)
                                                  : f->core->host.plan_run(plan, batch, &tensors, schedule,
                                                                           &f->core->scratch, f->stream, err);
    f->core->scratch.counters_dirty = status == ATTN_OK ? 0 : 1;
    return status;
}

/* Refuses a step that reads the cache if none is given. */
static int32_t check_cache(const struct forward *f, struct attn_error *err)
{
    const struct attn__state_core *core = f->core;

    if (f->kv != NULL || f->layer->problem.kv_source == ATTN_KV_NEW ||
        core->batches[f->first + ATTN__RUN_MAIN].seqs == 0)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, "kv",
                      "kv is NULL, but the step has sequences whose keys are in the cache");
}

static int32_t run_all(const struct forward *f, struct attn_error *err)
{
    int32_t status = check_cache(f, err);

    if (status == ATTN_OK)
        status = check_separate_runs(f, err);
    if (status == ATTN_OK)
        status = run(f, ATTN__RUN_NEW, err);
    return status == ATTN_OK ? run(f, ATTN__RUN_MAIN, err) : status;
}

static bool has_run(const struct forward *f)
{
    return f->core->batches[f->first].seqs > 0 || f->core->batches[f->first + ATTN__RUN_NEW].seqs > 0;
}

/* Cross-attention that reads new keys, in a step whose prompts bring none. */
static bool lacks_keys(const struct forward *f)
{
    return f->layer->problem.type == ATTN_ENCODER_DECODER && f->layer->problem.kv_source != ATTN_KV_CACHE &&
           !is_given(&f->tensors->k_new);
}

static int32_t forward(const struct forward *f, struct attn_error *err)
{
    const bool after = f->layer->problem.kv_source == ATTN_KV_CACHE_NEW;
    int32_t status = check_keys(f, err);

    if (status != ATTN_OK)
        return status;
    if (lacks_keys(f))
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, ATTN_REASON_KV_SOURCE, "kv_source",
            "decodes of cross-attention have no new keys, which class %u reads; kv_source=cache is "
            "accepted",
            f->layer->desc.class_index);
    if (!has_run(f))
        return attn__fail(
            err, ATTN_E_INVALID, 0, "metadata",
            "the step has nothing for a layer of class %u: it needs prompts with an encoder's tokens",
            f->layer->desc.class_index);
    if (f->core->ranks != NULL)
        status = attn__ranks_check_stream(f->core, f->stream, err);
    if (status == ATTN_OK && writes(f) && !after)
        status = write_cache(f, err);
    if (status == ATTN_OK)
        status = run_all(f, err);
    return status == ATTN_OK && writes(f) && after ? write_cache(f, err) : status;
}

int32_t attn__layer_forward(const struct attn_layer_impl *layer, struct attn_state_impl *state,
                            const struct attn_metadata_impl *metadata, struct attn_kv *kv,
                            const struct attn_layer_tensors *tensors, void *stream, struct attn_error *err)
{
    int32_t status = check_step(state, metadata, err);

    if (status == ATTN_OK)
        status = check_class(layer, state->core, err);
    if (status != ATTN_OK)
        return status;
    const uint32_t i = layer->desc.class_index;
    const struct forward f = {.layer = layer,
                              .core = state->core,
                              .step = &state->core->steps[i],
                              .tensors = tensors,
                              .kv = kv,
                              .stream = stream,
                              .first = (size_t)i * ATTN__RUNS};
    return forward(&f, err);
}
