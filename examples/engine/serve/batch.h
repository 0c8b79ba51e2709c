/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Several sequences at once: the scheduler says what each step computes and where, the engine computes it. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "compare.h"
#include "engine.h"
#include "sample.h"
#include "scheduler.h"

enum sequence_end {
    END_NONE,
    END_TEXT,    /* the model ended its text */
    END_LENGTH,  /* as many tokens as wanted */
    END_CONTEXT, /* the model's context is full */
    END_CANCELLED,
    END_REFUSED /* it never ran */
};

/*
 * The caller gives prompt, most, sampler and sample; the rest begins as zeros, but for END_REFUSED with a
 * refusal. A sequence that cannot run is refused and does not keep others from running.
 */
struct sequence {
    struct tokens prompt;
    uint32_t most; /* tokens to generate */
    struct sampler sampler;
    bool sample;        /* one more text for the prompt of the sequence before it, whose blocks it shares */
    struct tokens made; /* without the token that ends the text */
    bool cancel;        /* set by the caller at any time: it ends after the step that runs */
    enum sequence_end end;
    struct failure refusal; /* why, of one that is refused */
    struct scheduled *scheduled;
};

/* How far a run is. */
struct batch_progress {
    uint32_t done;
    uint32_t running;
    uint32_t waiting;
    uint32_t made_tokens;
    double seconds;
    uint64_t blocks; /* of the caches of all groups */
    uint64_t used;   /* of them */
};

struct batch_options {
    uint32_t parallel;                  /* sequences at once */
    uint32_t chunk;                     /* prompt tokens of a step */
    uint32_t steps;                     /* tokens that are generated at one go; 0: one */
    bool reuse;                         /* of blocks that hold the same text, where all layers see it */
    struct attention_options attention; /* the maxima are filled in */
    bool compare;                       /* every step through a second cache in f32 too */
    const volatile sig_atomic_t *stop;  /* once it is not 0 the run ends; read before each layer; or NULL */
    void (*on_layer)(void *user);       /* before each layer of a step; or NULL */
    void (*on_step)(void *user, const struct batch_progress *progress); /* after each step; or NULL */
    void *user;
};

/* The time of a step goes to prompts and generated tokens by their numbers. */
struct batch_result {
    uint32_t prompt_tokens;
    uint32_t made_tokens;
    double prompt_seconds;
    double made_seconds;
    double sample_seconds; /* of these, choosing tokens */
    uint32_t most_at_once; /* sequences in one step */
    uint32_t refused;      /* sequences */
    uint32_t cancelled;
    uint64_t steps;
    struct scheduler_counts counts;
    struct comparison comparison;
};

/*
 * Starts the engine and leaves it running, so that the caller can ask it for information; if all sequences
 * are refused it is not started. Fails, too, if a block is still held when all have ended.
 */
int batch_run(struct engine *e, struct sequence *sequences, uint32_t count,
              const struct batch_options *options, struct batch_result *out, struct failure *err);

#endif
