/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A case is a problem and a seed; it says what the sequences are and what every logical key holds, but not
 * where anything lies.
 */
#ifndef CASE_H
#define CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"
#include "oracle.h"

/* ---------------------------------------------------------------- random.c */

struct rng {
    uint64_t state;
};

uint64_t mix(uint64_t a, uint64_t b);
uint64_t rng_next(struct rng *rng);
/* 0 .. n - 1 */
uint32_t rng_below(struct rng *rng, uint32_t n);
bool rng_chance(struct rng *rng, uint32_t percent);
#define rng_pick(rng, list) ((list)[rng_below((rng), (uint32_t)(sizeof(list) / sizeof *(list)))])
/* Random order of 0 .. n - 1. */
void rng_shuffle(struct rng *rng, uint32_t *list, uint32_t n);
/* `count` elements of spread `factor`, a function of `key` alone. Positive ones lie around 1. */
void fill_vector(uint32_t dtype, void *to, uint32_t count, uint64_t key, double factor, bool positive);

/* ---------------------------------------------------------------- cases.c, batches.c */

/* Few columns have positive values alone: sums of so few can cancel to nearly nothing. */
enum { MAX_SEQS = 12, MAX_INJECTIONS = 3, PROBLEM_TEXT = 512, MAX_HEADS = 256, FEW_COLUMNS = 4 };

struct sequence {
    uint32_t q_len;
    uint32_t kv_len;
    uint32_t all_keys;   /* those of other ranks included */
    uint32_t first_page; /* paged: its pages in conform_case.pages */
    uint32_t pages;
    uint32_t first_slot;  /* dense, or from new keys alone: logical slot of key 0 */
    uint32_t new_slot;    /* cache+new: logical slot of the first new key */
    uint32_t first_query; /* of its positions in conform_case.positions */
    uint8_t causal;       /* where each sequence has its own */
    bool masked;          /* where there are masks */
};

/* NaN; or an infinite value; or the NaN of a key whose weight underflows. */
enum injection_kind { INJECT_Q = 1, INJECT_K, INJECT_V, INJECT_INFINITE, INJECT_BURIED };

/* Something not finite that a row is meant to see. */
struct injection {
    uint32_t kind;
    uint32_t sequence; /* q */
    uint32_t token;    /* q */
    uint32_t slot;     /* k, v: logical */
    uint32_t head;
    uint32_t dim;
};

/* Bits of conform_case.slots. */
#define SLOT_SEEN UINT8_C(1) /* some row sees it: holds numbers; all others hold poison */
#define SLOT_EDGE UINT8_C(2) /* first or last visible key of a chosen row: values are 32 times the rest */

/* What has a scale if its type has 8 bits. */
enum scaled { SCALED_Q, SCALED_K, SCALED_V, SCALED_OUT, SCALED_K_NEW, SCALED_V_NEW, SCALED };

/* Over which of sequence or page, token and head the values of a scale vary; the rest is broadcast. */
struct case_scale {
    uint32_t granularity; /* enum attn_granularity */
    bool outer;
    bool token;
    bool head;
    bool edges; /* scales of edges are 32 times the rest, not the codes */
    bool raw;   /* codes are any of the type */
    double base;
};

struct conform_case {
    struct attn_problem problem;
    char text[PROBLEM_TEXT];
    uint64_t seed;
    uint32_t count;
    struct sequence sequences[MAX_SEQS];
    int32_t *pages; /* logical page numbers, -1 = hole */
    uint32_t page_entries;
    uint32_t logical_pages;
    uint8_t *slots;
    uint32_t slot_count;
    bool equal;         /* from new keys alone: as many keys as queries everywhere */
    int32_t *positions; /* of query tokens, NULL if they are not given */
    float softmax_scale;
    double amplitude; /* of q */
    double shift;     /* added to every score, by the last column of q and k; 0 = none */
    uint8_t poison;   /* byte that fills what must not be read: NaN, or huge numbers */
    struct injection injections[MAX_INJECTIONS];
    uint32_t injection_count;
    float slopes[MAX_HEADS];
    double sinks[MAX_HEADS];
    uint32_t sinks_dtype;
    bool mask_heads; /* every head has a mask of its own, every row a row */
    bool mask_rows;
    bool mask_ranges; /* the mask of a row shows a range of keys, and adds nothing ... */
    bool mask_except; /* ... but for one key */
    bool infinite;    /* one of them: what is not finite in the reference is not specified */
    struct case_scale scales[SCALED];
    uint32_t cp_rank; /* keys sharded over ranks */
    uint32_t cp_world;
    uint32_t cp_interleave;
    const struct case_contents *contents; /* that stand in long.c, or NULL */
};

/* shapes.c: MLA caches, ranks, caches in chunks, on top of a generated problem. */
void shapes_generate(struct attn_problem *problem, uint64_t seed);
bool shapes_covered(const struct attn_problem *problem, const char **out_key);
void case_make_mla(struct conform_case *the_case);
/* ranks.c: the rank, and all keys of every sequence; `most_products` bounds the work of a run. */
void case_shard(struct conform_case *the_case, double most_products);

/* mask.c: which sequences have a mask, and by what it varies. */
void case_pick_mask(struct conform_case *the_case);
/* Heads that have different masks. */
uint32_t case_mask_heads(const struct conform_case *the_case);
/* Whether query token i sees key j of sequence n, holes aside. `sequence` tells the rules without masks. */
bool case_sees(const struct conform_case *the_case, const struct oracle_sequence *sequence, uint32_t n,
               uint32_t head, uint32_t i, uint32_t j);

/* scales.c. Where a value belongs in the numbering of the case. */
struct scale_place {
    int64_t outer; /* logical page; sequence of the case */
    int64_t token; /* in the page; slot of a key; token of a sequence */
    int64_t head;
    int64_t slot; /* of keys and values */
};

/* Makes some problems of 8 bits. */
void problem_pick_8bit(struct attn_problem *problem, uint64_t seed);
void case_pick_scales(struct conform_case *the_case, bool write);
/* The value of a scale: an f32; 1 without one. */
double case_scale_value(const struct conform_case *the_case, uint32_t what, const struct scale_place *place);

/* codes.c. A vector of queries, keys or values and the scale that it is stored with. */
struct scaled_vector {
    uint32_t what; /* enum scaled */
    uint32_t dtype;
    uint32_t count;
    void *to;
    double scale;
};

/* long.c: contents of its cases. */
struct case_contents {
    void (*fill_key)(const struct conform_case *the_case, const struct scaled_vector *k,
                     const struct scaled_vector *v, int64_t slot);
    void (*fill_query)(const struct conform_case *the_case, const struct scaled_vector *q, uint32_t row);
};
/* The byte that fills what must not be read: in 8 bits a NaN of the type, or a large number. */
uint8_t case_poison(const struct conform_case *the_case, uint32_t dtype);
void case_fill_vector(const struct conform_case *the_case, const struct scaled_vector *vector, uint64_t key,
                      double factor, bool positive);
/* Any NaN of the type; false if it has none. */
bool case_put_nan(const struct scaled_vector *vector, uint32_t dim);
/* The largest number of that sign where the type has no infinity. */
void case_put_infinity(const struct scaled_vector *vector, uint32_t dim, bool positive);
/*
 * shapes.c. Of an MLA cache the first columns, times `factor`: 0 in every query, so that loud values of
 * keys at edges leave the scores alone.
 */
void case_make_loud(const struct conform_case *the_case, const struct scaled_vector *vector, double factor);
/* Lengths of sequences that are not left to chance; with them nothing is shifted or injected either. */
struct fixed_lengths {
    uint32_t count;
    uint32_t q_len[MAX_SEQS];
    uint32_t kv_len[MAX_SEQS];
    bool shared;     /* all pages are the first sequence's */
    uint32_t prefix; /* or this many, and the others are own ones */
    bool holes;
};

/* What a generator may spend. */
struct effort {
    double products;       /* multiply-adds of one run */
    uint32_t elements;     /* of the cache */
    uint32_t long_percent; /* cases with thousands of keys */
};

/* lengths.c */
void case_set_lengths(struct conform_case *the_case, const struct fixed_lengths *lengths);
void case_pick_lengths(struct conform_case *the_case, struct rng *rng, const struct effort *effort,
                       bool write);

/* A random problem of the kind that can be laid out here. */
void problem_generate(struct attn_problem *problem, uint64_t seed);
/* Whether a resolved problem is of that kind. False: *out_key names what is not. */
bool problem_covered(const struct attn_problem *problem, const char **out_key);
/* Sequences and contents of a problem. `write` keeps to what a write by batch accepts. */
void case_init(struct conform_case *the_case, const struct attn_problem *problem, uint64_t seed,
               const struct effort *effort, bool write);
/* The same with given lengths. */
void case_init_fixed(struct conform_case *the_case, const struct attn_problem *problem, uint64_t seed,
                     const struct fixed_lengths *lengths);
void case_finish(struct conform_case *the_case);
/* Number of the first key that is read from k_new; the number of keys if none is. */
uint32_t case_first_new(const struct conform_case *the_case, uint32_t sequence);
/* Logical slot of a key, -1 for a hole. */
int64_t case_slot(const struct conform_case *the_case, uint32_t sequence, uint32_t j);

#endif
