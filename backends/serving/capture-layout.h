/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The buffers that graphs are captured with, and the metadata of a captured size over them. */
#ifndef ATTN_SERVING_CAPTURE_LAYOUT_H
#define ATTN_SERVING_CAPTURE_LAYOUT_H

#include "metadata.h"
#include "visible.h"

/* One array of the buffers. */
struct attn__capture_array {
    uint64_t offset;
    uint64_t elements;
    uint32_t size; /* bytes of one */
    uint32_t reserved;
};

struct attn__capture_group {
    uint32_t block;
    uint32_t width; /* columns of the block table */
    struct attn__capture_array slots;
    struct attn__capture_array table;
    struct attn__capture_array rank_lens; /* with ranks, whose `lens` are of all keys */
    struct attn__capture_array indptr;    /* of flavours with pages, as the next two */
    struct attn__capture_array last_page_lens;
    uint64_t max_indices;
};

/*
 * The layout of the buffers for graphs of up to max_batch sequences. First come the arrays that no step
 * changes. What a step writes is contiguous, from `first` on: arrays with one element a sequence, then the
 * rows of all block tables, interleaved, then page indices, group after group. A step of few
 * sequences therefore needs a short copy only.
 */
struct attn__capture_layout {
    const struct attn__flavour *flavour;
    uint32_t groups;
    uint32_t max_batch;
    uint32_t max_len;
    uint32_t max_tokens; /* most query tokens of a sequence */
    uint32_t max_mixed;  /* most query tokens of a graph of any mix; 0: there are none */
    uint32_t index_dtype;
    uint32_t cross_width;       /* 0: no cross-attention */
    struct attn_cp_shard shard; /* this rank; world 0: keys are on one */
    uint64_t bytes;
    uint64_t first;                          /* where the part begins that steps write */
    uint64_t rows;                           /* where the rows of block tables begin */
    uint64_t row_stride;                     /* bytes from one row to the next, the same in all tables */
    struct attn__capture_group *group;       /* [groups] */
    struct attn__capture_array *lens;        /* [groups] */
    struct attn__capture_array starts;       /* [max_tokens][max_batch + 1]: multiples of 1, of 2, ... */
    struct attn__capture_array mixed_starts; /* [max_batch + 1]: each step of any mix writes them */
    struct attn__capture_array encoder_lens;
    struct attn__capture_array cross_table;
    struct attn__capture_array indices; /* of all groups; indptr tells where each begins */
};

/* Lays out all arrays; false if they do not fit 64 bits. block, width and max_indices of the groups are set.
 */
bool attn__capture_layout(struct attn__capture_layout *layout);
/* Places an array behind `bytes`; false if it does not fit. */
bool attn__capture_place_array(struct attn__capture_array *array, uint64_t elements, uint32_t size,
                               uint64_t *bytes);
/* Writes first, first + step, ... into an array. */
void attn__capture_fill_i32(char *image, const struct attn__capture_array *array, uint64_t count,
                            int32_t first, int32_t step);
/* Writes the first contents of the buffers into an image of `bytes` zeroed bytes. */
void attn__capture_fill(const struct attn__capture_layout *layout, char *image);

/* The buffers, and a host copy of their first contents. */
struct attn__capture_place {
    char *host;
    struct attn_buffer device;
};

/*
 * The step that a captured size shows over its buffers: seqs, num_tokens and max_q are set; group has room
 * for all groups, map for one that says there are no index maps. `tokens`: as of attn__capture_starts.
 */
void attn__capture_step(const struct attn__capture_layout *layout, const struct attn__capture_place *place,
                        const struct attn_problem *problem, uint32_t tokens, bool cross,
                        struct attn_step *step);

/* Where query offsets of sequences of `tokens` query tokens are; 0: of any mix. */
static inline struct attn__capture_array attn__capture_starts(const struct attn__capture_layout *l,
                                                              uint32_t tokens)
{
    struct attn__capture_array starts = l->starts;

    if (tokens == 0)
        return l->mixed_starts;
    starts.offset += (tokens - 1) * (l->max_batch + UINT64_C(1)) * sizeof(int32_t);
    return starts;
}

#endif
