/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the modes of attn-bench share. */
#ifndef BENCH_H
#define BENCH_H

#include "attn/attn.h"
#include "bench-table.h"
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
    uint32_t seqs;   /* sequences */
    uint32_t ctx;    /* keys of a sequence, those of the step included */
    uint32_t q_len;  /* query tokens of a sequence */
    uint32_t prefix; /* keys that all sequences have in common */
    struct bench_skew skew;
    uint32_t layers; /* caches visited in turn */
    uint32_t threads;
    uint32_t reps;
    uint32_t cold; /* MiB of a cold set */
    uint32_t ranks;
    uint32_t requests, chunk, blocks, host_blocks;
    struct bench_switch reuse, noop;
    const char *transport;      /* a known name; NULL = not given */
    const char *pass;           /* the same */
    const char *trace;          /* a file; NULL = not given */
    const char *speed;          /* a checked number; NULL = not given */
    char problem[PROBLEM_TEXT]; /* the rest, "" if there is none */
};

/*
 * Sorts the arguments into keys. `allowed` lists the own keys of the mode, separated by spaces, "problem" for
 * those of the problem string. False after a message that names the key and what is accepted.
 */
bool keys_parse(struct bench_keys *keys, const char *mode, const char *allowed, char **args, unsigned count);
struct command_line;
/* What --complete offers of the keys that `allowed` lists; see complete.h. */
void keys_offer(const struct command_line *line, const char *allowed);
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
    uint32_t rounds; /* measured ones that the median is of; 0: nothing to say */
    double gbps, tflops;
    double ceiling_gbps, ceiling_tflops;
    double ceiling_min, ceiling_max; /* of the samples of a row that is a ceiling; text alone */
    double roof_us, balance, roof_ratio;
    double error;
    /* What else the mode says: members of a JSON object, or lines of text if json is NULL; NULL: nothing. */
    void (*more)(struct jsonout *json, const void *arg);
    const void *arg;
};

void row_init(struct row *row, const char *name, const char *mode);
/* Takes times in seconds; sorts them. */
void row_set_times(struct row *row, double *seconds, uint32_t count);

/* What the text so far is about; bench-text.c. */
struct bench_text {
    struct bench_table table;
    bool begun;
    const char *mode;
    char backend[64];
    uint32_t least_rounds, most_rounds; /* of rows with a share of a ceiling; 0: there was none */
    bool shares, narrowed;
    /* Of the mode that runs: */
    bool listed;          /* its rows are cases of a list, whose names tell the problem */
    unsigned name, batch; /* characters of the longest ones */
};

/* One call of the program. */
struct bench {
    struct common_options common;
    const char *mode;
    char **args;
    unsigned arg_count;
    struct bench_keys keys;
    struct jsonout *json; /* NULL: text */
    struct bench_text text;
    char *failure; /* of the last case that failed, so that no message comes twice; NULL: there was none */
};

/* Prints the row, or adds it to the document. */
void bench_emit(struct bench *bench, const struct row *row);
/* Says why something was not measured, and once only. */
void bench_complain(struct bench *bench, const char *what, const char *message);

/* ---------------------------------------------------------------- bench-text.c: rows as lines of tables */

/* A row's name where its mode is known: without it, "" if it is nothing else. */
const char *name_without_mode(const char *name, const char *mode);
void text_row(struct bench *bench, const struct row *row);
/* What the columns mean, after the last row. */
void text_end(const struct bench *bench);

/* ---------------------------------------------------------------- modes; each returns an enum exit_code */

int attention_mode(struct bench *bench); /* decode, prefill and mixed */
int ceilings_mode(struct bench *bench);
int compare_mode(struct bench *bench);
int dispatch_mode(struct bench *bench);
int cp_mode(struct bench *bench);
int load_mode(struct bench *bench);
int metadata_mode(struct bench *bench);
int serve_mode(struct bench *bench);

/*
 * bench-ceilings.c: threads of the ceilings, which are those of the backend: the given number, else
 * ATTN_THREADS, else the units of a CPU device that the context has loaded.
 */
uint32_t bench_threads(struct attn_context *context, uint32_t given);

/* bench-serve-row.c: `more` of its row; `serve` is a struct serve. */
void serve_say(struct jsonout *json, const void *serve);

/* ---------------------------------------------------------------- noop-path.c */

/* Where the no-op plugin lies: beside this program, or where it was installed; free it. NULL with a message.
 */
char *noop_path(void);

#endif
