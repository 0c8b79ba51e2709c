/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line of attn-generate. */
#ifndef ENGINE_ARGS_H
#define ENGINE_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common-options.h"

struct arguments {
    const char *model;
    const char *prompt;
    const char *batch; /* file of prompts; NULL: the one above */
    const char *audio; /* a WAV file, whose path is then the prompt; NULL: the prompt is text */
    const char *toy;   /* the reason why the toy model is used; NULL: it is not */
    const char *kv;
    const char *q;       /* type of activations at the attention */
    const char *backend; /* wanted list; NULL: as ATTN_BACKEND says */
    uint32_t tokens;
    uint32_t block;
    uint32_t chunk;
    uint32_t threads; /* 0: not given */
    uint32_t parallel;
    uint32_t blocks;      /* 0: as many as the sequences can need */
    uint32_t host_blocks; /* 0: the contents of blocks that are given up are computed again */
    uint32_t steps;
    uint32_t ranks;
    uint32_t toy_window; /* 0: all of its layers see all tokens */
    bool reuse;
    bool graph;
    bool ids; /* prompts are numbers of tokens */
    bool stats;
    double temperature;
    uint64_t seed;
    bool raw;
    bool compare_kv;
    struct common_options common;
};

enum {
    MOST_THREADS = 1024,
    MOST_PARALLEL = 1024,
    DEFAULT_PARALLEL = 8,
    MOST_BLOCKS = 1 << 24,
    MOST_STEPS = 64,
    MOST_RANKS = 64
};

/* Exits with EXIT_USAGE after a message when the command line is wrong. */
void arguments_parse(int argc, char **argv, struct arguments *out);

#endif
