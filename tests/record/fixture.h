/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A call on the CPU plugin with pages in any order and gaps in its strides, and the files that it leaves. */
#ifndef RECORD_FIXTURE_H
#define RECORD_FIXTURE_H

#include <criterion/criterion.h>

#include "record/record.h"

enum {
    SEQS = 2,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 16,
    BLOCK = 4,
    PAGES = 9,
    WIDTH = 5,
    TOKENS = 4, /* 3 and 1 */
    KEYS = 11   /* of the first sequence; the second one has 5 */
};

/* Rows of q have a gap behind them, and pages of the cache have k and v side by side. */
struct fixture {
    char directory[64];
    char log[8192];
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_problem problem;
    struct attn_plan *plan;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc desc;
    struct attn_span schedule, scratch, counters;
    struct attn_scratch given;
    void *stream;
    struct attn_error err;
    int32_t q_offsets[SEQS + 1], kv_lens[SEQS], table[SEQS][WIDTH + 1];
    float q[TOKENS][HEADS + 1][DIM], out[TOKENS][HEADS][DIM];
    float cache[PAGES][2][BLOCK][KV_HEADS][DIM];
};

/* `option` is what follows the directory in ATTN_RECORD; NULL = nothing is recorded. */
struct fixture *fixture_open(const char *option);
void fixture_close(struct fixture *fixture);
int32_t fixture_run(struct fixture *fixture);
/* Files in the directory, and the path of file `number` in the order of their names. */
unsigned fixture_files(const struct fixture *fixture, unsigned number, char path[256]);
/* The only file, for free(). */
unsigned char *fixture_load(const struct fixture *fixture, size_t *out_size);

#endif
