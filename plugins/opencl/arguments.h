/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The argument block of the kernels, for the host and for OpenCL C: its members have the same size and place
 * in both. It and the pointers to the buffers stay within 1024 bytes, which every device takes.
 */
#ifndef ATTN_OPENCL_ARGUMENTS_H
#define ATTN_OPENCL_ARGUMENTS_H

#ifdef __OPENCL_VERSION__
typedef long opencl_i64;
typedef int opencl_i32;
typedef float opencl_f32;
#else
#include <stdint.h>
typedef int64_t opencl_i64;
typedef int32_t opencl_i32;
typedef float opencl_f32;
#endif

/* Work-items of a work-group. */
#define OPENCL_ITEMS         64
#define OPENCL_PREFILL_ITEMS 128

/* Values of attn/types.h, which OpenCL C cannot include. */
#define OPENCL_F32      0x00012002u
#define OPENCL_F16      0x00011002u
#define OPENCL_BF16     0x00011004u
#define OPENCL_INT8     0x00010800u
#define OPENCL_E4M3     0x0001080au
#define OPENCL_E4M3FNUZ 0x0001080bu
#define OPENCL_E5M2     0x0001080cu
#define OPENCL_E5M2FNUZ 0x0001080du
#define OPENCL_DENSE    1
#define OPENCL_TABLE    2
#define OPENCL_CSR      3
#define OPENCL_DISTANCE 3
#define OPENCL_BY_MASK  4

/* Keys of a split are a multiple of this. */
#define SPLIT_KEYS 512
/* Floats behind the columns of a partial row: its maximum, its weight, the number of splits, and a gap. */
#define PARTIAL_EXTRA 4

/* Buffers, in the order of the kernels' arguments. `table` is that of pages, or the indices of CSR. */
#define OPENCL_FOR_BUFFERS(X)                                                                                \
    X(q)                                                                                                     \
    X(out)                                                                                                   \
    X(lse)                                                                                                   \
    X(k)                                                                                                     \
    X(v)                                                                                                     \
    X(k_new)                                                                                                 \
    X(v_new)                                                                                                 \
    X(slots)                                                                                                 \
    X(q_offsets)                                                                                             \
    X(kv_lens)                                                                                               \
    X(kv_offsets)                                                                                            \
    X(table)                                                                                                 \
    X(indptr)                                                                                                \
    X(positions)                                                                                             \
    X(seq_causal)                                                                                            \
    X(slopes)                                                                                                \
    X(sinks)                                                                                                 \
    X(q_rope)                                                                                                \
    X(global_lens)                                                                                           \
    X(mask)                                                                                                  \
    X(mask_starts)                                                                                           \
    X(workspace)                                                                                             \
    X(q_scale)                                                                                               \
    X(out_scale)                                                                                             \
    X(k_scale)                                                                                               \
    X(v_scale)                                                                                               \
    X(k_new_scale)                                                                                           \
    X(v_new_scale)

enum opencl_buffer {
#define OPENCL_BUFFER(name) OPENCL_BUFFER_##name,
    OPENCL_FOR_BUFFERS(OPENCL_BUFFER)
#undef OPENCL_BUFFER
        OPENCL_BUFFERS,
    OPENCL_SCALES = OPENCL_BUFFERS - OPENCL_BUFFER_q_scale
};

/* The number of a scale. */
#define OPENCL_SCALE(name) (OPENCL_BUFFER_##name - OPENCL_BUFFER_q_scale)

/* Strides are bytes. */
struct opencl_strides {
    opencl_i64 page, token, head;
};
struct opencl_rows {
    opencl_i64 token, head;
};

/* A scale: strides of its buffer, or the one value where no buffer is given. */
struct opencl_scale {
    opencl_i64 outer, token, head;
    opencl_f32 value;
    opencl_i32 reserved;
};

struct opencl_arguments {
    opencl_i64 at[OPENCL_BUFFERS]; /* byte offset within each buffer */
    opencl_i64 table_stride;
    struct opencl_rows q, q_rope, out, lse, k_new, v_new;
    struct opencl_strides k, v;
    struct opencl_scale scales[OPENCL_SCALES]; /* in the order of their buffers */
    opencl_i64 mask_seq, mask_head, mask_row;  /* strides of the mask */
    opencl_i32 given;                          /* bit per enum opencl_buffer */
    opencl_i32 seqs;
    opencl_i32 num_tokens;
    opencl_i32 heads; /* query heads; a write: kv heads */
    opencl_i32 group; /* query heads of a kv head */
    opencl_i32 head_dim;
    opencl_i32 head_dim_vo;
    opencl_i32 block;
    opencl_i32 pages;      /* a write: slots behind them are left out */
    opencl_i32 addressing; /* enum attn_addressing */
    opencl_i32 wide_index; /* indices of CSR are i64 */
    opencl_i32 wide_positions;
    opencl_i32 causal;
    opencl_i32 from_start; /* align=start */
    opencl_i32 left, right;
    opencl_i32 right_given;
    opencl_i32 alibi;    /* enum attn_alibi */
    opencl_i32 last_new; /* kv_source cache+new: the last q_len keys are new */
    opencl_i32 sinks_bf16;
    opencl_i32 k_from, v_from; /* a write: element types of the new rows ... */
    opencl_i32 k_to, v_to;     /* ... and of the cache, also of a run */
    opencl_i32 k_own, v_own;   /* a write: vectors have scales of their own, which are written too */
    opencl_i32 only_new;       /* kv_source new: scales are counted by sequences */
    opencl_i32 q_scale_group;  /* query heads of a scale of q */
    opencl_i32 split;          /* columns of a query, or of a new key, that are not in q_rope */
    opencl_i32 has_mask;
    opencl_i32 mask_dtype; /* 0 = bits */
    opencl_i32 mask_packed;
    opencl_i32 square; /* span of the mask */
    opencl_i32 cp_rank, cp_world, cp_interleave;
    opencl_i32 k_x, v_x; /* layout paged-x: bytes of x elements; else 0 */
    opencl_i32 k_x_stride, v_x_stride;
    opencl_i32 q_dtype, out_dtype;
    opencl_i32 decode_tokens; /* sequences with at most so many query tokens are decoded */
    opencl_i32 splits;        /* of a sequence's keys, at most */
    opencl_f32 softmax_scale;
    opencl_f32 softcap;
};

#endif
