/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Replays a trace: scheduler, rows, builder, state and layers, with a clock between them.
 *
 * Way of a step: requests that have arrived go to the scheduler, which has at most twice as many as there are
 * batch slots; the scheduler composes a step; its blocks are moved; its parts become rows; the builder makes
 * metadata of them; the state plans; the layers run; what was computed is committed, and every sequence whose
 * tokens are all computed gets its next one, or ends.
 */
#ifndef SERVE_H
#define SERVE_H

#include "serve-model.h"
#include "serve-rows.h"
#include "serve-times.h"
#include "serve-trace.h"

/* Where the time of a step goes. */
enum serve_part {
    SERVE_ADMIT,    /* requests to the scheduler */
    SERVE_SCHEDULE, /* what runs in which blocks */
    SERVE_INPUT,    /* rows, and lists of blocks */
    SERVE_BUILDER,  /* metadata */
    SERVE_STATE,    /* plans */
    SERVE_LAYERS,   /* layer calls; with kernels where there are some */
    SERVE_COMMIT,   /* tokens appended, sequences ended */
    SERVE_TOTAL,    /* all of these */
    SERVE_PARTS
};

extern const char *const serve_part_names[SERVE_PARTS];

struct serve_options {
    const struct serve_trace *trace;
    struct serve_shape shape;
    uint32_t seqs; /* batch slots */
    uint32_t chunk;
    bool reuse;
    double speed; /* times as fast as the trace; 0 = nobody waits to arrive */
};

/* Times of one kind of steps. */
struct serve_times {
    struct times part[SERVE_PARTS];
};

struct serve {
    struct serve_options options;
    struct scheduler *scheduler;
    struct serve_rows rows;
    struct serve_model model;
    int32_t *tokens;  /* of one prompt */
    int32_t *sampled; /* [seqs] of one step */
    uint32_t next;    /* request to come */
    uint64_t began;   /* nanoseconds */
    uint64_t ended;
    uint64_t steps;
    uint64_t tokens_run; /* query tokens of all steps */
    uint64_t answered;   /* tokens generated */
    uint64_t finished;   /* requests */
    uint64_t hash;       /* of all parts, blocks and moves */
    double use;          /* sum over steps of the share of blocks that are held */
    double most_use;
    struct serve_times *all;  /* steps */
    struct serve_times *full; /* those in which as many sequences run as there are batch slots */
};

/* serve_finish may follow either way. */
int serve_init(struct serve *serve, const struct serve_options *options, struct failure *err);
void serve_finish(struct serve *serve);
/* One step; *out_more is false when all requests have ended. */
int serve_step(struct serve *serve, bool *out_more, struct failure *err);
/* After the last step: every block was given back. */
int serve_check(const struct serve *serve, struct failure *err);

#endif
