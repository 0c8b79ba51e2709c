/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The state of a metadata builder. An add writes its sequence into the arrays of the step at once; a build
 * adds what depends on the whole step. Where flavours differ the code asks their record (flavour.h).
 */
#ifndef ATTN_SERVING_BUILDER_H
#define ATTN_SERVING_BUILDER_H

#include "attn/plugin.h"
#include "metadata.h"
#include "table.h"
#include "visible.h"

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

/* Where an array of the step lies in the memory of a copy. */
struct attn__array_place {
    struct attn_step_array *array;
    uint64_t offset;
    uint64_t capacity; /* elements */
    uint32_t dtype;
};

/* One cache group, or the cross group. */
struct attn__group {
    struct attn_builder_group params; /* defaults filled in */
    struct attn_step_group *step;     /* what the step has of it; NULL of the cross group */
    struct attn__table table;
    bool own_table;               /* the builder allocated the table of the device */
    bool own_cells;               /* the builder allocated the host's copy */
    uint64_t staged;              /* offset of the staging for changed cells, in the memory of the step */
    struct attn__member *members; /* [max_seqs] */
    struct attn_batch batch;      /* of a step that set_device described */
    uint32_t slots;               /* entries of the slot mapping so far */
    uint32_t longest;             /* cells of the longest row of the step */
    uint32_t paged;               /* flavours with pages: sequences that have some */
    uint32_t indices;             /* page indices so far */
    uint64_t total_blocks;        /* blocks of all sequences */
    int64_t seq_start;            /* sum of the sequence lengths so far */
};

struct attn_builder_impl {
    struct attn_builder_params params; /* defaults filled in; group and cross may be gone */
    const struct attn__flavour *flavour;
    struct attn_cp_shard shard;        /* of the keys: this rank's; world 0: all are here */
    struct attn_backend_impl *backend; /* NULL: host memory */
    const struct attn_memory_table *memory;
    const struct attn_kv_table *kv;
    bool direct;                  /* kernels read the host's arrays */
    struct attn__group *group;    /* [groups], and behind them the cross group if there is one */
    struct attn__group *cross;    /* or NULL */
    uint64_t *map_rows;           /* [modality_count] embeddings of the step so far */
    struct attn_step_array zeros; /* i32 [max_seqs], always 0 */
    struct attn__sequence *sequence;
    struct attn__array_place *places; /* of all arrays but the tables */
    uint32_t place_count;
    char **blocks;             /* [steps]: host memory with the arrays of a step */
    struct attn_buffer device; /* the arrays, unless direct */
    uint64_t bytes;            /* of one of `blocks` */
    uint64_t array_bytes;      /* the front part of it, which the device has too */
    uint64_t small_bytes;      /* the arrays at its front, which have a few elements a sequence */
    uint32_t copy;             /* index of the current one of `blocks` */
    bool pinned;

    /* The step, into which adds write at once, and what only the builder has to know of it. */
    struct attn_metadata_impl whole;
    uint32_t decode_tokens; /* without padding */
    uint32_t max_decode_q;
    uint32_t encoder_tokens;
    uint32_t max_encoder;
    bool hit;        /* some sequence had a prefix hit */
    bool adds_stale; /* the step was advanced or restored: members no longer describe it */
    bool on_device;  /* the step was described by set_device */
    bool host_only;  /* built with host_only: nothing of the step is on the device */
    struct attn_buffer positions;

    struct attn_metadata_impl prefill; /* parts of it */
    struct attn_metadata_impl decode;
    struct attn_step_group *step_groups; /* of whole, prefill and decode */
    struct attn_step_map *step_maps;
};

int32_t attn__builder_create(const struct attn_serving_host *host, const struct attn_builder_params *params,
                             struct attn_builder_impl **out, struct attn_error *err);
void attn__builder_destroy(struct attn_builder_impl *builder);
/* Points all arrays of the step at the current copy of it, wherever they were. */
void attn__builder_place(struct attn_builder_impl *builder);
/* Sets the numbers of the step and the sizes of its arrays; the block tables show `rows` rows. */
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

#endif
