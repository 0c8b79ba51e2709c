/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The objects behind a state. All states of a model share a core: backend, layer classes, memory of plans,
 * and staging. A plan set has the plans of all classes and their schedules. The core owns one; with
 * FlashInfer each captured size has one of its own.
 */
#ifndef ATTN_STATE_H
#define ATTN_STATE_H

#include "attn/parallel.h"
#include "attn/serving.h"
#include "capture-layout.h"

static inline uint64_t attn__round_up(uint64_t value, uint64_t alignment)
{
    return alignment < 2 ? value : (value + alignment - 1) / alignment * alignment;
}

static inline uint64_t attn__larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Memory of the backend that its holder has to release. */
struct attn__allocation {
    struct attn_buffer buffer;
    uint64_t size;
};

/*
 * The runs that a class can have in a step. A class that reads its cache has a second plan, which reads new
 * keys and values alone, for prompts whose blocks no block table shows.
 */
enum attn__run_kind {
    ATTN__RUN_MAIN, /* the problem of the class: the whole step, or its decodes */
    ATTN__RUN_NEW,  /* prompts, from k_new and v_new */
    ATTN__RUNS
};

/* The plans of all classes. */
struct attn__plan_set {
    uint32_t count;               /* of classes */
    const struct attn_step *size; /* the captured size that the plans are for; NULL: the problems' maxima */
    struct attn_plan **plans;     /* [count][2]: the plan of the class, and the one for new tokens or NULL */
    struct attn_span *schedules;  /* [count][ATTN__RUNS] */
    struct attn__allocation memory; /* of the schedules */
    struct attn_plan_sizes sizes;   /* staging: the sum of all runs; the others: the largest */
};

/* What a layer of a class has to know of the step beside its runs. */
struct attn__class_step {
    struct attn_buffer slots; /* where k_new and v_new go */
    uint32_t slot_count;
    uint32_t skipped; /* prompt tokens that the main run leaves out because it has the decodes alone */
};

/* Host memory that the copies of one step read. */
struct attn__staging_block {
    void *memory;
    void *event; /* recorded behind the copies: the memory may be written again once it is reached */
};

/* A circular buffer of them, one for each step that may be in flight. */
struct attn__staging {
    struct attn__staging_block *blocks; /* [count]; NULL if there is nothing to stage */
    uint32_t count;
    uint32_t next;  /* the block that the next step takes */
    uint64_t bytes; /* of each */
    bool pinned;
};

struct attn__state_core {
    uint32_t refs;
    uint32_t count; /* classes */
    struct attn_serving_host host;
    struct attn_problem *problems;    /* [count], resolved */
    struct attn_layer_class *classes; /* [count]; their `problem` points into problems */
    struct attn_error *no_new;        /* [count]: why a class has no plan for new tokens */
    struct attn_state_params params;  /* defaults filled in; its group and cross are no longer valid */
    struct attn_builder_group *groups;
    uint32_t cross_width;
    uint32_t cross_block;
    const struct attn__flavour *flavour;
    uint32_t max_seqs;      /* the largest of all classes */
    struct attn_cp **ranks; /* [count] what each class exchanges parts with; NULL: keys are on one rank */
    uint32_t cp_rank;       /* of the collectives; cp_world 0: there are none */
    uint32_t cp_world;
    uint32_t cp_interleave; /* of steps; 0: any */
    bool cp_on_host;        /* they work on the host's memory, at once */
    struct attn__plan_set *set;
    struct attn__allocation memory; /* scratch and counters, and lengths */
    struct attn_scratch scratch;
    struct attn_span lens;     /* that follow from pages: i32 [groups][max_seqs] */
    struct attn_buffer starts; /* i32 [max_seqs + 1]: 0, 1, 2, ... for decodes of one token */
    int32_t *host_starts;
    struct attn__staging staging;           /* staging of plans, then lengths */
    const struct attn_state_impl *owner;    /* the state whose step the schedules are for */
    const struct attn_metadata_impl *begun; /* the metadata that this step was begun with */
    struct attn__class_step *steps;         /* [count] */
    struct attn_batch *batches; /* [count][ATTN__RUNS] of that step; seqs is 0 if there is no such run */
    struct attn_batch_host *hosts;
    /* The runs of the step, as attn_plan_prepare_many takes them. */
    const struct attn_plan **plan_list;
    const struct attn_batch **batch_list;
    struct attn_span *schedule_list;
};

/*
 * The buffers that graphs are captured with, shared by a state and its clones. A step is written into an
 * image of the buffers on the host, which one copy brings to the device.
 */
struct attn__capture {
    uint32_t refs;
    bool direct;  /* the buffers are host memory, and are their own image */
    bool initial; /* the buffers have their first contents */
    struct attn__state_core *core;
    struct attn__capture_layout layout;
    struct attn__capture_place place;
    struct attn__staging images;
    struct attn__staging staging; /* one block, for plans over the buffers; a graph may read it again */
    /* The step that the buffers have. */
    const struct attn_metadata_impl *metadata;
    uint64_t step;
    const char *image; /* its image; NULL if it was copied from device memory */
};

struct attn_state_impl {
    struct attn__state_core *core;
    struct attn__capture *capture;  /* of a clone; of a state between begin_capture and end_capture */
    struct attn__plan_set *set;     /* the core's, or of a FlashInfer clone its own */
    uint32_t batch;                 /* of a clone: sequences of its graph; 0: this is no clone */
    uint32_t tokens;                /* of a clone: query tokens of each sequence; 0: any mix */
    bool cross;                     /* of a clone: the graph has cross-attention */
    struct attn_state_impl *parent; /* of a clone; NULL once the parent is destroyed */
    struct attn_state_impl *clones; /* list of those that attn_state_clone returned */
    struct attn_state_impl *next;
    struct attn_state_impl
        *pending; /* clone of the latest capture metadata, until attn_state_clone takes it */
    struct attn_metadata_impl fields; /* of a clone: its capture metadata, which no builder made */
    struct attn_step_map no_map;      /* of that metadata: it has no index maps */
};

/* ---------------------------------------------------------------- state.c */

int32_t attn__state_create(const struct attn_serving_host *host, const struct attn_layer_class *classes,
                           uint32_t count, const struct attn_state_params *params,
                           struct attn_state_impl **out, struct attn_error *err);
struct attn_state_impl *attn__state_new(struct attn__state_core *core);
void attn__state_destroy(struct attn_state_impl *state);

/* ---------------------------------------------------------------- capture.c */

int32_t attn__state_begin_capture(struct attn_state_impl *state, uint32_t max_batch, void *stream,
                                  struct attn_error *err);
int32_t attn__state_end_capture(struct attn_state_impl *state, struct attn_error *err);
int32_t attn__state_capture_metadata(struct attn_state_impl *state,
                                     const struct attn_state_capture_args *args, void *stream,
                                     struct attn_metadata_impl **out, struct attn_error *err);
int32_t attn__state_clone(struct attn_state_impl *state, uint32_t batch, struct attn_state_impl **out,
                          struct attn_error *err);
int32_t attn__state_get_input(const struct attn_state_impl *state, uint32_t field, uint32_t index,
                              struct attn_view *out, struct attn_error *err);
void attn__capture_drop(struct attn__capture *capture);

/* ---------------------------------------------------------------- capture-mix.c */

/* Refuses a graph of any mix that the state was not made for. */
int32_t attn__mix_check_size(const struct attn__state_core *core, const struct attn_state_capture_args *args,
                             struct attn_error *err);
/* The most query tokens of a sequence in a graph of any mix of num_tokens. */
uint32_t attn__mix_max_q(const struct attn__state_core *core, uint32_t num_tokens);

/* ---------------------------------------------------------------- state-core.c */

int32_t attn__core_create(const struct attn_serving_host *host, const struct attn_layer_class *classes,
                          uint32_t count, const struct attn_state_params *params,
                          const struct attn__flavour *flavour, struct attn__state_core **out,
                          struct attn_error *err);
void attn__core_drop(struct attn__state_core *core);
int32_t attn__allocate(const struct attn_serving_host *host, uint64_t size, struct attn__allocation *out,
                       struct attn_error *err);
void attn__release(const struct attn_serving_host *host, struct attn__allocation *block);

/* ---------------------------------------------------------------- state-ranks.c */

/* Makes what the classes exchange parts with, if params->collectives is given. */
int32_t attn__ranks_create(struct attn__state_core *core, const struct attn_state_params *params,
                           struct attn_error *err);
void attn__ranks_destroy(struct attn__state_core *core);
/* Refuses a step that was built for other ranks than those of the collectives. */
int32_t attn__ranks_check_step(const struct attn__state_core *core, const struct attn_step *step,
                               struct attn_error *err);
/* Refuses collectives whose work graphs cannot hold, and those of a state that knows no interleave. */
int32_t attn__ranks_check_capture(const struct attn__state_core *core, struct attn_error *err);
/* Refuses a stream on which collectives of the host cannot be: they are made at once, not by a launch. */
int32_t attn__ranks_check_stream(const struct attn__state_core *core, void *stream, struct attn_error *err);
int32_t attn__state_wait(struct attn_state_impl *state, void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- state-staging.c */

/* With bytes 0 nothing is allocated. After a failure the caller calls attn__staging_finish. */
int32_t attn__staging_init(struct attn__staging *staging, const struct attn_serving_host *host,
                           uint32_t count, uint64_t bytes, struct attn_error *err);
void attn__staging_finish(struct attn__staging *staging, const struct attn_serving_host *host);
/* The next block, or NULL if there are none; ATTN_E_BUSY while its last copies are under way. */
int32_t attn__staging_take(const struct attn__staging *staging, const struct attn_serving_host *host,
                           char **out, struct attn_error *err);
/*
 * Records the event behind the copies of the block that was taken last and moves on to the next block.
 * Returns `status`, or if that is ATTN_OK what recording returned.
 */
int32_t attn__staging_mark(struct attn__staging *staging, const struct attn_serving_host *host,
                           int32_t status, void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- state-plans.c */

/*
 * The order of the runs of a layer. Plans are prepared in this order too, one run of all classes before the
 * next, and their schedules lie in it, so that one copy brings those of a run to the device.
 */
extern const enum attn__run_kind attn__run_order[ATTN__RUNS];
/* True if prompts of the class may read new keys and values although its problem reads a cache. */
bool attn__class_has_new(const struct attn_problem *problem);
/* Plans for the step of a captured size, or with NULL for the maxima of the problems. */
int32_t attn__set_create(struct attn__state_core *core, const struct attn_step *size,
                         struct attn__plan_set **out, struct attn_error *err);
void attn__set_destroy(struct attn__state_core *core, struct attn__plan_set *set);
/* The plan of a run, or NULL if the class has no such run. */
struct attn_plan *attn__set_plan(const struct attn__plan_set *set, uint32_t layer_class,
                                 enum attn__run_kind kind);
/* Passes on an error about the problem of a class, with the number of the class before its message. */
int32_t attn__fail_class(uint32_t number, int32_t status, const struct attn_error *inner,
                         struct attn_error *err);

/* ---------------------------------------------------------------- state-batch.c */

/*
 * Fills the batches of all classes of the core from a step; those of a clone point into its capture buffers.
 * Sequence lengths that follow from pages are written to `lens`, i32 [groups][max_seqs].
 */
int32_t attn__state_batches(const struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            int32_t *lens, struct attn_error *err);

/* ---------------------------------------------------------------- state-prepare.c */

/* The state that a step is for: `state` itself, or its clone of the size of the graph. */
int32_t attn__state_find(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                         struct attn_state_impl **out, struct attn_error *err);
/* Copies a step into the capture buffers of a clone. */
int32_t attn__capture_copy(const struct attn_state_impl *clone, const struct attn_metadata_impl *metadata,
                           void *stream, struct attn_error *err);
/* True if the buffers have this step, unchanged since it was copied. */
bool attn__capture_holds(const struct attn__capture *capture, const struct attn_metadata_impl *metadata);

int32_t attn__state_prepare(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            void *stream, struct attn_error *err);

/* ---------------------------------------------------------------- state-forward.c */

/* ATTN_E_STATE unless the step that was begun last is this state's or a clone's of it. */
int32_t attn__state_owner(const struct attn_state_impl *state, const char *what, struct attn_error *err);
/* Begins a step of this state; clones are not searched. */
int32_t attn__state_forward(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                            void *stream, struct attn_error *err);

int32_t attn__state_begin_forward(struct attn_state_impl *state, const struct attn_metadata_impl *metadata,
                                  void *stream, struct attn_error *err);
int32_t attn__state_get_step(const struct attn_state_impl *state, uint32_t layer_class,
                             struct attn_state_step *out, struct attn_error *err);

/* ---------------------------------------------------------------- layers: layer.c, layer-forward.c */

struct attn_layer_impl {
    struct attn_problem problem; /* resolved */
    struct attn_layer_class layer_class;
    struct attn_layer_desc desc;
};

/* ATTN_OK if a class is served: the backend accepts its problem, and steps have the keys that it reads. */
int32_t attn__class_ask(const struct attn_serving_host *host, const struct attn_problem *problem,
                        struct attn_error *err);
int32_t attn__layer_create(const struct attn_serving_host *host, const struct attn_layer_desc *desc,
                           struct attn_layer_impl **out, struct attn_error *err);
void attn__layer_destroy(struct attn_layer_impl *layer);
int32_t attn__layer_forward(const struct attn_layer_impl *layer, struct attn_state_impl *state,
                            const struct attn_metadata_impl *metadata, struct attn_kv *kv,
                            const struct attn_layer_tensors *tensors, void *stream, struct attn_error *err);

#endif
