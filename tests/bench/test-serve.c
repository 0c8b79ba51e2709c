/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Usage: test-serve TRACE.csv NOOP-PLUGIN. Replays the trace; a large one may be given too. */
#include "test-serve.h"

#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocations.h"
#include "scheduler-impl.h"

enum { WARM_UPS = 3, LARGE = 1000 };

static unsigned count, failed;
static char *noop;

void check(bool good, const char *what, const char *why)
{
    count++;
    failed += !good;
    printf("%sok %u - %s\n", good ? "" : "not ", count, what);
    if (!good)
        printf("# %s\n", why);
    fflush(stdout);
}

void make_options(struct serve_options *options, const struct serve_trace *trace)
{
    *options = (struct serve_options){.trace = trace, .seqs = 16, .chunk = 100, .reuse = true};
    struct attn_problem *problem = &options->shape.problem;

    attn_problem_parse("heads=2 kv_heads=1 head_dim=16 q=f32", problem, NULL);
    options->shape.layers = 2;
    options->shape.blocks = 16 * ((trace->longest - 1) / problem->block + 1);
    options->shape.noop = noop;
    problem->max_seqs = options->seqs;
    problem->max_q = options->chunk;
    problem->max_rows = options->chunk + options->seqs;
    problem->max_kv = trace->longest;
}

/* ---------------------------------------------------------------- replays */

/* What a replay came to. */
struct replay {
    uint64_t hash, steps, allocations, moves;
};

/* True if all went well; the blocks have come back. */
static bool replay(const struct serve_options *options, struct replay *out, struct failure *err)
{
    struct serve serve;
    bool more = true;
    uint64_t before = 0;
    int status = serve_init(&serve, options, err);

    for (uint64_t i = 0; status == 0 && more; i++) {
        if (i == WARM_UPS)
            before = allocations_made();
        status = serve_step(&serve, &more, err);
    }
    *out =
        (struct replay){.hash = serve.hash, .steps = serve.steps, .allocations = allocations_made() - before};
    if (status == 0)
        status = serve_check(&serve, err);
    if (status == 0) {
        const struct scheduler_counts *counts = scheduler_get_counts(serve.scheduler);
        out->moves = counts->recomputed + counts->swapped;
    }
    if (status == 0 && serve.finished != options->trace->count)
        status = failure_set(err, "%" PRIu64 " of %" PRIu32 " requests ended", serve.finished,
                             options->trace->count);
    serve_finish(&serve);
    return status == 0;
}

static void test_replay(const struct serve_trace *trace, const char *name, uint32_t blocks,
                        uint32_t host_blocks, bool reuse)
{
    struct serve_options options;
    struct replay first, second;
    struct failure err = {""};
    char what[160], why[160];

    make_options(&options, trace);
    options.shape.blocks = blocks != 0 ? blocks : options.shape.blocks;
    options.shape.host_blocks = host_blocks;
    options.reuse = reuse;
    snprintf(what, sizeof what, "%s: all requests end and all blocks come back", name);
    check(replay(&options, &first, &err), what, err.text);
    snprintf(what, sizeof what, "%s: sequences are %sdriven out", name, blocks != 0 ? "" : "not ");
    if (trace->count < LARGE) /* how little is little depends on the trace */
        check((first.moves > 0) == (blocks != 0), what, "the cache is too large, or too small");
    snprintf(what, sizeof what, "%s: the same schedule again", name);
    snprintf(why, sizeof why, "hashes %016" PRIx64, first.hash);
    check(replay(&options, &second, &err) && first.hash == second.hash && first.steps == second.steps, what,
          why);
    snprintf(what, sizeof what, "%s: nothing is allocated after the first steps", name);
    snprintf(why, sizeof why, "%" PRIu64 " allocations in %" PRIu64 " steps", first.allocations, first.steps);
    if (allocations_counted())
        check(first.allocations == 0, what, why);
    else
        printf("ok %u - %s # SKIP the allocator belongs to a sanitizer or is not the C library's\n", ++count,
               what);
}

/* ---------------------------------------------------------------- what a replay notices */

/* The hash sees one block in another place, and who goes first. */
static void test_hash(const struct serve_trace *trace)
{
    struct serve_options options;
    struct replay plain, other;
    struct failure err = {""};

    make_options(&options, trace);
    options.shape.blocks = 200;
    check(replay(&options, &plain, &err), "a replay to compare with", err.text);
    options.shape.blocks++; /* so few that all of them are taken more than once */
    check(replay(&options, &other, &err) && plain.steps == other.steps && plain.hash != other.hash,
          "the hash sees other blocks", "equal hashes");
    options.shape.blocks--;
    options.seqs = options.shape.problem.max_seqs = 15;
    check(replay(&options, &other, &err) && plain.hash != other.hash, "the hash sees other steps",
          "equal hashes");
}

/* A reference too many, a block too few, a sequence that is left. */
static void test_leaks(const struct serve_trace *trace)
{
    struct serve_options options;
    struct failure err = {""};
    struct serve serve;
    bool more = true;

    make_options(&options, trace);
    int status = serve_init(&serve, &options, &err);
    for (unsigned i = 0; status == 0 && i < 5; i++)
        status = serve_step(&serve, &more, &err);
    check(status == 0 && serve_check(&serve, &err) < 0 && strstr(err.text, "have not ended") != NULL,
          "sequences that are left are noticed", err.text);
    while (status == 0 && more)
        status = serve_step(&serve, &more, &err);
    check(status == 0 && serve_check(&serve, &err) == 0, "in the end nothing is held", err.text);
    if (status != 0)
        return;
    blocks_hold(&serve.scheduler->cache[0], 7);
    check(serve_check(&serve, &err) < 0 && strstr(err.text, "block 7 ") != NULL &&
              strstr(err.text, "held 1 times") != NULL,
          "a reference that was not given back is noticed", err.text);
    blocks_drop(&serve.scheduler->cache[0], 7);
    check(serve_check(&serve, &err) == 0, "and one that was is not", err.text);
    serve.scheduler->cache[0].unheld--;
    check(serve_check(&serve, &err) < 0 && strstr(err.text, "free blocks") != NULL,
          "a block that is nowhere is noticed", err.text);
    serve.scheduler->cache[0].unheld++;
    serve_finish(&serve);
}

/* ---------------------------------------------------------------- times */

static void test_times(void)
{
    struct times *times = calloc(1, sizeof *times);
    bool good = isnan(times_quantile(times, 0.5));

    for (uint64_t i = 1; i <= 300; i++)
        times_add(times, 301 - i);
    good = good && times_quantile(times, 0.5) == 0.150 && times_quantile(times, 0.99) == 0.297 &&
           times_quantile(times, 1) == 0.3 && times->least == 1 && times->most == 300;
    check(good, "quantiles of short times are exact", "they are not");
    *times = (struct times){.count = 0};
    good = true;
    for (uint64_t time = 1; time < UINT64_C(1) << 62; time = time * 3 + 1) {
        *times = (struct times){.count = 0};
        times_add(times, time);
        times_add(times, UINT64_MAX);
        const double said = 1e3 * times_quantile(times, 0.5), real = (double)time;
        good = good && said >= real && said <= real * (1 + 1.0 / 256);
    }
    check(good, "quantiles of long times are right to 1/256", "they are not");
    free(times);
}

/* Prompts of one conversation begin alike, those of others do not, and the same come each time. */
static void test_tokens(const struct serve_trace *trace)
{
    int32_t a[64], b[64], c[32];
    uint32_t shared = 0, apart = 0;
    bool good = true;

    for (uint32_t i = 1; i < trace->count; i++) {
        const struct serve_request *one = &trace->requests[i];
        serve_trace_tokens(trace, i, 300, 64, a);
        for (uint32_t j = 0; j < i; j++) {
            const bool same = one->conversation == trace->requests[j].conversation;
            serve_trace_tokens(trace, j, 300, 64, b);
            good = good && same == (memcmp(a, b, sizeof a) == 0);
            shared += same;
            apart += !same;
            /* Who goes on with a conversation has all of it. */
            good = good && (!same || one->prompt > trace->requests[j].prompt + trace->requests[j].answer);
        }
        serve_trace_tokens(trace, i, 320, 32, c);
        good = good && memcmp(a + 20, c, sizeof c) == 0;
    }
    check(good && shared > 0 && apart > shared, "prompts begin alike in one conversation", "they do not");
}

int main(int argc, char **argv)
{
    struct serve_trace trace;
    struct failure err = {""};

    if (argc != 3)
        return 2;
    noop = dirname(argv[2]);
    if (serve_trace_read(&trace, argv[1], 0, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    const uint32_t least = (trace.longest - 1) / 16 + 1;
    test_times();
    if (trace.count < LARGE) {
        test_tokens(&trace);
        test_rows(&trace);
        test_leaks(&trace);
        test_hash(&trace);
    }
    test_replay(&trace, "room for all", 0, 0, true);
    test_replay(&trace, "little room", 2 * least, 0, true);
    test_replay(&trace, "little room, and some on the host", 2 * least, 3 * least, true);
    test_replay(&trace, "little room without reuse", 2 * least, least, false);
    serve_trace_finish(&trace);
    printf("1..%u\n", count);
    return failed != 0;
}
