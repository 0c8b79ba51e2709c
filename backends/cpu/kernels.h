/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The kernels' view of the CPU plugin: one run resolved to addresses, the function type of the attention
 * family, and the table that is dispatch and capability query at once (kernels.c, best row first).
 *
 * A kernel processes one work item: for every query token t < work->tokens and every query head of the
 * kv heads [kv_head, kv_head + kv_heads), attention over the visible keys in [key_begin, key_end). It finds
 * keys with cpu_find_keys, the visible range of a token with cpu_visible, what masks and ALiBi add to its
 * scores with cpu_bias_of_key, and hands each finished row to cpu_epilogue.
 */
#ifndef ATTN_CPU_KERNELS_H
#define ATTN_CPU_KERNELS_H

#include <stdbool.h>

#include "attn/plugin.h"
#include "caps.h"
#include "visible.h"
#include "work-item.h"

/* Keys of one tile: one accumulator takes at most this many before it is added to a span. */
#define CPU_TILE_KEYS 64u
/* Keys of one span: at most this many before the span is added to the total. */
#define CPU_SPAN_KEYS 512u

/* Scales of an 8-bit tensor or cache; base NULL: the scale is 1. */
struct cpu_scale {
    char *base;
    int64_t outer_stride; /* sequence, or page of a cache */
    int64_t token_stride;
    int64_t head_stride;
};

static inline float cpu_scale_at(const struct cpu_scale *scale, int64_t outer, int64_t token, int64_t head)
{
    const int64_t at = outer * scale->outer_stride + token * scale->token_stride + head * scale->head_stride;

    return scale->base != NULL ? *(const float *)(const void *)(scale->base + at) : 1.0f;
}

/*
 * Keys or values of a cache. A vector is contiguous, or in layout paged-x every x elements of it are,
 * x_stride bytes after the x before; token_stride then leads to the first x elements of the next token.
 */
struct cpu_cache {
    const char *base;
    int64_t page_stride;
    int64_t token_stride;
    int64_t head_stride;
    uint32_t dtype;
    uint32_t x; /* contiguous elements; 0: the whole vector */
    int64_t x_stride;
    struct cpu_scale scale;
};

/* Converts `count` f32 to a type, rounded to nearest even. */
typedef void (*cpu_store_fn)(uint32_t dtype, void *to, const float *from, uint32_t count);
void cpu_store(uint32_t dtype, void *to, const float *from, uint32_t count);

/* One run, resolved once before the tasks start; constant while they run. */
struct cpu_run {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    float scale;    /* softmax_scale */
    float softcap;  /* 0 = none */
    uint32_t group; /* query heads per kv head */

    const char *q; /* element (row, head, d) at q + row*q_token + head*q_head + d*size */
    int64_t q_token, q_head;
    const char *q_rope; /* columns from head_dim_vo on, or NULL: they are in q */
    int64_t q_rope_token, q_rope_head;
    struct cpu_scale q_scale;
    uint32_t q_scale_group; /* query heads per value of q_scale */
    struct cpu_scale out_scale;
    cpu_store_fn store; /* for rows of `out` */
    char *out;
    int64_t out_token, out_head;
    char *lse; /* f32, or NULL */
    int64_t lse_token, lse_head;

    struct cpu_cache k, v;         /* kv_source new: the new rows. mla: v is k */
    struct cpu_cache k_new, v_new; /* kv_source cache+new: the last q_len keys of a sequence; else no base */
    uint32_t addressing;
    uint32_t block;
    uint32_t block_shift; /* log2 of block, or 32 if it is no power of two */
    const char *table;    /* table: first row */
    int64_t table_stride;
    uint32_t table_width;
    const int32_t *indptr; /* csr */
    const void *indices;
    uint32_t index_dtype;
    const int32_t *kv_offsets;  /* dense, or NULL: sequence i begins at page i */
    const int32_t *global_lens; /* keys of all ranks, or NULL: all are here */
    struct attn_cp_shard shard;
    const void *positions; /* q_positions, or NULL */
    uint32_t position_dtype;

    const float *slopes; /* [heads], or NULL: no ALiBi */
    const char *sinks;   /* [heads], or NULL */
    uint32_t sinks_dtype;

    const char *mask; /* or NULL */
    uint32_t mask_dtype;
    uint32_t mask_packed;
    const int64_t *mask_starts; /* or NULL: by stride */
    int64_t mask_seq, mask_head, mask_row;

    float *partial_out; /* split workspace, partial O: f32 [split rows, head_dim_vo], normalised */
    float *partial_lse; /* partial LSE: f32 [split rows] */

    bool far; /* decode prefetches into the L2 cache, several steps ahead */
};

_Static_assert(CPU_TILE_KEYS == 64, "the keys of a tile are the bits of a word");

/*
 * Where the keys of a tile lie. Offsets are in bytes from the bases of run->k and run->v, of new keys beside
 * a cache too, and for kv head 0: a head is head * head_stride further, of k and v, or from entry first_new
 * on of k_new and v_new. Those of scales count from the bases of the scales.
 */
struct cpu_keys {
    uint64_t present; /* a bit for each key that is not in an invalid block; others have offsets of page 0 */
    uint32_t first_new;
    int64_t k[CPU_TILE_KEYS], v[CPU_TILE_KEYS];
    int64_t k_scale[CPU_TILE_KEYS], v_scale[CPU_TILE_KEYS];
};

/* Whether any scale of keys or values is not 1. */
static inline bool cpu_has_scales(const struct cpu_run *run)
{
    return run->k.scale.base != NULL || run->v.scale.base != NULL || run->k_new.scale.base != NULL ||
           run->v_new.scale.base != NULL;
}

/* Finds keys [first, first + count) of the sequence; count <= CPU_TILE_KEYS, first + count <= kv_len. */
void cpu_find_keys(const struct cpu_run *run, const struct attn_work_item *work, uint32_t first,
                   uint32_t count, struct cpu_keys *out);

/* The scale of entry i of a tile for a head: of `cached`, or from first_new on of `new_rows`. */
static inline float cpu_key_scale(const struct cpu_scale *cached, const struct cpu_scale *new_rows,
                                  const int64_t *at, const struct cpu_keys *keys, uint32_t i, uint32_t head)
{
    const struct cpu_scale *scale = i < keys->first_new ? cached : new_rows;

    return scale->base != NULL
               ? *(const float *)(const void *)(scale->base + at[i] + head * scale->head_stride)
               : 1.0f;
}

/* Keys of the work item's sequence, those of other ranks included. */
uint32_t cpu_all_keys(const struct cpu_run *run, const struct attn_work_item *work);

/* Position of query token t of the work item, in the numbering of the keys. */
int64_t cpu_position(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t);

/* Visible keys of query token t of the work item: [*lo, *hi), cut to its split. Empty if lo >= hi. */
void cpu_visible(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t *lo,
                 uint32_t *hi);

/* What one query token and head adds to scores: the row of a mask, and ALiBi. */
struct cpu_bias {
    const struct cpu_run *run;
    const char *row; /* of the mask; NULL = this sequence has none */
    uint64_t bit;    /* mask of bits: of column 0, counted from the row */
    bool square;
    int64_t first;    /* position of column 0 */
    int64_t columns;  /* of the mask */
    uint32_t lo, hi;  /* keys that causality and window allow */
    uint64_t token;   /* batch row of the sequence's first query token */
    int64_t position; /* of the query */
    double slope;     /* of the head; without ALiBi 0 */
};

void cpu_bias_init(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                   struct cpu_bias *out);
/*
 * Whether the mask lets a key be seen. *covered: it has a column for the key, and *value is what an additive
 * one adds. Causality and window count too, but for keys that a square mask covers.
 */
bool cpu_bias_mask(const struct cpu_bias *bias, uint32_t key, bool *covered, double *value);
/* The same with ALiBi, and *value is all that is added to the score. */
bool cpu_bias_of_key(const struct cpu_bias *bias, uint32_t key, double *value);
/* Values of a type from here on down hide a key: minus infinity, and the lowest number. */
float cpu_mask_hides(uint32_t dtype);

/*
 * Takes the row of query token t and query head h of a work item: o is the normalised f32 row (ignored if lse
 * is -inf), in which an underflow is 0 and not -0; lse is its natural log-sum-exp, -inf if no key was
 * visible. Sinks are added here, not by the kernel. Writes out and lse, or the partial result.
 */
void cpu_epilogue(const struct cpu_run *run, const struct attn_work_item *work, uint32_t t, uint32_t h,
                  const float *o, float lse);

/* Processes one work item. scratch: the row's bytes, 64-byte aligned, private to the thread, contents
 * undefined.
 */
typedef void (*cpu_attention_fn)(const struct cpu_run *run, const struct attn_work_item *work, void *scratch);

/* The list of levels of vector instructions; a test defines its own. */
#ifndef CPU_LEVELS
#define CPU_LEVELS "levels.def"
#endif

/* Rows of other architectures expand to nothing. */
#if defined(__x86_64__)
#define CPU_ON_x86_64(...) __VA_ARGS__
#else
#define CPU_ON_x86_64(...)
#endif
#if defined(__aarch64__)
#define CPU_ON_aarch64(...) __VA_ARGS__
#else
#define CPU_ON_aarch64(...)
#endif

/* Levels of vector instructions: CPU_LEVEL_avx2 and so on. */
enum cpu_level {
    CPU_LEVEL_NONE = 0, /* no vector instructions */
#define CPU_LEVEL(architecture_, name_, ...) CPU_LEVEL_##name_,
#include CPU_LEVELS
    CPU_LEVEL_COUNT,
};

/* Query rows (tokens times heads of a group) up to which a work item counts as decode. */
#define CPU_DECODE_ROWS 16u
/*
 * Query rows of any other work item, at most (tokens = rows / group, at least 1): of kernels with products of
 * vectors, and of tiles. Keys are staged once for all of them. Items have half as many, or a quarter, but no
 * fewer than half of the first, where there would not be this many whole ones for a thread.
 */
#define CPU_PREFILL_ROWS       384u
#define CPU_PREFILL_TILES_ROWS 768u
#define CPU_PREFILL_ITEMS      4u

/* Vectors of int8 of so many elements are read in place by all levels. */
#define CPU_PLACE_DIMS 16u

/* One row of the table. First row that fits wins; every row that does not yields a reason. */
struct cpu_kernel {
    struct attn__caps caps;
    cpu_attention_fn run;
    uint64_t (*scratch_bytes)(const struct attn_problem *problem);
    cpu_store_fn store;
    uint32_t level;        /* enum cpu_level */
    uint32_t prefill_rows; /* of a work item at most */
    bool no_lse;           /* a problem cannot have the log-sum-exp */
    bool in_place;         /* vectors have at least CPU_PLACE_DIMS elements, in one piece */
};

extern const struct cpu_kernel cpu_kernels[];
extern const uint32_t cpu_kernel_count;

/* kernels/reference.c: portable C, serves everything that the plugin serves. */
void cpu_attention_c(const struct cpu_run *run, const struct attn_work_item *work, void *scratch);
uint64_t cpu_attention_c_scratch(const struct attn_problem *problem);

/* kernels/level.c, once per level. */
#define CPU_LEVEL(architecture_, name_, ...)                                                                 \
    void cpu_decode_##name_##_run(const struct cpu_run *run, const struct attn_work_item *work,              \
                                  void *scratch);                                                            \
    uint64_t cpu_decode_##name_##_scratch(const struct attn_problem *problem);                               \
    void cpu_prefill_##name_##_run(const struct cpu_run *run, const struct attn_work_item *work,             \
                                   void *scratch);                                                           \
    void cpu_prefill_##name_##_rounded_run(const struct cpu_run *run, const struct attn_work_item *work,     \
                                           void *scratch); /* where products are of tiles, or rounded */     \
    uint64_t cpu_prefill_##name_##_scratch(const struct attn_problem *problem);                              \
    void cpu_store_##name_(uint32_t dtype, void *to, const float *from, uint32_t count);
#include CPU_LEVELS

#endif
