/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rows say what of them is unchanged; the table that follows must be that of the sequences' whole lists. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "test-serve.h"

static char why[256];

/* Row `n` of the step against the sequence that it stands for. */
static bool row_is_right(const struct attn_view *table, const struct attn_view *slots, uint32_t n,
                         uint32_t token, const struct scheduled_part *part, uint32_t block)
{
    const int32_t *row =
        (const int32_t *)(const void *)((const char *)table->host + (int64_t)n * table->stride);
    const struct scheduled *sequence = part->sequence;

    for (uint32_t i = 0; i < sequence->held; i++) {
        if (row[i] == sequence->blocks[0][i])
            continue;
        snprintf(why, sizeof why, "row %" PRIu32 ", cell %" PRIu32 " is %" PRId32 ", not %" PRId32, n, i,
                 row[i], sequence->blocks[0][i]);
        return false;
    }
    for (uint64_t i = sequence->held; i < table->shape[1]; i++) {
        if (row[i] != 0) {
            snprintf(why, sizeof why, "row %" PRIu32 " has %" PRId32 " behind its blocks", n, row[i]);
            return false;
        }
    }
    for (uint32_t i = 0; i < part->count; i++) {
        const uint32_t at = part->first + i;
        const int64_t slot = (int64_t)sequence->blocks[0][at / block] * block + at % block;
        if (((const int64_t *)slots->host)[token + i] != slot) {
            snprintf(why, sizeof why, "token %" PRIu32 " of row %" PRIu32 " goes to another slot", i, n);
            return false;
        }
    }
    return true;
}

/* All rows of a step, in the order in which they were added. */
static bool step_is_right(const struct serve *serve, const struct scheduler_step *step)
{
    const struct serve_rows *rows = &serve->rows;
    struct attn_view table, slots;
    uint32_t token = 0;

    ATTN_INIT(&table);
    ATTN_INIT(&slots);
    if (attn_metadata_get(serve->model.metadata, ATTN_FIELD_BLOCK_TABLES, 0, &table, NULL) != ATTN_OK ||
        attn_metadata_get(serve->model.metadata, ATTN_FIELD_SLOT_MAPPING, 0, &slots, NULL) != ATTN_OK ||
        rows->add_count != step->part_count || table.shape[0] != step->part_count) {
        snprintf(why, sizeof why, "the step has %" PRIu32 " parts and %" PRIu32 " rows", step->part_count,
                 rows->add_count);
        return false;
    }
    for (uint32_t n = 0; n < rows->add_count; n++) {
        const struct serve_sequence *sequence =
            n < rows->prompt_count ? rows->prompts[n] : rows->decodes[n - rows->prompt_count];
        const struct scheduled_part *part = &step->parts[sequence->part];
        if (part->sequence->user != sequence) {
            snprintf(why, sizeof why, "row %" PRIu32 " has another sequence's part", n);
            return false;
        }
        if (!row_is_right(&table, &slots, n, token, part, serve->options.shape.problem.block))
            return false;
        token += part->count;
    }
    return true;
}

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* Ends the sequence, or gives it a token. */
static int go_on(struct serve *serve, struct scheduled *scheduled, bool end, struct failure *err)
{
    struct serve_sequence *sequence = scheduled->user;
    const int32_t token = 5;

    if (scheduled->computed == scheduled->count && scheduled->count < scheduled->most &&
        scheduler_append(scheduled, &token, 1, err) < 0)
        return -1;
    if (!end && scheduled->count < scheduled->most)
        return 0;
    scheduler_end(serve->scheduler, scheduled);
    scheduled_free(scheduled);
    serve_rows_give(&serve->rows, sequence);
    return 0;
}

/* The steps of serve.c, but with a look at the metadata; some end before their time. */
static int run(struct serve *serve, uint64_t seed, uint64_t *steps, struct failure *err)
{
    const struct serve_trace *trace = serve->options.trace;
    uint64_t state = seed;
    uint32_t next = 0;

    while (next < trace->count || scheduler_left(serve->scheduler) > 0) {
        while (next < trace->count && scheduler_left(serve->scheduler) < 2 * serve->options.seqs) {
            const struct serve_request *request = &trace->requests[next];
            serve_trace_tokens(trace, next, 0, request->prompt, serve->tokens);
            struct serve_sequence *sequence = serve_rows_take(&serve->rows, next++);
            sequence->scheduled = scheduler_add(serve->scheduler, serve->tokens, request->prompt,
                                                request->prompt + request->answer, sequence, err);
            if (sequence->scheduled == NULL)
                return -1;
        }
        const struct scheduler_step *step = scheduler_step(serve->scheduler);
        const uint32_t count = step->part_count;
        serve_rows_begin(&serve->rows, step);
        if (serve_model_build(&serve->model, serve->rows.adds, serve->rows.add_count, err) < 0)
            return -1;
        if (!step_is_right(serve, step))
            return failure_set(err, "step %" PRIu64 ": %s", *steps, why);
        scheduler_commit(serve->scheduler);
        for (uint32_t i = 0; i < count; i++)
            if (go_on(serve, step->parts[i].sequence, draw(&state, 50) == 0, err) < 0)
                return -1;
        ++*steps;
    }
    return serve_check(serve, err);
}

void test_rows(const struct serve_trace *trace)
{
    for (uint32_t i = 0; i < 12; i++) {
        struct serve_options options;
        struct failure err = {""};
        struct serve serve;
        uint64_t steps = 0;
        char name[128];
        make_options(&options, trace);
        options.seqs = options.shape.problem.max_seqs = 3 + i;
        options.chunk = options.shape.problem.max_q = 20 + 30 * i;
        options.shape.problem.max_rows = options.chunk + options.seqs;
        options.shape.blocks = 70 + 20 * (i % 3);
        options.shape.host_blocks = i % 2 * 40;
        options.reuse = i % 4 < 2;
        int status = serve_init(&serve, &options, &err);
        if (status == 0)
            status = run(&serve, i, &steps, &err);
        snprintf(name, sizeof name,
                 "%" PRIu32 " batch slots, %" PRIu32 " blocks: tables and slots are right in all steps",
                 options.seqs, options.shape.blocks);
        check(status == 0 && steps > 100, name, err.text);
        serve_finish(&serve);
    }
}
