/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn_forward where calls return before they are done: nothing waits for the next, and nothing is lost. */
#include <stdio.h>
#include <stdlib.h>

#include "../graph/tap.h"
#include "lazy.h"
#include "steps.h"

static struct lazy_counts counts;

static uint32_t count_tokens(const struct pair_step *step)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < step->seqs; i++)
        tokens += (uint32_t)step->q_lens[i];
    return tokens;
}

/* All steps before anything is waited for, then the same with a wait after each. */
static void run_all(const char *problem, int stream, int handle)
{
    const struct pair_case sample = {.problem = problem, .handle = handle};
    struct pair pair;
    char detail[200];
    pair_open(&pair, &sample, stream);
    for (int way = 0; way < 2; way++) {
        pair.row = 0;
        for (int i = 0; i < STEPS_SELF; i++) {
            if (way == 0)
                must(pair_forward(&pair, &steps_self[i]));
            else
                pair_run(&pair, &steps_self[i]);
            pair.row += count_tokens(&steps_self[i]);
        }
    }
    snprintf(detail, sizeof detail, "%s, stream %d", problem, stream);
    check(pair_is_same(&pair), "all steps in flight give the bytes of one after the other", detail);
    pair_close(&pair);
}

/* ---------------------------------------------------------------- with the plugin of lazy.c */

static struct lazy_counts difference(const struct lazy_counts *before)
{
    struct lazy_counts d = counts;
    d.launches -= before->launches;
    d.copies -= before->copies;
    d.writes -= before->writes;
    d.runs -= before->runs;
    d.clears -= before->clears;
    d.waits -= before->waits;
    return d;
}

static void expect(struct pair *pair, const struct pair_step *step, uint32_t copies, uint32_t waits,
                   uint32_t clears, const char *what)
{
    char detail[200];
    const struct lazy_counts before = counts;
    must(pair_forward(pair, step));
    const struct lazy_counts d = difference(&before);
    snprintf(detail, sizeof detail, "%u copies, %u writes, %u runs, %u waits, %u clears", d.copies, d.writes,
             d.runs, d.waits, d.clears);
    check(d.copies == copies && d.writes == 1 && d.runs == 1 && d.waits == waits && d.clears == clears, what,
          detail);
}

static const struct pair_case table = {.problem = "heads=4 kv_heads=2 head_dim=16 q=f32 lse=1"};

static void test_counts(void)
{
    static const struct pair_step first = {4, {1, 1, 1, 1}, {20, 20, 20, 20}},
                                  other = {4, {1, 1, 1, 1}, {21, 21, 21, 21}}, fewer = {2, {1, 1}, {20, 20}},
                                  larger = {5, {1, 1, 1, 1, 1}, {20, 20, 20, 20, 20}};
    struct pair pair;
    pair_open(&pair, &table, 1);
    must(pair_forward(&pair, &first));
    expect(&pair, &first, 0, 0, 0, "the next layer of a step is written and run, no more");
    expect(&pair, &other, 2, 1, 0,
           "a step no larger copies its arrays and its schedule, and waits for the last copies");
    expect(&pair, &other, 0, 0, 0, "its next layer");
    expect(&pair, &fewer, 2, 1, 0, "a smaller step needs no memory");
    check(counts.pending > 0, "all of this is still in flight", "");
    expect(&pair, &larger, 2, 2, 1,
           "a larger step waits for what uses the old plan, and clears new counters");
    struct attn_forward_args args;
    pair_args(&pair, &larger, &args);
    args.table_width--;
    const struct lazy_counts before = counts;
    must(attn_forward(pair.session, &args, pair.stream, &err));
    check(difference(&before).copies == 2, "rows of another width are another table", "");
    must(pair_forward(&pair, &larger));
    args.table_width++;
    args.q.dtype = ATTN_BF16;
    ATTN_INIT(&err);
    check(attn_forward(pair.session, &args, pair.stream, &err) == ATTN_E_INVALID, "refused", err.message);
    expect(&pair, &larger, 0, 0, 1, "after a failure counters are cleared");
    expect(&pair, &larger, 0, 0, 0, "once");
    pair_close(&pair);
    check(counts.streams == 0 && counts.events == 0 && counts.pending == 0, "nothing is left", "");
}

/* The same step on another stream, then a larger one, while the other stream still works. */
static void test_streams(void)
{
    static const struct pair_step small = {1, {1}, {9}}, large = {3, {9, 3, 1}, {40, 30, 20}};
    struct pair pair;
    pair_open(&pair, &table, 1);
    void *first = pair.stream, *second;
    must(attn_stream_create(pair.backend, &second, &err));
    must(pair_forward(&pair, &small));
    must(attn_stream_synchronize(pair.backend, first, &err));
    attn_stream_destroy(pair.backend, first);
    pair.stream = second;
    pair.row = 1;
    must(pair_forward(&pair, &small));
    pair.row = 2;
    must(pair_forward(&pair, &large));
    for (uint32_t i = 0; i < 3; i++) {
        pair.row = i;
        pair_run(&pair, i < 2 ? &small : &large);
    }
    check(pair_is_same(&pair), "a session goes on with another stream", "");
    pair_close(&pair);
    check(counts.strays == 0, "no stream is used after its end", "");
}

/* What is in flight on the stream NULL is done before the memory goes. */
static void test_close(void)
{
    static float q[16], k[16], v[16], out[16], k_cache[16 * 16], v_cache[16 * 16];
    const int32_t page = 0;
    struct attn_session *session;
    struct attn_forward_args args;
    for (int i = 0; i < 16; i++)
        v[i] = (float)i;
    must(attn_open("heads=1 head_dim=16 q=f32", NULL, &session, &err));
    ATTN_INIT(&args);
    args.seqs = args.pages = args.table_width = 1;
    args.table = &page;
    args.q = attn_tensor_of(q, ATTN_F32, 1, 16);
    args.k = attn_tensor_of(k, ATTN_F32, 1, 16);
    args.v = attn_tensor_of(v, ATTN_F32, 1, 16);
    args.out = attn_tensor_of(out, ATTN_F32, 1, 16);
    args.k_cache.data = k_cache;
    args.v_cache.data = v_cache;
    must(attn_forward(session, &args, NULL, &err));
    check(counts.pending > 0 && out[1] == 0, "a call does not wait for its result", "");
    attn_close(session);
    check(memcmp(out, v, sizeof v) == 0, "closing waits for the stream NULL", "");
}

int main(int argc, char **argv)
{
    const int lazy = argc > 1 && strcmp(argv[1], "lazy") == 0;
    char address[32];
    snprintf(address, sizeof address, "%p", (void *)&counts);
    if (lazy)
        setenv(LAZY_VARIABLE, address, 1);
    for (counts.no_events = 0; counts.no_events < (lazy ? 2U : 1U); counts.no_events++)
        for (int stream = 0; stream < 2; stream++) {
            run_all("heads=4 kv_heads=2 head_dim=16 q=f32 lse=1", stream, 0);
            run_all("heads=4 kv_heads=2 head_dim=16 q=f32 addr=dense", stream, 1);
        }
    counts.no_events = 0;
    if (lazy) {
        test_counts();
        test_streams();
        test_close();
    }
    return finish_checks();
}
