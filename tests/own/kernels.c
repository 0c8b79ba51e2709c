/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What both backends compute with: f32, one query token and one key at a time, as plugins/template does. */
#include <math.h>

#include "own.h"

int32_t own_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *p, struct attn_query *out)
{
    (void)instance;
    attn_util_refuse(out, device != NULL && device->type != OWN_DEVICE, ATTN_REASON_DEVICE, "device",
                     "shelf");
    attn_util_refuse(out, p->type != ATTN_DECODER, ATTN_REASON_ATTN_TYPE, "type", "decoder");
    attn_util_refuse(out, p->q_dtype != ATTN_F32, ATTN_REASON_DTYPE_Q, "q", "f32");
    attn_util_refuse(out, p->k_dtype != ATTN_F32, ATTN_REASON_DTYPE_K, "k", "f32");
    attn_util_refuse(out, p->v_dtype != ATTN_F32, ATTN_REASON_DTYPE_V, "v", "f32");
    attn_util_refuse(out, p->out_dtype != ATTN_F32, ATTN_REASON_DTYPE_OUT, "out", "f32");
    attn_util_refuse(out, p->addressing != ATTN_TABLE, ATTN_REASON_ADDRESSING, "addr", "table");
    attn_util_refuse_extras(out, p);
    attn_util_answer(out, "attention_f32_shelf", "always", ATTN_NUMERICS_P_F16, 100);
    attn_util_speed(out, ATTN_SPEED_GENERIC);
    return ATTN_OK;
}

int32_t own_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *count)
{
    static const char *const f32[] = {"f32"}, *const addr[] = {"table"}, *const type[] = {"decoder"};
    static const struct attn_axis list[] = {
        {"type", type, 1, 0, 0, 0, 0},
        {"q", f32, 1, 0, 0, 0, 0},
        {"k", f32, 1, 0, 0, 0, 0},
        {"v", f32, 1, 0, 0, 0, 0},
        {"addr", addr, 1, 0, 0, 0, 0},
        {"head_dim", NULL, 0, 0, 1, 65536, 1},
        {"block", NULL, 0, 0, 1, 1048576, 1},
    };

    (void)instance;
    *out = list;
    *count = sizeof list / sizeof *list;
    return ATTN_OK;
}

/* ---------------------------------------------------------------- cache */

static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn_util_shape(problem, pages, out, err);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *w,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    const struct attn_kv_desc *d = attn_util_kv(kv, desc);
    int64_t token;

    (void)backend, (void)stream;
    if (w->k_dtype != ATTN_F32 || w->v_dtype != ATTN_F32 || d->k_dtype != ATTN_F32 || d->v_dtype != ATTN_F32)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "k_dtype", "only f32 is written");
    if (!w->slot_mapping.data && w->addressing == ATTN_CSR)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "addressing", "give a slot mapping");
    for (uint32_t i = 0; i < w->num_tokens; i++)
        if (attn_util_place(w, d->block, i, &token) >= (int64_t)d->pages)
            return attn_util_fail(
                err, ATTN_E_INVALID, "slot_mapping",
                "a slot lies behind the last page; slots below pages times block are accepted");
    for (uint32_t i = 0; i < w->num_tokens; i++) {
        const int64_t page = attn_util_place(w, d->block, i, &token);
        for (uint32_t h = 0; page >= 0 && h < d->kv_heads; h++) {
            memcpy(attn_util_key(d, page, token, h), attn_util_element(&w->k_new, i, h), 4U * d->head_dim);
            memcpy(attn_util_value(d, page, token, h), attn_util_element(&w->v_new, i, h),
                   4U * d->head_dim_vo);
        }
    }
    return ATTN_OK;
}

/* ---------------------------------------------------------------- attention */

/* One query token and head over keys [0, end): returns the log-sum-exp. */
static float attend(const struct attn_problem *p, const struct attn_batch *batch,
                    const struct attn_kv_desc *d, uint32_t seq, uint32_t head, int64_t end, const float *q,
                    float scale, float *out)
{
    float largest = -INFINITY;
    double sum = 0;

    memset(out, 0, sizeof *out * p->head_dim_vo);
    for (int64_t j = 0, token; j < end; j++) {
        const int64_t page = attn_util_locate(batch, p->addressing, d->block, seq, j, &token);
        if (page < 0)
            continue; /* an invalid block: not a key */
        const float *k = (const float *)(void *)attn_util_key(d, page, token, head);
        const float *v = (const float *)(void *)attn_util_value(d, page, token, head);
        double dot = 0;
        for (uint32_t c = 0; c < p->head_dim; c++)
            dot += (double)q[c] * (double)k[c];
        const float s = (float)(dot * (double)scale), old = s > largest ? expf(largest - s) : 1;
        largest = s > largest ? s : largest;
        const float weight = expf(s - largest);
        sum = sum * (double)old + (double)weight;
        for (uint32_t c = 0; c < p->head_dim_vo; c++)
            out[c] = out[c] * old + weight * v[c];
    }
    for (uint32_t c = 0; c < p->head_dim_vo && sum != 0; c++)
        out[c] = (float)((double)out[c] / sum);
    return sum != 0 ? largest + (float)log(sum) : -INFINITY;
}

static int32_t run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *t, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = attn_util_problem(plan);
    const int32_t *starts = (const int32_t *)(void *)attn_util_at(&batch->q_offsets);
    const int32_t *lens = (const int32_t *)(void *)attn_util_at(&batch->kv_lens);

    (void)schedule, (void)scratch, (void)stream, (void)err;
    for (uint32_t s = 0; s < batch->seqs; s++)
        for (int32_t i = starts[s]; i < starts[s + 1]; i++) {
            int64_t end =
                p->align == ATTN_ALIGN_START ? i - starts[s] + 1 : i + 1 + (int64_t)lens[s] - starts[s + 1];
            if (p->causal != ATTN_CAUSAL_YES || end > lens[s])
                end = lens[s];
            for (uint32_t h = 0; h < p->heads; h++) {
                const float lse = attend(p, batch, attn_util_kv(kv, desc), s, h / (p->heads / p->kv_heads),
                                         end, (const float *)(void *)attn_util_element(&t->q, i, h),
                                         t->softmax_scale, (float *)(void *)attn_util_element(&t->out, i, h));
                if (p->lse == 1)
                    memcpy(attn_util_element(&t->lse, i, h), &lse, sizeof lse);
            }
        }
    return ATTN_OK;
}

const struct attn_plan_table own_plan = {.struct_size = sizeof own_plan,
                                         .create = attn_util_plan_create,
                                         .sizes = attn_util_plan_sizes,
                                         .prepare = attn_util_plan_prepare,
                                         .run = run,
                                         .destroy = attn_util_plan_destroy};
const struct attn_kv_table own_kv = {.struct_size = sizeof own_kv,
                                     .shape = kv_shape,
                                     .create = attn_util_kv_create,
                                     .destroy = attn_util_kv_destroy,
                                     .write = kv_write};
const struct attn_memory_table own_memory = {.struct_size = sizeof own_memory,
                                             .alloc = attn_util_alloc,
                                             .free = attn_util_free,
                                             .copy = attn_util_copy};
