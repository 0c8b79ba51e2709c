/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the operations on caches work with: one side of a cache (keys or values), and a row, which is the
 * vector of one token and head wherever it comes from.
 */
#ifndef ATTN_CPU_ROW_H
#define ATTN_CPU_ROW_H

#include "cpu.h"
#include "kv-view.h"

/* Keys or values of a cache, or a tensor as a cache of one page. */
struct cpu_kv_side {
    struct attn__kv_view view;
    struct cpu_scale scale;
    bool token_head; /* every row has a scale of its own */
};

/* A row that is read. */
struct cpu_row {
    const struct attn__kv_view *view; /* of its cache; NULL: its elements are contiguous */
    const char *at;                   /* element 0 */
    const char *rest;                 /* elements from `split` on, or NULL */
    uint32_t split;
    uint32_t dtype;
    uint32_t dim;
    float scale; /* factor of its elements */
};

/* Keys, or with `values` values, of a cache; an MLA cache has no values. */
struct cpu_kv_side cpu_kv_side_of(const struct attn_kv_desc *desc, bool values);
/* 2: keys and values; 1: an MLA cache, with keys alone. */
static inline uint32_t cpu_kv_sides(const struct attn_kv_desc *desc)
{
    return desc->v.data != NULL ? 2 : 1;
}

/* The row at a place. */
struct cpu_row cpu_row_of(const struct cpu_kv_side *side, int64_t page, int64_t token, int64_t head);
/* Copies the elements; both types are the same. */
void cpu_row_copy(const struct cpu_row *row, const struct cpu_kv_side *to, int64_t page, int64_t token,
                  int64_t head);
/* Converts the elements with the target's scale, which is computed and stored if every row has its own. */
void cpu_row_write(const struct cpu_row *row, const struct cpu_kv_side *to, int64_t page, int64_t token,
                   int64_t head);
/* Address of the scale at a place; the cache has scales. */
static inline char *cpu_scale_place(const struct cpu_scale *scale, int64_t page, int64_t token, int64_t head)
{
    return scale->base + page * scale->outer_stride + token * scale->token_stride + head * scale->head_stride;
}

#endif
