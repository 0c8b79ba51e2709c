/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What all attention kernels share: the score of a key, the query, and the end of a row. Compiled with
 * K_DTYPE, V_DTYPE, HEAD_DIM and HEAD_DIM_VO. */
#ifdef HEAD_DIM

/* The rescale threshold: a factor of exp(8) costs no precision, while each rescaling costs a rounding. */
#define RESCALE_THRESHOLD 8.0f

/* What exponents count from: before any key that weighs something there may be scores of -infinity, which
 * weigh nothing. */
INLINE float base_of(float row_max)
{
    return row_max > -INFINITY ? row_max : 0;
}

/* Where key and value of a token are, as byte offsets, and their scales. */
struct place {
    long k, v;
    float k_scale, v_scale;
    bool is_new; /* in k_new and v_new, not in the cache */
};

/* False in an invalid block. */
INLINE bool find_place(const struct run *run, const struct sequence *s, int kv_head, int key,
                       struct place *out)
{
    long page = 0, token = 0;

    out->is_new = key >= s->new_begin;
    if (out->is_new) {
        token = (long)s->row + (key - s->new_begin);
        out->k = row_at(&run->a->k_new, token, kv_head);
        out->v = row_at(&run->a->v_new, token, kv_head);
        out->k_scale = SCALE(run, k_new_scale, s->index, token, kv_head);
        out->v_scale = SCALE(run, v_new_scale, s->index, token, kv_head);
        return true;
    }
    if (!locate(run, s->index, key, &page, &token))
        return false;
    const long outer = run->a->only_new ? s->index : page;
    out->k = vector_at(&run->a->k, page, token, kv_head);
    out->v = vector_at(&run->a->v, page, token, kv_head);
    out->k_scale = SCALE(run, k_scale, outer, token, kv_head);
    out->v_scale = SCALE(run, v_scale, outer, token, kv_head);
    return true;
}

/* The score of a key from the product of query and key, before its bias. */
INLINE float score_of(const struct run *run, float product, float q_scale, float k_scale)
{
    const float s = product * (q_scale * k_scale) * run->a->softmax_scale;

    return run->a->softcap > 0 ? run->a->softcap * tanh(s / run->a->softcap) : s;
}

/* An element of the query, of which MLA may have the rope columns in a tensor of their own. */
INLINE __global const uchar *query_element(const struct run *run, long token, int head, int d)
{
    const int split = run->a->split, size = SIZE(run->a->q_dtype);

    return d < split ? run->q + row_at(&run->a->q, token, head) + d * size
                     : run->q_rope + row_at(&run->a->q_rope, token, head) + (d - split) * size;
}

/* The sink of a head, a logit that only the denominator counts; minus infinity = none. */
INLINE float sink_of(const struct run *run, int head)
{
    const uint dtype = run->a->sinks_bf16 ? OPENCL_BF16 : OPENCL_F32;

    return GIVEN(run, sinks) ? load_element(dtype, run->sinks + head * SIZE(dtype)) : -INFINITY;
}

/* How the sums of a row become its result. */
struct finish {
    bool any; /* it sees a key */
    float factor, scale;
    float lse;
};

INLINE struct finish finish_of(const struct run *run, int seq, int token, int head, float row_max,
                               float weight)
{
    const float sink = sink_of(run, head);
    struct finish finish;

    finish.any = weight != 0; /* every key that is seen adds to it, NaN too */
    finish.lse = sink;
    finish.factor = finish.scale = 1;
    if (finish.any) {
        const float top = sink > row_max ? sink : row_max, factor = exp(row_max - top);
        const float sum = weight * factor + (sink > -INFINITY ? exp(sink - top) : 0);
        finish.factor = factor / sum;
        finish.scale = SCALE(run, out_scale, seq, token, head);
        finish.lse = top + log(sum);
    }
    return finish;
}

INLINE void store_lse(const struct run *run, const struct finish *finish, int token, int head)
{
    if (GIVEN(run, lse))
        *(__global float *)(run->lse + row_at(&run->a->lse, token, head)) = finish->lse;
}

INLINE void store_column(const struct run *run, const struct finish *finish, int token, int head, int d,
                         float sum)
{
    const uint dtype = run->a->out_dtype;

    store_element(dtype, run->out + row_at(&run->a->out, token, head) + d * SIZE(dtype),
                  finish->any ? sum * finish->factor / finish->scale : 0);
}

#endif
