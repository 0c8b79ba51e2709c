/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the operations on caches work with: one half of a cache (keys or values), and a row, which is the
 * vector of one token and head wherever it comes from.
 */
#ifndef ATTN_CPU_ROW_H
#define ATTN_CPU_ROW_H

#include "cpu.h"
#include "kv-view.h"

/* Keys or values of a cache, or a tensor as a cache of one page. */
struct cpu_half {
    struct attn__kv_view view;
    struct cpu_scale scale;
    bool token_head; /* the scale of a row belongs to it alone */
};

/* A row that is read. */
struct cpu_row {
    const struct attn__kv_view *view; /* where it lies in a cache; NULL: its elements are consecutive */
    const char *at;                   /* element 0 */
    const char *rest;                 /* elements from `split` on, or NULL */
    uint32_t split;
    uint32_t dtype;
    uint32_t dim;
    float scale; /* what its elements are multiplied with */
};

/* `values`: the cache has v. */
struct cpu_half cpu_half_of(const struct attn_kv_desc *desc, bool values);
/* 2, or 1 of an MLA cache. */
static inline uint32_t cpu_halves(const struct attn_kv_desc *desc)
{
    return desc->v.data != NULL ? 2 : 1;
}

/* The row of a place. */
struct cpu_row cpu_row_of(const struct cpu_half *half, int64_t page, int64_t token, int64_t head);
/* Moves the elements as they are; types are equal. */
void cpu_row_copy(const struct cpu_row *row, const struct cpu_half *to, int64_t page, int64_t token,
                  int64_t head);
/* Writes the values, with the target's scale, which is computed and kept if it is the row's own. */
void cpu_row_write(const struct cpu_row *row, const struct cpu_half *to, int64_t page, int64_t token,
                   int64_t head);
/* Where the scale of a place is; there is one. */
static inline char *cpu_scale_place(const struct cpu_scale *scale, int64_t page, int64_t token, int64_t head)
{
    return scale->base + page * scale->outer_stride + token * scale->token_stride + head * scale->head_stride;
}

#endif
