/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which problems are plain: the ones that every caller of the oracle can build inputs for. */
#include "oracle.h"

static bool is_float(uint32_t dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F16 || dtype == ATTN_BF16;
}

static bool is_unset(uint32_t value, uint32_t none)
{
    return value == 0 || value == none;
}

bool oracle_covers(const struct attn_problem *problem, const char **out_key)
{
    const struct {
        bool covered;
        const char *key;
    } rules[] = {
        {problem->type == ATTN_DECODER, "type"},
        {is_float(problem->q_dtype), "q"},
        {is_float(problem->k_dtype), "k"},
        {is_float(problem->v_dtype), "v"},
        {is_float(problem->out_dtype), "out"},
        {is_unset(problem->alibi, ATTN_ALIBI_NONE), "alibi"},
        {problem->sinks == 0, "sinks"},
        {is_unset(problem->mask, ATTN_MASK_NONE), "mask"},
        {is_unset(problem->kv_source, ATTN_KV_CACHE), "kv_source"},
        {is_unset(problem->layout, ATTN_STRIDED), "layout"},
        {is_unset(problem->q_scale, ATTN_SCALES_NONE), "q_scale"},
        {is_unset(problem->k_scale, ATTN_SCALES_NONE), "k_scale"},
        {is_unset(problem->v_scale, ATTN_SCALES_NONE), "v_scale"},
        {is_unset(problem->out_scale, ATTN_SCALES_NONE), "out_scale"},
        {problem->mla == 0, "mla"},
        {problem->cp == 0, "cp"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i].covered) {
            *out_key = rules[i].key;
            return false;
        }
    }
    return true;
}
