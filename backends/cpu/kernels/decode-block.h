/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The state of one KV loop of decode. */
#ifndef ATTN_CPU_KERNELS_DECODE_BLOCK_H
#define ATTN_CPU_KERNELS_DECODE_BLOCK_H

#include "decode-tile.h"
#include "row-state.h"

/* Query rows whose state is kept at once; further kv heads take another KV loop. */
#define DECODE_ROWS 128u
/* Floats of queries, or of sums of a tile, of the kv heads that share a tile: as many as stay in the L1
 * cache. */
#define L1_FLOATS 6144u

/* Operands of tile instructions; see decode-products.h. */
struct decode_products {
    bool used;
    bool scores_in_int, sums_in_int; /* of int8; else bf16 */
    uint32_t q_terms, q_rows;        /* terms of a number of a query, and query rows that share a tile */
    uint32_t p_terms, p_rows;        /* the same of weights */
    uint32_t groups;                 /* tiles of queries of a kv head */
    uint32_t together, value_heads;  /* kv heads that share a tile, and staged values, at most */
    char *q;                         /* [kv head][group][piece of a key]: a tile each */
    float *unit;                     /* of each row: what its scores are multiplied with */
    float *query;                    /* one as f32 */
    bool *odd;                       /* rows whose scores are computed without tiles */
    char *keys;                      /* copies of two blocks of keys */
    char *v;                         /* [kv head][dim_vo / 16][keys]: tiles of values */
    uint32_t p_groups;               /* tiles of weights of a kv head, at most */
    char *p;                         /* [kv head][group][keys]: tiles of weights */
    float *p_unit;                   /* of each row: what sums of int8 are multiplied with */
    float *sums;                     /* four tiles of sums */
};

/* State of one KV loop. Query rows are numbered (kv head, token, query head of the group). */
struct decode_block {
    const struct cpu_run *run;
    const struct attn_work_item *work;
    uint32_t head, heads; /* kv heads of this loop */
    uint32_t together;    /* kv heads that share a tile */
    uint32_t rows;        /* query rows of a kv head */
    uint32_t dim, dim_vo;
    uint32_t q_stride, o_stride;
    enum vec_type k_type, v_type;
    float cap;      /* soft cap in units of log2, 0 = none */
    bool far;       /* prefetches are far ahead */
    bool ints;      /* scores are sums of integers: decode-int8.h */
    bool scaled;    /* scores and weights are multiplied by scales of keys and values */
    bool one_scale; /* they do not depend on the key */
    struct decode_rules rules;
    struct decode_products products;
    struct cpu_bias *bias;    /* of each row, if heads have values of their own */
    struct bias_slope *slope; /* of each row, if ALiBi is added by distance */
    float *factor;            /* of each row, for its values */
    uint64_t *seen;           /* keys of this tile that each row sees */
    float *values[2];         /* of tokens: of this tile, and of the next */
    float *q, *score, *tile, *span, *total;
    float *unit;                      /* of each row, if scores are sums of integers: their factor */
    float *m, *m_total, *l, *l_total; /* row max in units of log2, row sum */
    float *correction;                /* factor of a row's span for this tile */
};

/* Query rows of a loop at most. */
static uint32_t decode_rows(const struct attn_problem *problem)
{
    const uint64_t rows = (uint64_t)CPU_DECODE_ROWS * problem->kv_heads;
    return rows < DECODE_ROWS ? (uint32_t)rows : DECODE_ROWS;
}

#endif
