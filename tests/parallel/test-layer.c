/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builder, state and layers over the keys of several ranks give what they give on one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/input.h"
#include "engine.h"
#include "ranks.h"

enum { STEPS = 11 };

static struct shape_fixture cpu;

static void open_cpu(void)
{
    fixture_open(&cpu, NULL);
}

static void close_cpu(void)
{
    fixture_close(&cpu);
}

TestSuite(layer, .init = open_cpu, .fini = close_cpu);

/* What a rank has computed. */
struct results {
    struct engine_result step[STEPS][CLASSES];
    uint32_t rows[STEPS];
};

/* What all ranks are told. */
struct flow {
    struct engine_options options;
    struct results *results[MOST_RANKS];
};

static void step(struct engine *e, struct results *out, uint32_t number)
{
    struct attn_error err;

    ATTN_INIT(&err);
    cr_assert_eq(engine_begin(e, &err), ATTN_OK, "step %u: %s", number, err.message);
    cr_assert_eq(engine_run(e, out->step[number], &err), ATTN_OK, "step %u: %s", number, err.message);
    out->rows[number] = e->rows;
    engine_commit(e);
}

/* Rows of one part of a step that was built: those behind the first `before`. */
static void run_part(struct engine *e, struct engine_result *out, uint32_t part, uint32_t first,
                     uint32_t count, uint32_t before)
{
    struct engine own = *e;
    struct engine_result *rows = calloc(CLASSES, sizeof *rows);
    const size_t heads = e->own_heads;
    struct attn_error err;

    ATTN_INIT(&err);
    cr_assert_not_null(rows);
    cr_assert_eq(attn_metadata_get_part(e->metadata, part, &own.metadata, &err), ATTN_OK, "%s", err.message);
    own.count = count;
    memcpy(own.parts, e->parts + first, count * sizeof *own.parts);
    cr_assert_eq(engine_begin(&own, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(engine_run(&own, rows, &err), ATTN_OK, "%s", err.message);
    for (uint32_t i = 0; i < CLASSES; i++) {
        memcpy(&out[i].out[0][0][0] + before * heads * DIM, rows[i].out,
               (MOST_ROWS - before) * heads * DIM * sizeof(float));
        memcpy(&out[i].lse[0][0] + before * heads, rows[i].lse, (MOST_ROWS - before) * heads * sizeof(float));
    }
    free(rows);
}

/* A step of one prompt and decodes, one after the other. */
static void step_in_parts(struct engine *e, struct results *out, uint32_t number)
{
    run_part(e, out->step[number], ATTN_PART_PREFILL, 0, 1, 0);
    run_part(e, out->step[number], ATTN_PART_DECODE, 1, e->count - 1, e->parts[0].count);
    out->rows[number] = e->rows;
    engine_commit(e);
}

static void run(struct engine *e, struct results *out)
{
    const struct engine_part single[] = {{1, 1, true, 0, 0, false}};
    const struct engine_part prompts[] = {{0, 13, true, 0, 0, false}, {2, 7, true, 0, 0, false}};
    const struct engine_part mixed[] = {
        {2, 13, true, 0, 0, false}, {0, 1, false, 0, 0, false}, {1, 1, false, 0, 0, false}};
    const struct engine_part drafts[] = {
        {0, 5, false, 0, 0, false}, {1, 3, false, 0, 0, false}, {2, 1, false, 0, 0, false}};
    const struct engine_part decodes[] = {
        {0, 1, false, 0, 0, false}, {1, 1, false, 0, 2, false}, {2, 1, false, 0, 2, false}};
    const struct engine_part both[] = {{3, 1, false, 0, 0, false}, {0, 2, false, 0, 0, false}};
    const struct engine_part parts[] = {
        {4, 5, true, 0, 0, false}, {3, 1, false, 0, 0, false}, {1, 1, false, 0, 0, false}};
    const uint32_t hits = 16 / engine_span(e);
    const struct engine_part found[] = {{4, 6, true, hits, 0, false}, {0, 1, false, 0, 0, false}};

    engine_build(e, single, 1);
    step(e, out, 0);
    engine_build(e, prompts, 2);
    step(e, out, 1);
    engine_build(e, mixed, 3);
    step(e, out, 2);
    engine_build(e, drafts, 3);
    step(e, out, 3);
    engine_swap(e, 0);
    engine_build(e, decodes, 3);
    step(e, out, 4);
    engine_fork(e, 0, 3); /* before the two go on with different tokens */
    engine_build(e, both, 2);
    step(e, out, 5);
    for (uint32_t n = 0; n < hits; n++)
        e->sequences[4].blocks[n] = e->sequences[0].blocks[n];
    e->sequences[4].len = 16;
    engine_build(e, found, 2);
    step(e, out, 6);
    engine_build(e, parts, 3);
    step_in_parts(e, out, 7);
    const struct engine_part pair[] = {{1, 1, false, 0, 2, false}, {2, 1, false, 0, 2, false}};
    engine_build(e, pair, 2);
    step(e, out, 8);
    for (uint32_t n = 9; n < STEPS; n++) {
        engine_advance(e);
        step(e, out, n);
    }
}

static struct results *make_results(void)
{
    struct results *results = calloc(1, sizeof *results);

    cr_assert_not_null(results);
    return results;
}

static struct results *run_alone(void)
{
    const struct engine_options options = {0};
    struct results *results = make_results();
    struct engine e;

    engine_open(&e, cpu.backend, &options, 0, NULL);
    run(&e, results);
    engine_close(&e);
    return results;
}

static void run_rank(struct rank *rank)
{
    const struct flow *flow = rank->arg;
    struct engine e;

    if (flow->options.graphs) /* kernels of the host are done when the collective begins */
        rank->net.device = 1;
    engine_open(&e, cpu.backend, &flow->options, rank->number, &rank->net);
    run(&e, flow->results[rank->number]);
    rank->status = attn_state_wait(e.state, NULL, &rank->err);
    engine_close(&e);
}

/* Within the bound of f32 kernels for results below 1 in amount, of one element and not of their mean. */
static bool is_close(float a, float b)
{
    return fabsf(a - b) <= 1e-5F;
}

static void compare_row(const struct engine_result *got, const struct engine_result *want, uint32_t row,
                        uint32_t first, uint32_t heads, const char *where)
{
    const float *out = &got->out[0][0][0] + (size_t)row * heads * DIM;
    const float *lse = &got->lse[0][0] + (size_t)row * heads;

    for (uint32_t h = 0; h < heads; h++) {
        cr_assert(is_close(lse[h], want->lse[row][first + h]), "%s: lse of row %u, head %u: %g for %g", where,
                  row, first + h, (double)lse[h], (double)want->lse[row][first + h]);
        for (uint32_t d = 0; d < DIM; d++)
            cr_assert(is_close(out[h * DIM + d], want->out[row][first + h][d]),
                      "%s: row %u, head %u, column %u: %g for %g", where, row, first + h, d,
                      (double)out[h * DIM + d], (double)want->out[row][first + h][d]);
    }
}

static void compare(const struct flow *flow, uint32_t rank, const struct results *alone)
{
    const bool split = flow->options.heads == ATTN_CP_HEADS_SPLIT;
    const uint32_t heads = split ? HEADS / flow->options.world : HEADS;
    const struct results *own = flow->results[rank];
    char where[128];

    for (uint32_t s = 0; s < STEPS; s++) {
        cr_assert_eq(own->rows[s], alone->rows[s]);
        for (uint32_t class = 0; class < CLASSES; class ++) {
            snprintf(where, sizeof where, "rank %u of %u, interleave %u, %s, step %u, class %u", rank,
                     flow->options.world, flow->options.interleave, split ? "split" : "all", s, class);
            for (uint32_t row = 0; row < own->rows[s]; row++)
                compare_row(&own->step[s][class], &alone->step[s][class], row, split ? rank * heads : 0,
                            heads, where);
        }
    }
    if (!split)
        cr_assert_eq(memcmp(own, flow->results[0], sizeof *own), 0, "%s: the bits of rank 0", where);
}

static void run_flow(const struct engine_options *options, const struct results *alone)
{
    struct rank ranks[MOST_RANKS];
    struct flow flow = {.options = *options};

    for (uint32_t r = 0; r < options->world; r++)
        flow.results[r] = make_results();
    ranks_run(ranks, options->world, 60, run_rank, &flow);
    for (uint32_t r = 0; r < options->world; r++) {
        cr_assert_eq(ranks[r].status, ATTN_OK, "%s", ranks[r].err.message);
        compare(&flow, r, alone);
    }
    for (uint32_t r = 0; r < options->world; r++)
        free(flow.results[r]);
}

/*
 * Prompts, one of a token of which most ranks have nothing, chunks, decodes of several tokens, mixed steps,
 * blocks that went to the host, shared and copied ones, a prompt whose beginning was found, a step in
 * parts, and steps that advance. In graphs steps of few tokens run over the buffers of a captured size.
 */
static void test_heads(uint32_t heads, bool graphs)
{
    struct results *alone = run_alone();

    for (uint32_t world = 1; world <= 4; world *= 2)
        for (uint32_t interleave = 1; interleave <= BLOCK; interleave *= 2) {
            const struct engine_options options = {world, interleave, heads, graphs};
            run_flow(&options, alone);
        }
    free(alone);
}

Test(layer, ranks_with_all_heads_have_the_results_of_one, .timeout = 120)
{
    test_heads(ATTN_CP_HEADS_ALL, false);
}

Test(layer, ranks_with_their_heads_have_the_results_of_one, .timeout = 120)
{
    test_heads(ATTN_CP_HEADS_SPLIT, false);
}

Test(layer, ranks_have_the_results_of_one_in_graphs, .timeout = 120)
{
    test_heads(ATTN_CP_HEADS_ALL, true);
    test_heads(ATTN_CP_HEADS_SPLIT, true);
}

/* ---------------------------------------------------------------- metadata */

static struct attn_view field(const struct attn_metadata *metadata, uint32_t number)
{
    struct attn_view view;
    struct attn_error err;

    ATTN_INIT(&view);
    ATTN_INIT(&err);
    cr_assert_eq(attn_metadata_get(metadata, number, 0, &view, &err), ATTN_OK, "%s", err.message);
    return view;
}

/* Slots are those of attn_slot_mapping, lengths those of all keys, rows as long as the rank's lists. */
static void check_step(const struct engine *e)
{
    const struct attn_view slots = field(e->metadata, ATTN_FIELD_SLOT_MAPPING);
    const int32_t *lens = field(e->metadata, ATTN_FIELD_SEQ_LENS_TENSOR).host;
    const int32_t *contexts = field(e->metadata, ATTN_FIELD_CONTEXT_LENS_TENSOR).host;
    const int64_t *at = slots.host;

    for (uint32_t i = 0; i < e->count; at += e->parts[i++].count) {
        const struct engine_sequence *s = &e->sequences[e->parts[i].sequence];
        struct attn_slot_args args;
        struct attn_error err;
        int64_t pages[COLUMNS], wanted[MOST_ROWS];
        uint64_t count = 0;
        ATTN_INIT(&args);
        ATTN_INIT(&err);
        for (uint32_t n = 0; n < COLUMNS; n++)
            pages[n] = engine_page(e, s->blocks[n]);
        args.context_len = s->len;
        args.seq_len = s->len + e->parts[i].count;
        args.block = BLOCK;
        args.block_dtype = ATTN_INT64;
        args.blocks = pages;
        args.block_count = COLUMNS;
        args.cp_rank = e->number;
        args.cp_world = e->options.world;
        args.cp_interleave = e->options.interleave;
        cr_assert_eq(attn_slot_mapping(&args, wanted, MOST_ROWS, &count, &err), ATTN_OK, "%s", err.message);
        cr_assert_eq(count, e->parts[i].count);
        cr_assert_eq(memcmp(at, wanted, count * sizeof *at), 0, "slots of part %u", i);
        cr_assert_eq(lens[i], args.seq_len);
        cr_assert_eq(contexts[i], args.context_len);
    }
    cr_assert_eq(at, (const int64_t *)slots.host + slots.shape[0]);
}

Test(layer, a_step_has_slots_of_the_rank_and_lengths_of_all)
{
    const struct engine_part prompts[] = {
        {0, 13, true, 0, 0, false}, {1, 1, true, 0, 0, false}, {2, 7, true, 0, 0, false}};
    const struct engine_part drafts[] = {
        {0, 1, false, 0, 0, false}, {1, 4, false, 0, 0, false}, {2, 1, false, 0, 0, false}};
    const struct engine_part decodes[] = {
        {0, 1, false, 0, 9, false}, {1, 1, false, 0, 9, false}, {2, 1, false, 0, 9, false}};
    const struct engine_part kept[] = {
        {0, 1, false, 0, 9, true}, {1, 1, false, 0, 9, true}, {2, 1, false, 0, 9, true}};

    for (uint32_t number = 0; number < 3; number++) {
        const struct engine_options options = {3, 2, ATTN_CP_HEADS_ALL, false};
        struct attn_builder_params params;
        struct attn_error err;
        struct engine e;
        ATTN_INIT(&err);
        engine_describe(&e, &options, number);
        engine_builder_params(&e, &params);
        cr_assert_eq(attn_builder_create(NULL, &params, &e.builder, &err), ATTN_OK, "%s", err.message);
        engine_build(&e, prompts, 3);
        check_step(&e);
        engine_commit(&e);
        engine_build(&e, drafts, 3);
        check_step(&e);
        engine_commit(&e);
        engine_build(&e, decodes, 3);
        check_step(&e);
        engine_build(&e, kept, 3);
        for (uint32_t n = 0; n < 9; n++) {
            check_step(&e);
            engine_commit(&e);
            engine_advance(&e);
        }
        attn_builder_destroy(e.builder);
    }
}

/* Rank 1 of 2 has tokens 4 to 7 and 12 to 15 of the sequence, and of these 12 and 13 are new. */
Test(layer, a_row_that_changes_has_new_slots)
{
    const struct engine_options options = {2, 4, ATTN_CP_HEADS_ALL, false};
    const int64_t first[] = {5, 6}, second[] = {9};
    struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST, .blocks = first, .count = 2};
    struct attn_builder_params params;
    struct attn_builder_add_args add;
    struct attn_builder_row_args row;
    struct attn_metadata *metadata = NULL;
    struct attn_error err;
    struct engine e;

    ATTN_INIT(&add);
    ATTN_INIT(&row);
    ATTN_INIT(&err);
    engine_describe(&e, &options, 1);
    engine_builder_params(&e, &params);
    cr_assert_eq(attn_builder_create(NULL, &params, &e.builder, &err), ATTN_OK, "%s", err.message);
    add.prompt = 1;
    add.context_len = 8;
    add.query_len = 6;
    add.blocks = &blocks;
    cr_assert_eq(attn_builder_add(e.builder, &add, &err), ATTN_OK, "%s", err.message);
    row.first = 1;
    row.count = 1;
    row.blocks = second;
    cr_assert_eq(attn_builder_set_row(e.builder, &row, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(attn_builder_build(e.builder, NULL, NULL, &metadata, &err), ATTN_OK, "%s", err.message);
    const int64_t wanted[] = {-1, -1, -1, -1, 9 * BLOCK, 9 * BLOCK + 1};
    const struct attn_view slots = field(metadata, ATTN_FIELD_SLOT_MAPPING);
    cr_assert_eq(slots.shape[0], 6u);
    cr_assert_eq(memcmp(slots.host, wanted, sizeof wanted), 0);
    attn_builder_destroy(e.builder);
}
