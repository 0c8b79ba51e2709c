/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Decides what an engine computes in the next step: which sequences, how many tokens of each, in which
 * blocks.
 *
 * Requests wait until a batch slot and blocks are free. A step has one token of every sequence that
 * generates, and chunks of prompts that together are not longer than a chunk. Where blocks run out, the
 * sequence that came last gives up its own, and computes them again later or has them moved to the host
 * meanwhile. Samples of one prompt share its blocks; the first write into a shared block copies it. Full
 * blocks are found again by their content. Windowed groups give up what no later token sees.
 *
 * Way of a step: scheduler_step, then the engine moves blocks (out, in, copies, in this order) and runs the
 * parts, then scheduler_commit, then scheduler_append for each token that was chosen and scheduler_end for
 * each sequence that has ended. Nothing is random and no clock is read: the same calls have the same result.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "blocks.h"

enum { SCHEDULER_GROUPS = 4 };

struct scheduler_group {
    uint32_t blocks;
    uint32_t window; /* tokens that a token sees, itself included; 0 = all */
};

struct scheduler_options {
    uint32_t block; /* tokens of a block */
    uint32_t groups;
    struct scheduler_group group[SCHEDULER_GROUPS];
    uint32_t host_blocks; /* of each group, for sequences that gave up theirs; 0 = computed again */
    uint32_t max_seqs;    /* batch slots */
    uint32_t chunk;       /* prompt tokens of a step */
    uint32_t lookahead;   /* tokens beyond the next for which generating sequences have blocks */
    uint32_t requests;    /* sequences whose memory is made in advance; others allocate theirs */
    uint32_t tokens;      /* of each of these */
    bool reuse;           /* of full blocks; only with one group without window */
};

enum sequence_state { SEQUENCE_WAITS, SEQUENCE_RUNS, SEQUENCE_SWAPPED, SEQUENCE_ENDED };

/* Read only for the engine, but for `user`. */
struct scheduled {
    void *user;
    enum sequence_state state;
    uint32_t batch_slot; /* while it runs */
    int32_t *tokens;     /* prompt, then generated ones */
    uint32_t count;      /* of tokens */
    uint32_t prompt;     /* of them */
    uint32_t most; /* tokens that there ever are; the last one is never computed, unless it is the prompt's */
    uint32_t computed;  /* tokens whose keys are in the cache */
    uint32_t held;      /* entries of each block list */
    uint32_t unchanged; /* leading entries that are as in the last step that it had a part in */
    int32_t *blocks[SCHEDULER_GROUPS]; /* -1: behind the window */
    uint32_t trimmed[SCHEDULER_GROUPS];
    uint32_t published;      /* full blocks that were offered for reuse */
    uint64_t chain;          /* of these */
    uint64_t order;          /* of arrival */
    bool shares;             /* the block that the next token goes to may be another's too */
    uint32_t ahead;          /* tokens up to which the engine may go on by itself after its last part */
    struct scheduled *next;  /* of those that wait or are swapped, or are idle */
    struct scheduled **home; /* where it is idle, if its memory was made in advance */
};

/* One sequence's part of a step: tokens [first, first + count). Those up to the last one there is want a next
 * token.
 */
struct scheduled_part {
    struct scheduled *sequence;
    uint32_t first;
    uint32_t count;
};

struct block_move {
    uint32_t group;
    int32_t from;
    int32_t to;
};

struct block_moves {
    struct block_move *moves;
    uint32_t count;
    uint32_t room;
};

struct scheduler_step {
    const struct scheduled_part *parts;
    uint32_t part_count;
    uint32_t num_tokens;
    uint32_t prompt_tokens;
    struct block_moves out;    /* cache to host */
    struct block_moves in;     /* host to cache */
    struct block_moves copies; /* within the cache */
};

struct scheduler_counts {
    uint64_t recomputed; /* sequences that gave up their blocks */
    uint64_t swapped;
    uint64_t copied;       /* blocks */
    uint64_t hit_tokens;   /* found instead of computed */
    uint64_t asked_tokens; /* that were looked for */
};

struct scheduler;

int scheduler_create(const struct scheduler_options *options, struct scheduler **out, struct failure *err);
void scheduler_destroy(struct scheduler *s);

/*
 * A request of `prompt` tokens that ends with `most` tokens at the latest, prompt included. Fails if it could
 * not be served with all blocks to itself. What it returns is freed by scheduled_free.
 */
struct scheduled *scheduler_add(struct scheduler *s, const int32_t *tokens, uint32_t prompt, uint32_t most,
                                void *user, struct failure *err);
/* One more sample of a sequence that runs and has all its tokens computed: shares its blocks. */
struct scheduled *scheduler_fork(struct scheduler *s, struct scheduled *from, void *user,
                                 struct failure *err);

/* The next step; no parts if nobody wants any. Valid until the next call. */
const struct scheduler_step *scheduler_step(struct scheduler *s);
/* The step ran. */
void scheduler_commit(struct scheduler *s);
/*
 * Tokens that follow. Of several, which need as much lookahead and one more, all but the last were computed
 * too: the engine went on by itself. Not more than `most` allows.
 */
int scheduler_append(struct scheduled *sequence, const int32_t *tokens, uint32_t count, struct failure *err);
/*
 * Gives back everything but the tokens; not while a step runs, but after one that was given up. In any state:
 * to cancel is the same.
 */
void scheduler_end(struct scheduler *s, struct scheduled *sequence);
/*
 * Frees a sequence that has ended; NULL is nothing. Those that have not go with the scheduler, as do all
 * whose memory was made in advance.
 */
void scheduled_free(struct scheduled *sequence);

/* Sequences that have not ended. */
uint32_t scheduler_left(const struct scheduler *s);
const struct scheduler_counts *scheduler_get_counts(const struct scheduler *s);
/* Blocks of a group that are held. */
uint32_t scheduler_used(const struct scheduler *s, uint32_t group);
/* When all sequences have ended: every block was given back, as often as it was held. */
int scheduler_check_idle(const struct scheduler *s, struct failure *err);

#endif
