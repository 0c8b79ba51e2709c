/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The part of a plan's description that follows from its problem. */
#include "check.h"

/* a + b * c * d * e, or UINT64_MAX on overflow. */
static uint64_t add_product(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    uint64_t product;

    if (__builtin_mul_overflow(b, c, &product) || __builtin_mul_overflow(product, d, &product) ||
        __builtin_mul_overflow(product, e, &product) || __builtin_add_overflow(a, product, &product))
        return UINT64_MAX;
    return product;
}

void attn__plan_info_init(struct attn_plan_info *out, const struct attn_problem *problem)
{
    const struct attn_problem *p = problem;
    const uint32_t sizes[] = {attn__dtype_size(p->q_dtype), attn__dtype_alignment(p->k_dtype),
                              attn__dtype_alignment(p->v_dtype), attn__dtype_size(p->out_dtype)};
    uint64_t bytes = 0;

    ATTN_INIT(out);
    for (uint32_t i = 0; i < 4; i++)
        out->alignment = sizes[i] > out->alignment ? sizes[i] : out->alignment;
    out->stride_multiple = out->alignment;
    bytes = add_product(bytes, (uint64_t)p->max_seqs * p->max_kv, p->kv_heads,
                        attn_row_bytes(p->k_dtype, p->head_dim), 1);
    bytes = add_product(bytes, (uint64_t)p->max_seqs * p->max_kv, p->kv_heads,
                        attn_row_bytes(p->v_dtype, p->head_dim_vo), 1);
    bytes = add_product(bytes, p->max_rows, p->heads, p->head_dim, sizes[0]);
    bytes = add_product(bytes, p->max_rows, p->heads, p->head_dim_vo, sizes[3]);
    out->bytes_per_run = add_product(bytes, p->max_rows, p->heads, p->lse, sizeof(float));
}
