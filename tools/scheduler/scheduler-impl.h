/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the scheduler share. */
#ifndef SCHEDULER_IMPL_H
#define SCHEDULER_IMPL_H

#include "scheduler.h"

/* Sequences in order of arrival. */
struct queue {
    struct scheduled *first;
    struct scheduled *last;
    uint32_t count;
};

struct scheduler {
    struct scheduler_options options;
    struct blocks cache[SCHEDULER_GROUPS];
    struct blocks host[SCHEDULER_GROUPS];
    struct scheduled **running; /* in order of arrival */
    uint32_t running_count;
    struct queue waiting;
    struct queue swapped;
    uint32_t *batch_slots; /* free ones */
    uint32_t slot_count;
    uint64_t arrivals;
    uint32_t left;
    struct scheduled_part *parts;
    struct scheduler_step step;
    struct scheduler_counts counts;
    struct scheduled *made; /* [options.requests] */
    struct scheduled *idle; /* of them */
    int32_t *made_memory;   /* their tokens and lists */
};

/* ---------------------------------------------------------------- pool.c */

int pool_make(struct scheduler *s, struct failure *err);
void pool_free(struct scheduler *s);
/* A fresh sequence of at most so many tokens; NULL with a failure. */
struct scheduled *pool_take(struct scheduler *s, uint32_t most, void *user, struct failure *err);

/* ---------------------------------------------------------------- sequence.c: the blocks of one sequence */

/* Tokens that are ever computed: not the last one, unless it is the prompt's. */
uint32_t sequence_end(const struct scheduled *sequence);
/*
 * Blocks for its first `tokens` tokens, its own where the next token is written. False, with nothing changed,
 * if there are too few.
 */
bool sequence_grow(struct scheduler *s, struct scheduled *sequence, uint32_t tokens);
/* Blocks of each group that it lacks for so many tokens. */
uint32_t sequence_lacks(const struct scheduler *s, const struct scheduled *sequence, uint32_t tokens);
/* Gives all blocks back to the cache, or to the host if it is swapped. */
void sequence_drop(struct scheduler *s, struct scheduled *sequence);
/* Moves its blocks to the host. False, with nothing changed, if there is no room. */
bool sequence_swap_out(struct scheduler *s, struct scheduled *sequence);
/* Back into the cache, if as many blocks and `spare` more are there. */
bool sequence_swap_in(struct scheduler *s, struct scheduled *sequence, uint32_t spare);
/* Holds the blocks that are there already; all of its tokens but the last may be found. */
void sequence_find(struct scheduler *s, struct scheduled *sequence);
/* Offers its full blocks to others. */
void sequence_publish(struct scheduler *s, struct scheduled *sequence);
/* Gives up what is behind the window. */
void sequence_trim(struct scheduler *s, struct scheduled *sequence);

/* ---------------------------------------------------------------- queue.c */

void queue_insert(struct queue *queue, struct scheduled *sequence);
void queue_remove(struct queue *queue, struct scheduled *sequence);
/* The sequence takes a batch slot among those that run. */
void running_insert(struct scheduler *s, struct scheduled *sequence);
void running_remove(struct scheduler *s, struct scheduled *sequence);

/* ---------------------------------------------------------------- compose.c */

void step_compose(struct scheduler *s);

#endif
