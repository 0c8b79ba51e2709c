/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The state of a metadata builder. It serves all flavours; where their rules differ the code asks for `flash`
 * (FlashAttention) or `infer` (FlashInfer). An add writes its sequence into the arrays of the step at once. A
 * build adds what depends on the whole step, and points the views at the arrays.
 */
#ifndef ATTN_SERVING_BUILDER_H
#define ATTN_SERVING_BUILDER_H

#include "attn/plugin.h"
#include "metadata.h"
#include "table.h"

/* Which blocks of a sequence its row of the block table shows. */
enum attn__shown {
    ATTN__SHOWN_NONE,          /* none */
    ATTN__SHOWN_ON_PREFIX_HIT, /* all if some sequence of the step has a prefix hit, else none
                                  (FlashAttention) */
    ATTN__SHOWN_LIST,          /* all, or the last window_blocks */
    ATTN__SHOWN_COMPUTED       /* those that were computed in earlier steps (FlashInfer) */
};

/* A sequence of the step in one cache group, as attn_builder_set_row needs it. */
struct attn__member {
    const int64_t *blocks; /* the caller's list; NULL if the row was left as it is */
    uint32_t count;        /* blocks of the sequence */
    uint32_t unchanged;
    uint32_t first; /* first position with a slot; positions before it have slot -1 */
    uint32_t slot;  /* where its slots begin in the slot mapping */
    uint32_t page;  /* FlashInfer: where its pages begin in the indices */
    uint32_t pages;
    uint32_t window_blocks;
    uint32_t shown; /* enum attn__shown */
    bool profile;   /* the sequence has no block table, as in vLLM's profile run */
};

/* A sequence of the step. */
struct attn__sequence {
    uint32_t seq_len;
    uint32_t context_len;
    uint32_t query_len;
    uint32_t prompt;
};

/* One array of the step. */
struct attn__array {
    uint64_t offset;   /* in the memory of the step */
    uint64_t capacity; /* elements */
    uint32_t dtype;
    uint32_t kind; /* ATTN_VIEW_LIST or ATTN_VIEW_ARRAY; 0: the builder has no such array */
    char *host;    /* of this step */
};

/* One cache group, or the cross group. */
struct attn__group {
    struct attn_builder_group params; /* defaults filled in */
    struct attn__table table;
    bool own_table;  /* the builder allocated the table of the device */
    bool own_cells;  /* the builder allocated the host's copy */
    uint64_t staged; /* offset of the staging for changed cells, in the memory of the step */
    struct attn__array arrays[ATTN_FIELDS];
    struct attn__member *members; /* [max_seqs] */
    struct attn_batch batch;      /* of a step that set_device described */
    uint32_t slots;               /* entries of the slot mapping so far */
    uint32_t longest;             /* cells of the longest row of the step */
    uint32_t max_decode;
    uint32_t paged;        /* FlashInfer: sequences with pages */
    uint32_t indices;      /* FlashInfer: page indices so far */
    uint64_t total_blocks; /* FlashInfer: blocks of all sequences */
    int64_t seq_start;     /* sum of the sequence lengths so far */
};

struct attn_builder_impl {
    struct attn_builder_params params; /* defaults filled in; group and cross may be gone */
    struct attn_backend_impl *backend; /* NULL: host memory */
    const struct attn_memory_table *memory;
    const struct attn_kv_table *kv;
    bool direct;                     /* kernels read the host's arrays */
    bool flash;                      /* FlashAttention's rules */
    bool infer;                      /* FlashInfer's rules */
    struct attn__group *group;       /* [groups], and behind them the cross group if there is one */
    struct attn__group *cross;       /* or NULL */
    struct attn__array *maps;        /* [modality_count][2]: sources and destinations */
    uint64_t *map_rows;              /* [modality_count] embeddings of the step so far */
    uint32_t *map_count;             /* [modality_count] pairs of the step so far */
    struct attn__array decode_start; /* i32 [max_seqs + 1]: query_start_loc of the decode part */
    struct attn__sequence *sequence;
    struct attn__array zeros;  /* i32 [max_seqs], always 0 */
    char **blocks;             /* [steps]: host memory with the arrays of a step */
    struct attn_buffer device; /* the arrays, unless direct */
    uint64_t bytes;            /* of one of `blocks` */
    uint64_t array_bytes;      /* the front part of it, which the device has too */
    uint64_t small_bytes;      /* the arrays at its front, which have a few elements a sequence */
    uint32_t step;             /* index of the current one of `blocks` */
    bool pinned;

    /* The step so far. */
    uint32_t seqs;
    uint32_t prefills;
    uint32_t prompt_tokens;
    uint32_t decode_tokens;
    uint32_t max_prefill;
    uint32_t max_q;
    uint32_t max_decode_q;
    uint32_t first_row;
    bool hit;        /* some sequence had a prefix hit */
    bool profile;    /* some sequence had no block table */
    bool adds_stale; /* the step was advanced or restored: members no longer describe it */
    bool on_device;  /* the step was described by set_device */
    bool host_only;  /* built with host_only: nothing of the step is on the device */
    struct attn_buffer positions;
    uint32_t encoder_tokens;
    uint32_t max_encoder;

    struct attn_metadata_impl whole;
    struct attn_metadata_impl prefill; /* parts of it */
    struct attn_metadata_impl decode;
    struct attn_view *views; /* of these three */
};

int32_t attn__builder_create(const struct attn_serving_host *host, const struct attn_builder_params *params,
                             struct attn_builder_impl **out, struct attn_error *err);
void attn__builder_destroy(struct attn_builder_impl *builder);
/* Points the arrays at the host memory of the next step. */
void attn__builder_next_copy(struct attn_builder_impl *builder);
/* Points the views of the whole step at the arrays; the block tables show `rows` rows. */
void attn__builder_show(struct attn_builder_impl *builder, const struct attn_builder_build_args *args,
                        uint32_t rows);
/* Copies the step to the device, on the stream. */
int32_t attn__builder_flush(struct attn_builder_impl *builder, void *stream, struct attn_error *err);
/* Copies the changed cells of the block tables alone. */
int32_t attn__builder_flush_tables(struct attn_builder_impl *builder, void *stream, struct attn_error *err);
int32_t attn__builder_reset(struct attn_builder_impl *builder, struct attn_error *err);
int32_t attn__builder_add(struct attn_builder_impl *builder, const struct attn_builder_add_args *args,
                          struct attn_error *err);
int32_t attn__builder_set_row(struct attn_builder_impl *builder, const struct attn_builder_row_args *args,
                              struct attn_error *err);
int32_t attn__builder_build(struct attn_builder_impl *builder, const struct attn_builder_build_args *args,
                            void *stream, struct attn_metadata_impl **out, struct attn_error *err);

static inline struct attn__array *attn__array(struct attn_builder_impl *builder, uint32_t field,
                                              uint32_t group)
{
    return &builder->group[group].arrays[field];
}

static inline int32_t *attn__i32(struct attn__group *group, uint32_t field)
{
    return (int32_t *)(void *)group->arrays[field].host;
}

static inline int64_t *attn__i64(struct attn__group *group, uint32_t field)
{
    return (int64_t *)(void *)group->arrays[field].host;
}

#endif
