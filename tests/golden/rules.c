/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The mending rules, and how often each was used. */
#include <stdio.h>

#include "rules.h"

static const struct {
    const char *defect; /* number in the list of the original's defects */
    const char *file;
    const char *condition;
    const char *field;
} rules[RULES] = {
    [RULE_CONTEXT] = {"B5", "advance_flash_attn, advance_rocm", "after any step",
                      "context_lens: seq_lens - 1"},
    [RULE_STARTS] = {"B5", "advance_flash_attn, advance_rocm", "after any step",
                     "query_start_loc, seq_start_loc: recomputed"},
    [RULE_LONG_ROW] = {"B6", "builder_common_*, builder_edges",
                       "common builder, graph, a row longer than the graph table",
                       "exception: none; block_tables: truncated row"},
    [RULE_SCALE] = {"B2", "forward_traces", "FlashInfer, prefill",
                    "sm_scale, alibi_slopes, logits_soft_cap: the layer's"},
    [RULE_PLAIN_SCALES] = {"6.1", "forward_traces", "a cache that is not of 8 bits, k_scale or v_scale not 1",
                           "k_scale, v_scale: 1"},
    [RULE_STALE_CELLS] = {"B7", "builder_*, advance_*", "graph, cells beyond a row's own blocks",
                          "block_tables: 0"},
};

static unsigned long hits[RULES];

void rules_hit(enum rule rule)
{
    hits[rule]++;
}

void rules_print(void)
{
    for (int i = 0; i < RULES; i++)
        printf("rule %s (%s; %s) %s: %lu hits\n", rules[i].defect, rules[i].file, rules[i].condition,
               rules[i].field, hits[i]);
}
