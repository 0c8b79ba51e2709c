/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Problems that a plugin accepts, found by asking: most random ones are not claimed by a small plugin. */
#include "pairs.h"

bool pairs_served(const struct target_list *list, const struct attn_problem *problem)
{
    for (uint32_t t = 0; t < list->count; t++) {
        const struct target *target = &list->targets[t];
        struct attn_query query;
        /* Levels of one backend claim the same but for a few rows: the first one that is judged answers. */
        bool asked = false;
        for (uint32_t before = 0; before < t; before++)
            asked |= strcmp(list->targets[before].name, target->name) == 0;
        ATTN_INIT(&query);
        if (!asked &&
            attn_context_query(target->context, target->name, &target->device, problem, &query, NULL) ==
                ATTN_OK &&
            query.accepted != 0)
            return true;
    }
    return false;
}

bool pairs_plain(const struct target_list *list, uint32_t number, struct attn_problem *out)
{
    static const uint32_t dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    static const uint32_t dims[] = {64, 128, 256, 80};
    static const uint32_t addressings[] = {ATTN_TABLE, ATTN_DENSE, ATTN_CSR};

    for (uint32_t i = 0; i < 36; i++) {
        uint32_t at = (i + number) % 36;
        ATTN_INIT(out);
        out->heads = 4;
        out->kv_heads = 2;
        out->q_dtype = dtypes[at % 3];
        out->head_dim = dims[at / 9];
        out->addressing = addressings[at / 3 % 3];
        if (attn_problem_resolve(out, out, NULL) == ATTN_OK && pairs_served(list, out))
            return true;
    }
    return false;
}

void pairs_approach(const struct target_list *list, struct attn_problem *problem, uint64_t seed)
{
    struct rng rng = {mix(seed, 80)};
    uint32_t order[MOST_KEYS];
    struct attn_problem plain, closer = *problem;
    const char *key;

    if (pairs_served(list, problem) || !pairs_plain(list, (uint32_t)(seed % 36), &plain))
        return;
    rng_shuffle(&rng, order, pair_key_count);
    for (uint32_t i = 0; i < pair_key_count; i++) {
        const struct pair_key *pair = &pair_keys[order[i]];
        pair_set(pair, &closer, pair_get(pair, &plain));
        struct attn_problem fitting = closer;
        if (pairs_fit(&fitting, 0) && problem_covered(&fitting, &key) && pairs_served(list, &fitting)) {
            *problem = fitting;
            return;
        }
    }
    *problem = plain;
}
