/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The table of attention kernels: dispatch and capability query in one, best row first; and what a family of
 * kernels does for a plan. A family brings its functions here and its rows to the vendor's kernels.c;
 * nothing else of the plugin knows it.
 */
#ifndef ATTN_GPU_HOST_KERNELS_H
#define ATTN_GPU_HOST_KERNELS_H

#include "check.h"
#include "context.h"
#include "plan.h"
#include "run.h"

/* Element types as a set. */
enum gpu_type {
    GPU_TYPE_F32 = 1,
    GPU_TYPE_F16 = 2,
    GPU_TYPE_BF16 = 4,
    GPU_TYPE_E4M3 = 8,
    GPU_TYPE_E5M2 = 16,
    GPU_TYPE_FNUZ = 32, /* e4m3fnuz, e5m2fnuz */
    GPU_TYPE_INT8 = 64,
    GPU_TYPES_16 = GPU_TYPE_F16 | GPU_TYPE_BF16,
    GPU_TYPES_8 = GPU_TYPE_E4M3 | GPU_TYPE_E5M2 | GPU_TYPE_FNUZ | GPU_TYPE_INT8,
    GPU_TYPES_ALL = GPU_TYPE_F32 | GPU_TYPES_16 | GPU_TYPES_8
};

/* What of a problem a kernel has to do itself, as a set. */
enum gpu_feature {
    GPU_ALIBI = 1,
    GPU_MASK = 2,
    GPU_NEW = 4,       /* kv_source new */
    GPU_CACHE_NEW = 8, /* keys from two places */
    GPU_PAGED_X = 16,  /* vectors in pieces */
    GPU_WINDOW = 32,
    GPU_SOFTCAP = 64,
    GPU_SINKS = 128,
    GPU_POSITIONS = 256,
    GPU_SEQ_CAUSAL = 512,
    GPU_ALIGN_START = 1024,
    GPU_MLA = 2048,
    GPU_CP = 4096,
    GPU_DENSE = 8192,
    GPU_CSR = 16384,
    GPU_TOKEN_HEAD = 32768, /* scales of cached keys or values per token and head */
    GPU_DET = 65536,
    GPU_FEATURES = 131071
};

struct gpu_family;

/* One row of the table. First row that fits wins; every row that does not yields a reason. */
struct gpu_kernel {
    const char *name;
    const struct gpu_family *family;
    uint32_t variant;  /* the family's */
    uint32_t arch;     /* least architecture, by the vendor's number */
    uint32_t phases;   /* enum gpu_phase, as a set */
    uint32_t q_types;  /* enum gpu_type */
    uint32_t kv_types; /* of k and v, which are alike unless kv_mixed */
    uint32_t out_types;
    uint32_t kv_mixed;
    uint32_t dim_multiple; /* head_dim and head_dim_vo are multiples of it */
    uint32_t dim_max;
    uint32_t vo_max;    /* of head_dim_vo alone; 0 = dim_max */
    uint32_t dim_equal; /* 1: head_dim and head_dim_vo have to be equal, but for an MLA cache */
    uint32_t features;  /* enum gpu_feature that the row does */
    uint32_t needs;     /* those without which it is not made for a problem */
    uint32_t graph_level;
    uint32_t numerics; /* enum attn_numerics */
};

extern const struct gpu_kernel gpu_kernels[];
extern const uint32_t gpu_kernel_count;

/* One kernel of a plan, with its share of the plan's blocks. */
struct gpu_part {
    const struct gpu_kernel *kernel;
    uint32_t phase; /* enum gpu_phase of its launches */
    uint32_t ctas;  /* the family's: extent of a fixed grid */
    uint32_t threads;
    uint32_t shared_bytes;
    uint32_t splits;      /* most parts of the keys of a sequence; 0 = 1 */
    uint32_t split_keys;  /* keys of a part; 0 = never cut */
    gpu_handle attention; /* functions, found when the plan is made */
    gpu_handle merge;
    struct gpu_cuts cuts; /* of the schedule, if there is one */
    uint32_t plan_kind;   /* enum gpu_plan_kind */
    uint64_t schedule_offset, schedule_bytes;
    uint64_t scratch_offset, scratch_bytes;
    uint64_t counters_offset, counters_bytes;
};

struct attn_plan_impl {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    struct gpu_part parts[2]; /* few rows, many rows; one alone takes all */
    uint32_t part_count;
    struct attn_plan_sizes sizes;
    gpu_handle put;     /* writes values of the host into device memory */
    gpu_handle planner; /* writes schedules; NULL if no part has one */
    uint32_t units;     /* multiprocessors */
};

/*
 * What a family does. `plan` has problem, units and backend; the context is current. Functions that are NULL
 * are not needed by the family.
 */
struct gpu_family {
    /* The least bytes of shared memory that a CTA of a row with these phases can have; the problem fits the
     * row. */
    uint32_t (*shared_of)(const struct attn_problem *problem, uint32_t phases);
    /* Finds functions, sets grid and block, how the schedule is planned, and the bytes of schedule, scratch
     * and counters. */
    int32_t (*create)(const struct attn_plan_impl *plan, struct gpu_part *part, struct attn_error *err);
    /* Launches the kernel. `run` is whole, with this part's blocks. */
    int32_t (*launch)(const struct attn_plan_impl *plan, const struct gpu_part *part,
                      const struct gpu_run *run, void *stream, struct attn_error *err);
};

/* The family that all vendors have. */
extern const struct gpu_family gpu_reference_family;

/* A launch of one dimension, two or three, with one argument of any size. */
int32_t gpu_launch(struct gpu_context *context, gpu_handle function, const uint32_t grid[3], uint32_t threads,
                   uint32_t shared_bytes, const void *argument, const char *name, void *stream,
                   struct attn_error *err);

/*
 * Of families whose CTAs share out pieces of sequences, in tiles of `rows` rows with `columns` columns of
 * results: sets schedule, scratch and counters of a part whose ctas is set; launches its kernel.
 */
void gpu_pieces_reserve(const struct attn_plan_impl *plan, struct gpu_part *part, uint32_t rows,
                        uint32_t columns);
int32_t gpu_pieces_launch(const struct attn_plan_impl *plan, const struct gpu_part *part,
                          const struct gpu_run *run, uint32_t rows, uint32_t columns, void *stream,
                          struct attn_error *err);

/* The row that serves sequences of a phase on a device of this architecture (0 = any), or NULL. */
const struct gpu_kernel *gpu_dispatch(const struct attn_problem *problem, uint32_t phase, uint32_t arch);

#endif
