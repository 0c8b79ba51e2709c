/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* det=1: the bits of a row stay, whatever its companions, places, threads and maxima are. */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>

#include "need.h"

/* Bits of every row of a case, in the case's own numbering. */
struct bits {
    const struct conform_case *the_case;
    unsigned char *rows; /* [sequence, token, head]: out, then lse */
    size_t first[MAX_SEQS];
    size_t width;
    size_t size;
};

static void bits_init(struct bits *bits, const struct conform_case *c)
{
    size_t rows = 0;

    bits->the_case = c;
    bits->width = (size_t)c->problem.head_dim_vo * oracle_size(c->problem.out_dtype) + 4;
    for (uint32_t n = 0; n < c->count; n++) {
        bits->first[n] = rows * bits->width;
        rows += (size_t)c->sequences[n].q_len * c->problem.heads;
    }
    bits->size = rows * bits->width;
    bits->rows = need(calloc(bits->size + 1, 1));
}

static void take_row(const struct step *step, uint32_t row, uint32_t head, unsigned char *to, size_t width)
{
    memcpy(to, tensor_at(&step->tensors.out, row, head), width - 4);
    memset(to + width - 4, 0, 4);
    if (step->lse_memory != NULL)
        memcpy(to + width - 4, tensor_at(&step->tensors.lse, row, head), 4);
}

/* Takes the bits of a step; with `compare` says which row differs instead. */
static bool bits_take(struct bits *bits, const struct step *step, bool compare, char *why, size_t size)
{
    unsigned char *row_bits = need(malloc(bits->width));
    uint32_t heads = step->problem.heads;
    bool good = true;

    for (uint32_t n = 0; n < step->seqs && good; n++) {
        if (step->source[n] < 0)
            continue;
        uint32_t source = (uint32_t)step->source[n];
        uint32_t pairs = bits->the_case->sequences[source].q_len * heads;
        for (uint32_t pair = 0; pair < pairs && good; pair++) {
            unsigned char *kept = bits->rows + bits->first[source] + pair * bits->width;
            take_row(step, step->first_row[n] + pair / heads, pair % heads, row_bits, bits->width);
            if (!compare)
                memcpy(kept, row_bits, bits->width);
            good = memcmp(kept, row_bits, bits->width) == 0;
            if (!good)
                snprintf(why, size, "sequence %u token %u head %u has other bits", source, pair / heads,
                         pair % heads);
        }
    }
    free(row_bits);
    return good;
}

struct variant {
    const char *name;
    struct layout layout;
    enum executor executor;
    uint32_t pool; /* 0 = the target's own, else threads */
    uint32_t slack;
};

/* 1 = same bits, 0 = not accepted, -1 = failed. */
static int try_variant(const struct target *target, const struct conform_case *c,
                       const struct variant *variant, struct bits *bits, bool compare, char *why, size_t size)
{
    struct attempt attempt = {.backend =
                                  variant->pool > 0 ? target->pools[variant->pool - 1] : target->backend,
                              .executor = variant->executor,
                              .prepare_executor = variant->executor,
                              .slack = variant->slack};
    struct step step;

    step_init(&step, c, &variant->layout, true);
    int ran = step_run(&step, target, &attempt, why, size);
    if (ran == 1 && !bits_take(bits, &step, compare, why, size))
        ran = -1;
    step_finish(&step);
    return ran;
}

enum { MOST_VARIANTS = 24 };

static struct variant *add(struct variant *list, uint32_t *count, const char *name)
{
    list[*count] = list[0];
    list[*count].name = name;
    return &list[(*count)++];
}

/* Number 0 is what the others are compared with. */
static uint32_t make_variants(struct variant *list, const struct conform_case *c, const struct layout *base,
                              uint64_t seed)
{
    struct rng rng = {mix(seed, 13)};
    uint32_t count = 1;

    memset(list, 0, sizeof *list * MOST_VARIANTS);
    list[0].name = "alone with itself";
    list[0].layout = *base;
    list[0].layout.padding = 0;
    list[0].layout.host = true;
    add(list, &count, "the same again");
    add(list, &count, "device prepare")->layout.host = false;
    struct variant *other = add(list, &count, "other pages, strides and order, padding");
    other->layout.seed = mix(seed, 14);
    other->layout.padding = 3;
    other->layout.before = !base->before;
    rng_shuffle(&rng, other->layout.order, c->count);
    for (uint32_t n = 0; n < c->count && n < 3; n++) {
        struct variant *single = add(list, &count, "without companions");
        single->layout.seed = mix(seed, 15 + n);
        single->layout.order[0] = rng_below(&rng, c->count);
        single->layout.count = 1;
    }
    add(list, &count, "other maxima")->slack = 100;
    for (uint32_t threads = 1; threads <= POOLS; threads++)
        add(list, &count, "other number of threads")->pool = threads;
    for (uint32_t executor = EXECUTOR_SERIAL; executor < EXECUTORS; executor++)
        add(list, &count, executor_name((enum executor)executor))->executor = (enum executor)executor;
    return count;
}

static void check_target(struct target *target, const struct conform_case *c, const struct layout *base,
                         uint64_t seed)
{
    struct variant variants[MOST_VARIANTS];
    uint32_t count = make_variants(variants, c, base, seed);
    struct bits bits;
    char why[768] = "";

    bits_init(&bits, c);
    tap_begin(target, "det", c->text, seed);
    int result = try_variant(target, c, &variants[0], &bits, false, why, sizeof why);
    uint32_t at = 0;
    for (at = 1; at < count && result == 1; at++)
        result = try_variant(target, c, &variants[at], &bits, true, why, sizeof why);
    if (result == 1)
        tap_pass();
    else if (result == 0)
        tap_skip(why);
    else
        tap_fail("%s: %s", variants[at > 0 ? at - 1 : 0].name, why);
    free(bits.rows);
}

void check_deterministic(struct target_list *list, const struct run_options *options)
{
    static const struct effort effort = {1e7, 2000000, 50};
    uint32_t cases = options_cases(options, 36, 300);

    for (uint32_t n = 0; n < cases; n++) {
        struct conform_case the_case;
        struct attn_problem problem;
        struct layout layout;
        uint64_t seed;
        if (!options_mine(options, n) || !options_served(options, list, n, 200, &problem, &seed))
            continue;
        problem.det = 1;
        problem.lse |= n % 2; /* bits that no 16-bit result hides */
        case_init(&the_case, &problem, seed, &effort, false);
        layout_init(&layout, &the_case, seed);
        targets_demand(list, &problem, &layout);
        for (uint32_t t = 0; t < list->count; t++)
            check_target(&list->targets[t], &the_case, &layout, seed);
        case_finish(&the_case);
    }
}
