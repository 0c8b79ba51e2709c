/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The builder of metadata from the inside. One for all flavours: they differ in a few rules, which are asked
 * for by name (`flash`, `infer`). An add writes its sequence into the step's arrays at once; a build adds
 * what only the whole step tells, and points the views at the arrays.
 */
#ifndef ATTN_COMMON_BUILDER_H
#define ATTN_COMMON_BUILDER_H

#include "attn/plugin.h"
#include "metadata.h"
#include "table.h"

/* Which of its blocks the row of a sequence shows. */
enum attn__shown {
    ATTN__SHOWN_NONE,    /* none */
    ATTN__SHOWN_LATER,   /* all, but only if some sequence of the step has a prefix hit (FlashAttention) */
    ATTN__SHOWN_LIST,    /* all, or the last window_blocks */
    ATTN__SHOWN_COMPUTED /* those that were computed before (FlashInfer) */
};

/* What a sequence of the step has in one cache group: what set_row must know to change it. */
struct attn__member {
    const int64_t *blocks; /* of the add; NULL if the row was to stay as it stands */
    uint32_t count;        /* blocks of the sequence */
    uint32_t unchanged;
    uint32_t first; /* first position that has a slot; all before it got -1 */
    uint32_t slot;  /* where its slots begin in the slot mapping */
    uint32_t page;  /* FlashInfer: where its pages begin in the indices */
    uint32_t pages;
    uint32_t window_blocks;
    uint32_t shown; /* enum attn__shown */
    bool profile;   /* no table */
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
    uint64_t offset; /* in the step's block */
    uint64_t room;   /* elements */
    uint32_t dtype;
    uint32_t kind; /* ATTN_VIEW_LIST or ATTN_VIEW_ARRAY; 0 = the builder has none */
    char *host;    /* of this step */
};

/* One cache group, or the cross group. */
struct attn__group {
    struct attn_builder_group given; /* defaults filled in */
    struct attn__table table;
    bool own_table;  /* the device's copy was allocated here */
    bool own_cells;  /* the host's was */
    uint64_t staged; /* where changed cells wait for their copy, in the step's block */
    struct attn__array arrays[ATTN_FIELDS];
    struct attn__member *members; /* [max_seqs] */
    struct attn_batch batch;      /* of a step on the device */
    uint32_t slots;               /* entries of the slot mapping so far */
    uint32_t longest;             /* cells of the longest row */
    uint32_t max_decode;
    uint32_t paged;   /* FlashInfer: sequences with pages, entries of the indices, */
    uint32_t indices; /* and blocks of all sequences */
    uint64_t total_blocks;
    int64_t seq_start;
};

struct attn_builder_impl {
    struct attn_builder_params params; /* defaults filled in; group and cross are not to be used */
    struct attn_backend_impl *backend; /* NULL: host memory */
    const struct attn_memory_table *memory;
    bool direct;                     /* kernels read the host's arrays */
    bool flash;                      /* FlashAttention's rules */
    bool infer;                      /* FlashInfer's rules */
    struct attn__group *group;       /* [groups], then the cross group if there is one */
    struct attn__group *cross;       /* or NULL */
    struct attn__array *maps;        /* [modality_count][2] sources and destinations */
    uint64_t *map_rows;              /* [modality_count] embeddings of the step so far */
    uint32_t *map_count;             /* [modality_count] pairs of the step so far */
    struct attn__array decode_start; /* i32 [max_seqs + 1]: query_start_loc of the decode part */
    struct attn__sequence *sequence;
    struct attn__array zeros;  /* i32 [max_seqs]: never written */
    char **blocks;             /* [steps] the arrays of a step, in host memory */
    struct attn_buffer device; /* the arrays, unless direct */
    uint64_t bytes;            /* of a block */
    uint64_t array_bytes;      /* the part of it that the device has too */
    uint64_t small_bytes;      /* arrays of a few elements a sequence come first */
    uint32_t step;             /* which of the blocks */
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
    bool hit;       /* some sequence had a prefix hit */
    bool profile;   /* some sequence had no table */
    bool moved;     /* the step advanced or was restored: its adds no longer say what it is */
    bool on_device; /* by set_device */
    bool host_only; /* the device has none of it */
    const struct attn_kv_table *kv;
    struct attn_buffer positions;
    uint32_t encoder_tokens;
    uint32_t max_encoder;

    struct attn_metadata_impl whole;
    struct attn_metadata_impl prefill; /* parts of it */
    struct attn_metadata_impl decode;
    struct attn_view *views; /* behind the three */
};

int32_t attn__builder_create(struct attn_backend_impl *backend, const struct attn_memory_table *memory,
                             uint32_t device_type, const struct attn_builder_params *params,
                             struct attn_builder_impl **out, struct attn_error *err);
void attn__builder_destroy(struct attn_builder_impl *builder);
/* Points the arrays at the block of the next step. */
void attn__builder_next_copy(struct attn_builder_impl *builder);
/* Points the views of the whole at the arrays; the block tables show `rows` rows. */
void attn__builder_show(struct attn_builder_impl *builder, const struct attn_builder_build_args *args,
                        uint32_t rows);
/* Copies what the device does not have yet, in order of the stream. */
int32_t attn__builder_flush(struct attn_builder_impl *builder, void *stream, struct attn_error *err);
/* The changed cells of the block tables alone. */
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
