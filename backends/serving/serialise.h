/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Serialised steps: one builder writes them; builders of other processes read them, and check every number.
 */
#ifndef ATTN_SERVING_SERIALISE_H
#define ATTN_SERVING_SERIALISE_H

#include "builder.h"

/*
 * The field number of a record that comes with each block table: i32 [rows, 2], how many blocks a row shows,
 * and at which block of the sequence they begin. The cells behind them are 0.
 */
#define ATTN__SERIALISED_ROWS 0u

/* A serialised step that is being read. It may be unaligned, so that numbers are copied before use. */
struct attn__serialised {
    struct attn_builder_impl *b;
    const char *data;
    uint64_t size;
    struct attn_serialised_header header;
};

/* The builder's block table of a field; NULL for others. */
const struct attn__table *attn__serialise_table(const struct attn_builder_impl *builder, uint32_t field,
                                                uint32_t index);

/* How many records a field can have. */
uint32_t attn__serialise_count(const struct attn_step *step, uint32_t field);

/* The record of a field; false if there is none. */
bool attn__serialised_find(const struct attn__serialised *in, uint32_t field, uint32_t index,
                           struct attn_serialised_record *out);

/* Element i of the array that a record describes. */
static inline int64_t attn__serialised_at(const struct attn__serialised *in,
                                          const struct attn_serialised_record *record, uint64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (record->dtype == ATTN_INT64) {
        memcpy(&wide, in->data + record->offset + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, in->data + record->offset + i * sizeof narrow, sizeof narrow);
    return narrow;
}

/* Fills `in` and checks all of it against the builder. */
int32_t attn__serialised_check(struct attn__serialised *in, struct attn_builder_impl *builder,
                               const void *data, uint64_t size, struct attn_error *err);

/* Part of the check above: fields that disagree with each other would let kernels read out of bounds. */
int32_t attn__serialised_check_values(const struct attn__serialised *in, struct attn_error *err);

/* Refuses builders with ranks. */
int32_t attn__serialise_check_ranks(const struct attn_builder_impl *builder, struct attn_error *err);

int32_t attn__builder_serialise(const struct attn_builder_impl *builder, void *data, uint64_t capacity,
                                uint64_t *out_size, struct attn_error *err);
int32_t attn__builder_restore(struct attn_builder_impl *builder, const void *data, uint64_t size,
                              void *stream, struct attn_metadata_impl **out, struct attn_error *err);

#endif
