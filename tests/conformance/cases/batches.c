/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random batches: lengths around every edge, shared pages, holes, and which keys are edges of what is seen.
 */
#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "need.h"

uint32_t case_first_new(const struct conform_case *the_case, uint32_t sequence)
{
    const struct sequence *s = &the_case->sequences[sequence];

    if (the_case->problem.kv_source == ATTN_KV_NEW)
        return 0;
    return the_case->problem.kv_source == ATTN_KV_CACHE_NEW ? s->kv_len - s->q_len : s->kv_len;
}

int64_t case_slot(const struct conform_case *the_case, uint32_t sequence, uint32_t j)
{
    const struct sequence *s = &the_case->sequences[sequence];
    uint32_t block = the_case->problem.block, old = case_first_new(the_case, sequence);

    if (the_case->problem.kv_source == ATTN_KV_CACHE_NEW && j >= old)
        return (int64_t)s->new_slot + j - old;
    if (the_case->problem.addressing == ATTN_DENSE || the_case->problem.kv_source == ATTN_KV_NEW)
        return (int64_t)s->first_slot + j;
    int32_t page = the_case->pages[s->first_page + j / block];
    return page < 0 ? -1 : (int64_t)page * block + j % block;
}

/* Pages of every sequence: own ones, a prefix shared with the sequence before, holes. */
static void pick_pages(struct conform_case *c, struct rng *rng, const struct fixed_lengths *fixed, bool write)
{
    uint32_t block = c->problem.block, entries = 0;
    bool holes = rng_chance(rng, write ? 40 : 15), shared = rng_chance(rng, 30);

    if (fixed != NULL) {
        holes = fixed->holes;
        shared = fixed->shared || fixed->prefix > 0;
    }

    for (uint32_t n = 0; n < c->count; n++) {
        c->sequences[n].pages = (c->sequences[n].kv_len + block - 1) / block;
        c->sequences[n].first_page = entries;
        entries += c->sequences[n].pages;
    }
    c->page_entries = entries;
    c->pages = need(calloc((size_t)entries + 1, sizeof *c->pages));
    for (uint32_t n = 0; n < c->count; n++) {
        const struct sequence *s = &c->sequences[n];
        uint32_t common = 0;
        if (n > 0 && shared) {
            uint32_t other = c->sequences[n - 1].pages;
            common = s->pages < other ? s->pages : other;
            common = fixed == NULL ? rng_below(rng, 1 + common) : common;
            common = fixed != NULL && fixed->prefix > 0 && common > fixed->prefix ? fixed->prefix : common;
        }
        for (uint32_t b = 0; b < s->pages; b++) {
            int32_t *page = &c->pages[s->first_page + b];
            if (b < common)
                *page = c->pages[c->sequences[n - 1].first_page + b];
            else if (holes && rng_chance(rng, 20))
                *page = -1;
            else
                *page = (int32_t)c->logical_pages++;
        }
    }
    c->slot_count = c->logical_pages * block;
}

static void pick_dense(struct conform_case *c)
{
    for (uint32_t n = 0; n < c->count; n++) {
        c->sequences[n].first_slot = c->slot_count;
        c->slot_count += c->sequences[n].kv_len;
    }
}

static void pick_new(struct conform_case *c)
{
    for (uint32_t n = 0; n < c->count; n++) {
        c->sequences[n].new_slot = c->slot_count;
        c->slot_count += c->sequences[n].q_len;
    }
}

/* Positions in the numbering of the keys: a tree of drafts jumps back and forth; some lie behind the last
 * key. */
static void pick_positions(struct conform_case *c, struct rng *rng)
{
    uint32_t rows = 0;

    for (uint32_t n = 0; n < c->count; n++) {
        c->sequences[n].first_query = rows;
        c->sequences[n].causal = (uint8_t)rng_below(rng, 2);
        rows += c->sequences[n].q_len;
    }
    if (c->problem.positions == 0)
        return;
    c->positions = need(calloc((size_t)rows + 1, sizeof *c->positions));
    for (uint32_t n = 0; n < c->count; n++) {
        const struct sequence *s = &c->sequences[n];
        bool jump = rng_chance(rng, 50);
        for (uint32_t i = 0; i < s->q_len; i++) {
            int32_t usual = (int32_t)(i + s->all_keys) - (int32_t)s->q_len;
            int32_t position = jump ? (int32_t)rng_below(rng, s->all_keys + 4) : usual;
            c->positions[s->first_query + i] = position < 0 ? 0 : position;
        }
    }
}

/* A batch that has just what the oracle's rules of visibility ask for. */
struct plain_batch {
    struct attn_batch batch;
    int32_t q_offsets[2];
    int32_t kv_len;
    int32_t all_keys;
    uint8_t causal;
};

static void plain_init(struct plain_batch *plain, const struct conform_case *c, uint32_t n,
                       struct attn_problem *problem, struct oracle_sequence *sequence)
{
    ATTN_INIT(&plain->batch);
    plain->q_offsets[0] = 0;
    plain->q_offsets[1] = (int32_t)c->sequences[n].q_len;
    plain->kv_len = (int32_t)c->sequences[n].kv_len;
    plain->batch.q_offsets.data = plain->q_offsets;
    plain->batch.kv_lens.data = &plain->kv_len;
    plain->all_keys = (int32_t)c->sequences[n].all_keys;
    plain->batch.kv_global_lens.data = &plain->all_keys;
    plain->batch.cp_rank = c->cp_rank;
    plain->batch.cp_world = c->cp_world;
    plain->batch.cp_interleave = c->cp_interleave;
    plain->causal = c->sequences[n].causal;
    plain->batch.seq_causal.data = &plain->causal;
    plain->batch.q_positions.data = c->positions == NULL ? NULL : c->positions + c->sequences[n].first_query;
    *problem = c->problem;
    problem->addressing = ATTN_DENSE; /* holes are known here by case_slot */
    problem->kv_source = ATTN_KV_CACHE;
    oracle_sequence_init(sequence, problem, &plain->batch, 0);
}

/* Marks first and last visible key of a row. */
static void mark_edges(struct conform_case *c, const struct oracle_sequence *sequence, uint32_t n, uint32_t i)
{
    int64_t first = -1, last = -1;
    uint32_t head = i % case_mask_heads(c);

    for (uint32_t j = 0; j < sequence->kv_len; j++) {
        int64_t slot = case_slot(c, n, j);
        if (slot < 0 || !case_sees(c, sequence, n, head, i, j))
            continue;
        if (first < 0)
            first = slot;
        last = slot;
    }
    if (first >= 0) {
        c->slots[first] |= SLOT_EDGE;
        c->slots[last] |= SLOT_EDGE;
    }
}

static void mark_slots(struct conform_case *c, struct rng *rng)
{
    for (uint32_t n = 0; n < c->count; n++) {
        struct plain_batch plain;
        struct attn_problem problem;
        struct oracle_sequence sequence;
        uint32_t q_len = c->sequences[n].q_len, guess = 0, heads = case_mask_heads(c);

        plain_init(&plain, c, n, &problem, &sequence);
        for (uint32_t j = 0; j < sequence.kv_len && q_len > 0; j++) {
            int64_t slot = case_slot(c, n, j);
            /* What key j - 1 was seen by mostly sees key j too. */
            for (uint32_t tried = 0; slot >= 0 && tried < q_len * heads; tried++) {
                if (case_sees(c, &sequence, n, guess % heads, guess / heads, j)) {
                    c->slots[slot] |= SLOT_SEEN;
                    break;
                }
                guess = guess + 1 < q_len * heads ? guess + 1 : 0;
            }
        }
        if (q_len > 0) {
            mark_edges(c, &sequence, n, 0);
            mark_edges(c, &sequence, n, q_len - 1);
            mark_edges(c, &sequence, n, rng_below(rng, q_len));
        }
    }
}

static bool is_seen(const struct conform_case *c, uint32_t slot)
{
    return slot < c->slot_count && (c->slots[slot] & SLOT_SEEN) != 0;
}

/* Scores far from zero, where a kernel that starts its maximum at zero, or forgets it, finds nothing left. */
static void pick_shift(struct conform_case *c, struct rng *rng)
{
    static const double shifts[] = {-150, -150, 120, 150};
    struct injection *at = &c->injections[0];

    if (!rng_chance(rng, 10))
        return;
    c->shift = rng_pick(rng, shifts);
    if (c->shift < 0 || c->slot_count == 0 || c->injection_count > 0)
        return;
    at->kind = INJECT_BURIED;
    at->slot = rng_below(rng, c->slot_count);
    at->head = rng_below(rng, c->problem.kv_heads);
    at->dim = rng_below(rng, c->problem.head_dim_vo);
    c->injection_count = is_seen(c, at->slot);
}

/* Any slot, or one of the last keys of a sequence, which some of its tokens see and others do not. */
static uint32_t pick_slot(const struct conform_case *c, struct rng *rng, uint32_t sequence)
{
    uint32_t kv_len = c->sequences[sequence].kv_len, back = rng_below(rng, 6);
    int64_t slot = back < kv_len && rng_chance(rng, 60) ? case_slot(c, sequence, kv_len - 1 - back) : -1;

    if (slot >= 0)
        return (uint32_t)slot;
    return c->slot_count > 0 ? rng_below(rng, c->slot_count) : 0;
}

static void pick_injections(struct conform_case *c, struct rng *rng)
{
    if (!rng_chance(rng, 25))
        return;
    uint32_t wanted = 1 + rng_below(rng, MAX_INJECTIONS);
    for (uint32_t tries = 0; tries < 50 && c->injection_count < wanted; tries++) {
        struct injection *at = &c->injections[c->injection_count];
        at->kind = INJECT_Q + rng_below(rng, 4);
        at->sequence = rng_below(rng, c->count);
        at->token = rng_below(rng, c->sequences[at->sequence].q_len);
        at->slot = pick_slot(c, rng, at->sequence);
        at->head = rng_below(rng, at->kind == INJECT_Q ? c->problem.heads : c->problem.kv_heads);
        at->dim = rng_below(rng, at->kind >= INJECT_V ? c->problem.head_dim_vo : c->problem.head_dim);
        if (at->kind == INJECT_Q) {
            /* A row that sees nothing is zero whatever its query holds; keep to rows that see a key. */
            struct plain_batch plain;
            struct attn_problem problem;
            struct oracle_sequence sequence;
            bool sees = false;
            plain_init(&plain, c, at->sequence, &problem, &sequence);
            for (uint32_t j = 0; j < sequence.kv_len && at->token < sequence.q_len && !sees; j++)
                sees = case_slot(c, at->sequence, j) >= 0 &&
                       case_sees(c, &sequence, at->sequence, at->head, at->token, j);
            c->injection_count += sees;
        } else if (is_seen(c, at->slot)) {
            c->injection_count++;
            c->infinite |= at->kind == INJECT_INFINITE;
        }
    }
}

/* The score that the shift leads to. */
static double shifted(const struct conform_case *c)
{
    double cap = (double)c->problem.softcap;

    return cap > 0 ? cap * tanh(c->shift / cap) : c->shift;
}

/*
 * Sinks near the scores, or none: far above them a result becomes too small for its type, which no relative
 * bound survives. Slopes are as steep as models have them, or so flat that the first key still counts; with
 * a sink always so.
 */
static void pick_per_head(struct conform_case *c)
{
    struct rng rng = {mix(c->seed, 10)};
    bool flat = c->problem.sinks != 0 || rng_chance(&rng, 50);
    uint32_t longest = 1;

    for (uint32_t n = 0; n < c->count; n++) {
        longest = c->sequences[n].all_keys > longest ? c->sequences[n].all_keys : longest;
        longest = c->sequences[n].q_len > longest ? c->sequences[n].q_len : longest;
    }
    c->sinks_dtype = rng_chance(&rng, 50) ? ATTN_F32 : ATTN_BF16;
    for (uint32_t head = 0; head < c->problem.heads && head < MAX_HEADS; head++) {
        double unit = (double)rng_below(&rng, 1 << 24) * 0x1p-24, steep = ldexp(1, -(int)(head % 8) - 1);
        c->sinks[head] = rng_chance(&rng, 15) ? -(double)INFINITY : shifted(c) - 2 + 4 * unit;
        c->slopes[head] = (float)(rng_chance(&rng, 10) ? 0 : flat ? 3 * unit / longest : steep);
        if (flat && rng_chance(&rng, 20))
            c->slopes[head] = -c->slopes[head];
    }
    if (c->problem.sinks != 0) {
        c->amplitude = c->amplitude > 1 ? 1 : c->amplitude;
        c->softmax_scale = 1 / sqrtf((float)c->problem.head_dim);
    }
}

/* The factor of scores, and the amplitude of queries. Programs whose queries are scaled already give 1. */
static void pick_scale(struct conform_case *c, struct rng *rng)
{
    static const double amplitudes[] = {0.25, 1, 1, 1, 4, 25};
    const struct attn_problem *p = &c->problem;
    const uint64_t rare = mix(c->seed, 3) % 50;

    c->softmax_scale = rng_chance(rng, 80) ? 1 / sqrtf((float)p->head_dim) : 0.1f;
    c->amplitude = rng_pick(rng, amplitudes);
    /* Bounds go by the scores behind a cap; sums of many columns before it round by what they cancel. */
    if (p->softcap > 0 && p->head_dim > 256 && c->amplitude > 4)
        c->amplitude = 4;
    if (rare < 2) {
        c->softmax_scale = rare == 0 ? 1 : 2;
        c->amplitude = 0.25;
    }
}

/* `effort` is of no matter to given lengths, which may be NULL. */
static void init(struct conform_case *c, const struct attn_problem *problem, uint64_t seed,
                 const struct effort *effort, const struct fixed_lengths *lengths, bool write)
{
    struct rng rng = {mix(seed, 2)};
    size_t needed;

    memset(c, 0, sizeof *c);
    c->problem = *problem;
    c->seed = seed;
    if (attn_problem_format(problem, c->text, sizeof c->text, &needed, NULL) != ATTN_OK)
        snprintf(c->text, sizeof c->text, "(problem that cannot be formatted)");
    if (lengths != NULL) {
        case_set_lengths(c, lengths);
    } else {
        case_pick_lengths(c, &rng, effort, write);
        case_shard(c, effort->products);
    }
    pick_positions(c, &rng);
    if (problem->addressing == ATTN_DENSE || problem->kv_source == ATTN_KV_NEW)
        pick_dense(c);
    else
        pick_pages(c, &rng, lengths, write);
    if (problem->kv_source == ATTN_KV_CACHE_NEW)
        pick_new(c);
    case_pick_mask(c);
    c->slots = need(calloc((size_t)c->slot_count + 1, 1));
    mark_slots(c, &rng);
    pick_scale(c, &rng);
    c->poison = rng_chance(&rng, 80) ? 0xff : 0x7b;
    if (lengths == NULL) {
        pick_injections(c, &rng);
        pick_shift(c, &rng);
    }
    case_make_mla(c);
    case_pick_scales(c, write);
    pick_per_head(c);
}

void case_init(struct conform_case *c, const struct attn_problem *problem, uint64_t seed,
               const struct effort *effort, bool write)
{
    init(c, problem, seed, effort, NULL, write);
}

void case_init_fixed(struct conform_case *c, const struct attn_problem *problem, uint64_t seed,
                     const struct fixed_lengths *lengths)
{
    init(c, problem, seed, NULL, lengths, false);
}

void case_finish(struct conform_case *c)
{
    free(c->pages);
    free(c->slots);
    free(c->positions);
    memset(c, 0, sizeof *c);
}
