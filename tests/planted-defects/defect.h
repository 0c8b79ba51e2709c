/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the files of the defective plugin share: the list of its defects, and the calls between its files.
 *
 * The plugin is small, complete and right. Linked with planted.o of one of the names below it has one fault,
 * at the place where somebody who writes kernels would make it. The checker has to find each of them.
 */
#ifndef DEFECT_H
#define DEFECT_H

#include <attn/plugin-util.h>
#include <stdatomic.h>
#include <stdbool.h>

enum defect {
    DEFECT_none,
    DEFECT_causal,        /* a token sees the key after its own */
    DEFECT_window,        /* the left side counts the token's own key */
    DEFECT_tail,          /* the last page is read to its end */
    DEFECT_padding_row,   /* rows are written in fours */
    DEFECT_scale_ignored, /* values are not scaled */
    DEFECT_scale_twice,   /* keys are scaled when they are loaded, and scores once more */
    DEFECT_offset32,      /* offsets in the cache are cut to 32 bits */
    DEFECT_split_batch,   /* keys are split by the number of query tokens of the whole batch */
    DEFECT_group,         /* groups are taken for powers of two */
    DEFECT_softcap_order, /* the cap comes after minus infinity was put in */
    DEFECT_sink,          /* the sink joins every split */
    DEFECT_lse_base,      /* the logarithm stays to base 2 */
    DEFECT_nan_leak,      /* weights of zero are multiplied instead of skipped */
    DEFECT_hole,          /* negative pages are used */
    DEFECT_claims_dim,    /* the query knows a limit that the kernel does not keep */
    DEFECT_refuses_dim,   /* the query wants multiples that the axes do not tell */
    DEFECT_descriptor,    /* a file stays open */
    DEFECT_prints,        /* a line for debugging is left */
    DEFECT_rounding,      /* the rounding mode stays changed */
    DEFECT_thread,        /* the worker is not told to end */
    DEFECT_host,          /* the first host is kept for ever */
    DEFECT_beyond_out,    /* columns are stored in fours */
    DEFECT_beyond_table,  /* the page after the last is fetched ahead */
    DEFECT_merge_order,   /* splits are merged as they arrive */
    DEFECT_positions,     /* positions of the queries are not read */
    DEFECT_memory,        /* sizes of allocations are cut to 32 bits */
    DEFECT_shared,        /* all threads read schedules from one place */
};

/* planted.c, the one file that differs between the plugins. */
extern __attribute__((visibility("hidden"))) const enum defect planted;
#define IS(name) (planted == DEFECT_##name)

/* Largest head dimension of the kernel. */
#define DIM_MAX 512u
/* Keys are split at multiples of this. */
#define SPLIT_KEYS 256u
/* Query tokens times splits of a sequence. */
#define SPLITS_MAX 32u
/* Of all blocks of a plan. */
#define ALIGNMENT 64u

struct pool;

struct attn_instance {
    const struct attn_host *host;
};

struct attn_backend_impl {
    const struct attn_instance *instance;
    struct pool *pool;
};

/* What a plan needs at most. */
struct limits {
    uint64_t items;
    uint64_t counters; /* query tokens whose keys are split */
    uint64_t slots;    /* partial results */
};

struct attn_plan_impl {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    struct limits limits;
    uint32_t hash; /* of the problem: a schedule is taken only by the plan that made it */
};

/* One query token and one split of its keys, all heads. */
struct item {
    uint32_t seq;
    uint32_t token;
    uint32_t split;
    uint32_t splits;
    uint32_t begin; /* keys */
    uint32_t end;
    uint32_t slot;    /* of split 0 */
    uint32_t counter; /* of the query token */
};

/* What prepare writes: this, then the items. */
struct schedule {
    uint32_t magic;
    uint32_t plan; /* hash */
    uint32_t seqs;
    uint32_t num_tokens;
    uint32_t count;
    uint32_t reserved;
    int64_t last; /* highest page, or token with kv_offsets */
    uint32_t more[8];
};
#define SCHEDULE_MAGIC UINT32_C(0x44454654)

/* Tickets of a query token whose keys are split. */
struct counter {
    _Atomic uint32_t begun;
    _Atomic uint32_t done;
};

/* A run: its arguments resolved. */
struct job {
    const struct attn_problem *problem;
    const struct attn_batch *batch;
    const struct attn_tensors *tensors;
    const struct attn_kv_desc *kv;
    const struct item *items;
    struct counter *counters;
    float *partial_out; /* [slot, head, head_dim_vo] */
    float *partial_lse; /* [slot, head] */
    uint64_t slots;
};

/* What one query token may see; the mask of one head. */
struct view {
    int64_t kv_len;
    int64_t position;
    int64_t left, right; /* -1: all */
    bool causal;
    bool square;
    const unsigned char *mask; /* its row, or NULL */
    uint64_t bit;              /* of column 0 */
    int64_t first, columns;    /* key of column 0 */
    uint32_t alibi;
    double slope;
    const struct job *job;
    uint32_t first_row; /* of the sequence */
};

static inline int32_t number_at(const struct attn_buffer *buffer, uint32_t index)
{
    return ((const int32_t *)(const void *)attn_util_at(buffer))[index];
}

static inline uint32_t size_of(uint32_t dtype)
{
    return dtype >> 11 & 31;
}

/* check.c: ATTN_OK, or an error that names what is wrong. A shape is tokens, heads, columns. */
int32_t check_address(const struct attn_buffer *buffer, uint32_t alignment, bool needed, const char *name,
                      struct attn_error *err);
int32_t check_span(const struct attn_span *span, uint64_t size, const char *name, struct attn_error *err);
int32_t check_tensor(const struct attn_tensor *tensor, const uint32_t shape[3], uint32_t size, bool written,
                     const char *name, struct attn_error *err);
int32_t check_cache(const struct attn_kv_desc *d, struct attn_error *err);
int32_t check_cache_fits(const struct attn_kv_desc *d, const struct attn_problem *p, struct attn_error *err);
/* batch.c: *last is the highest page, or token with kv_offsets, that a run will read; -1 = none. */
int32_t check_batch(const struct attn_problem *p, const struct attn_batch *batch, int64_t *last,
                    struct attn_error *err);

/* visible.c */
void view_init(struct view *view, const struct job *job, uint32_t seq, uint32_t token, uint32_t head);
bool view_sees(const struct view *view, int64_t key);
/* What ALiBi adds to a score. */
double view_bias(const struct view *view, int64_t key);

/* number.c: elements to and from f32; a scale for (outer, token, head). */
bool is_served(uint32_t dtype, bool is_cached);
void load_vector(uint32_t dtype, float *to, const void *from, uint32_t count);
void store_vector(uint32_t dtype, void *to, const float *from, uint32_t count);
float scale_at(const struct attn_scale *scale, int64_t outer, int64_t token, int64_t head);

/* attention.c: task number `index` of a run. */
void attend_item(void *arg, uint32_t index);

/* finish.c: takes one head of an item, NULL if it saw no key; ends an item. */
uint32_t begin_item(const struct job *job, const struct item *item);
void store_partial(const struct job *job, const struct item *item, uint32_t slot, uint32_t head,
                   const float *out, double lse);
void end_item(const struct job *job, const struct item *item);
double sink_of(const struct job *job, uint32_t head);

/* plan.c */
struct attn_plan_sizes sizes_of(const struct attn_plan_impl *plan);

/* query.c */
int32_t defect_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count);
int32_t defect_query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out);
/* False if numbers do not fit. */
bool limits_init(struct limits *limits, const struct attn_problem *problem);

/* plan.c, run.c, write.c, merge.c: entries of the tables. */
extern const struct attn_plan_table defect_plan;
int32_t defect_run(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                   const struct attn_tensors *tensors, const struct attn_kv_impl *kv,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err);
extern const struct attn_kv_table defect_kv;
extern const struct attn_merge_table defect_merge;

/* pool.c: one worker beside the caller. */
struct pool *pool_create(void);
void pool_destroy(struct pool *pool);
/* Calls fn(arg, i) for all i below n on the threads that `stream` names; returns when all are done. */
int32_t pool_execute(const struct attn_backend_impl *backend, void *stream, attn_task_fn fn, void *arg,
                     uint32_t n, struct attn_error *err);

#endif
