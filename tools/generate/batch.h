/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Several sequences at once: the scheduler says what each step computes and where, the engine computes it. */
#ifndef GENERATE_BATCH_H
#define GENERATE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "compare.h"
#include "generate.h"
#include "sample.h"
#include "scheduler.h"

enum sequence_end {
    END_NONE,
    END_TEXT,   /* the model ended its text */
    END_LENGTH, /* as many tokens as wanted */
    END_CONTEXT /* the model's context is full */
};

/* The caller gives prompt, most, sampler and sample; the rest begins as zeros. */
struct sequence {
    struct tokens prompt;
    uint32_t most; /* tokens to generate */
    struct sampler sampler;
    bool sample;        /* one more text for the prompt of the sequence before it, whose blocks it shares */
    struct tokens made; /* without the token that ends the text */
    enum sequence_end end;
    struct scheduled *scheduled;
};

struct batch_options {
    uint32_t parallel;                  /* sequences at once */
    uint32_t chunk;                     /* prompt tokens of a step */
    bool reuse;                         /* of blocks that hold the same text */
    struct attention_options attention; /* the maxima are filled in */
    bool compare;                       /* every step through a second cache in f32 too */
    void (*on_step)(void *user);        /* after each step; NULL: nobody looks */
    void *user;
};

/* The time of a step goes to prompts and generated tokens by their numbers of rows. */
struct batch_result {
    uint32_t prompt_tokens;
    uint32_t made_tokens;
    double prompt_seconds;
    double made_seconds;
    uint32_t most_at_once; /* sequences in one step */
    struct scheduler_counts counts;
    struct comparison comparison;
};

/* Starts the engine, which is left running for what the caller wants to ask of it. */
int batch_run(struct engine *e, struct sequence *sequences, uint32_t count,
              const struct batch_options *options, struct batch_result *out, struct failure *err);

#endif
