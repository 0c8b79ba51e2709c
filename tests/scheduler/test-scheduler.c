/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Random loads: every token finds what it sees, nothing leaks, all end, and the same text comes out of any
 * cache. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shadow.h"

enum { MOST = 64, MOST_TOKENS = 200, VOCABULARY = 2 };

struct load {
    struct scheduler_options options;
    struct scheduler *scheduler;
    struct shadow shadow;
    struct scheduled *all[MOST * 4];
    uint32_t samples[MOST * 4]; /* number of the sample */
    uint32_t forks[MOST * 4];   /* samples that are still to be made of it */
    uint32_t count;
    uint64_t random;
    uint32_t steps;
    bool branches; /* now and then a text goes on in two ways */
};

static uint32_t below(struct load *l, uint32_t n)
{
    l->random = l->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)((l->random >> 33) % n);
}

/* Prompts of few different tokens, many of which begin alike. */
static void add(struct load *l, uint32_t prompt, uint32_t more, uint32_t alike, uint32_t samples)
{
    struct failure err = {0};
    int32_t tokens[MOST_TOKENS];
    uint32_t same = below(l, prompt + 1);
    for (uint32_t i = 0; i < prompt; i++)
        tokens[i] = i < same ? (int32_t)((i / 3 + alike) % VOCABULARY) : (int32_t)below(l, VOCABULARY);
    l->all[l->count] = scheduler_add(l->scheduler, tokens, prompt, prompt + more, l, &err);
    cr_assert(l->all[l->count], "%s", err.text);
    l->samples[l->count] = 0;
    l->forks[l->count++] = samples - 1;
}

static void choose(struct load *l, uint32_t index)
{
    struct failure err = {0};
    struct scheduled *s = l->all[index];
    int32_t tokens[8];
    uint32_t wanted = 1 + below(l, l->options.lookahead + 1);
    uint32_t made = 0;
    if (s->ahead <= s->computed)
        wanted = 1;
    else if (wanted > 1 + s->ahead - s->computed)
        wanted = 1 + s->ahead - s->computed;
    if (wanted > s->most - s->count)
        wanted = s->most - s->count;
    /* Each depends on the one before. */
    while (made < wanted) {
        tokens[made] = s->tokens[s->count] = shadow_next(s, l->samples[index]);
        s->count++;
        made++;
    }
    s->count -= made;
    cr_assert_eq(scheduler_append(s, tokens, made, &err), 0, "%s", err.text);
    for (uint32_t t = s->count - made; t + 1 < s->count; t++)
        shadow_compute(&l->shadow, s, t);
    if (s->count == s->most)
        scheduler_end(l->scheduler, s);
}

static void fork_samples(struct load *l, uint32_t index)
{
    struct failure err = {0};
    for (; l->forks[index] > 0; l->forks[index]--) {
        struct scheduled *s = scheduler_fork(l->scheduler, l->all[index], l, &err);
        cr_assert(s, "%s", err.text);
        l->all[l->count] = s;
        l->samples[l->count] = l->forks[index];
        l->forks[l->count] = 0;
        l->count++;
        choose(l, l->count - 1);
    }
}

static uint32_t find(const struct load *l, const struct scheduled *sequence)
{
    uint32_t i = 0;
    while (l->all[i] != sequence)
        i++;
    return i;
}

static bool step(struct load *l)
{
    struct failure why = {0};
    uint32_t ready[MOST * 4];
    uint32_t count = 0;
    const struct scheduler_step *step = scheduler_step(l->scheduler);
    if (step->part_count == 0)
        return false;
    cr_assert(step->part_count <= l->options.max_seqs && step->prompt_tokens <= l->options.chunk);
    cr_assert(shadow_step(&l->shadow, step, &why), "%s", why.text);
    for (uint32_t i = 0; i < step->part_count; i++) {
        const struct scheduled_part *part = &step->parts[i];
        if (part->first + part->count == part->sequence->count)
            ready[count++] = find(l, part->sequence);
    }
    scheduler_commit(l->scheduler);
    for (uint32_t i = 0; i < count; i++) {
        if (l->branches && l->count < MOST * 3 && below(l, 30) == 0)
            l->forks[ready[i]]++;
        fork_samples(l, ready[i]);
        choose(l, ready[i]);
    }
    cr_assert(shadow_check_owners(&l->shadow, l->all, l->count, &why), "%s", why.text);
    cr_assert(++l->steps < 100000, "no end");
    return true;
}

static void start(struct load *l, const struct scheduler_options *options, uint64_t seed)
{
    struct failure err = {0};
    memset(l, 0, sizeof *l);
    l->options = *options;
    l->random = seed;
    cr_assert_eq(scheduler_create(options, &l->scheduler, &err), 0, "%s", err.text);
    cr_assert_eq(shadow_init(&l->shadow, l->scheduler), 0);
}

static void stop(struct load *l)
{
    for (uint32_t g = 0; g < l->options.groups; g++)
        cr_assert_eq(scheduler_used(l->scheduler, g), 0, "blocks of group %u are still held", g);
    for (uint32_t i = 0; i < l->count; i++)
        scheduled_free(l->all[i]);
    shadow_finish(&l->shadow);
    scheduler_destroy(l->scheduler);
}

/* The same requests for every cache: what they are is drawn before anything runs. */
static void add_all(struct load *l, uint32_t count, uint32_t samples)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t prompt = 1 + below(l, 40);
        uint32_t more = below(l, 40);
        add(l, prompt, more, below(l, 2), 1 + below(l, samples));
    }
}

static struct scheduler_options random_options(uint64_t seed)
{
    struct load l = {.random = seed};
    struct scheduler_options o = {.block = 1 + below(&l, 9), .groups = 1 + below(&l, 3)};
    o.max_seqs = 1 + below(&l, 12);
    o.chunk = 1 + below(&l, 24);
    o.lookahead = below(&l, 2) ? below(&l, 4) : 0;
    o.host_blocks = below(&l, 2) ? below(&l, 60) : 0;
    /* From barely enough for the longest to plenty. */
    for (uint32_t g = 0; g < o.groups; g++) {
        o.group[g].window = below(&l, 2) ? 1 + below(&l, 30) : 0;
        o.group[g].blocks = (80 + o.block - 1) / o.block + 2 + below(&l, 60);
    }
    o.reuse = o.groups == 1 && o.group[0].window == 0 && below(&l, 4) > 0;
    return o;
}

Test(scheduler, random_loads_keep_every_promise)
{
    struct scheduler_counts sum = {0};
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct scheduler_options options = random_options(seed);
        struct load l;
        start(&l, &options, seed);
        l.branches = true;
        add_all(&l, 1 + below(&l, 30), options.max_seqs > 2 ? 3 : 1);
        while (step(&l)) {
            if (below(&l, 50) == 0)
                scheduler_end(l.scheduler, l.all[below(&l, l.count)]); /* cancelled in any state */
            if (below(&l, 20) == 0 && l.count < MOST)
                add(&l, 1 + below(&l, 40), below(&l, 40), 0, 1);
        }
        cr_assert_eq(scheduler_left(l.scheduler), 0, "seed %u: some never ran", (unsigned)seed);
        const struct scheduler_counts *counts = scheduler_get_counts(l.scheduler);
        sum.recomputed += counts->recomputed;
        sum.swapped += counts->swapped;
        sum.copied += counts->copied;
        sum.hit_tokens += counts->hit_tokens;
        stop(&l);
    }
    cr_assert(sum.recomputed > 100 && sum.swapped > 100 && sum.copied > 100 && sum.hit_tokens > 1000,
              "the loads are too light: %u recomputed, %u swapped, %u copied, %u found",
              (unsigned)sum.recomputed, (unsigned)sum.swapped, (unsigned)sum.copied,
              (unsigned)sum.hit_tokens);
}

/* Tokens depend on what a sequence holds alone, so a cache in which nobody waits must give the same. */
Test(scheduler, texts_do_not_depend_on_the_cache)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct scheduler_options options = random_options(seed);
        struct scheduler_options wide = {
            .block = 16, .groups = 1, .group = {{1000, 0}}, .max_seqs = MOST * 4, .chunk = 10000};
        struct load a, b;
        options.lookahead = 0;
        start(&a, &options, seed);
        start(&b, &wide, seed);
        add_all(&a, 20, 1);
        add_all(&b, 20, 1);
        while (step(&a))
            continue;
        while (step(&b))
            continue;
        for (uint32_t i = 0; i < a.count; i++) {
            cr_assert_eq(a.all[i]->count, b.all[i]->count);
            cr_assert_arr_eq(a.all[i]->tokens, b.all[i]->tokens, a.all[i]->count * sizeof(int32_t));
        }
        stop(&a);
        stop(&b);
    }
}

Test(scheduler, the_same_calls_make_the_same_steps)
{
    struct scheduler_options options = random_options(77);
    uint64_t sums[2] = {0, 0};
    for (int turn = 0; turn < 2; turn++) {
        struct load l;
        start(&l, &options, 5);
        add_all(&l, 30, 1);
        while (step(&l))
            for (uint32_t i = 0; i < l.count; i++)
                for (uint32_t j = 0; j < l.all[i]->held; j++)
                    sums[turn] = sums[turn] * 31 + (uint64_t)l.all[i]->blocks[0][j] + l.all[i]->batch_slot;
        stop(&l);
    }
    cr_assert_eq(sums[0], sums[1]);
}

Test(scheduler, a_prompt_that_was_there_is_found)
{
    struct scheduler_options options = {
        .block = 4, .groups = 1, .group = {{40, 0}}, .max_seqs = 4, .chunk = 100, .reuse = true};
    int32_t tokens[17] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    struct scheduler *s;
    cr_assert_eq(scheduler_create(&options, &s, NULL), 0);
    struct scheduled *first = scheduler_add(s, tokens, 16, 16, NULL, NULL);
    cr_assert_eq(scheduler_step(s)->num_tokens, 16);
    scheduler_commit(s);
    /* While it runs, and after it ended. The last token is computed in any case. */
    struct scheduled *second = scheduler_add(s, tokens, 16, 16, NULL, NULL);
    const struct scheduler_step *step = scheduler_step(s);
    cr_assert_eq(step->part_count, 1);
    cr_assert_eq(step->parts[0].first, 12);
    cr_assert_eq(second->blocks[0][2], first->blocks[0][2]);
    scheduler_commit(s);
    scheduler_end(s, first);
    scheduler_end(s, second);
    struct scheduled *third = scheduler_add(s, tokens, 17, 17, NULL, NULL);
    step = scheduler_step(s);
    cr_assert_eq(step->parts[0].first, 16);
    scheduler_commit(s);
    scheduler_end(s, third);
    tokens[5] = 0;
    struct scheduled *other = scheduler_add(s, tokens, 17, 17, NULL, NULL);
    step = scheduler_step(s);
    cr_assert_eq(step->parts[0].first, 4, "only the first block is the same");
    cr_assert_eq(scheduler_get_counts(s)->hit_tokens, 12 + 16 + 4);
    scheduled_free(first);
    scheduled_free(second);
    scheduled_free(third);
    scheduler_end(s, other);
    scheduled_free(other);
    scheduler_destroy(s);
}

Test(scheduler, what_cannot_be_served_is_refused)
{
    struct scheduler_options options = {
        .block = 4, .groups = 1, .group = {{5, 0}}, .max_seqs = 2, .chunk = 8};
    struct scheduler_options wrong = options;
    int32_t tokens[21] = {0};
    struct scheduler *s;
    struct failure err = {0};
    wrong.chunk = 0;
    cr_assert_eq(scheduler_create(&wrong, &s, &err), -1);
    cr_assert(strstr(err.text, "chunk 0"), "%s", err.text);
    wrong = options;
    wrong.groups = 2;
    wrong.group[1] = (struct scheduler_group){5, 0};
    wrong.reuse = true;
    cr_assert_eq(scheduler_create(&wrong, &s, &err), -1);
    cr_assert(strstr(err.text, "single group"), "%s", err.text);
    cr_assert_eq(scheduler_create(&options, &s, &err), 0);
    cr_assert_null(scheduler_add(s, tokens, 21, 21, NULL, &err));
    cr_assert(strstr(err.text, "needs 6 blocks of 4 tokens, and the cache has 5"), "%s", err.text);
    cr_assert_null(scheduler_add(s, tokens, 0, 4, NULL, &err));
    cr_assert_null(scheduler_add(s, tokens, 5, 4, NULL, &err));
    struct scheduled *good = scheduler_add(s, tokens, 20, 20, NULL, &err);
    cr_assert(good, "%s", err.text);
    cr_assert_null(scheduler_fork(s, good, NULL, &err));
    cr_assert_eq(scheduler_append(good, tokens, 1, &err), -1);
    scheduler_end(s, good);
    scheduled_free(good);
    scheduler_destroy(s);
}
