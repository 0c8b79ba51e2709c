/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The functions of visible.h, in 64-bit arithmetic: host code calls them through visible.c, device code
 * includes this file, with ATTN__DEVICE as the mark of device functions.
 */
#ifndef ATTN_COMMON_VISIBLE_RANGE_H
#define ATTN_COMMON_VISIBLE_RANGE_H

#include <stdbool.h>

#include "visible.h"

/* Positions are clamped to this, which changes no result and keeps sums with window sides from overflowing.
 */
#define ATTN__FAR ((int64_t)1 << 40)

/* What the sequences of a problem have in common. */
struct attn_rules {
    int32_t left; /* -1 = unlimited */
    int32_t right;
    bool right_given; /* else it follows from the sequence */
    bool from_start;  /* align=start */
    bool square;      /* a mask of the step's own tokens */
};

static inline ATTN__DEVICE struct attn_rules attn__rules_of(const struct attn_problem *problem)
{
    struct attn_rules rules;

    rules.left = (problem->given & ATTN_GIVEN_WINDOW_LEFT) != 0 ? problem->window_left : -1;
    rules.right = problem->window_right;
    rules.right_given = (problem->given & ATTN_GIVEN_WINDOW_RIGHT) != 0;
    rules.from_start = problem->align == ATTN_ALIGN_START;
    rules.square = problem->mask > ATTN_MASK_NONE && problem->span == ATTN_SPAN_SQUARE;
    return rules;
}

static inline ATTN__DEVICE void attn__visible_start(struct attn_visible *visible,
                                                    const struct attn_rules *rules, uint32_t causal,
                                                    uint32_t q_len, uint32_t kv_len)
{
    visible->causal = causal;
    visible->kv_len = kv_len;
    visible->left = rules->left;
    if (rules->right_given)
        visible->right = rules->right;
    else
        visible->right = causal != 0 ? 0 : visible->left;
    visible->shift = rules->from_start ? 0 : (int64_t)kv_len - q_len;
    visible->shard.rank = visible->shard.world = visible->shard.interleave = 0;
    visible->square = -1;
    if (rules->square)
        visible->square = kv_len > q_len ? kv_len - q_len : 0;
}

static inline ATTN__DEVICE void attn__visible_find(const struct attn_visible *visible, int64_t position,
                                                   uint32_t *lo, uint32_t *hi)
{
    int64_t p = position < -ATTN__FAR ? -ATTN__FAR : position > ATTN__FAR ? ATTN__FAR : position;
    int64_t begin = 0, end = visible->kv_len;

    if (visible->causal != 0 && p + 1 < end)
        end = p + 1;
    if (visible->right >= 0 && p + visible->right + 1 < end)
        end = p + visible->right + 1;
    if (visible->left >= 0 && p - visible->left > begin)
        begin = p - visible->left;
    if (visible->square >= 0) {
        begin = begin < end && begin < visible->square ? begin : visible->square;
        end = visible->kv_len;
    }
    if (begin < end && visible->shard.world != 0) {
        begin = attn__cp_count(&visible->shard, begin);
        end = attn__cp_count(&visible->shard, end);
    }
    if (begin >= end)
        begin = end = 0;
    *lo = (uint32_t)begin;
    *hi = (uint32_t)end;
}

#endif
