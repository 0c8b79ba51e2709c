/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The table of attention kernels: dispatch and capability query in one, best row first; and what a family of
 * kernels does for a plan. A new family brings its functions (struct gpu_family), its modules, and its rows
 * in the vendor's kernels.c; the host code that vendors share does not change.
 */
#ifndef ATTN_GPU_HOST_KERNELS_H
#define ATTN_GPU_HOST_KERNELS_H

#include "caps.h"
#include "check.h"
#include "context.h"
#include "convert.h"
#include "plan.h"
#include "run.h"

struct gpu_family;

/* One row of the table. First row that fits wins; every row that does not yields a reason. */
struct gpu_kernel {
    struct attn__caps caps;
    const struct gpu_family *family;
    uint32_t arch;      /* oldest architecture, by the vendor's number */
    uint32_t last_arch; /* newest; 0: any */
    bool tensor_cores;
};

/* Which kernels ATTN_FLASHINFER_TENSOR_CORES allows; other flavours have AUTO. */
enum gpu_tensor_cores {
    GPU_TENSOR_CORES_AUTO, /* the first row that fits */
    GPU_TENSOR_CORES_ON,   /* none without tensor cores */
    GPU_TENSOR_CORES_OFF   /* none with them that is for decode alone */
};

extern const struct gpu_kernel gpu_kernels[];
extern const uint32_t gpu_kernel_count;

/* One kernel of a plan, with its part of the plan's blocks. */
struct gpu_part {
    const struct gpu_kernel *kernel;
    uint32_t phase;              /* enum attn__phase of its launches, or GPU_ALL_PHASES */
    uint32_t min_rows, max_rows; /* query rows of the sequences that it takes */
    uint32_t conversion;         /* enum gpu_conversion: which of these */
    uint32_t masks;              /* enum gpu_masks: of steps with which it runs */
    uint32_t ctas;               /* CTAs of the grid, where that is fixed */
    uint32_t threads;
    uint32_t shared_bytes;
    bool persistent;                    /* prefill: a CTA takes work tiles until none is left */
    uint32_t query_buffers;             /* of such a CTA */
    uint32_t rows;                      /* of a tile, where the family has several sizes */
    uint32_t splits;                    /* largest number of KV splits of a sequence; 0: 1 */
    uint32_t split_keys;                /* keys of a split; 0: keys are never split */
    gpu_handle attention;               /* functions, found when the plan is made */
    gpu_handle merge;                   /* combines splits; NULL where the kernel itself always does */
    struct gpu_split_rules split_rules; /* of the schedule, if there is one */
    uint32_t plan_kind;                 /* enum gpu_plan_kind */
    uint64_t schedule_offset, schedule_bytes;
    uint64_t scratch_offset, scratch_bytes;
    uint64_t counters_offset, counters_bytes;
    /* Of a part whose keys are converted, or of the one that takes what is not: the kernel that does it,
     * tokens of a page of the workspace and how many pages it holds, where that lies in scratch, and in the
     * schedule the first pages of sequences. */
    gpu_handle convert;
    uint32_t converted_block, converted_pages;
    uint64_t workspace_offset, first_pages_offset;
    uint64_t aside_offset; /* and what CTAs set aside of results, where shared memory is too small */
};

/* Addresses of the blocks of a plan, or offsets in those of another. */
struct gpu_blocks {
    uint64_t schedule, scratch, counters;
};

struct gpu_cascade;

struct attn_plan_impl {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    struct gpu_part parts[5]; /* decode, det: decode of more rows, prefill of keys that are converted and of
                                 others, each for masks that are ranges and for others; a single one takes
                                 all sequences */
    uint32_t part_count;
    struct attn_plan_sizes sizes;
    gpu_handle upload;           /* writes values of the host into device memory */
    gpu_handle planner;          /* writes schedules; NULL if no part has one */
    gpu_handle mask_ranges;      /* looks whether masks are ranges; NULL if no part is for these */
    uint64_t ranges_offset;      /* in scratch: the result, and GPU_ALIGNMENT bytes behind it the ranges */
    uint64_t mask_counts_offset; /* in counters */
    struct gpu_cascade *cascade; /* for steps with batch.cascade, or NULL */
    uint32_t units;              /* multiprocessors */
};

/*
 * What a family does. `plan` has problem, units and backend; the context is current. Functions that are NULL
 * are not needed by the family.
 */
struct gpu_family {
    /* False with a reason for a problem that the family does not take although it fits the row. NULL: none.
     */
    bool (*check)(const struct attn_problem *problem, struct attn_reason *why);
    /* The smallest shared memory, in bytes, with which a CTA of this row can run; the problem fits the
     * row. */
    uint32_t (*shared_of)(const struct attn_problem *problem, uint32_t phases);
    /* det: rows of the smallest decode tile that holds a query token. Sequences that it holds have a part of
     * their own, so that neither maxima nor companions choose their tile. NULL: all have the same tile. */
    uint32_t (*small_rows)(const struct attn_problem *problem);
    /* Whether prefill of many rows has keys and values converted first (convert.h). NULL: it never has. */
    int32_t (*converts)(const struct attn_plan_impl *plan, bool *out, struct attn_error *err);
    /* Whether its prefill can take the ranges of keys that masks show in place of these (mask-ranges.h). */
    bool takes_ranges;
    /* Finds functions, sets grid and block, how the schedule is planned, and the bytes of schedule, scratch
     * and counters. */
    int32_t (*create)(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err);
    /* Launches the kernel. `run` is complete, with this part's blocks. */
    int32_t (*launch)(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err);
};

/* The family that all vendors have. */
extern const struct gpu_family gpu_reference_family;

/* Adds a block to a plan's, at `*offset`. False if 64 bits do not hold the sum; too_large says so. */
bool gpu_plan_add_block(uint64_t *total, uint64_t *offset, uint64_t bytes);
int32_t gpu_plan_too_large(struct attn_error *err);

/* Launches the kernels of a plan. `run` is resolved and has no blocks yet; the context is current. */
int32_t gpu_plan_launch(const struct attn_plan_impl *plan, struct gpu_run *run,
                        const struct gpu_blocks *blocks, void *stream, struct attn_error *err);

/* Whether a step can have sequences that a part takes, by the most query tokens that one of them has. */
bool gpu_part_may_take(const struct gpu_part *part, uint32_t max_q, uint32_t group);
/* Whether all sequences of a step have max_q query tokens, as num_tokens tells where it counts no padding. */
bool gpu_all_have_max_q(const struct attn_plan_impl *plan, const struct gpu_batch *batch);

/* A launch of one dimension, two or three, with one argument of any size. */
int32_t gpu_launch(struct gpu_context *context, gpu_handle function, const uint32_t grid[3], uint32_t threads,
                   uint32_t shared_bytes, const void *argument, const char *name, void *stream,
                   struct attn_error *err);

/*
 * For families whose CTAs take work tiles of `rows` query rows with `columns` columns of results: reserve
 * sets the sizes of schedule, scratch and counters of a part whose ctas is set, launch launches its kernel.
 * A family that has a kernel which combines splits of prefill, `merge`, calls split_prefill first, and
 * split_evenly for a decode kernel that takes even splits.
 */
void gpu_work_tiles_split_prefill(const struct attn_plan_impl *plan, struct gpu_part *part);
void gpu_work_tiles_split_evenly(const struct attn_plan_impl *plan, struct gpu_part *part);
void gpu_work_tiles_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint32_t rows,
                            uint32_t columns);
int32_t gpu_work_tiles_launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                              const struct gpu_run *run, uint32_t rows, uint32_t columns, void *stream,
                              struct attn_error *err);

#define GPU_TENSOR_CORES_OPTION "ATTN_FLASHINFER_TENSOR_CORES"
/* Reads the option; *value is its text, or NULL if it is not set. False if the text is not accepted. */
bool gpu_tensor_cores_read(const struct attn_instance *instance, enum gpu_tensor_cores *out,
                           const char **value);
void gpu_tensor_cores_refuse(struct attn_reason *why, const char *got, const char *wanted);
/* The predicate by which a choice refuses rows of the table; NULL if it refuses none. */
typedef void gpu_option_check(const void *row, struct attn_reason *why);
gpu_option_check *gpu_tensor_cores_check(enum gpu_tensor_cores choice);

/* The row that serves a phase of a problem that a query accepted on this architecture (0 = any). */
const struct gpu_kernel *gpu_dispatch(const struct attn_problem *problem, uint32_t phase, uint32_t arch,
                                      enum gpu_tensor_cores choice);

#endif
