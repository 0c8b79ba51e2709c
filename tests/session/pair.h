/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The same steps through attn_forward and through a plan of the same problem and maxima, byte for byte. */
#ifndef PAIR_H
#define PAIR_H

#include "attn/attn.h"
#include "attn/device.h"

enum { PAIR_SEQS = 6, PAIR_WIDTH = 4, PAIR_BLOCK = 16, PAIR_KEYS = PAIR_WIDTH * PAIR_BLOCK, PAIR_ROWS = 256 };

struct pair_step {
    uint32_t seqs;
    int32_t q_lens[PAIR_SEQS];  /* all 1: given as NULL */
    int32_t kv_lens[PAIR_SEQS]; /* all 0: given as NULL */
};

/* What a problem needs beside its string. */
struct pair_case {
    const char *problem;
    int handle;    /* 1: the cache is an attn_kv with scales of its own */
    int no_keys;   /* 1: only queries are given */
    float scale;   /* 0: the default */
    int no_extras; /* 1: none */
};

/* One way: what it writes. */
struct pair_side {
    struct attn_buffer k_cache, v_cache, out, lse, k_scales, v_scales;
    struct attn_kv *kv;
};

struct pair {
    struct pair_case sample;
    struct attn_session *session;
    struct attn_backend *backend;
    struct attn_problem problem, maxima;
    void *stream;
    struct attn_buffer q, k, v, sinks, slopes, mask;
    struct pair_side simple, full;
    struct attn_plan *plan;
    struct attn_plan_sizes sizes;
    struct attn_span schedule, staging;
    struct attn_scratch scratch;
    uint32_t row; /* of all tensors: where the step's tokens begin */
    uint32_t seed;
};

/* Ends the program where it cannot. `stream`: 1 = one of its own, on backends that have them. */
void pair_open(struct pair *pair, const struct pair_case *sample, int stream);
void pair_close(struct pair *pair);

/* New queries, keys and values, as another layer or step has. */
void pair_fill(struct pair *pair);
/* The arguments of attn_forward for a step; the arrays stay those of the last call. */
void pair_args(struct pair *pair, const struct pair_step *step, struct attn_forward_args *args);
/* Runs the simple way; its status. */
int32_t pair_forward(struct pair *pair, const struct pair_step *step);
/* Runs the full way. */
void pair_run(struct pair *pair, const struct pair_step *step);
/* 1 if out, lse and caches are the same. Waits. */
int pair_is_same(struct pair *pair);

#endif
