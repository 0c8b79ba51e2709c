/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The range of visible keys, for host code. */
#include "visible-range.h"

void attn__visible_init(struct attn_visible *visible, const struct attn_problem *problem, uint32_t causal,
                        uint32_t q_len, uint32_t kv_len)
{
    const struct attn_rules rules = attn__rules_of(problem);

    attn__visible_start(visible, &rules, causal, q_len, kv_len);
}

void attn__visible_range(const struct attn_visible *visible, int64_t position, uint32_t *lo, uint32_t *hi)
{
    attn__visible_find(visible, position, lo, hi);
}
