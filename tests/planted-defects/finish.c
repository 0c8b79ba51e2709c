/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Results: whole ones at once, those of splits by whoever ends the last one, in the order of the splits. */
#include <math.h>

#include "defect.h"

#define LOG2E 1.44269504088896340736

double sink_of(const struct job *job, uint32_t head)
{
    const uint32_t dtype = job->tensors->sinks_dtype;
    float sink = -INFINITY;

    if (job->problem->sinks != 0)
        load_vector(dtype, &sink, attn_util_at(&job->tensors->sinks) + (size_t)head * size_of(dtype), 1);
    return (double)sink;
}

/* A row in its place; `out` has room behind its last column. */
static void put_row(const struct job *job, uint32_t row, uint32_t head, const float *out, double lse)
{
    const struct attn_problem *p = job->problem;
    const uint32_t dim = p->head_dim_vo;
    const float natural = (float)(IS(lse_base) ? lse * LOG2E : lse);

    store_vector(p->out_dtype, attn_util_element(&job->tensors->out, row, head), out,
                 IS(beyond_out) ? (dim + 3) / 4 * 4 : dim);
    if (p->lse != 0)
        memcpy(attn_util_element(&job->tensors->lse, row, head), &natural, sizeof natural);
}

/* A row with its sink. */
static void put_whole(const struct job *job, uint32_t row, uint32_t head, const float *out, double lse)
{
    const double sink = sink_of(job, head), most = sink > lse ? sink : lse;
    float shared[DIM_MAX + 4] = {0};
    double all = lse, share = 1;

    if (sink != -(double)INFINITY) {
        all = most + log(exp(lse - most) + exp(sink - most));
        share = exp(lse - all);
    }
    for (uint32_t d = 0; d < job->problem->head_dim_vo && lse != -(double)INFINITY; d++)
        shared[d] = (float)((double)out[d] * share);
    put_row(job, row, head, shared, all);
}

static uint32_t row_of(const struct job *job, const struct item *item)
{
    return (uint32_t)number_at(&job->batch->q_offsets, item->seq) + item->token;
}

uint32_t begin_item(const struct job *job, const struct item *item)
{
    if (item->splits == 1)
        return 0;
    const uint32_t ticket = atomic_fetch_add(&job->counters[item->counter].begun, 1);
    return item->slot + (IS(merge_order) ? ticket : item->split);
}

void store_partial(const struct job *job, const struct item *item, uint32_t slot, uint32_t head,
                   const float *out, double lse)
{
    const uint64_t at = (uint64_t)slot * job->problem->heads + head;

    if (item->splits == 1) {
        put_whole(job, row_of(job, item), head, out, lse);
        return;
    }
    memcpy(job->partial_out + at * job->problem->head_dim_vo, out, job->problem->head_dim_vo * sizeof *out);
    job->partial_lse[at] = (float)lse;
}

/* Merges the splits in their order. */
static void merge_parts(const struct job *job, const struct item *item, uint32_t head)
{
    const uint32_t dim = job->problem->head_dim_vo;
    float sum[DIM_MAX + 4] = {0}, total = 0, most = -INFINITY;

    for (uint32_t split = 0; split < item->splits; split++) {
        const uint64_t at = ((uint64_t)item->slot + split) * job->problem->heads + head;
        const float *out = job->partial_out + at * dim, lse = job->partial_lse[at];
        if (lse == -INFINITY)
            continue;
        const float raised = lse > most || isnan(lse) ? lse : most;
        const float old = (float)exp((double)most - (double)raised);
        const float weight = (float)exp((double)lse - (double)raised);
        total = total * old + weight;
        for (uint32_t d = 0; d < dim; d++)
            sum[d] = sum[d] * old + weight * out[d];
        most = raised;
    }
    for (uint32_t d = 0; d < dim && total != 0; d++)
        sum[d] /= total;
    const double lse = total != 0 ? (double)most + log((double)total) : -(double)INFINITY;
    if (IS(sink) && total != 0)
        put_row(job, row_of(job, item), head, sum, lse);
    else
        put_whole(job, row_of(job, item), head, sum, lse);
}

void end_item(const struct job *job, const struct item *item)
{
    if (item->splits == 1)
        return;
    struct counter *counter = &job->counters[item->counter];
    if (atomic_fetch_add(&counter->done, 1) + 1 < item->splits)
        return;
    for (uint32_t head = 0; head < job->problem->heads; head++)
        merge_parts(job, item, head);
    atomic_store(&counter->begun, 0);
    atomic_store(&counter->done, 0);
}
