/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* From a scheduler's parts to what a builder adds, with as few changed rows as can be. */
#include "serve-rows.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int serve_rows_init(struct serve_rows *rows, uint32_t seqs, uint32_t width, struct failure *err)
{
    const size_t all = 2 * (size_t)seqs;

    *rows = (struct serve_rows){.seqs = seqs, .width = width};
    rows->sequences = calloc(all, sizeof *rows->sequences);
    rows->decodes = calloc(seqs, sizeof *rows->decodes);
    rows->prompts = calloc(seqs, sizeof *rows->prompts);
    rows->owner = calloc(all, sizeof *rows->owner);
    rows->blocks = malloc(all * width * sizeof *rows->blocks);
    rows->lists = calloc(seqs, sizeof *rows->lists);
    rows->adds = calloc(seqs, sizeof *rows->adds);
    if (!rows->sequences || !rows->decodes || !rows->prompts || !rows->owner || !rows->blocks ||
        !rows->lists || !rows->adds)
        return failure_set(err, "no memory for %" PRIu32 " sequences of %" PRIu32 " blocks", seqs, width);
    memset(rows->blocks, 0, all * width * sizeof *rows->blocks); /* its pages are there from now on */
    for (size_t i = all; i-- > 0;) {
        struct serve_sequence *sequence = &rows->sequences[i];
        sequence->blocks = rows->blocks + i * width;
        sequence->next = rows->idle;
        rows->idle = sequence;
    }
    for (uint32_t i = 0; i < seqs; i++) {
        ATTN_INIT(&rows->adds[i]);
        rows->adds[i].given = ATTN_GIVEN_ROW;
        rows->adds[i].blocks = &rows->lists[i];
        rows->lists[i].kind = ATTN_BLOCKS_LIST;
    }
    return 0;
}

void serve_rows_finish(struct serve_rows *rows)
{
    free(rows->sequences);
    free(rows->decodes);
    free(rows->prompts);
    free(rows->owner);
    free(rows->blocks);
    free(rows->lists);
    free(rows->adds);
}

struct serve_sequence *serve_rows_take(struct serve_rows *rows, uint32_t request)
{
    struct serve_sequence *sequence = rows->idle;

    rows->idle = sequence->next;
    sequence->request = request;
    sequence->serial = ++rows->serials;
    sequence->place = ROWS_NONE;
    sequence->step = 0;
    return sequence;
}

/* The last of the decodes takes its place. */
static void leave(struct serve_rows *rows, struct serve_sequence *sequence)
{
    struct serve_sequence *last = rows->decodes[--rows->decode_count];

    rows->decodes[sequence->place] = last;
    last->place = sequence->place;
    sequence->place = ROWS_NONE;
}

void serve_rows_give(struct serve_rows *rows, struct serve_sequence *sequence)
{
    if (sequence->place != ROWS_NONE)
        leave(rows, sequence);
    sequence->next = rows->idle;
    rows->idle = sequence;
}

/* Sorts the parts into prompts and decodes; who decoded but was driven out leaves. */
static void sort_parts(struct serve_rows *rows, const struct scheduler_step *step)
{
    rows->step++;
    rows->prompt_count = 0;
    for (uint32_t i = 0; i < step->part_count; i++) {
        const struct scheduled_part *part = &step->parts[i];
        struct serve_sequence *sequence = part->sequence->user;
        const bool decodes = part->count == 1 && part->first >= part->sequence->prompt;
        sequence->step = rows->step;
        sequence->part = i;
        if (!decodes) {
            if (sequence->place != ROWS_NONE)
                leave(rows, sequence);
            rows->prompts[rows->prompt_count++] = sequence;
        } else if (sequence->place == ROWS_NONE) {
            sequence->place = (int32_t)rows->decode_count;
            rows->decodes[rows->decode_count++] = sequence;
        }
    }
    for (uint32_t i = rows->decode_count; i-- > 0;)
        if (rows->decodes[i]->step != rows->step)
            leave(rows, rows->decodes[i]);
}

/* The blocks that are new since its last part; those before them are as they were. */
static void describe(struct serve_rows *rows, const struct scheduler_step *step,
                     struct serve_sequence *sequence, uint32_t row, bool prompt)
{
    const struct scheduled_part *part = &step->parts[sequence->part];
    const struct scheduled *scheduled = part->sequence;
    struct attn_builder_add_args *add = &rows->adds[rows->add_count];
    struct attn_blocks *list = &rows->lists[rows->add_count++];

    for (uint32_t i = scheduled->unchanged; i < scheduled->held; i++)
        sequence->blocks[i] = scheduled->blocks[0][i];
    list->blocks = sequence->blocks;
    list->count = scheduled->held;
    list->unchanged = rows->owner[row] == sequence->serial && sequence->row == row ? scheduled->unchanged : 0;
    rows->owner[row] = sequence->serial;
    sequence->row = row;
    add->row = row;
    add->prompt = prompt;
    add->context_len = part->first;
    add->query_len = part->count;
}

void serve_rows_begin(struct serve_rows *rows, const struct scheduler_step *step)
{
    sort_parts(rows, step);
    rows->add_count = 0;
    for (uint32_t i = 0; i < rows->prompt_count; i++)
        describe(rows, step, rows->prompts[i], rows->seqs - rows->prompt_count + i, true);
    for (uint32_t i = 0; i < rows->decode_count; i++)
        describe(rows, step, rows->decodes[i], rows->seqs + i, false);
}
