/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The buffers that graphs are captured with, and the metadata of a captured size over them. */
#ifndef ATTN_COMMON_STATE_FIELDS_H
#define ATTN_COMMON_STATE_FIELDS_H

#include "metadata.h"

/* One array: at an offset of the buffers. */
struct attn__capture_array {
    uint64_t offset;
    uint64_t elements;
    uint32_t size; /* bytes of one */
    uint32_t reserved;
};

struct attn__capture_group {
    uint32_t block;
    uint32_t width; /* columns of the table */
    struct attn__capture_array slots;
    struct attn__capture_array table;
    struct attn__capture_array indptr; /* FlashInfer: and the next two */
    struct attn__capture_array last_page_lens;
    uint64_t max_indices;
};

/*
 * Everything for graphs of up to max_batch sequences. What a step brings lies between `first` and `bytes` in
 * one piece: arrays of one element a sequence, then the rows of all block tables, row by row, then
 * FlashInfer's indices of one group behind those of the other. A step of few sequences thus ends early.
 * Before it is what no step changes.
 */
struct attn__capture_layout {
    uint32_t flavour;
    uint32_t groups;
    uint32_t max_batch;
    uint32_t max_len;
    uint32_t index_dtype;
    uint32_t cross_width; /* 0: no cross-attention */
    uint64_t bytes;
    uint64_t first;                    /* of what steps bring */
    uint64_t rows;                     /* where the rows of block tables begin */
    uint64_t row_stride;               /* bytes from one row to the next, the same in all tables */
    struct attn__capture_group *group; /* [groups] */
    struct attn__capture_array *lens;  /* [groups] */
    struct attn__capture_array starts; /* 0, 1, 2, ...: one token each */
    struct attn__capture_array encoder_lens;
    struct attn__capture_array cross_table;
    struct attn__capture_array indices; /* FlashInfer: of all groups, whose indptr say where theirs begin */
};

/* Lays out all arrays; false if they do not fit. block, width and max_indices of the groups are given. */
bool attn__capture_layout(struct attn__capture_layout *layout);
/* What the buffers hold at first, into an image of `bytes` zeroed bytes. */
void attn__capture_fill(const struct attn__capture_layout *layout, char *image);

/* The buffers, and on the host what they hold at first. */
struct attn__capture_place {
    char *host;
    struct attn_buffer device;
};

/* All fields of the metadata of a size; metadata->views has room for all groups. */
void attn__capture_fields(const struct attn__capture_layout *layout, const struct attn__capture_place *place,
                          const struct attn_problem *problem, uint32_t batch, bool cross,
                          struct attn_metadata_impl *metadata);

#endif
