/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Keys that are sharded over ranks: which rank a case is, and how many keys there are in all. */
#include "conform.h"

#include "need.h"

static void pick_interleave(struct conform_case *c, struct rng *rng)
{
    static const uint32_t shares[] = {1, 2, 3, 5, 8, 16, 17, 32, 33, 64};
    uint32_t share = rng_chance(rng, 30) ? c->problem.block : rng_pick(rng, shares);

    while (c->problem.addressing != ATTN_DENSE && c->problem.block % share != 0)
        share--;
    c->cp_interleave = share;
}

/* All keys of a sequence of which so many are here: the least or the most there can be, or some in between.
 */
static uint32_t pick_all(const struct conform_case *c, uint32_t kv_len, struct rng *rng)
{
    uint32_t share = c->cp_interleave, round = share * c->cp_world, before = c->cp_rank * share;
    uint32_t full = kv_len / share, rest = kv_len % share, least, most;

    if (rest > 0)
        return full * round + before + rest;
    most = full * round + before;
    least = full == 0 ? 0 : (full - 1) * round + before + share;
    return rng_chance(rng, 40)   ? least
           : rng_chance(rng, 40) ? most
                                 : least + rng_below(rng, most - least + 1);
}

void case_shard(struct conform_case *c, double most_products)
{
    static const uint32_t worlds[] = {1, 2, 2, 3, 4, 8};
    struct rng rng = {mix(c->seed, 30)};
    double products = 0, width = (double)c->problem.heads * (c->problem.head_dim + c->problem.head_dim_vo);

    for (uint32_t n = 0; n < c->count; n++) {
        c->sequences[n].all_keys = c->sequences[n].kv_len;
        products += (double)c->sequences[n].q_len * c->sequences[n].kv_len * width;
    }
    if (c->problem.cp == 0)
        return;
    c->cp_world = rng_pick(&rng, worlds);
    c->cp_rank = rng_chance(&rng, 40) ? 0 : rng_below(&rng, c->cp_world);
    pick_interleave(c, &rng);
    for (uint32_t n = 0; n < c->count; n++) {
        struct sequence *s = &c->sequences[n];
        s->all_keys = pick_all(c, s->kv_len, &rng);
        double more = ((double)s->all_keys - s->q_len) * s->kv_len * width;
        if (s->q_len > 1 && products + more < most_products && rng_chance(&rng, 50)) {
            s->q_len = s->all_keys; /* all of a prompt */
            products += more;
        }
    }
}

void step_place_ranks(struct step *step, struct rng *rng)
{
    const struct conform_case *c = step->the_case;
    int32_t all[STEP_SEQS] = {0};

    if (c->problem.cp == 0)
        return;
    for (uint32_t n = 0; n < step->seqs; n++) /* padding: keys that other ranks hold */
        all[n] = step->source[n] < 0 ? (int32_t)(c->cp_rank * c->cp_interleave)
                                     : (int32_t)c->sequences[step->source[n]].all_keys;
    step->batch.cp_rank = c->cp_rank;
    step->batch.cp_world = c->cp_world;
    step->batch.cp_interleave = c->cp_interleave;
    step->batch.kv_global_lens = step_add_array(step, "kv_global_lens", all, step->seqs, 4, rng);
    step->host.kv_global_lens = (const int32_t *)oracle_address(&step->batch.kv_global_lens);
}
