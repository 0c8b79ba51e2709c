/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step as bytes: struct attn_flat_header, written by one builder and read by others that trust nothing. */
#ifndef ATTN_COMMON_FLAT_H
#define ATTN_COMMON_FLAT_H

#include "builder.h"

/*
 * Record number of what rows of a block table show: i32 [rows, 2], how many cells, and from which block of
 * the sequence's list on. Cells behind them are 0.
 */
#define ATTN__FLAT_ROWS 0u

/* Bytes that are being read. They may lie at any address, so that everything is copied out. */
struct attn__flat {
    struct attn_builder_impl *b;
    const char *data;
    uint64_t size;
    struct attn_flat_header header;
};

/* Where a builder has the array of a field, or NULL; block tables and numbers have none. */
struct attn__array *attn__flat_array(struct attn_builder_impl *builder, uint32_t field, uint32_t index);
/* The block table of a field, or NULL. */
struct attn__table *attn__flat_table(struct attn_builder_impl *builder, uint32_t field, uint32_t index);

/* How many records of a field there can be. */
uint32_t attn__flat_count(const struct attn_metadata_impl *whole, uint32_t field);

/* The record of a field; false if there is none. */
bool attn__flat_find(const struct attn__flat *flat, uint32_t field, uint32_t index,
                     struct attn_flat_record *out);

/* Element of an array in the bytes. */
static inline int64_t attn__flat_at(const struct attn__flat *flat, const struct attn_flat_record *record,
                                    uint64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (record->dtype == ATTN_INT64) {
        memcpy(&wide, flat->data + record->offset + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, flat->data + record->offset + i * sizeof narrow, sizeof narrow);
    return narrow;
}

/* Fills `flat` and checks all of it against the builder; names what cannot be. */
int32_t attn__flat_check(struct attn__flat *flat, struct attn_builder_impl *builder, const void *data,
                         uint64_t size, struct attn_error *err);

/* Whether fields agree with one another, as far as memory depends on it. Called by attn__flat_check. */
int32_t attn__flat_check_values(const struct attn__flat *flat, struct attn_error *err);

int32_t attn__builder_serialise(const struct attn_builder_impl *builder, void *data, uint64_t capacity,
                                uint64_t *out_size, struct attn_error *err);
int32_t attn__builder_restore(struct attn_builder_impl *builder, const void *data, uint64_t size,
                              void *stream, struct attn_metadata_impl **out, struct attn_error *err);

#endif
