/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line of attn-generate. */
#ifndef GENERATE_ARGS_H
#define GENERATE_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct arguments {
    const char *model;
    const char *prompt;
    const char *toy; /* the reason why the toy model is used; NULL: it is not */
    const char *kv;
    uint32_t tokens;
    uint32_t block;
    uint32_t chunk;
    uint32_t threads; /* 0: not given */
    double temperature;
    uint64_t seed;
    bool raw;
};

enum { MOST_THREADS = 1024 };

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_MISSING = 3 };

/* Exits with EXIT_USAGE after a message when the command line is wrong. */
void arguments_parse(int argc, char **argv, struct arguments *out);

#endif
