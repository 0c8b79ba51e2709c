/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the modes of attn-bench share. */
#ifndef BENCH_H
#define BENCH_H

#include "attn/attn.h"
#include "ceilings.h"
#include "common-options.h"
#include "jsonout.h"
#include "output.h"

enum { PROBLEM_TEXT = 640 };

/* ---------------------------------------------------------------- bench-keys.c: KEY=VALUE arguments */

/* skew=LONG:COUNTxSHORT: a sequence of `longer` keys and `count` of `shorter`. */
struct bench_skew {
    uint32_t longer, count, shorter;
};

/* 0 or 1. */
struct bench_switch {
    uint8_t given, on;
};

/* Keys beside those of the problem string. 0 = not given. */
struct bench_keys {
    uint32_t seqs;  /* sequences */
    uint32_t ctx;   /* keys of a sequence, those of the step included */
    uint32_t q_len; /* query tokens of a sequence */
    struct bench_skew skew;
    uint32_t layers; /* caches visited in turn */
    uint32_t threads;
    uint32_t reps;
    uint32_t requests, chunk, blocks, host_blocks;
    struct bench_switch reuse, noop;
    const char *trace;          /* a file; NULL = not given */
    const char *speed;          /* a checked number; NULL = not given */
    char problem[PROBLEM_TEXT]; /* the rest, "" if there is none */
};

/*
 * Sorts the arguments into keys. `allowed` lists the own keys of the mode, separated by spaces, "problem" for
 * those of the problem string. False after a message that names the key and what is accepted.
 */
bool keys_parse(struct bench_keys *keys, const char *mode, const char *allowed, char **args, unsigned count);
/* True if the problem string has this key. */
bool keys_have(const struct bench_keys *keys, const char *key);

/* ---------------------------------------------------------------- bench-row.c: results */

/* One line of results. NAN = nothing to say. Times in microseconds. */
struct row {
    char name[96];
    const char *mode;
    char backend[64];
    char kernel[256];
    char problem[PROBLEM_TEXT];
    char batch[256];  /* what case_describe says */
    uint32_t threads; /* of a backend on the CPU; 0: nothing to say */
    double us_min, us_median, us_max;
    double gbps, tflops;
    double ceiling_gbps, ceiling_tflops;
    double roof_us, balance, roof_ratio;
    double error;
    /* What else the mode says: members of a JSON object, or lines of text if json is NULL; NULL: nothing. */
    void (*more)(struct jsonout *json, const void *arg);
    const void *arg;
};

void row_init(struct row *row, const char *name, const char *mode);
/* Takes times in seconds; sorts them. */
void row_set_times(struct row *row, double *seconds, uint32_t count);

/* One call of the program. */
struct bench {
    struct common_options common;
    const char *mode;
    char **args;
    unsigned arg_count;
    struct bench_keys keys;
    struct jsonout *json; /* NULL: text */
};

/* Prints the row, or adds it to the document. */
void bench_emit(struct bench *bench, const struct row *row);

/* ---------------------------------------------------------------- modes; each returns an enum exit_code */

int attention_mode(struct bench *bench); /* decode, prefill and mixed */
int ceilings_mode(struct bench *bench);
int compare_mode(struct bench *bench);
int dispatch_mode(struct bench *bench);
int load_mode(struct bench *bench);
int metadata_mode(struct bench *bench);
int serve_mode(struct bench *bench);

/* ---------------------------------------------------------------- noop-path.c */

/* Where the no-op plugin lies: beside this program, or where it was installed; free it. NULL with a message.
 */
char *noop_path(void);

#endif
