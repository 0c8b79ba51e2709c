/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Which row of the block table a sequence of a step has: prompts before decodes, each decode where it was.
 *
 * Rows of a step follow one another. Decodes have rows from the middle of the table on, in no order of their
 * own: whoever ends gives its row to the last of them. Prompts have the rows just before the middle. So the
 * number of prompts moves nobody, and few rows change in a step.
 */
#ifndef SERVE_ROWS_H
#define SERVE_ROWS_H

#include "attn/layer.h"
#include "scheduler.h"

enum { ROWS_NONE = -1 };

/* A request that the scheduler has: `user` of its sequence. */
struct serve_sequence {
    struct scheduled *scheduled;
    uint32_t request;
    uint32_t serial; /* differs from those of all others */
    int32_t place;   /* among decodes, or ROWS_NONE */
    uint64_t step;   /* the last one that it had a part in */
    uint32_t part;   /* there */
    uint32_t row;    /* there */
    int64_t *blocks; /* [width]: its list as builders take it */
    struct serve_sequence *next;
};

struct serve_rows {
    uint32_t seqs; /* the middle: 2 * seqs rows */
    uint32_t width;
    struct serve_sequence *sequences; /* [2 * seqs] */
    struct serve_sequence *idle;
    struct serve_sequence **decodes; /* [seqs] */
    uint32_t decode_count;
    struct serve_sequence **prompts; /* [seqs], of this step */
    uint32_t prompt_count;
    uint32_t *owner; /* [2 * seqs] serial of whom a row was added for last */
    uint32_t serials;
    uint64_t step;
    int64_t *blocks; /* of all sequences */
    struct attn_blocks *lists;
    struct attn_builder_add_args *adds; /* [seqs] of this step, in order of rows */
    uint32_t add_count;
};

int serve_rows_init(struct serve_rows *rows, uint32_t seqs, uint32_t width, struct failure *err);
void serve_rows_finish(struct serve_rows *rows);

/* One that is idle, for a request; there are 2 * seqs of them. */
struct serve_sequence *serve_rows_take(struct serve_rows *rows, uint32_t request);
/* It has ended. */
void serve_rows_give(struct serve_rows *rows, struct serve_sequence *sequence);
/* Fills adds from the step's parts. */
void serve_rows_begin(struct serve_rows *rows, const struct scheduler_step *step);

#endif
