/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The metadata of a step: a table of views, one for each field and cache group, and the numbers that a state
 * needs beside them. It belongs to a builder, and the views point at the builder's arrays.
 *
 * attn__field(metadata, ATTN_FIELD_X, group) reads a field. The prefill part and the decode part are metadata
 * of their own, with views over the same arrays.
 */
#ifndef ATTN_SERVING_METADATA_H
#define ATTN_SERVING_METADATA_H

#include <stdbool.h>

#include "attn/layer-types.h"

struct attn_builder_impl;

enum attn__scope { ATTN__BATCH, ATTN__GROUP, ATTN__MODALITY };

/* Bits of attn__field_info.flavours. */
#define ATTN__IN(flavour) (1u << (flavour))

struct attn__field_info {
    const char *name; /* NULL: no field has this number */
    enum attn__scope scope;
    uint32_t flavours;
};

/* [ATTN_FIELDS], indexed by enum attn_field. */
extern const struct attn__field_info attn__field_infos[];

static inline const char *attn__field_name(uint32_t field)
{
    return attn__field_infos[field].name;
}

struct attn_metadata_impl {
    struct attn_builder_impl *builder; /* NULL: of a capture */
    uint64_t step; /* of a whole: counts the steps that its builder has built, restored or advanced */
    uint32_t flavour;
    uint32_t groups;
    uint32_t modalities;
    uint32_t seqs;          /* sequences, padding of a graph included */
    uint32_t queries;       /* sequences without padding */
    uint32_t prefills;      /* prompts among them */
    uint32_t prompt_tokens; /* new tokens of prompts */
    uint32_t tokens;        /* new tokens, padding included. The array of query_start_loc has seqs + 1
                               entries, of which the view shows queries + 1. */
    uint32_t first_row;     /* row of sequence 0 in the block tables */
    uint32_t max_q;         /* largest number of new tokens of a sequence */
    uint32_t graph;         /* 1: for a captured graph */
    uint32_t prefills_without_table; /* prompts whose blocks no block table shows */
    struct attn_view *views;         /* [larger of groups and modalities][ATTN_FIELDS] */
};

/* `index` is the group or modality, or 0 for fields that exist once. */
static inline struct attn_view *attn__field(const struct attn_metadata_impl *metadata, uint32_t field,
                                            uint32_t index)
{
    return &metadata->views[(size_t)index * ATTN_FIELDS + field];
}

static inline const int32_t *attn__field_i32(const struct attn_metadata_impl *metadata, uint32_t field,
                                             uint32_t index)
{
    return (const int32_t *)attn__field(metadata, field, index)->host;
}

static inline void attn__set_number(struct attn_view *view, int64_t value)
{
    view->kind = ATTN_VIEW_NUMBER;
    view->value = value;
}

static inline void attn__set_null(struct attn_view *view)
{
    view->kind = ATTN_VIEW_NULL;
}

/* Copies a field to `out`; ATTN_E_INVALID if there is no such field, group or modality. */
int32_t attn__metadata_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                           struct attn_view *out, struct attn_error *err);

#endif
