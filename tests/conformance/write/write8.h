/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a check of cache writes asks about 8-bit keys and values. */
#ifndef WRITE8_H
#define WRITE8_H

#include "conform.h"

/* One row of k_new or v_new, and the 8-bit vector that it becomes. */
struct row8 {
    unsigned char *from;
    uint32_t from_dtype;
    uint32_t to_dtype;
    uint32_t dim;
    bool own;                    /* the write finds its scale */
    double scale;                /* else the one that is given */
    unsigned char *stored_scale; /* own: where the cache keeps it; NULL if the row goes nowhere */
};

/* Puts the scales that a write only reads. */
void write8_place_scales(struct step *step);
/* Scales that a write finds hold the pattern of an output. */
void write8_begin(const struct step *step);
/* A row and its place in the cache; `what` is SCALED_K or SCALED_V, page -1 nowhere. */
struct row8 write8_row(struct step *step, uint32_t what, uint32_t from_dtype, unsigned char *from,
                       int64_t page, int64_t token, int64_t head);
void write8_fill(const struct row8 *row, uint64_t key);
/* Codes and scale of a written row; `exact`: division is correctly rounded. */
bool write8_check(const struct row8 *row, const unsigned char *codes, bool exact, char *why, size_t size);
/* Every scale that no row owns still holds the pattern. */
bool write8_end(struct step *step, char *why, size_t size);

#endif
