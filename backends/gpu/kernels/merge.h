/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Merge and rescale of partial results (docs/definition.md, section 3): a warp per row and head. */
#ifndef ATTN_GPU_MERGE_H
#define ATTN_GPU_MERGE_H

#include "kv-vector.h"

constexpr double GPU_LN2 = 0.69314718055994530942;

GPU_INLINE double gpu_merge_empty(void)
{
    return -(double)GPU_INFINITY;
}

GPU_INLINE uint64_t gpu_merge_at(const struct gpu_tensor *tensor, uint32_t row, uint32_t head)
{
    return tensor->base +
           (uint64_t)((int64_t)row * tensor->token_stride + (int64_t)head * tensor->head_stride);
}

/* LSE as a natural logarithm; -inf for an empty part, whose LSE is +inf or -inf. */
GPU_INLINE double gpu_merge_lse_at(const struct gpu_merge *a, uint64_t at)
{
    const float lse = gpu_at<const float>(at, 0);

    if ((gpu_f32_bits(lse) & 0x7fffffffu) == 0x7f800000u)
        return gpu_merge_empty();
    return a->base2 != 0 ? (double)lse * GPU_LN2 : (double)lse;
}

GPU_INLINE double gpu_merge_lse(const struct gpu_merge *a, uint32_t part, uint32_t row, uint32_t head)
{
    const uint32_t known = a->stepped != 0 ? 0 : part;
    const uint64_t step = a->stepped != 0 ? (uint64_t)((int64_t)part * a->lse_step) : 0;

    return gpu_merge_lse_at(a, gpu_merge_at(&a->parts[known].lse, row, head) + step);
}

GPU_INLINE uint64_t gpu_merge_out(const struct gpu_merge *a, uint32_t part, uint32_t row, uint32_t head)
{
    const uint32_t known = a->stepped != 0 ? 0 : part;
    const uint64_t step = a->stepped != 0 ? (uint64_t)((int64_t)part * a->out_step) : 0;

    return gpu_merge_at(&a->parts[known].out, row, head) + step;
}

/* The largest logarithm, NaN if there is one; every lane of the warp gets it. */
GPU_INLINE double gpu_merge_max(const struct gpu_merge *a, uint32_t row, uint32_t head)
{
    double max = gpu_merge_empty();
    bool nan = false;

    for (uint32_t k = gpu_thread() % GPU_WARP; k < a->count; k += GPU_WARP) {
        const double lse = gpu_merge_lse(a, k, row, head);
        nan |= lse != lse;
        max = lse > max ? lse : max;
    }
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2) {
        const double other = gpu_shuffle_xor_f64(max, mask);
        max = other > max ? other : max;
    }
    return gpu_ballot(nan) != 0 ? (double)GPU_NAN : max;
}

/* Sum of exp(lse - max), 0 if all parts are empty. */
GPU_INLINE double gpu_merge_sum(const struct gpu_merge *a, double max, uint32_t row, uint32_t head)
{
    double sum = 0;

    if (max == gpu_merge_empty())
        return 0;
    for (uint32_t k = gpu_thread() % GPU_WARP; k < a->count; k += GPU_WARP)
        sum += gpu_exp_f64(gpu_merge_lse(a, k, row, head) - max);
    for (uint32_t mask = GPU_WARP / 2; mask > 0; mask /= 2)
        sum += gpu_shuffle_xor_f64(sum, mask);
    return sum;
}

/* ln of the sum over lses. */
GPU_INLINE double gpu_merge_total(double max, double sum)
{
    return max == gpu_merge_empty() ? max : max + gpu_log_f64(sum);
}

/* Parts [first, first + count) of a row, one to a lane. */
struct gpu_merge_share {
    float weight; /* of this lane's part */
    bool empty;
};

GPU_INLINE struct gpu_merge_share gpu_merge_weight(const struct gpu_merge *a, uint32_t first, double max,
                                                   double sum, uint32_t row, uint32_t head)
{
    const uint32_t part = first + gpu_thread() % GPU_WARP;
    struct gpu_merge_share share;

    share.weight = 0;
    share.empty = true;
    if (part < a->count) {
        const double lse = gpu_merge_lse(a, part, row, head);
        share.empty = lse == gpu_merge_empty();
        share.weight = share.empty ? 0 : (float)(gpu_exp_f64(lse - max) / sum);
    }
    return share;
}

/* Columns [d, d + wide) of this lane, all parts. Lanes beyond the last column only join the shuffles. */
GPU_INLINE void gpu_merge_columns(const struct gpu_merge *a, uint32_t d, double max, double sum, uint32_t row,
                                  uint32_t head)
{
    a = (const struct gpu_merge *)gpu_again(a);
    struct gpu_kv_vector vector = gpu_kv_vector_in(&a->parts[0].out, a->part_dtype, row, head);
    const struct gpu_kv_vector to = gpu_kv_vector_in(&a->out, a->dtype, row, head);
    float sums[4] = {0, 0, 0, 0}, values[4] = {0, 0, 0, 0};

    for (uint32_t first = 0; first < a->count; first += GPU_WARP) {
        const struct gpu_merge_share share = gpu_merge_weight(a, first, max, sum, row, head);
        const uint32_t empty = gpu_ballot(share.empty);
        for (uint32_t i = 0; i < GPU_WARP && first + i < a->count; i++) {
            const float weight = gpu_shuffle_f32(share.weight, i);
            if (d >= a->head_dim || (empty >> i & 1) != 0)
                continue;
            vector.at = gpu_merge_out(a, first + i, row, head);
            gpu_kv_load(&vector, d, a->wide, 1, values);
            GPU_UNROLL
            for (uint32_t n = 0; n < 4; n++)
                sums[n] += weight * values[n];
        }
    }
    /* Stored only now, because the result may overwrite a part. */
    if (d < a->head_dim)
        gpu_kv_store(&to, d, a->wide, sums);
}

GPU_KERNEL(gpu_merge_rows, GPU_KV_THREADS, 2)(GPU_ARGUMENT(struct gpu_merge, argument))
{
    const struct gpu_merge *a = (const struct gpu_merge *)gpu_argument(&argument);
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint32_t rows = a->rows_at != 0 ? (uint32_t)gpu_at<const int32_t>(a->rows_at, 0) : a->rows;
    const uint64_t all = (uint64_t)rows * a->heads;

    for (uint64_t at = (uint64_t)gpu_cta() * warps + gpu_kv_warp(); at < all;
         at += (uint64_t)gpu_ctas() * warps) {
        const uint32_t row = (uint32_t)(at / a->heads), head = (uint32_t)(at - (uint64_t)row * a->heads);
        const double max = gpu_merge_max(a, row, head);
        const double sum = gpu_merge_sum(a, max, row, head);
        for (uint32_t d = 0; d < a->head_dim; d += GPU_WARP * a->wide)
            gpu_merge_columns(a, d + lane * a->wide, max, sum, row, head);
        /* The LSE may overwrite that of a part, which all lanes have read by now. */
        gpu_warp_barrier();
        if (a->lse.base != 0 && lane == 0)
            gpu_at<float>(gpu_merge_at(&a->lse, row, head), 0) = (float)gpu_merge_total(max, sum);
    }
}

GPU_KERNEL(gpu_rescale_rows, GPU_KV_THREADS, 2)(GPU_ARGUMENT(struct gpu_merge, argument))
{
    const struct gpu_merge *a = (const struct gpu_merge *)gpu_argument(&argument);
    const uint32_t warps = GPU_KV_THREADS / GPU_WARP, lane = gpu_thread() % GPU_WARP;
    const uint64_t all = (uint64_t)a->rows * a->heads;
    float values[4] = {0, 0, 0, 0};

    for (uint64_t at = (uint64_t)gpu_cta() * warps + gpu_kv_warp(); at < all;
         at += (uint64_t)gpu_ctas() * warps) {
        const uint32_t row = (uint32_t)(at / a->heads), head = (uint32_t)(at - (uint64_t)row * a->heads);
        const double own = gpu_merge_lse_at(a, gpu_merge_at(&a->lse, row, head));
        const double max = gpu_merge_max(a, row, head);
        const double total = gpu_merge_total(max, gpu_merge_sum(a, max, row, head));
        const double share = gpu_exp_f64(own - total);
        const struct gpu_kv_vector out = gpu_kv_vector_in(&a->out, a->dtype, row, head);
        for (uint32_t d = lane * a->wide; d < a->head_dim; d += GPU_WARP * a->wide) {
            gpu_kv_load(&out, d, a->wide, 1, values);
            GPU_UNROLL
            for (uint32_t n = 0; n < 4; n++)
                values[n] = own == gpu_merge_empty() ? 0 : (float)((double)values[n] * share);
            gpu_kv_store(&out, d, a->wide, values);
        }
    }
}

#endif
