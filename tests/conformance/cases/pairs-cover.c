/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which pairs were judged, which ones a plugin claims, and cases for those that are missing. */
#include <stdio.h>

#include "pairs.h"
#include "tap.h"

enum {
    MOST_ALL = MOST_KEYS * MOST_VALUES,
    TRIES = 24,  /* problems that are asked about before a pair counts as not claimed */
    OFFERED = 6, /* claimed problems among which the one with most missing pairs is taken */
};

/* A value of a key: its number among all values of all keys. */
static uint8_t covered[MOST_ALL][MOST_ALL], possible[MOST_ALL][MOST_ALL];

static uint32_t number_of(uint32_t key, uint32_t which)
{
    return key * MOST_VALUES + which;
}

/* Values of a problem; MOST_ALL at keys that have none of the listed ones. */
static void values_of(const struct attn_problem *problem, uint32_t *values)
{
    for (uint32_t key = 0; key < pair_key_count; key++) {
        uint32_t which = pair_get(&pair_keys[key], problem);
        values[key] = which < pair_keys[key].count ? number_of(key, which) : MOST_ALL;
    }
}

/* Pairs of a problem that no case had; with `mark` they are had now. */
static uint32_t visit(const struct attn_problem *problem, bool mark)
{
    uint32_t values[MOST_KEYS], fresh = 0;

    values_of(problem, values);
    for (uint32_t a = 0; a < pair_key_count; a++) {
        for (uint32_t b = a + 1; b < pair_key_count; b++) {
            if (values[a] == MOST_ALL || values[b] == MOST_ALL)
                continue;
            fresh += covered[values[a]][values[b]] == 0;
            if (mark)
                covered[values[a]][values[b]] = possible[values[a]][values[b]] = 1;
        }
    }
    return fresh;
}

void pairs_judged(const struct attn_problem *problem)
{
    visit(problem, true);
}

struct search {
    const struct target_list *list;
    uint64_t seed;
    bool claimed[MOST_ALL]; /* values that some accepted problem has */
};

/* Number `t` of the problems with two given values (a alone if b is MOST_ALL); false if it is not claimed. */
static bool propose(const struct search *search, uint32_t a, uint32_t b, uint32_t t, struct attn_problem *out)
{
    uint64_t seed = mix(mix(search->seed, a * (uint64_t)MOST_ALL + b), t);
    uint32_t values[MOST_KEYS], pair[2] = {a, b}, count = b == MOST_ALL ? 1 : 2;
    uint64_t pinned = 0;

    if (t % 3 == 0) {
        if (!pairs_plain(search->list, t * 5, out))
            return false;
    } else {
        problem_generate(out, seed);
        if (attn_problem_resolve(out, out, NULL) != ATTN_OK)
            return false;
        if (t % 3 == 1)
            pairs_approach(search->list, out, seed);
    }
    for (uint32_t i = 0; i < count; i++) {
        pair_set(&pair_keys[pair[i] / MOST_VALUES], out, pair[i] % MOST_VALUES);
        pinned |= UINT64_C(1) << pair[i] / MOST_VALUES;
    }
    if (!pairs_fit(out, pinned))
        return false;
    values_of(out, values);
    for (uint32_t i = 0; i < count; i++)
        if (values[pair[i] / MOST_VALUES] != pair[i])
            return false;
    return pairs_served(search->list, out);
}

static void find_claimed(struct search *search)
{
    struct attn_problem problem;

    for (uint32_t key = 0; key < pair_key_count; key++) {
        for (uint32_t which = 0; which < pair_keys[key].count; which++) {
            bool *claimed = &search->claimed[number_of(key, which)];
            for (uint32_t t = 0; t < 2 * TRIES && !*claimed; t++)
                *claimed = propose(search, number_of(key, which), MOST_ALL, t, &problem);
        }
    }
}

/* Of a few problems with a missing pair the one that has most missing pairs and can be laid out. */
static bool choose(const struct search *search, uint32_t a, uint32_t b, struct attn_problem *out)
{
    uint32_t offered = 0, most = 0;

    for (uint32_t t = 0; t < TRIES && offered < OFFERED; t++) {
        struct attn_problem problem;
        const char *key;
        if (!propose(search, a, b, t, &problem))
            continue;
        possible[a][b] = 1;
        if (!problem_covered(&problem, &key))
            continue;
        uint32_t fresh = visit(&problem, false);
        offered++;
        if (fresh > most) {
            most = fresh;
            *out = problem;
        }
    }
    return most > 0;
}

static void tell(void)
{
    struct pair_counts *counts = &tap->pairs;

    counts->known = true;
    for (uint32_t a = 0; a < MOST_ALL; a++) {
        for (uint32_t b = 0; b < MOST_ALL; b++) {
            counts->covered += covered[a][b];
            counts->possible += possible[a][b];
            if (possible[a][b] == 0 || covered[a][b] != 0 || counts->listed == MOST_MISSING)
                continue;
            const struct pair_key *one = &pair_keys[a / MOST_VALUES], *other = &pair_keys[b / MOST_VALUES];
            snprintf(counts->missing[counts->listed++], sizeof counts->missing[0], "%s=%s %s=%s", one->name,
                     one->labels[a % MOST_VALUES], other->name, other->labels[b % MOST_VALUES]);
        }
    }
}

void pairs_complete(const struct target_list *list, uint64_t seed, uint32_t most, pairs_case_fn run,
                    void *user)
{
    static struct search search;
    uint32_t made = 0;

    search.list = list;
    search.seed = mix(seed, 81);
    find_claimed(&search);
    for (uint32_t a = 0; a < MOST_ALL; a++) {
        for (uint32_t b = (a / MOST_VALUES + 1) * MOST_VALUES; b < MOST_ALL; b++) {
            struct attn_problem problem;
            tap->beats++;
            if (!search.claimed[a] || !search.claimed[b] || covered[a][b] != 0 ||
                !choose(&search, a, b, &problem) || made == most)
                continue;
            run(user, &problem, mix(search.seed, made++) >> 32);
        }
    }
    tell();
}
