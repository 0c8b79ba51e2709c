/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * States from the inside. What all states of a model share is the core: backend, classes, memory of plans,
 * and staging. A set is the plans of all classes with their schedules: the core's, or with FlashInfer one per
 * captured size.
 */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "serving/layer.h"
#include "state-fields.h"

static inline uint64_t attn__round_up(uint64_t value, uint64_t alignment)
{
    return alignment < 2 ? value : (value + alignment - 1) / alignment * alignment;
}

static inline uint64_t attn__larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Memory of the backend that is owned. */
struct attn__block {
    struct attn_buffer buffer;
    uint64_t size;
};

/*
 * What a class may run in a step. A class that reads its cache has a second plan, over the new tokens alone,
 * for prompts whose blocks are in no table.
 */
enum attn__run_kind {
    ATTN__RUN_MAIN, /* the class' own problem: the whole step, or its decodes */
    ATTN__RUN_NEW,  /* prompts, from k_new and v_new */
    ATTN__RUNS
};

/* The plans of all classes. */
struct attn__plan_set {
    uint32_t count;               /* of classes */
    uint32_t batch;               /* sequences it is made for; 0: the problems' own maxima */
    struct attn_plan **plans;     /* [count][2]: the class' own, and the one over new tokens or NULL */
    struct attn_span *schedules;  /* [count][ATTN__RUNS] */
    struct attn__block memory;    /* of the schedules */
    struct attn_plan_sizes sizes; /* staging: of all runs; the others: the largest */
};

/* What a layer of a class needs of the step beside its runs. */
struct attn__class_step {
    struct attn_buffer slots; /* where k_new and v_new go */
    uint32_t slot_count;
    uint32_t skipped; /* query tokens of prompts before those of the decodes, where these have a run of their
                         own */
};

/* What a step in flight uses until its copies are done. */
struct attn__staging_block {
    void *memory;
    void *event; /* reached when the memory may be written again */
};

/* As many as steps may be in flight, taken in turn. */
struct attn__staging {
    struct attn__staging_block *slot; /* [count], or NULL: nothing is staged */
    uint32_t count;
    uint32_t next;  /* the block that the next step takes */
    uint64_t bytes; /* of each */
    bool pinned;
};

struct attn__state_core {
    uint32_t refs;
    uint32_t count; /* classes */
    struct attn_backend *backend;
    struct attn_problem *problems;    /* [count] resolved */
    struct attn_layer_class *classes; /* [count]; `problem` points into problems */
    struct attn_error *no_new;        /* [count]: why there is no plan over new tokens */
    struct attn_state_params params;  /* defaults filled in; group and cross are not to be used */
    struct attn_builder_group *groups;
    uint32_t cross_width;
    uint32_t cross_block;
    bool infer;
    uint32_t max_seqs; /* the largest of all classes */
    struct attn__plan_set *set;
    struct attn__block memory; /* scratch and counters, and FlashInfer's lengths */
    struct attn_scratch scratch;
    struct attn_span lens;     /* FlashInfer: i32 [groups][max_seqs] */
    struct attn_buffer starts; /* i32 [max_seqs + 1]: 0, 1, 2, ... for decodes of one token */
    int32_t *host_starts;
    struct attn__staging staging;      /* staging of plans, then FlashInfer's lengths */
    const struct attn_state *owner;    /* whose step the schedules hold */
    const struct attn_metadata *begun; /* what it was begun with */
    struct attn__class_step *steps;    /* [count] */
    struct attn_batch *batches;        /* [count][ATTN__RUNS] of that step; without sequences: no such run */
    struct attn_batch_host *hosts;
    /* The runs that there are, as attn_plan_prepare_many takes them. */
    const struct attn_plan **plan_list;
    const struct attn_batch **batch_list;
    struct attn_span *schedule_list;
};

/*
 * The buffers that graphs are captured with, shared by a state and its clones. A step is put into an image of
 * them on the host, which is copied at once.
 */
struct attn__capture {
    uint32_t refs;
    bool direct;  /* the image is the buffers themselves */
    bool initial; /* they hold what they held at first */
    struct attn__state_core *core;
    struct attn__capture_layout layout;
    struct attn__capture_place place;
    struct attn__staging images;
    struct attn__staging staging; /* one, for plans over the buffers, which a graph may keep */
    /* The step that is held. */
    const struct attn_metadata *metadata;
    uint64_t step;
    const char *image; /* NULL: only the device knows it */
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
int32_t attn__block_alloc(struct attn_backend *backend, uint64_t size, struct attn__block *out,
                          struct attn_error *err);
void attn__block_free(struct attn_backend *backend, struct attn__block *block);

/* ---------------------------------------------------------------- state-staging.c */

/* bytes 0: none. After a failure attn__staging_finish is due. */
int32_t attn__staging_init(struct attn__staging *staging, struct attn_backend *backend, uint32_t count,
                           uint64_t bytes, struct attn_error *err);
void attn__staging_finish(struct attn__staging *staging, struct attn_backend *backend);
/* The next block, NULL without any; ATTN_E_BUSY if its last copies are not done. */
int32_t attn__staging_take(const struct attn__staging *staging, struct attn_backend *backend, char **out,
                           struct attn_error *err);
/* Ends the use of the block that was taken last, whose copies are on the stream. Returns `status`, or why
 * not. */
int32_t attn__staging_mark(struct attn__staging *staging, struct attn_backend *backend, int32_t status,
                           void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- state-plans.c */

/*
 * The order of runs in a layer, in which they are prepared too, all classes before the next run: their
 * schedules lie in this order, so that those of a step of one kind can be copied at once.
 */
extern const enum attn__run_kind attn__run_order[ATTN__RUNS];
/* True if the class has prompts that read new tokens though its problem reads a cache. */
bool attn__class_has_new(const struct attn_problem *problem);
/* batch 0: the problems' maxima. */
int32_t attn__set_create(struct attn__state_core *core, uint32_t batch, struct attn__plan_set **out,
                         struct attn_error *err);
void attn__set_destroy(struct attn__state_core *core, struct attn__plan_set *set);
/* The plan of a run, NULL if the class has no such run. */
struct attn_plan *attn__set_plan(const struct attn__plan_set *set, uint32_t layer_class,
                                 enum attn__run_kind kind);
/* The member of a class' problem at fault, under the number of the class. */
int32_t attn__fail_class(uint32_t number, int32_t status, const struct attn_error *words,
                         struct attn_error *err);

/* ---------------------------------------------------------------- state-batch.c */

/*
 * The runs of every class of the core, from metadata, with a clone over its capture buffers. Lengths that
 * are worked out here go to `lens`, i32 [groups][max_seqs], of the core.
 */
int32_t attn__state_batches(const struct attn_state *state, const struct attn_metadata *metadata,
                            int32_t *lens, struct attn_error *err);

/* ---------------------------------------------------------------- state-prepare.c */

/* The state that a step is for: itself, or the clone of a graph's size. */
int32_t attn__state_find(struct attn_state *state, const struct attn_metadata *metadata,
                         struct attn_state **out, struct attn_error *err);
/* Puts a step into the buffers of a clone. */
int32_t attn__capture_put(const struct attn_state *clone, const struct attn_metadata *metadata, void *stream,
                          struct attn_error *err);
/* True if the buffers hold the step as it is now. */
bool attn__capture_holds(const struct attn__capture *capture, const struct attn_metadata *metadata);

/* ---------------------------------------------------------------- state-forward.c */

/* ATTN_E_STATE if no step of this state or a clone of it is begun. */
int32_t attn__state_owner(const struct attn_state *state, const char *what, struct attn_error *err);
/* Begins a step of exactly this state. */
int32_t attn__state_forward(struct attn_state *state, const struct attn_metadata *metadata, void *stream,
                            struct attn_error *err);

#endif
