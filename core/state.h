/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * States from the inside. What all states of a model share is the core: backend, classes, memory of plans,
 * and staging. A set is one plan per class with its schedules: the core's, or with FlashInfer one per
 * captured size.
 */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "layer.h"
#include "state-fields.h"

/* Memory of the backend that is owned. */
struct attn__block {
    struct attn_buffer buffer;
    uint64_t size;
};

/* One plan per class. */
struct attn__plan_set {
    uint32_t count;
    uint32_t batch; /* sequences it is made for; 0: the problems' own maxima */
    struct attn_plan **plans;
    struct attn_span *schedules;
    struct attn__block memory;    /* of the schedules */
    struct attn_plan_sizes sizes; /* staging: of all plans; the others: the largest */
};

/* What a step in flight uses until its copies are done. */
struct attn__slot {
    void *memory;
    void *event; /* reached when the memory may be written again */
};

struct attn__state_core {
    uint32_t refs;
    uint32_t count; /* classes */
    struct attn_backend *backend;
    struct attn_problem *problems;   /* [count] resolved */
    uint32_t *group_of;              /* [count] */
    struct attn_state_params params; /* defaults filled in; group and cross are not to be used */
    struct attn_builder_group *groups;
    uint32_t cross_width;
    bool infer;
    uint32_t max_seqs; /* the largest of all classes */
    struct attn__plan_set *set;
    struct attn__block memory; /* scratch and counters, and FlashInfer's lengths */
    struct attn_scratch scratch;
    struct attn_span lens;    /* FlashInfer: i32 [groups][max_seqs] */
    struct attn__slot *slots; /* [params.steps], or NULL: nothing is staged */
    uint64_t slot_bytes;
    bool pinned;
    uint32_t turn;                  /* the next slot */
    const struct attn_state *owner; /* whose step the schedules hold */
    struct attn_batch *batches;     /* [count] of that step */
    struct attn_batch_host *hosts;
    const struct attn_batch **batch_list;
};

/* The buffers that graphs are captured with, shared by a state and its clones. */
struct attn__capture {
    uint32_t refs;
    struct attn__state_core *core;
    struct attn__capture_layout layout;
    struct attn__capture_place place;
};

struct attn_state {
    struct attn__state_core *core;
    struct attn__capture *capture; /* of a clone; of a state while it captures */
    struct attn__plan_set *set;    /* the core's, or its own if its batch is not 0 */
    uint32_t batch;                /* of a clone; 0 = no clone */
    bool cross;                    /* a clone's: encoder and decoder */
    struct attn_state *parent;     /* of a clone, as long as it lives */
    struct attn_state *clones;     /* handed out, in no order */
    struct attn_state *next;
    struct attn_state *pending; /* of the capture metadata that was taken last */
    struct attn_builder face;   /* what a clone's capture metadata belongs to */
    struct attn_metadata_impl fields;
};

/* ---------------------------------------------------------------- state.c */

/* NULL handle, a child after fork, or a lost device. */
int32_t attn__state_begin(const struct attn_state *state, const char *what, struct attn_error *err);

/* ---------------------------------------------------------------- state-core.c */

int32_t attn__core_create(struct attn_backend *backend, const struct attn_layer_class *classes,
                          uint32_t count, const struct attn_state_params *params,
                          struct attn__state_core **out, struct attn_error *err);
void attn__core_drop(struct attn__state_core *core);
/* batch 0: the problems' maxima. */
int32_t attn__set_create(struct attn__state_core *core, uint32_t batch, struct attn__plan_set **out,
                         struct attn_error *err);
void attn__set_destroy(struct attn__state_core *core, struct attn__plan_set *set);
int32_t attn__block_alloc(struct attn_backend *backend, uint64_t size, struct attn__block *out,
                          struct attn_error *err);
void attn__block_free(struct attn_backend *backend, struct attn__block *block);

/* ---------------------------------------------------------------- state-batch.c */

/*
 * The batch of every class of the core, from metadata, with a clone over its capture buffers. Lengths that
 * are worked out here go to `lens`, i32 [groups][max_seqs], of the core.
 */
int32_t attn__state_batches(const struct attn_state *state, const struct attn_metadata *metadata,
                            int32_t *lens, struct attn_error *err);

/* ---------------------------------------------------------------- state-forward.c */

/* Begins a step of exactly this state. */
int32_t attn__state_forward(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                            struct attn_error *err);

#endif
