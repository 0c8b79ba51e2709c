/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a plan, once per layer: makes the checks that are cheap enough, then calls the plugin. */
#include <math.h>

#include "dispatch/plan.h"
#include "dispatch/trace.h"
#include "record/recorder.h"

/* An array that changes results has to be given if the problem says so, and must not be otherwise. */
static int32_t check_presence(const void *data, bool wanted, const char *name, const char *key,
                              struct attn_error *err)
{
    if ((data != NULL) == wanted)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_INVALID, 0, name, "tensors.%s is %s, but the problem's %s %s it", name,
                      wanted ? "not given" : "given", key, wanted ? "needs" : "does not use");
}

static int32_t check_keys(const struct attn_plan *plan, const struct attn_tensors *tensors,
                          const struct attn_batch *batch, struct attn_error *err)
{
    const struct attn_problem *problem = &plan->problem;
    const bool from_new = problem->kv_source != ATTN_KV_CACHE;
    int32_t status = ATTN_OK;
    if (!from_new || batch->num_tokens > 0) {
        status = check_presence(tensors->k_new.buffer.data, from_new, "k_new", "kv_source", err);
        if (status == ATTN_OK) {
            status = check_presence(tensors->v_new.buffer.data, from_new && !problem->mla, "v_new",
                                    "kv_source", err);
        }
    }
    if (status != ATTN_OK)
        return status;
    if (!from_new)
        return ATTN_OK;
    status = attn__tensor_check(&tensors->k_new, problem->k_dtype, batch->num_tokens, problem->kv_heads,
                                problem->head_dim, "k_new", err);
    if (status == ATTN_OK && !problem->mla) {
        status = attn__tensor_check(&tensors->v_new, problem->v_dtype, batch->num_tokens, problem->kv_heads,
                                    problem->head_dim_vo, "v_new", err);
    }
    if (status == ATTN_OK)
        status = attn__scale_check(&tensors->k_new_scale, problem->k_scale, "k_new_scale", err);
    return status == ATTN_OK ? attn__scale_check(&tensors->v_new_scale, problem->v_scale, "v_new_scale", err)
                             : status;
}

/* Every element of an additive mask begins at a multiple of its size. */
static int32_t check_mask_strides(const struct attn_problem *problem, const struct attn_tensors *tensors,
                                  struct attn_error *err)
{
    const uint32_t size = problem->mask == ATTN_MASK_F32 ? 4 : problem->mask == ATTN_MASK_BITS ? 1 : 2;
    const int64_t seq = tensors->mask_starts.data != NULL ? 0 : tensors->mask_seq_stride;
    return ((tensors->mask_head_stride | tensors->mask_row_stride | seq) & (int64_t)(size - 1)) == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "mask",
                            "tensors.mask has strides of %lld (sequence), %lld (head) and %lld (row) bytes; "
                            "multiples of its element size %u are accepted",
                            (long long)seq, (long long)tensors->mask_head_stride,
                            (long long)tensors->mask_row_stride, size);
}

/* Biases and masks. */
static int32_t check_extras(const struct attn_problem *problem, const struct attn_tensors *tensors,
                            struct attn_error *err)
{
    int32_t status = check_presence(tensors->alibi_slopes.data, problem->alibi != ATTN_ALIBI_NONE,
                                    "alibi_slopes", "alibi", err);
    if (status == ATTN_OK)
        status = check_presence(tensors->sinks.data, problem->sinks != 0, "sinks", "sinks", err);
    if (status == ATTN_OK && problem->sinks && tensors->sinks_dtype != ATTN_F32 &&
        tensors->sinks_dtype != ATTN_BF16) {
        status =
            attn__fail(err, ATTN_E_INVALID, 0, "sinks_dtype",
                       "tensors.sinks_dtype is 0x%x; accepted: ATTN_F32 or ATTN_BF16", tensors->sinks_dtype);
    }
    if (status == ATTN_OK)
        status = check_presence(tensors->mask.data, problem->mask != ATTN_MASK_NONE, "mask", "mask", err);
    if (status == ATTN_OK && problem->mask != ATTN_MASK_NONE)
        status = check_mask_strides(problem, tensors, err);
    if (status == ATTN_OK && tensors->mask_packed != 0 && problem->mask != ATTN_MASK_BITS) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "mask_packed",
                            "tensors.mask_packed is %u; only mask=bits is packed, with others 0 is accepted",
                            tensors->mask_packed);
    }
    if (status == ATTN_OK)
        status = attn__scale_check(&tensors->q_scale, problem->q_scale, "q_scale", err);
    return status == ATTN_OK ? attn__scale_check(&tensors->out_scale, problem->out_scale, "out_scale", err)
                             : status;
}

/* Queries: one tensor, or with MLA one for the MLA columns and one for the rope columns. */
static int32_t check_queries(const struct attn_problem *problem, const struct attn_tensors *tensors,
                             const struct attn_batch *batch, struct attn_error *err)
{
    if (tensors->q_rope.buffer.data == NULL) {
        return attn__tensor_check(&tensors->q, problem->q_dtype, batch->num_tokens, problem->heads,
                                  problem->head_dim, "q", err);
    }
    if (!problem->mla)
        return check_presence(tensors->q_rope.buffer.data, false, "q_rope", "mla", err);
    if (problem->head_dim == problem->head_dim_vo) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, "q_rope",
            "tensors.q_rope is given, but head_dim=%u/%u leaves it no columns; accepted: q alone",
            problem->head_dim, problem->head_dim_vo);
    }
    const int32_t status = attn__tensor_check(&tensors->q, problem->q_dtype, batch->num_tokens,
                                              problem->heads, problem->head_dim_vo, "q", err);
    return status == ATTN_OK
               ? attn__tensor_check(&tensors->q_rope, problem->q_dtype, batch->num_tokens, problem->heads,
                                    problem->head_dim - problem->head_dim_vo, "q_rope", err)
               : status;
}

static int32_t check_tensors(const struct attn_plan *plan, const struct attn_tensors *tensors,
                             const struct attn_batch *batch, struct attn_error *err)
{
    const struct attn_problem *problem = &plan->problem;
    if (!isfinite(tensors->softmax_scale) || tensors->softmax_scale <= 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "softmax_scale",
                          "tensors.softmax_scale is %g; accepted: finite and > 0; there is no default",
                          (double)tensors->softmax_scale);
    }
    int32_t status = check_queries(problem, tensors, batch, err);
    if (status == ATTN_OK) {
        status = attn__output_check(&tensors->out, problem->out_dtype, batch->num_tokens, problem->heads,
                                    problem->head_dim_vo, "out", err);
    }
    if (status == ATTN_OK && batch->num_tokens > 0)
        status = check_presence(tensors->lse.buffer.data, problem->lse != 0, "lse", "lse", err);
    if (status == ATTN_OK && problem->lse)
        status =
            attn__output_check(&tensors->lse, ATTN_F32, batch->num_tokens, problem->heads, 1, "lse", err);
    if (status == ATTN_OK)
        status = check_keys(plan, tensors, batch, err);
    return status == ATTN_OK ? check_extras(problem, tensors, err) : status;
}

/* Requires or refuses a cache, by kv_source. */
static int32_t check_cache(const struct attn_plan *plan, const struct attn_tensors *tensors,
                           struct attn_kv_desc *copy, const struct attn_kv_desc **out, struct attn_error *err)
{
    *out = NULL;
    if (plan->problem.kv_source == ATTN_KV_NEW) {
        const void *given = tensors->kv != NULL ? (const void *)tensors->kv : tensors->kv_desc;
        return check_presence(given, false, tensors->kv != NULL ? "kv" : "kv_desc", "kv_source", err);
    }
    if (tensors->kv == NULL && tensors->kv_desc == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kv",
                          "neither tensors.kv nor kv_desc is given, but the problem's kv_source reads a "
                          "cache; give one of them");
    }
    const int32_t status = attn__kv_choose(plan->backend, tensors->kv, tensors->kv_desc, copy, out, err);
    return status == ATTN_OK ? attn__kv_fits(*out, &plan->problem, err) : status;
}

static int32_t check_scratch(const struct attn_plan *plan, const struct attn_scratch *scratch,
                             struct attn_scratch *copy, const struct attn_scratch **out,
                             struct attn_error *err)
{
    *out = NULL;
    const struct attn_plan_sizes *sizes = &plan->sizes;
    if (scratch == NULL) {
        return sizes->scratch == 0 && sizes->counters == 0
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_SIZE, 0, "scratch",
                                "scratch has 0 bytes; the plan needs %llu, and %llu of counters",
                                (unsigned long long)sizes->scratch, (unsigned long long)sizes->counters);
    }
    const void *known;
    int32_t status = attn__argument(plan->backend, scratch, copy, sizeof *copy,
                                    plan->backend->entry->plugin->table.scratch_size, "scratch", &known, err);
    if (status != ATTN_OK)
        return status;
    *out = known;
    status = attn__span_check(&(*out)->scratch, sizes->scratch, "scratch", err);
    return status == ATTN_OK ? attn__span_check(&(*out)->counters, sizes->counters, "counters", err) : status;
}

int32_t attn_plan_run(const struct attn_plan *plan, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_span *schedule,
                      const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    int32_t status = attn__plan_begin(plan, "attn_plan_run", err);
    if (status != ATTN_OK)
        return status;
    struct attn_batch batch_copy;
    struct attn_tensors tensors_copy;
    struct attn_scratch scratch_copy;
    struct attn_kv_desc desc_copy;
    const struct attn_batch *own_batch;
    const struct attn_scratch *own_scratch;
    const struct attn_kv_desc *desc;
    const void *known;
    status = attn__batch_take(plan, batch, &batch_copy, &own_batch, err);
    if (status == ATTN_OK) {
        status = attn__argument(plan->backend, tensors, &tensors_copy, sizeof tensors_copy,
                                plan->backend->entry->plugin->table.tensors_size, "tensors", &known, err);
    }
    if (status != ATTN_OK)
        return status;
    const struct attn_tensors *own = known;
    status = check_tensors(plan, own, own_batch, err);
    if (status == ATTN_OK)
        status = check_cache(plan, own, &desc_copy, &desc, err);
    if (status == ATTN_OK)
        status = attn__span_check(schedule, plan->sizes.schedule, "schedule", err);
    if (status == ATTN_OK)
        status = check_scratch(plan, scratch, &scratch_copy, &own_scratch, err);
    if (status != ATTN_OK)
        return status;
    struct attn_backend *backend = plan->backend;
    const struct attn_kv_impl *kv = own->kv != NULL ? own->kv->impl : NULL;
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const uint64_t began = attn__trace_begin(backend);
    status = backend->entry->plan.run(plan->impl, own_batch, own, kv, kv != NULL ? NULL : desc, schedule,
                                      own_scratch, stream, &plugin_err);
    attn__trace_plan(plan, began, status, "run", own_batch);
    if (__builtin_expect(backend->record, 0))
        attn__record_run(&(struct attn__run){.plan = plan,
                                             .batch = own_batch,
                                             .tensors = own,
                                             .desc = desc,
                                             .stream = stream,
                                             .status = status,
                                             .message = plugin_err.message});
    return status == ATTN_OK ? ATTN_OK : attn__call_end(backend, status, &plugin_err, "plan run", err);
}
