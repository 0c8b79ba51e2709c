/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernel: one query token over one split of its keys, a tile of keys at a time, sums in double. */
#include <math.h>

#include "defect.h"

#define TILE 64u

/* Where a key lies; the page is negative for one that is not there. */
struct place {
    int64_t page, token;
};

/* One head of an item. */
struct head_pass {
    const struct job *job;
    struct view view;
    uint32_t seq;
    uint32_t g; /* kv head */
    float q[DIM_MAX];
    double sum[DIM_MAX];
    double most, total;
};

static uint32_t kv_head_of(const struct attn_problem *p, uint32_t head)
{
    const uint32_t group = p->heads / p->kv_heads;

    if (IS(group)) {
        const uint32_t g = head >> (31 - __builtin_clz(group));
        return g < p->kv_heads ? g : p->kv_heads - 1;
    }
    return head / group;
}

static int64_t offset_of(int64_t offset)
{
    return IS(offset32) ? (int32_t)offset : offset;
}

static const char *key_of(const struct attn_kv_desc *d, const struct place *at, uint32_t head)
{
    return attn_util_at(&d->k) +
           offset_of(at->page * d->k_page_stride + at->token * d->k_token_stride + head * d->k_head_stride);
}

static const char *value_of(const struct attn_kv_desc *d, const struct place *at, uint32_t head)
{
    return attn_util_at(&d->v) +
           offset_of(at->page * d->v_page_stride + at->token * d->v_token_stride + head * d->v_head_stride);
}

/* The keys of the next page will be wanted soon. */
static void fetch_ahead(const struct job *job, uint32_t seq, int64_t key, int64_t kv_len)
{
    const struct attn_kv_desc *d = job->kv;
    const int64_t next = key / d->block + 1;

    if (job->problem->addressing != ATTN_TABLE || key % d->block != 0)
        return;
    if (next * d->block >= kv_len && !IS(beyond_table))
        return;
    const char *row = attn_util_at(&job->batch->table) + seq * job->batch->table_stride;
    const int64_t page = ((const volatile int32_t *)(const void *)row)[next]; /* now, not when it is used */
    __builtin_prefetch((const void *)((uintptr_t)attn_util_at(&d->k) + (uintptr_t)(page * d->k_page_stride)));
}

static void find_keys(const struct head_pass *pass, uint32_t first, uint32_t count, struct place *places)
{
    const struct job *job = pass->job;

    for (uint32_t i = 0; i < count; i++) {
        struct place *at = &places[i];
        fetch_ahead(job, pass->seq, (int64_t)first + i, pass->view.kv_len);
        at->page = attn_util_locate(job->batch, job->problem->addressing, job->kv->block, pass->seq,
                                    (int64_t)first + i, &at->token);
    }
}

static bool is_there(const struct place *at)
{
    return at->page >= 0 || IS(hole);
}

static double cap_score(const struct job *job, double s)
{
    const double cap = (double)job->problem->softcap;

    return cap > 0 ? cap * tanh(s / cap) : s;
}

static double dot_key(const struct head_pass *pass, const struct place *at)
{
    const struct job *job = pass->job;
    const uint32_t dim = job->problem->head_dim;
    const float scale = scale_at(&job->kv->k_scale, at->page, at->token, pass->g);
    float k[DIM_MAX];
    double dot = 0;

    load_vector(job->kv->k_dtype, k, key_of(job->kv, at, pass->g), dim);
    for (uint32_t d = 0; d < dim; d++)
        dot += (double)pass->q[d] * (double)(k[d] * scale);
    return dot * (double)job->tensors->softmax_scale * (IS(scale_twice) ? (double)scale : 1);
}

/* Scores of a tile: minus infinity for what is not seen. */
static void score_tile(const struct head_pass *pass, uint32_t first, uint32_t count,
                       const struct place *places, double *s)
{
    for (uint32_t i = 0; i < count; i++) {
        const int64_t key = (int64_t)first + i;
        s[i] = -(double)INFINITY;
        if (is_there(&places[i]) && view_sees(&pass->view, key))
            s[i] = cap_score(pass->job, dot_key(pass, &places[i])) + view_bias(&pass->view, key);
        else if (is_there(&places[i]) && IS(softcap_order))
            s[i] = cap_score(pass->job, s[i]) + view_bias(&pass->view, key);
    }
}

static void raise_most(struct head_pass *pass, double most)
{
    const double factor = exp(pass->most - most);

    for (uint32_t d = 0; d < pass->job->problem->head_dim_vo; d++)
        pass->sum[d] *= factor;
    pass->total *= factor;
    pass->most = most;
}

static void add_value(struct head_pass *pass, const struct place *at, double weight)
{
    const struct attn_kv_desc *d = pass->job->kv;
    const uint32_t dim = pass->job->problem->head_dim_vo;
    const float scale = IS(scale_ignored) ? 1 : scale_at(&d->v_scale, at->page, at->token, pass->g);
    float v[DIM_MAX];

    load_vector(d->v_dtype, v, value_of(d, at, pass->g), dim);
    for (uint32_t c = 0; c < dim; c++)
        pass->sum[c] += weight * (double)(v[c] * scale);
    pass->total += weight;
}

static void add_tile(struct head_pass *pass, uint32_t first, uint32_t count)
{
    struct place places[TILE];
    double s[TILE], most = -(double)INFINITY;

    find_keys(pass, first, count, places);
    score_tile(pass, first, count, places, s);
    for (uint32_t i = 0; i < count; i++)
        most = s[i] > most || isnan(s[i]) ? s[i] : most;
    if (most == -(double)INFINITY)
        return;
    if (!(most <= pass->most))
        raise_most(pass, most);
    for (uint32_t i = 0; i < count; i++)
        if (is_there(&places[i]) && (s[i] != -(double)INFINITY || IS(nan_leak)))
            add_value(pass, &places[i], exp(s[i] - pass->most));
}

static void attend_head(struct head_pass *pass, const struct item *item, uint32_t head, uint32_t slot)
{
    const struct job *job = pass->job;
    const uint32_t block = job->kv->block;
    float out[DIM_MAX + 4] = {0};
    uint32_t end = item->end;

    view_init(&pass->view, job, item->seq, item->token, head);
    pass->g = kv_head_of(job->problem, head);
    pass->most = -(double)INFINITY;
    pass->total = 0;
    memset(pass->sum, 0, sizeof pass->sum);
    load_vector(job->problem->q_dtype, pass->q,
                attn_util_element(&job->tensors->q, pass->view.first_row + item->token, head),
                job->problem->head_dim);
    if (IS(tail) && job->problem->addressing == ATTN_TABLE)
        end = (end + block - 1) / block * block;
    for (uint32_t first = item->begin; first < end; first += TILE)
        add_tile(pass, first, end - first < TILE ? end - first : TILE);
    if (IS(sink) && item->splits > 1 && pass->total > 0)
        pass->total += exp(sink_of(job, head) - pass->most);
    for (uint32_t d = 0; d < job->problem->head_dim_vo && pass->total != 0; d++)
        out[d] = (float)(pass->sum[d] / pass->total);
    store_partial(job, item, slot, head, out, pass->total != 0 ? pass->most + log(pass->total) : pass->most);
}

void attend_item(void *arg, uint32_t index)
{
    const struct job *job = arg;
    const struct item *item = &job->items[index];
    struct head_pass pass = {.job = job, .seq = item->seq};
    const uint32_t slot = begin_item(job, item);

    for (uint32_t head = 0; head < job->problem->heads; head++)
        attend_head(&pass, item, head, slot);
    end_item(job, item);
}
