/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The second version of the oracle: whole score matrices of long doubles from lists of visible pairs. */
#include "second.h"

#include <math.h>
#include <stdlib.h>

/* One sequence, its keys under their global numbers. */
struct whole {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    const struct attn_tensors *tensors;
    const struct attn_kv_desc *kv;
    uint32_t n;
    int begin; /* first query row */
    int queries;
    int keys;
    bool exists[MOST_K];
    int64_t stand[MOST_Q]; /* of the queries */
    double k[MOST_KV_HEADS][MOST_K][MOST_DIM];
    double v[MOST_KV_HEADS][MOST_K][MOST_DIM];
};

struct pair {
    int i, j;
    long double add; /* to the score */
};

static int32_t at32(const struct attn_buffer *array, int64_t index)
{
    return ((const int32_t *)(const void *)((const char *)array->data + array->byte_offset))[index];
}

static int64_t at64(const struct attn_buffer *array, int64_t index)
{
    return ((const int64_t *)(const void *)((const char *)array->data + array->byte_offset))[index];
}

static double number(uint32_t dtype, const struct attn_buffer *array, int64_t bytes)
{
    double value;

    oracle_load(dtype, (const char *)array->data + array->byte_offset + bytes, 1, &value);
    return value;
}

static int width_of(uint32_t dtype)
{
    return dtype == ATTN_F32 ? 4 : dtype == ATTN_F16 || dtype == ATTN_BF16 ? 2 : 1;
}

static double factor(const struct attn_scale *scale, uint32_t granularity, int64_t a, int64_t b, int64_t c)
{
    if (granularity <= ATTN_SCALES_UNIT)
        return 1;
    return number(ATTN_F32, &scale->buffer,
                  a * scale->outer_stride + b * scale->token_stride + c * scale->head_stride);
}

/* Key or value `token` of k_new or v_new. */
static void take_new(const struct whole *w, bool value, int64_t token, int head, double *to)
{
    const struct attn_problem *p = w->problem;
    const struct attn_tensor *from = value && !p->mla ? &w->tensors->v_new : &w->tensors->k_new;
    bool as_key = !value || p->mla;
    const struct attn_scale *scale = as_key ? &w->tensors->k_new_scale : &w->tensors->v_new_scale;
    uint32_t dtype = as_key ? p->k_dtype : p->v_dtype;
    int columns = (int)(value ? p->head_dim_vo : p->head_dim);

    for (int d = 0; d < columns; d++)
        to[d] = number(dtype, &from->buffer,
                       token * from->token_stride + head * from->head_stride + d * width_of(dtype)) *
                factor(scale, as_key ? p->k_scale : p->v_scale, w->n, token, head);
}

/* Key or value of a page. */
static void take_cached(const struct whole *w, bool value, int64_t page, int64_t token, int head, double *to)
{
    const struct attn_problem *p = w->problem;
    const struct attn_kv_desc *kv = w->kv;
    bool as_key = !value || p->mla, scattered = p->layout == ATTN_PAGED_X;
    uint32_t dtype = as_key ? p->k_dtype : p->v_dtype;
    int size = width_of(dtype), columns = (int)(value ? p->head_dim_vo : p->head_dim), block = (int)kv->block;
    int64_t base = as_key ? page * kv->k_page_stride + head * kv->k_head_stride
                          : page * kv->v_page_stride + head * kv->v_head_stride;
    double scale = as_key ? factor(&kv->k_scale, p->k_scale, page, token, head)
                          : factor(&kv->v_scale, p->v_scale, page, token, head);

    for (int d = 0; d < columns; d++) {
        int64_t offset = token * (as_key ? kv->k_token_stride : kv->v_token_stride) + d * size;
        if (scattered && as_key) /* lines of 16 bytes: a line per token and group of columns */
            offset = (d * size / 16 * block + token) * 16 + d * size % 16;
        else if (scattered)
            offset = (d * block + token) * size;
        to[d] = number(dtype, as_key ? &kv->k : &kv->v, base + offset) * scale;
    }
}

/* Page of local key `own`; negative for a hole. */
static int64_t page_of(const struct whole *w, int own)
{
    const struct attn_batch *b = w->batch;
    int slot = own / (int)w->problem->block;

    if (w->problem->addressing == ATTN_DENSE)
        return b->kv_offsets.data != NULL ? 0 : w->n;
    if (w->problem->addressing == ATTN_TABLE)
        return at32(&b->table, (int64_t)w->n * (b->table_stride / 4) + slot);
    slot += at32(&b->csr_indptr, w->n);
    return w->problem->index_dtype == ATTN_INT64 ? at64(&b->csr_indices, slot) : at32(&b->csr_indices, slot);
}

/* Fetches local key `own` to global place j. */
static void gather(struct whole *w, int own, int j)
{
    const struct attn_problem *p = w->problem;
    const struct attn_batch *b = w->batch;
    bool from_new = p->kv_source == ATTN_KV_NEW;
    int64_t row = own, token = own, page = 0;

    if (from_new)
        row += b->kv_offsets.data != NULL ? at32(&b->kv_offsets, w->n) : w->begin;
    if (p->kv_source == ATTN_KV_CACHE_NEW && j + w->queries >= w->keys) {
        from_new = true;
        row = w->begin + w->queries - (w->keys - j);
    }
    if (!from_new) {
        page = page_of(w, own);
        if (p->addressing != ATTN_DENSE)
            token = own % (int)p->block;
        else if (b->kv_offsets.data != NULL)
            token += at32(&b->kv_offsets, w->n);
    }
    w->exists[j] = from_new || page >= 0;
    for (int g = 0; w->exists[j] && g < (int)p->kv_heads; g++) {
        for (int value = 0; value < 2; value++) {
            double *to = value ? w->v[g][j] : w->k[g][j];
            if (from_new)
                take_new(w, value, row, g, to);
            else
                take_cached(w, value, page, token, g, to);
        }
    }
}

/* Deals the global keys out to the ranks, one after the other, and fetches those of this rank. */
static void gather_all(struct whole *w)
{
    const struct attn_batch *b = w->batch;
    int own = 0;

    for (int j = 0; j < w->keys; j++) {
        bool here = !w->problem->cp || j / (int)b->cp_interleave % (int)b->cp_world == (int)b->cp_rank;
        w->exists[j] = false;
        if (here)
            gather(w, own++, j);
    }
}

static void place_queries(struct whole *w)
{
    const struct attn_batch *b = w->batch;

    for (int i = 0; i < w->queries; i++) {
        w->stand[i] = w->problem->align == ATTN_ALIGN_START ? i : w->keys - (w->queries - i);
        if (w->problem->positions)
            w->stand[i] = b->position_dtype == ATTN_INT64 ? at64(&b->q_positions, w->begin + i)
                                                          : at32(&b->q_positions, w->begin + i);
    }
}

/* First and last key of query i by causality and windows. */
static void reach(const struct whole *w, int i, int64_t *first, int64_t *last)
{
    const struct attn_problem *p = w->problem;
    int64_t here = w->stand[i], right = -1;
    bool causal = p->seq_causal ? ((const uint8_t *)w->batch->seq_causal.data)[w->n] != 0
                                : p->causal == ATTN_CAUSAL_YES;

    *first = 0;
    *last = w->keys - 1;
    if ((p->given & ATTN_GIVEN_WINDOW_LEFT) && p->window_left >= 0) {
        *first = here - p->window_left;
        right = causal ? 0 : p->window_left;
    }
    if (p->given & ATTN_GIVEN_WINDOW_RIGHT)
        right = p->window_right;
    if (right >= 0 && here + right < *last)
        *last = here + right;
    if (causal && here < *last)
        *last = here;
}

enum mask_bit { NO_WORD, SHOWN, HIDDEN };

/* What the mask says about column c for head and query; an additive one gives *value. */
static enum mask_bit ask_mask(const struct whole *w, int head, int i, int64_t c, int64_t columns,
                              double *value)
{
    const struct attn_tensors *t = w->tensors;
    uint32_t kind = w->problem->mask;
    int64_t bytes = t->mask_starts.data != NULL ? at64(&t->mask_starts, w->n) : w->n * t->mask_seq_stride;

    if (kind <= ATTN_MASK_NONE || bytes < 0 || c < 0)
        return NO_WORD;
    bytes += head * t->mask_head_stride;
    if (kind == ATTN_MASK_BITS) {
        const uint8_t *bits = (const uint8_t *)t->mask.data + t->mask.byte_offset + bytes;
        int64_t bit = t->mask_packed ? i * columns + c : i * t->mask_row_stride * 8 + c;
        return bits[bit >> 3] & 1 << (bit & 7) ? SHOWN : HIDDEN;
    }
    uint32_t dtype = kind == ATTN_MASK_F16 ? ATTN_F16 : kind == ATTN_MASK_BF16 ? ATTN_BF16 : ATTN_F32;
    double lowest = kind == ATTN_MASK_F16    ? -65504
                    : kind == ATTN_MASK_BF16 ? -(2 - ldexp(1, -7)) * ldexp(1, 127)
                                             : -(2 - ldexp(1, -23)) * ldexp(1, 127);
    *value = number(dtype, &t->mask, bytes + i * t->mask_row_stride + c * width_of(dtype));
    return *value == lowest || (isinf(*value) && *value < 0) ? HIDDEN : SHOWN;
}

/* Every pair that head sees, with what is added to its score. */
static int list_pairs(const struct whole *w, int head, struct pair *list)
{
    const struct attn_problem *p = w->problem;
    bool square = p->span != ATTN_SPAN_FULL;
    double slope = p->alibi > ATTN_ALIBI_NONE ? number(ATTN_F32, &w->tensors->alibi_slopes, head * 4L) : 0;
    int count = 0;

    for (int i = 0; i < w->queries; i++) {
        int64_t first, last;
        reach(w, i, &first, &last);
        for (int j = 0; j < w->keys; j++) {
            double mask = 0;
            int64_t column = square ? j - (w->keys - w->queries) : j, where = j;
            enum mask_bit word = ask_mask(w, head, i, column, square ? w->queries : w->keys, &mask);
            bool seen = j >= first && j <= last;
            if (word != NO_WORD && square)
                seen = true;
            if (!w->exists[j] || !seen || word == HIDDEN)
                continue;
            if (word != NO_WORD && square && p->positions)
                where = w->stand[column];
            long double positional = 0;
            if (p->alibi == ATTN_ALIBI_KEY)
                positional = (long double)slope * (where - w->stand[i]);
            if (p->alibi == ATTN_ALIBI_DISTANCE)
                positional = -(long double)slope * llabs(where - w->stand[i]);
            long double weight = p->alibi == ATTN_ALIBI_MASK ? slope : 1;
            list[count++] = (struct pair){i, j, positional + weight * mask};
        }
    }
    return count;
}

static void take_query(const struct whole *w, int i, int head, double *to)
{
    const struct attn_problem *p = w->problem;
    const struct attn_tensor *q = &w->tensors->q, *rope = &w->tensors->q_rope;
    int size = width_of(p->q_dtype), cut = (int)(rope->buffer.data != NULL ? p->head_dim_vo : p->head_dim);
    int row = w->begin + i,
        h = p->q_scale == ATTN_SCALES_KV_HEAD ? head / (int)(p->heads / p->kv_heads) : head;
    double scale = factor(&w->tensors->q_scale, p->q_scale, w->n, row, h);

    for (int d = 0; d < (int)p->head_dim; d++) {
        const struct attn_tensor *from = d < cut ? q : rope;
        to[d] = scale *
                number(p->q_dtype, &from->buffer,
                       row * from->token_stride + head * from->head_stride + (d < cut ? d : d - cut) * size);
    }
}

static void attend(const struct whole *w, int head, struct second_result *result)
{
    static struct pair list[MOST_Q * MOST_K];
    const struct attn_problem *p = w->problem;
    int count = list_pairs(w, head, list), g = head / (int)(p->heads / p->kv_heads);
    long double z[MOST_Q] = {0}, sums[MOST_Q][MOST_DIM] = {{0}}, cap = p->softcap;
    double q[MOST_DIM];
    uint32_t seen[MOST_Q] = {0};

    if (p->sinks && !(p->cp && w->batch->cp_rank > 0)) {
        uint32_t dtype = w->tensors->sinks_dtype;
        for (int i = 0; i < w->queries; i++)
            z[i] = expl(number(dtype, &w->tensors->sinks, head * width_of(dtype)));
    }
    for (int n = 0; n < count; n++) {
        const struct pair *pair = &list[n];
        long double s = 0;
        take_query(w, pair->i, head, q);
        for (int d = 0; d < (int)p->head_dim; d++)
            s += (long double)q[d] * w->k[g][pair->j][d];
        s *= w->tensors->softmax_scale;
        if (cap > 0)
            s = cap * tanhl(s / cap);
        long double e = expl(s + pair->add);
        z[pair->i] += e;
        seen[pair->i]++;
        for (int d = 0; d < (int)p->head_dim_vo; d++)
            sums[pair->i][d] += e * w->v[g][pair->j][d];
    }
    for (int i = 0; i < w->queries; i++) {
        result->seen[w->begin + i][head] = seen[i];
        result->lse[w->begin + i][head] = (double)logl(z[i]);
        for (int d = 0; d < (int)p->head_dim_vo; d++)
            result->out[w->begin + i][head][d] = seen[i] ? (double)(sums[i][d] / z[i]) : 0;
    }
}

void second_attention(const struct attn_problem *problem, const struct attn_batch *batch,
                      const struct attn_tensors *tensors, const struct attn_kv_desc *kv,
                      struct second_result *result)
{
    static struct whole w;

    for (uint32_t n = 0; n < batch->seqs; n++) {
        w = (struct whole){.problem = problem, .batch = batch, .tensors = tensors, .kv = kv, .n = n};
        w.begin = at32(&batch->q_offsets, n);
        w.queries = at32(&batch->q_offsets, n + 1) - w.begin;
        w.keys = problem->cp                   ? at32(&batch->kv_global_lens, n)
                 : batch->kv_lens.data != NULL ? at32(&batch->kv_lens, n)
                 : batch->kv_offsets.data != NULL
                     ? at32(&batch->kv_offsets, n + 1) - at32(&batch->kv_offsets, n)
                     : w.queries;
        if (w.keys > MOST_K || w.queries > MOST_Q)
            abort();
        place_queries(&w);
        gather_all(&w);
        for (int head = 0; head < (int)problem->heads; head++)
            attend(&w, head, result);
    }
}
