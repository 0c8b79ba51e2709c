/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn_forward gives what a plan of the same problem and maxima gives, step after step, byte for byte. */
#include <stdio.h>

#include "../graph/tap.h"
#include "steps.h"

/* Keys of their own, fewer and more than queries. */
static const struct pair_step cross[] = {
    {2, {5, 3}, {9, 40}}, {2, {1, 1}, {9, 40}}, {2, {1, 1}, {9, 40}}, {4, {1, 2, 3, 4}, {64, 1, 9, 2}},
    {1, {1}, {30}},       {3, {4, 4, 4}, {0}},  {2, {5, 3}, {9, 40}}, {2, {5, 3}, {0}},
};

static const struct {
    struct pair_case sample;
    int cross;
} cases[] = {
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 kv_source=new lse=1"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=bf16 kv_source=new causal=0 lse=1"}, 1},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f16 kv_source=new lse=1"}, 1},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 lse=1"}, 0},
    {{.problem = "heads=8 kv_heads=2 head_dim=128 q=f16 lse=1"}, 0},
    {{.problem = "heads=8 kv_heads=2 head_dim=128 q=bf16 lse=1"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 kv=f16 lse=1"}, 0},
    {{.problem = "heads=4 kv_heads=4 head_dim=64/32 q=f32 addr=dense lse=1"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=bf16 addr=dense"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 kv_source=cache+new lse=1"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=bf16 kv_source=cache+new addr=dense"}, 0},
    {{.problem = "heads=4 kv_heads=1 head_dim=96/64 mla=1 q=f32 lse=1", .scale = 0.1F}, 0},
    {{.problem = "heads=4 kv_heads=1 head_dim=576/512 mla=1 q=bf16", .scale = 0.1F}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 window=7 lse=1", .scale = 0.3F}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 sinks=1 softcap=20 lse=1"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 alibi=key"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 mask=f32 span=full causal=0"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=bf16 kv=e4m3 scales=unit"}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=bf16 kv=int8 scales=token-head", .handle = 1}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32", .handle = 1}, 0},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32", .no_keys = 1, .no_extras = 1}, 0},
    {{.problem = "type=encoder heads=4 head_dim=64 q=f32 lse=1"}, 0},
    {{.problem = "type=encoder_only heads=4 head_dim=64 q=bf16", .no_extras = 1}, 0},
    {{.problem = "type=encoder_decoder heads=4 head_dim=64 q=f32", .no_keys = 1}, 1},
    {{.problem = "type=encoder_decoder heads=4 head_dim=64 q=f32 kv_source=new lse=1"}, 1},
    {{.problem = "heads=4 kv_heads=2 head_dim=64 q=f32 max_seqs=8 max_q=40 max_kv=64 max_rows=100"}, 0},
};

/* An encoder has no keys but those of its tokens. */
static struct pair_step adapt(const struct pair *pair, const struct pair_step *step, int cross_keys)
{
    struct pair_step own = *step;
    if (pair->problem.kv_source == ATTN_KV_NEW && !cross_keys)
        memset(own.kv_lens, 0, sizeof own.kv_lens);
    return own;
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair pair;
        char detail[300];
        const struct pair_step *steps = cases[i].cross ? cross : steps_self;
        const size_t count = cases[i].cross ? sizeof cross / sizeof *cross : STEPS_SELF;
        pair_open(&pair, &cases[i].sample, 0);
        for (size_t j = 0; j < count; j++) {
            const struct pair_step step = adapt(&pair, &steps[j], cases[i].cross);
            snprintf(detail, sizeof detail, "%s: step %zu", cases[i].sample.problem, j);
            const int32_t status = pair_forward(&pair, &step);
            if (status == ATTN_OK)
                pair_run(&pair, &step);
            check(status == ATTN_OK && pair_is_same(&pair), "both ways give the same bytes", detail);
            pair_fill(&pair);
        }
        pair_close(&pair);
    }
    return finish_checks();
}
