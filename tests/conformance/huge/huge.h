/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Memory of which only the touched pages exist, so that strides and page numbers may reach beyond 2^32 bytes.
 * Everything else in it is forbidden: an offset that lost its upper bits is caught where it is used.
 */
#ifndef HUGE_H
#define HUGE_H

#include "conform.h"

struct area {
    struct guarded *memory; /* of an arena, which frees it */
    uint8_t fill;
    uint64_t *pages; /* committed ones, counted from 1; a hash table */
    uint32_t page_count;
};

/* False if there is no address space. */
bool area_init(struct area *area, struct arena *arena, const char *name, uint64_t size, uint8_t fill);
void area_finish(struct area *area);
/* Makes the bytes [at, at + size) exist. */
unsigned char *area_commit(struct area *area, uint64_t at, uint64_t size);
/* Whether all that exists holds the fill. */
bool area_is_clean(const struct area *area);

/* Three dimensions of vectors, each at a multiple of its stride. */
struct grid {
    uint64_t counts[3];
    uint64_t bytes; /* of a vector */
    uint64_t unit;  /* strides are multiples of it */
    bool fixed[3];  /* broadcast: its stride stays 0 */
    int64_t strides[3];
    uint64_t size; /* up to the end of the last vector */
};

/* Puts at least 2^32 bytes between neighbours in one dimension, if any has two, and packs the others. */
void grid_spread(struct grid *grid, struct rng *rng);
/* Packs all three: far apart are those of large numbers. */
void grid_pack(struct grid *grid);

enum { HUGE_AREAS = 24 };

/* A step whose buffers were moved into such memory. */
struct huge_step {
    struct step step; /* shares with the original what was not moved */
    struct arena arena;
    struct area areas[HUGE_AREAS];
    uint32_t count;
    struct area *out, *lse;
    int64_t page_first, page_gap; /* page p of the original is page_first + p * page_gap */
    int64_t token_first;          /* dense runs: token t is token_first + t */
};

/* False if there is no address space. */
bool huge_init(struct huge_step *huge, const struct step *original, uint64_t seed);
/* Takes the results back to the original. False with a text if anything else was written. */
bool huge_collect(struct huge_step *huge, const struct step *original, char *why, size_t size);
void huge_finish(struct huge_step *huge);
/* huge-cache.c, huge-mask.c */
bool huge_place_cache(struct huge_step *huge, const struct step *original, struct rng *rng);
bool huge_place_mask(struct huge_step *huge, const struct step *original, struct rng *rng);
/* A new area at the end of the list, and where it begins: behind a random lead that is never touched. */
struct area *huge_area(struct huge_step *huge, const char *name, uint64_t size, uint8_t fill, struct rng *rng,
                       struct attn_buffer *out);
/* Moves one scale: of `counts` sequences or pages, tokens and heads. */
bool huge_place_scale(struct huge_step *huge, struct attn_scale *scale, const uint64_t counts[3], bool pages,
                      struct rng *rng);

#endif
