/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The capability engine. A plugin brings a table of kernels, best first, and the few predicates that are its
 * own; from them follow the answer to a query and the choice of kernels, so that neither can promise what the
 * other does not keep. For each part of a problem there is one predicate, and it is here.
 */
#ifndef ATTN_COMMON_CAPS_H
#define ATTN_COMMON_CAPS_H

#include <stdbool.h>

#include "attn/types.h"

/* Element types as a set. */
enum attn__type {
    ATTN__TYPE_F32 = 1,
    ATTN__TYPE_F16 = 2,
    ATTN__TYPE_BF16 = 4,
    ATTN__TYPE_E4M3 = 8,
    ATTN__TYPE_E5M2 = 16,
    ATTN__TYPE_FNUZ = 32, /* e4m3fnuz, e5m2fnuz */
    ATTN__TYPE_INT8 = 64,
    ATTN__TYPE_BLOCKS = 128, /* of cached keys and values: q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl */
    ATTN__TYPES_16 = ATTN__TYPE_F16 | ATTN__TYPE_BF16,
    ATTN__TYPES_8 = ATTN__TYPE_E4M3 | ATTN__TYPE_E5M2 | ATTN__TYPE_FNUZ | ATTN__TYPE_INT8,
    ATTN__TYPES_ALL = ATTN__TYPE_F32 | ATTN__TYPES_16 | ATTN__TYPES_8
};

/* Features of a problem that a kernel has to implement, as a set. */
enum attn__feature {
    ATTN__HAS_ALIBI = 1,
    ATTN__HAS_MASK = 2,
    ATTN__HAS_NEW = 4,       /* kv_source new */
    ATTN__HAS_CACHE_NEW = 8, /* keys from two places */
    ATTN__HAS_PAGED_X = 16,  /* vectors that are not contiguous */
    ATTN__HAS_WINDOW = 32,
    ATTN__HAS_SOFTCAP = 64,
    ATTN__HAS_SINKS = 128,
    ATTN__HAS_POSITIONS = 256,
    ATTN__HAS_SEQ_CAUSAL = 512,
    ATTN__HAS_ALIGN_START = 1024,
    ATTN__HAS_MLA = 2048,
    ATTN__HAS_CP = 4096,
    ATTN__HAS_DENSE = 8192,
    ATTN__HAS_CSR = 16384,
    ATTN__HAS_TOKEN_HEAD = 32768, /* scales of cached keys or values per token and head */
    ATTN__HAS_DET = 65536,
    ATTN__HAS_ALL = 131071
};

/* Which sequences a kernel is taken for, as a set. */
enum attn__phase { ATTN__DECODE = 1, ATTN__PREFILL = 2 };

/* What a kernel serves. A plugin's row of its table begins with it. */
struct attn__caps {
    const char *name;
    uint32_t phases;   /* enum attn__phase */
    uint32_t q_types;  /* enum attn__type */
    uint32_t kv_types; /* of k and v, which have one type unless kv_mixed */
    uint32_t out_types;
    uint32_t kv_mixed;
    uint32_t dim_multiple; /* head_dim and head_dim_vo have to be multiples of it */
    uint32_t dim_max;
    uint32_t vo_max;    /* of head_dim_vo alone; 0 = dim_max */
    uint32_t dim_equal; /* 1: head_dim and head_dim_vo have to be equal, unless the cache is MLA */
    uint32_t features;  /* enum attn__feature that the kernel has */
    uint32_t needs;     /* features that a problem has to have for this kernel */
    uint32_t graph_level;
    uint32_t numerics; /* enum attn_numerics */
    uint32_t speed;    /* enum attn_speed */
};

/* A feature that kernels of a plugin may lack, and what is served instead. */
struct attn__caps_feature {
    uint32_t feature;
    const char *wanted;
};

/* What a plugin brings. Its own predicates fill `why` if they do not hold. */
struct attn__caps_table {
    const void *rows; /* best first, generic ones last; the first one that fits is taken */
    size_t row_size;
    uint32_t row_count;
    uint32_t decode_rows; /* query tokens * heads / kv_heads up to which a sequence is decode */
    const struct attn__caps_feature *features; /* in the order in which they are checked */
    uint32_t feature_count;
    const char *separator; /* between element types in a list of them */
    /* Checks a limit of the plugin, on the problem as a whole. */
    void (*check_limit)(const struct attn_problem *problem, struct attn_reason *why);
    /* Whether a row runs on a device; `device` is a number of the plugin's choice. */
    void (*check_device)(const void *row, uint32_t device, struct attn_reason *why);
    /* Whether the user's options allow a row; NULL if they allow all. */
    void (*check_option)(const void *row, struct attn_reason *why);
    /* Whether the device has the resources that the problem takes; NULL if it always has. */
    void (*check_resources)(const void *row, uint32_t device, const struct attn_problem *problem,
                            struct attn_reason *why);
};

void attn__caps_refuse(struct attn_reason *why, uint32_t code, const char *field, const char *got,
                       const char *wanted);

/*
 * A query is answered by three calls: begin, add for each reason about the device as a whole, and answer,
 * which checks the problem.
 */
void attn__caps_begin(struct attn_query *out, uint32_t cost_rank);
void attn__caps_add(struct attn_query *out, struct attn_reason *why);
void attn__caps_answer(const struct attn__caps_table *table, const struct attn_problem *problem,
                       uint32_t device, struct attn_query *out);

/* The row that serves a phase (enum attn__phase) of a problem that a query accepted, or NULL. */
const void *attn__caps_find(const struct attn__caps_table *table, const struct attn_problem *problem,
                            uint32_t device, uint32_t phase);

#endif
