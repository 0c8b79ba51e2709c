/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The work list of prefill: every tile of rows once, and heads in sections whose keys and values the L2 cache
 * holds. */
#include <criterion/criterion.h>
#include <string.h>

#include "work-tile.h"

enum { ROWS = 128, HEADS_MOST = 16, TOKENS_MOST = 65536 };

/* A sequence with as many query tokens as keys, heads of 128 columns in bf16. */
static struct gpu_sequence sequence_of(uint32_t tokens)
{
    struct gpu_sequence s;

    memset(&s, 0, sizeof s);
    s.q_len = s.kv_len = s.all_keys = s.new_begin = tokens;
    return s;
}

static struct gpu_run run_of(uint32_t heads)
{
    struct gpu_run run;

    memset(&run, 0, sizeof run);
    run.problem.heads = run.problem.kv_heads = heads;
    run.problem.positions = 1; /* all keys */
    run.group = 1;
    run.by_group = gpu_divisor_of(run.group);
    run.k.dim = run.v.dim = 128;
    run.k.size = run.v.size = 2;
    return run;
}

/* Takes the whole list of a sequence behind `below` units of others; counts its sections of heads. */
static uint32_t check(uint32_t heads, uint32_t tokens, uint32_t below, uint32_t section)
{
    const struct gpu_run run = run_of(heads);
    const struct gpu_sequence s = sequence_of(tokens);
    const uint32_t tiles = (tokens + ROWS - 1) / ROWS, above = below + tiles;
    const uint64_t all = (uint64_t)above * heads;
    static uint32_t taken[HEADS_MOST][TOKENS_MOST / ROWS];
    uint32_t sections = 0, first = 0, last_row = 0;

    memset(taken, 0, sizeof taken);
    for (uint64_t at = 0; at < (uint64_t)tiles * heads; at++) {
        const struct gpu_work_tile p = gpu_prefill_tile_at(&run, &s, at, all, below, above, ROWS);
        cr_assert_lt(p.kv_head, heads);
        cr_assert_lt(p.row0, tokens);
        cr_assert_eq(p.splits, 1u);
        taken[p.kv_head][p.row0 / ROWS]++;
        if (at == 0 || p.kv_head / section != first) {
            first = p.kv_head / section;
            sections++;
        } else {
            cr_assert_leq(p.row0, last_row, "the longest rows of a section come first");
        }
        last_row = p.row0;
    }
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t t = 0; t < tiles; t++)
            cr_assert_eq(taken[h][t], 1u, "head %u, tile %u: %u times", h, t, taken[h][t]);
    return sections;
}

Test(tiles, short_sequences_have_one_section)
{
    cr_assert_eq(check(8, 1000, 0, 8), 1u);
    cr_assert_eq(check(7, 2048, 3, 7), 1u);
}

/* 16k tokens of a head are 8 MB: two heads are a section, the last one what is left. */
Test(tiles, long_sequences_have_sections)
{
    cr_assert_eq(check(8, 16384, 0, 2), 4u);
    cr_assert_eq(check(7, 16384, 5, 2), 4u);
    cr_assert_eq(check(5, 65536, 0, 1), 5u);
}
