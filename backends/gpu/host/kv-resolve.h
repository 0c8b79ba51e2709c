/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Turns the public arguments of calls on caches into the argument blocks of their kernels. The caller of the
 * plugin has checked what can be checked on the host; here are the checks that only a device needs.
 */
#ifndef ATTN_GPU_KV_RESOLVE_H
#define ATTN_GPU_KV_RESOLVE_H

#include <stdbool.h>

#include "check.h"
#include "kv-args.h"
#include "resolve.h"

/* Largest number of CTAs of a launch; they loop over the work. */
#define GPU_KV_CTAS 65536u

/* 2: keys and values; 1: an MLA cache, with keys alone. */
static inline uint32_t gpu_kv_sides(const struct attn_kv_desc *desc)
{
    return desc->v.data != NULL ? 2 : 1;
}

/* Largest number of heads of one launch on this cache. */
uint32_t gpu_kv_heads(const struct attn_kv_desc *desc);

/* Refuses scales that a kernel cannot read: arrays in host memory with more than one value. */
int32_t gpu_kv_scales_check(const struct attn_kv_desc *desc, struct attn_error *err);

/*
 * The part of a cache that one launch of a write takes: all of it, or with host scales that differ by page or
 * token, one page or token. `page` and `token` are -1 if they do not matter.
 */
struct gpu_kv_share {
    int64_t page, token;
    uint32_t first, count; /* heads */
};

/* The first share; the next one, or false. */
struct gpu_kv_share gpu_kv_share_first(const struct attn_kv_desc *desc);
bool gpu_kv_share_next(const struct attn_kv_desc *desc, struct gpu_kv_share *share);

/* Heads of keys or values, of a cache that was checked. */
struct gpu_kv_side gpu_kv_side_of(const struct attn_kv_desc *desc, bool values,
                                  const struct gpu_kv_share *share);
struct gpu_tensor gpu_kv_tensor_of(const struct attn_tensor *tensor, uint32_t first);
/* The batch as the kernels read it, with `block` tokens a page. */
struct gpu_batch gpu_kv_batch_of(const struct attn_batch *batch, uint32_t addressing, uint32_t index_dtype,
                                 uint32_t block);
/* Elements of vectors in `side` and `tensor` (may be NULL) that can be moved at once. */
uint32_t gpu_kv_wide(const struct gpu_kv_side *side, const struct gpu_tensor *tensor, uint32_t dtype);
uint32_t gpu_kv_wide_tensor(const struct gpu_tensor *tensor, uint32_t dim, uint32_t dtype);

/* ---------------------------------------------------------------- kv-resolve-units.c */

/* Source or target of rows, and what decides whether they can be moved in units. */
struct gpu_kv_kind {
    struct gpu_kv_end end;
    uint64_t bits;    /* all addresses and strides that have to be aligned, combined by or */
    uint32_t x_bytes; /* of contiguous elements; 0: a tensor, whose vectors are contiguous */
};

struct gpu_kv_kind gpu_kv_kind_of_side(const struct gpu_kv_side *side);
struct gpu_kv_kind gpu_kv_kind_of_tensor(const struct gpu_tensor *tensor, uint32_t dtype);
/* Decides how rows of `heads` vectors of `dim` elements are moved. `own`: each vector gets a scale of its
 * own. */
void gpu_kv_rows_resolve(struct gpu_kv_rows *out, const struct gpu_kv_kind *from,
                         const struct gpu_kv_kind *to, uint32_t dim, uint32_t heads, bool moved, bool own);
/* Has elements from `split` on read from `rest`. */
void gpu_kv_rows_split(struct gpu_kv_rows *rows, const struct gpu_tensor *rest, uint32_t dtype,
                       uint32_t split);
/* Rows that a warp takes at once. */
uint32_t gpu_kv_each(uint32_t rows);
uint32_t gpu_kv_each_of_block(uint32_t block);
/* Warps that share a row, if rows are few and long. */
uint32_t gpu_kv_shares(const struct gpu_kv_rows rows[2], uint32_t count);

/* Whether some warps take a vector each. */
static inline bool gpu_kv_rows_by_vector(const struct gpu_kv_rows rows[2])
{
    return rows[0].method == GPU_KV_BY_VECTOR || rows[1].method == GPU_KV_BY_VECTOR;
}

/* CTAs that the rows are divided among, for keys and values alike. */
uint64_t gpu_kv_rows_ctas(const struct gpu_kv_rows rows[2], uint32_t count, uint32_t heads, uint32_t each);

/* ---------------------------------------------------------------- kv-resolve-rows.c */

int32_t gpu_kv_write_check(const struct attn_kv_write_args *args, const struct attn_kv_desc *desc,
                           struct attn_error *err);
void gpu_kv_write_resolve(struct gpu_kv_write *out, const struct attn_kv_write_args *args,
                          const struct attn_kv_desc *desc, const struct gpu_kv_share *share);

int32_t gpu_kv_slots_check(const struct attn_kv_slot_mapping_args *args, struct attn_error *err);
void gpu_kv_slots_resolve(struct gpu_kv_slots *out, const struct attn_kv_slot_mapping_args *args);

int32_t gpu_kv_gather_check(const struct attn_kv_gather_args *args, const struct attn_kv_desc *desc,
                            struct attn_error *err);
void gpu_kv_gather_resolve(struct gpu_kv_gather *out, const struct attn_kv_gather_args *args,
                           const struct attn_kv_desc *desc, uint32_t first, uint32_t count);

int32_t gpu_kv_convert_check(const struct attn_kv_convert_args *args, const struct attn_kv_desc *from,
                             const struct attn_kv_desc *to, struct attn_error *err);
void gpu_kv_convert_resolve(struct gpu_kv_convert *out, const struct attn_kv_convert_args *args,
                            const struct attn_kv_desc *from, const struct attn_kv_desc *to, uint32_t first,
                            uint32_t count);

/* Checks the alignment of the i64 pairs. */
int32_t gpu_kv_pairs_check(const struct attn_buffer *pairs, struct attn_error *err);
/* Adds the planes of tokens, or of pages, of two caches of the same layout; there is room for them. */
void gpu_kv_move_slots(struct gpu_kv_move *out, const struct attn_kv_desc *from,
                       const struct attn_kv_desc *to);
void gpu_kv_move_pages(struct gpu_kv_move *out, const struct attn_kv_desc *from,
                       const struct attn_kv_desc *to);
/* Cuts all planes into slices, for as many pairs as there are. */
void gpu_kv_move_cut(struct gpu_kv_move *out);
/* Largest number of planes of a pair of caches. */
#define GPU_KV_PLANES_EACH 4u

void gpu_step_resolve(struct gpu_step *out, const struct attn_kv_advance_step_args *args);
/* Number of threads that have work in the second kernel of a step. */
uint64_t gpu_step_work(const struct gpu_step *step);

int32_t gpu_merge_resolve(struct gpu_merge *out, const struct attn_merge_args *args, struct attn_error *err);
int32_t gpu_rescale_resolve(struct gpu_merge *out, const struct attn_rescale_args *args,
                            struct attn_error *err);

#endif
