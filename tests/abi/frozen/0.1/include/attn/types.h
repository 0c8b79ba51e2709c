/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Plain data shared by callers (attn.h) and implementers (plugin.h).
 *
 * Three kinds of struct exist:
 *   - sized structs begin with `struct_size`. Whoever fills one sets it with ATTN_INIT, which also clears
 *     the rest. Zero means "not given"; members are only ever appended. A larger struct from a newer caller
 *     is accepted as long as every byte that this library does not know is zero.
 *   - leaves (attn_buffer, attn_span, attn_tensor, attn_scale, attn_device) have no size, are frozen for the
 *     ABI major and are the only structs embedded by value.
 *   - tables of functions are in plugin.h.
 *
 * Enumerated members start at 1. A member whose zero is a legal value counts only if its bit in `given` is
 * set. All strides are int64_t and in BYTES. All device addresses are struct attn_buffer. What is computed
 * from these data is defined in docs/definition.md.
 *
 * Little-endian LP64 only.
 */
#ifndef ATTN_TYPES_H
#define ATTN_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Clears a sized struct and states its size: ATTN_INIT(&problem). */
#define ATTN_INIT(pointer)                                                                                   \
    (memset((pointer), 0, sizeof *(pointer)), (void)((pointer)->struct_size = (uint32_t)sizeof *(pointer)))

/* ---------------------------------------------------------------- statuses and reasons */

/*
 * What every fallible function returns, as int32_t: ATTN_OK (0) or a negative ATTN_E_*.
 * Numbers are never reused. Names and texts: attn_status_name, attn_status_text.
 */
enum attn_status {
#define ATTN_STATUS(name, value, text, advice) ATTN_##name = (value),
#include "attn/status.def"
    ATTN__STATUS_PAD = 0x7fffffff
};

/*
 * Why something was refused or is absent: stable codes, kept in reports and decisions.
 * Codes from ATTN_REASON_PRIVATE on belong to plugins.
 */
enum attn_reason_code {
    ATTN_REASON_NONE = 0,
#define ATTN_REASON(name, value, kind, text, advice) ATTN_REASON_##name = (value),
#include "attn/reason.def"
    ATTN_REASON_PRIVATE = 0x10000,
    ATTN__REASON_PAD = 0x7fffffff
};

/*
 * Detail of a failure, owned by the caller, optional everywhere (NULL = not wanted).
 * A function that fails fills it; one that succeeds leaves it alone.
 */
struct attn_error {
    uint32_t struct_size;
    int32_t status;  /* the status that was returned */
    uint32_t reason; /* enum attn_reason_code, or 0 */
    uint32_t reserved;
    char field[48];    /* the argument, key, variable or file part that is at fault; may be "" */
    char message[456]; /* one sentence: the thing, its value, what is accepted, what to do */
};

/* One reason of a query: which row of which backend does not serve a problem, and why. */
struct attn_reason {
    uint32_t code; /* enum attn_reason_code */
    uint32_t reserved;
    char kernel[64]; /* the kernel row that refuses; "" = the whole backend */
    char field[32];  /* key of the problem string */
    char got[48];    /* its value */
    char wanted[80]; /* what is accepted */
    char text[160];  /* the sentence */
};

/* ---------------------------------------------------------------- element types and devices */

/* An element type: the three fields of a DLPack DLDataType (code, bits, lanes = 1) in one word. */
#define ATTN_DTYPE(code, bits) ((uint32_t)(code) | (uint32_t)(bits) << 8 | (uint32_t)1 << 16)

/* Element types: ATTN_DTYPE(code, bits). */
enum attn_dtype {
    ATTN_INT8 = 0x00010800,  /* symmetric, stored -127..127 */
    ATTN_INT32 = 0x00012000, /* index arrays only */
    ATTN_INT64 = 0x00014000, /* index arrays only */
    ATTN_F16 = 0x00011002,
    ATTN_F32 = 0x00012002,
    ATTN_BF16 = 0x00011004,
    ATTN_E4M3 = 0x0001080a,     /* OCP e4m3fn */
    ATTN_E4M3FNUZ = 0x0001080b, /* AMD gfx942 */
    ATTN_E5M2 = 0x0001080c,     /* OCP */
    ATTN_E5M2FNUZ = 0x0001080d,
    /*
     * Cached keys and values alone: blocks of 32 elements along head_dim, as ggml has them. DLPack counts its
     * codes from 0, these count from 0xc0; the bits are those of an element without its block's scale, and
     * the lanes are the elements of a block. docs/definition.md says what a block's bytes mean.
     */
    ATTN_Q8_0 = 0x002008c0,
    ATTN_Q4_0 = 0x002004c1,
    ATTN_Q4_1 = 0x002004c2,
    ATTN_Q5_0 = 0x002005c3,
    ATTN_Q5_1 = 0x002005c4,
    ATTN_IQ4_NL = 0x002004c5
};

/* Elements of a block of the types that have blocks; all of them have as many. */
#define ATTN_BLOCK_ELEMENTS 32u

/* Bytes of a block of a `dtype`; 0 for types that have no blocks. */
static inline uint32_t attn_block_bytes(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_Q8_0:
        return 34;
    case ATTN_Q4_0:
    case ATTN_IQ4_NL:
        return 18;
    case ATTN_Q4_1:
        return 20;
    case ATTN_Q5_0:
        return 22;
    case ATTN_Q5_1:
        return 24;
    default:
        return 0;
    }
}

/* Bytes of a contiguous vector of n elements of a `dtype`, of whole blocks where the type has blocks. */
static inline uint64_t attn_row_bytes(uint32_t dtype, uint64_t n)
{
    const uint32_t block = attn_block_bytes(dtype);
    return block != 0 ? n / ATTN_BLOCK_ELEMENTS * block : n * ((dtype >> 8 & 0xff) / 8);
}

/*
 * Device types, numbered as in DLPack. A plugin for devices that DLPack has no number for takes one from
 * ATTN_DEVICE_OTHER on; what its devices are called is in its table (struct attn_plugin).
 */
enum attn_device_type {
    ATTN_DEVICE_CPU = 1,
    ATTN_DEVICE_CUDA = 2,
    ATTN_DEVICE_OPENCL = 4,
    ATTN_DEVICE_ROCM = 10,
    ATTN_DEVICE_OTHER = 0x10000
};

/* Leaf. One device. */
struct attn_device {
    uint32_t type;   /* enum attn_device_type, or a plugin's own */
    int32_t ordinal; /* counted per type, from 0 */
    uint64_t reserved[2];
};

/* Candidates are ordered by this class first, best (smallest) first. */
enum attn_device_class {
    ATTN_CLASS_ACCELERATOR = 1,          /* a GPU through its vendor's own interface */
    ATTN_CLASS_PORTABLE_ACCELERATOR = 2, /* a GPU through a portable interface */
    ATTN_CLASS_CPU = 3,                  /* native code for this CPU */
    ATTN_CLASS_PORTABLE_CPU = 4          /* a CPU through a portable interface, or plain C */
};

/* ---------------------------------------------------------------- memory, tensors, scales */

/*
 * Leaf. A device address as in DLPack: `data` is an address, or a cl_mem; `byte_offset` is added to it by
 * the backend. The library does no arithmetic on `data`.
 */
struct attn_buffer {
    void *data;
    uint64_t byte_offset;
};

/* Leaf. Memory together with its size in bytes. */
struct attn_span {
    struct attn_buffer buffer;
    uint64_t size;
};

/*
 * Leaf. A view [token, head, dim]: the innermost dimension is contiguous. Strides are bytes and may be
 * negative or zero where a tensor is only read. The element type is the problem's, or that of the call's
 * arguments; a tensor that carries one (dtype) is checked against it, so that f32 memory is not read as bf16.
 */
struct attn_tensor {
    struct attn_buffer buffer;
    int64_t token_stride;
    int64_t head_stride;
    uint32_t dtype; /* enum attn_dtype; 0 = not said */
    uint32_t reserved0;
    uint64_t reserved;
};

/* A contiguous tensor [token, heads, head_dim] at `data` that carries its `dtype` (enum attn_dtype). */
static inline struct attn_tensor attn_tensor_of(void *data, uint32_t dtype, uint32_t heads, uint32_t head_dim)
{
    struct attn_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.buffer.data = data;
    tensor.dtype = dtype;
    tensor.head_stride = (int64_t)attn_row_bytes(dtype, head_dim);
    tensor.token_stride = tensor.head_stride * (int64_t)heads;
    return tensor;
}

/* Where the value of a scale is. */
enum attn_scale_kind {
    ATTN_SCALE_UNIT = 1,  /* the value is 1, no buffer */
    ATTN_SCALE_HOST = 2,  /* buffer is host memory, read during the call */
    ATTN_SCALE_DEVICE = 3 /* buffer is device memory, read in stream order */
};

/* How many values a scale has (the problem's q_scale, k_scale, v_scale, out_scale). */
enum attn_granularity {
    ATTN_SCALES_NONE = 1,
    ATTN_SCALES_UNIT = 2,
    ATTN_SCALES_TENSOR = 3,
    ATTN_SCALES_HEAD = 4,
    ATTN_SCALES_TOKEN_HEAD = 5,
    ATTN_SCALES_KV_HEAD = 6 /* q only: one value per kv head */
};

/*
 * Leaf. Scales, f32. The value for (outer, token, head) is at buffer + outer * outer_stride + token *
 * token_stride + head * head_stride; a stride of 0 broadcasts. `outer` is the sequence for q, out, k_new and
 * v_new, and the page for a cache. Values per token of k_new and v_new that kv_offsets lay out are device
 * memory: nothing on the host says how many rows there are.
 */
struct attn_scale {
    uint32_t kind;        /* enum attn_scale_kind; 0 = not given */
    uint32_t granularity; /* enum attn_granularity */
    struct attn_buffer buffer;
    int64_t outer_stride;
    int64_t token_stride;
    int64_t head_stride;
    uint64_t reserved[2];
};

/* ---------------------------------------------------------------- the problem */

/* What attends to what: key type. */
enum attn_type {
    ATTN_DECODER = 1,        /* causal self-attention over a cache */
    ATTN_ENCODER = 2,        /* the encoder half of an encoder-decoder model */
    ATTN_ENCODER_ONLY = 3,   /* bidirectional self-attention of an encoder-only model */
    ATTN_ENCODER_DECODER = 4 /* cross-attention */
};

/* Where the keys of a sequence are: key addr. */
enum attn_addressing {
    ATTN_DENSE = 1, /* keys of a sequence are consecutive */
    ATTN_TABLE = 2, /* a padded table of pages, one row per sequence */
    ATTN_CSR = 3    /* page numbers in one array with row pointers */
};

/* Whether a query sees keys behind it: key causal. */
enum attn_causal { ATTN_CAUSAL_NO = 1, ATTN_CAUSAL_YES = 2 };

/* Which key a query belongs to: key align. */
enum attn_align {
    ATTN_ALIGN_END = 1,  /* the last query token sees the last key (vLLM, FlashAttention) */
    ATTN_ALIGN_START = 2 /* query token i sees key i (torch's is_causal) */
};

/* What is added to scores for distance: key alibi. */
enum attn_alibi {
    ATTN_ALIBI_NONE = 1,
    ATTN_ALIBI_KEY = 2,      /* + slope * (key - query) */
    ATTN_ALIBI_DISTANCE = 3, /* - slope * |key - query| */
    ATTN_ALIBI_MASK = 4      /* slope times the additive mask */
};

/* Element type of the mask: key mask. */
enum attn_mask {
    ATTN_MASK_NONE = 1,
    ATTN_MASK_BITS = 2,
    ATTN_MASK_F16 = 3, /* additive, element type f16 */
    ATTN_MASK_BF16 = 4,
    ATTN_MASK_F32 = 5
};

/* Which keys the columns of a mask are: key span. */
enum attn_span_kind {
    ATTN_SPAN_SQUARE = 1, /* columns are the last Lq keys */
    ATTN_SPAN_FULL = 2    /* columns are all keys */
};

/* Where keys and values are read from: key kv_source. */
enum attn_kv_source {
    ATTN_KV_CACHE = 1,    /* keys are read from the cache */
    ATTN_KV_NEW = 2,      /* keys are read from k_new and v_new */
    ATTN_KV_CACHE_NEW = 3 /* the last q_len from k_new and v_new, the rest from the cache */
};

/* Order of the elements of a cache: key layout. */
enum attn_layout {
    ATTN_STRIDED = 1,
    ATTN_PAGED_X = 2 /* key [page, head, dim/x, token, x], value [page, head, dim, token], x = 16 bytes */
};

/* What of a graph capture a plan supports, and what a problem needs at least. */
enum attn_graph_level {
    ATTN_GRAPH_NEVER = 1,
    ATTN_GRAPH_SINGLE = 2,  /* one query token per sequence */
    ATTN_GRAPH_UNIFORM = 3, /* the same number of query tokens per sequence */
    ATTN_GRAPH_ALWAYS = 4   /* any numbers, up to num_tokens of the batch together */
};

/* Bits of attn_problem.given. */
#define ATTN_GIVEN_WINDOW_LEFT  UINT32_C(1) /* window_left counts */
#define ATTN_GIVEN_WINDOW_RIGHT UINT32_C(2) /* window_right counts */

/*
 * A problem: what a layer class needs. `heads`, `head_dim` and `q_dtype` must be given; everything else has a
 * default (in brackets), filled in by attn_problem_resolve. Each member is named like its key of the problem
 * string.
 */
struct attn_problem {
    uint32_t struct_size;
    uint32_t given;       /* ATTN_GIVEN_* */
    uint32_t type;        /* enum attn_type [decoder] */
    uint32_t q_dtype;     /* enum attn_dtype; key q */
    uint32_t k_dtype;     /* [q] */
    uint32_t v_dtype;     /* [q] */
    uint32_t out_dtype;   /* [q; bf16 if q has 8 bits] */
    uint32_t heads;       /* query heads */
    uint32_t kv_heads;    /* [heads]; heads is a multiple of it */
    uint32_t head_dim;    /* of q and k */
    uint32_t head_dim_vo; /* of v and out [head_dim] */
    uint32_t addressing;  /* key addr: enum attn_addressing [table] */
    uint32_t index_dtype; /* key index: ATTN_INT32 or ATTN_INT64 of CSR indices [i32] */
    uint32_t block;       /* tokens per page [16] */
    uint32_t causal;      /* enum attn_causal [yes for decoder, else no] */
    uint32_t align;       /* enum attn_align [end] */
    int32_t window_left;  /* keys visible before the query's own; -1 = all [-1] */
    int32_t window_right; /* keys visible after it; -1 = all [0 in a causal sequence, else window_left] */
    float softcap;        /* [0] = none */
    uint32_t alibi;       /* enum attn_alibi [none] */
    uint32_t sinks;       /* 0 or 1 [0] */
    uint32_t mask;        /* enum attn_mask [none] */
    uint32_t span;        /* enum attn_span_kind [square] */
    uint32_t kv_source;   /* enum attn_kv_source [cache; new for encoder and encoder_only] */
    uint32_t layout;      /* enum attn_layout [strided] */
    uint32_t q_scale;     /* enum attn_granularity [none] */
    uint32_t k_scale;
    uint32_t v_scale;
    uint32_t out_scale;
    uint32_t positions;  /* 0, or 1: q_positions are given [0] */
    uint32_t seq_causal; /* 0, or 1: a causal flag per sequence is given [0] */
    uint32_t mla;        /* 0 or 1: MLA, v is the first columns of k [0] */
    uint32_t cp;         /* 0 or 1: keys are sharded over ranks [0] */
    uint32_t lse;        /* 0 or 1: the log-sum-exp is wanted [0] */
    uint32_t det;        /* 0 or 1: results never depend on batch companions [0] */
    uint32_t graph;      /* enum attn_graph_level needed at least [never] */
    uint32_t max_seqs;   /* maxima of a step; 0 = not given: a query does not judge it, a plan needs it */
    uint32_t max_q;      /* query tokens of one sequence */
    uint32_t max_kv;     /* keys of one sequence */
    uint32_t max_rows;   /* query tokens of a step */
    uint32_t cascade;    /* most query tokens of a step with attn_batch.cascade [0] = no step has it */
    uint32_t reserved[3];
};

/* ---------------------------------------------------------------- the batch of a step */

/* Bits of attn_batch.given. */
#define ATTN_GIVEN_HOST_COPIES UINT32_C(1) /* `host` holds a copy of every array that is given */

/* Host copies of the arrays of a batch, same shapes. Read during attn_plan_prepare only. */
struct attn_batch_host {
    uint32_t struct_size;
    uint32_t reserved;
    const int32_t *q_offsets;
    const int32_t *kv_lens;
    const int32_t *kv_offsets;
    const int32_t *table; /* rows of attn_batch.table_width entries, table_stride bytes apart */
    const int32_t *csr_indptr;
    const void *csr_indices;
    const int32_t *last_page_lens;
    const void *q_positions;
    const uint8_t *seq_causal;
    const int32_t *kv_global_lens;
};

/*
 * One step: sequences of any phase in any order. Arrays live in the backend's memory and are read in stream
 * order. Sizes in brackets; n is `seqs`.
 */
struct attn_batch {
    uint32_t struct_size;
    uint32_t given;                /* ATTN_GIVEN_* */
    uint32_t seqs;                 /* n, padding sequences included */
    uint32_t num_tokens;           /* query tokens, exact: q_offsets[n]; with problem.graph=always at least
                                      that many, and rows from q_offsets[n] on are neither read nor written */
    uint32_t max_q;                /* upper bound of query tokens of a sequence */
    uint32_t max_kv;               /* upper bound of keys of a sequence */
    struct attn_buffer q_offsets;  /* i32 [n + 1], from 0, not falling */
    struct attn_buffer kv_lens;    /* i32 [n] keys to attend, those of this step included */
    struct attn_buffer kv_offsets; /* dense: i32 [n + 1] in tokens; absent: sequence i begins at page i */
    struct attn_buffer table;      /* table: i32 [n, table_width]; a negative entry is an invalid block */
    int64_t table_stride;          /* bytes between rows */
    uint32_t table_width;          /* entries of a row */
    uint32_t pages;                /* pages of the cache; 0 = not known. Host copies are checked against it */
    struct attn_buffer csr_indptr; /* csr: i32 [n + 1] */
    struct attn_buffer
        csr_indices; /* csr: i32 or i64 [csr_indptr[n]]; a negative entry is an invalid block */
    struct attn_buffer last_page_lens; /* i32 [n], optional, only checked (lengths follow from kv_lens) */
    struct attn_buffer q_positions;    /* problem.positions: i32 or i64 [num_tokens] */
    uint32_t position_dtype;           /* ATTN_INT32 (default) or ATTN_INT64 */
    uint32_t cp_rank;                  /* problem.cp: rank, world size, interleave */
    uint32_t cp_world;
    uint32_t cp_interleave;
    struct attn_buffer seq_causal;      /* problem.seq_causal: u8 [n] */
    struct attn_buffer kv_global_lens;  /* problem.cp: i32 [n] */
    const struct attn_batch_host *host; /* see ATTN_GIVEN_HOST_COPIES */
    /* 1: where all sequences begin with the same pages, attention to these may be computed once for all. Part
     * of the definition's freedom to add in any order: no key is left out, or seen by another row. */
    uint32_t cascade;
    uint32_t reserved;
};

/* ---------------------------------------------------------------- the cache of a layer */

/*
 * The cache of one layer. Key (page, token, head) is at k + page * k_page_stride + token * k_token_stride +
 * head * k_head_stride; values alike. With dense addressing a page is a sequence, or k is one run of tokens
 * if kv_offsets are given.
 *
 * With layout paged-x only page and head strides are used: within a page and head, element d of token t of a
 * key is at element ((d / x) * block + t) * x + d % x with x = 16 bytes, of a value at d * block + t.
 * head_dim must be a multiple of x.
 *
 * An MLA cache (problem mla=1) has no v: its buffer is not given, v_dtype is 0 or k_dtype, v_scale is not
 * given, and values are the first head_dim_vo columns of k.
 */
struct attn_kv_desc {
    uint32_t struct_size;
    uint32_t k_dtype; /* enum attn_dtype */
    uint32_t v_dtype; /* MLA: 0 = k_dtype */
    uint32_t layout;  /* enum attn_layout; 0 = strided */
    uint32_t pages;
    uint32_t block; /* tokens per page; dense: tokens of a sequence, or of the whole run */
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t head_dim_vo; /* 0 = head_dim */
    uint32_t reserved;
    struct attn_buffer k;
    struct attn_buffer v;
    int64_t k_page_stride;
    int64_t k_token_stride;
    int64_t k_head_stride;
    int64_t v_page_stride;
    int64_t v_token_stride;
    int64_t v_head_stride;
    struct attn_scale k_scale; /* 8-bit caches */
    struct attn_scale v_scale;
};

/* The cache shape of a backend's flavour for one layer: one allocation that holds keys and values. */
struct attn_kv_shape {
    uint32_t struct_size;
    uint32_t rank;            /* dimensions used */
    uint64_t dims[6];         /* as the flavour names them, outermost first */
    uint64_t bytes;           /* size of the allocation */
    uint64_t scale_bytes;     /* size of each token-head scale array (k and v); 0 = none */
    uint64_t k_offset;        /* bytes from the start of the allocation */
    uint64_t v_offset;        /* equal to k_offset: an MLA cache, which has no v of its own */
    struct attn_kv_desc desc; /* filled but for addresses and scales */
};

/* ---------------------------------------------------------------- the tensors of a run */

/*
 * One run of one layer. The problem decides which members are needed. `out` and `lse` never overlap inputs.
 */
struct attn_tensors {
    uint32_t struct_size;
    float softmax_scale;       /* required: finite and > 0, no default */
    struct attn_tensor q;      /* [num_tokens, heads, head_dim] */
    struct attn_tensor q_rope; /* MLA, optional: rope columns of q, which then has the MLA columns alone */
    struct attn_tensor k_new;  /* kv_source new and cache+new: [tokens, kv_heads, head_dim] */
    struct attn_tensor v_new;
    struct attn_tensor out;             /* [num_tokens, heads, head_dim_vo] */
    struct attn_tensor lse;             /* f32 [num_tokens, heads], natural logarithm */
    struct attn_kv *kv;                 /* the cache, as a handle ... */
    const struct attn_kv_desc *kv_desc; /* ... or bare, checked and encoded at every call */
    struct attn_buffer alibi_slopes;    /* f32 [heads] */
    struct attn_buffer sinks;           /* [heads] */
    uint32_t sinks_dtype;               /* ATTN_F32 or ATTN_BF16 */
    uint32_t mask_packed;               /* bits only: row i begins at bit i * columns of its sequence */
    struct attn_buffer mask;
    struct attn_buffer mask_starts; /* i64 [n] byte starts, negative = none; absent: the stride below */
    int64_t mask_seq_stride;
    int64_t mask_head_stride; /* 0 = broadcast */
    int64_t mask_row_stride;  /* 0 = broadcast */
    struct attn_scale q_scale;
    struct attn_scale k_new_scale;
    struct attn_scale v_new_scale;
    struct attn_scale out_scale;
};

/* Memory of a run beside the schedule. Sizes: attn_plan_get_sizes. */
struct attn_scratch {
    uint32_t struct_size;
    uint32_t counters_dirty;   /* 1: clear the counters first (as after a failed run) */
    struct attn_span scratch;  /* may hold anything */
    struct attn_span counters; /* zeroed once by the caller, zero again after every completed run */
};

/* What a plan needs, in bytes, from the problem's maxima alone. */
struct attn_plan_sizes {
    uint32_t struct_size;
    uint32_t alignment; /* of all four blocks */
    uint64_t schedule;
    uint64_t scratch;
    uint64_t counters;
    uint64_t staging; /* pinned host memory, one block per step in flight */
};

/* What a plan is. */
struct attn_plan_info {
    uint32_t struct_size;
    uint32_t graph_level;     /* enum attn_graph_level */
    uint32_t splits;          /* largest number of KV splits of a sequence */
    uint32_t split_keys;      /* keys of a split; 0 = never split */
    uint32_t alignment;       /* of q, k, v and out, in bytes */
    uint32_t stride_multiple; /* strides are multiples of so many bytes */
    uint64_t bytes_per_run;   /* upper bound of bytes read and written, from the maxima */
    char kernels[256];        /* names, separated by commas */
    uint32_t cascade;         /* 1: pages that all sequences begin with are found, and computed once */
    uint32_t reserved;
};

/* ---------------------------------------------------------------- cache write */

/*
 * Writes k_new and v_new into a cache: row i to slot slot_mapping[i] = page * block + token (a negative slot
 * is skipped), or, without a slot mapping, the last q_len tokens of each sequence of `batch` to their places.
 * Token-head scales of an 8-bit cache are computed and written too. Into an MLA cache k_new is written
 * alone, whole or in two parts: the first head_dim_vo columns in k_new, the rest in k_rope.
 */
struct attn_kv_write_args {
    uint32_t struct_size;
    uint32_t k_dtype; /* element types of k_new and v_new */
    uint32_t v_dtype;
    uint32_t num_tokens;
    struct attn_tensor k_new;           /* [num_tokens, kv_heads, head_dim] */
    struct attn_tensor v_new;           /* [num_tokens, kv_heads, head_dim_vo] */
    struct attn_kv *kv;                 /* the cache, as a handle ... */
    const struct attn_kv_desc *kv_desc; /* ... or bare */
    struct attn_buffer slot_mapping;    /* i64 [num_tokens], or none */
    uint32_t addressing;                /* of batch: enum attn_addressing */
    uint32_t index_dtype;               /* of batch: ATTN_INT32 (default) or ATTN_INT64 */
    const struct attn_batch *batch;
    struct attn_tensor k_rope; /* MLA, optional: [num_tokens, 1, head_dim - head_dim_vo] of k_dtype */
};

/* ---------------------------------------------------------------- other operations on caches */

/*
 * What holds for all of them. Caches, pairs and arrays in device memory are read and written in stream order
 * and belong to the caller, who keeps them until the stream has passed. Each cache is given as a handle or
 * bare, not both. Pairs are i64 [count, 2]: source, then target. They take effect in order, as if done one
 * after the other: with a to b before b to c, c gets what a held, and of two pairs with one target the last
 * one wins. A pair with a negative member is skipped; one from a place to itself changes nothing; no pairs
 * are a call that does nothing. Only the bytes of elements and scales are written, never what lies between
 * them. Errors that host data show come before anything is written: ATTN_E_INVALID names the member. A number
 * in device memory that lies beyond its cache is an error where a backend can see it (the CPU does, before
 * anything is written) and undefined elsewhere. ATTN_E_UNSUPPORTED: the backend has no such entry, or not for
 * these types or layouts.
 */

/*
 * Slots of the new tokens of a batch: for row i of a sequence, the place page * block + token of that of the
 * last q_len keys of kv_lens. Dense: the token's number in the run of kv_offsets, or without them sequence *
 * block + token. In an invalid block: -1. Rows from q_offsets[n] on are not touched. A sequence with more new
 * tokens than keys is an error.
 */
struct attn_kv_slot_mapping_args {
    uint32_t struct_size;
    uint32_t addressing;            /* of batch: enum attn_addressing */
    uint32_t index_dtype;           /* of batch: ATTN_INT32 (default) or ATTN_INT64 */
    uint32_t block;                 /* tokens per page */
    const struct attn_batch *batch; /* q_offsets, kv_lens and where the keys are */
    struct attn_buffer slots;       /* written: i64 [batch.num_tokens], device memory */
};

/*
 * Copies single tokens: keys, values and token-head scales of slot a of one cache to slot b of another or the
 * same one; a slot is page * block + token of its own cache. Both have the same types, layout, kv heads, head
 * dimensions and granularities of scales; strides, pages and block may differ. Scales of other granularities
 * are not copied: they must be equal in both caches, so that codes keep their values.
 */
struct attn_kv_copy_slots_args {
    uint32_t struct_size;
    uint32_t count; /* pairs */
    struct attn_kv *from;
    const struct attn_kv_desc *from_desc;
    struct attn_kv *to;
    const struct attn_kv_desc *to_desc;
    struct attn_buffer pairs; /* i64 [count, 2] of slots, device memory */
};

/*
 * Copies whole pages within each of several caches, one per layer, which all get the same pairs. Token-head
 * scales go along. The caches have the same number of pages, and need not be alike otherwise.
 */
struct attn_kv_copy_blocks_args {
    uint32_t struct_size;
    uint32_t count;                             /* pairs */
    uint32_t layers;                            /* caches; 0 does nothing */
    uint32_t reserved;                          /* 0 */
    struct attn_kv *const *kvs;                 /* [layers] handles ... */
    const struct attn_kv_desc *const *kv_descs; /* ... or [layers] bare descriptions */
    struct attn_buffer pairs;                   /* i64 [count, 2] of pages, device memory */
};

/*
 * Moves whole pages between a cache in device memory and one in host memory, or between two on the device.
 * Both are alike as for copy_slots, and have the same block. A cache in host memory is given bare; its
 * token-head scales have kind ATTN_SCALE_HOST and lie in host memory. Where copies are asynchronous, host
 * memory should be pinned and must stay until the stream has passed. On the CPU all memory is the same.
 */
struct attn_kv_swap_blocks_args {
    uint32_t struct_size;
    uint32_t count; /* pairs */
    struct attn_kv *from;
    const struct attn_kv_desc *from_desc;
    struct attn_kv *to;
    const struct attn_kv_desc *to_desc;
    const int64_t *pairs; /* [count, 2] of pages, HOST memory, read during the call */
    uint32_t kind;        /* enum attn_copy_kind: where `to` is */
    uint32_t reserved;    /* 0 */
};

/*
 * Collects keys and values of sequences into contiguous rows (chunked prefill over a long context): rows
 * offsets[i] to offsets[i + 1] of k and v get the keys of sequence i from starts[i] on, which all lie below
 * its kv_lens. Other rows are not touched. Values of an 8-bit cache are decoded, multiplied by their scale in
 * f32 and rounded once to k_dtype and v_dtype; with the cache's own type elements are moved unchanged, and
 * scales go to k_scales and v_scales if given. An invalid block gives zeros, of scale 1.
 */
struct attn_kv_gather_args {
    uint32_t struct_size;
    uint32_t tokens;      /* rows that k and v have */
    uint32_t k_dtype;     /* of k: f32, f16, bf16, or the cache's own type */
    uint32_t v_dtype;     /* of v */
    uint32_t addressing;  /* of batch: enum attn_addressing */
    uint32_t index_dtype; /* of batch: ATTN_INT32 (default) or ATTN_INT64 */
    struct attn_kv *kv;
    const struct attn_kv_desc *kv_desc;
    const struct attn_batch *batch; /* kv_lens and where the keys are; q_offsets may be left out */
    struct attn_buffer offsets;     /* i32 [seqs + 1], not negative, not falling, at most tokens */
    struct attn_buffer starts;      /* i32 [seqs]; not given = 0 */
    struct attn_tensor k;           /* written: [tokens, kv_heads, head_dim]; k or v may be left out */
    struct attn_tensor v;           /* written: [tokens, kv_heads, head_dim_vo]; an MLA cache has none */
    struct attn_tensor k_scales; /* written, optional: f32 [tokens, kv_heads], if k_dtype is an 8-bit type */
    struct attn_tensor v_scales;
};

/*
 * Converts whole pages to another element type, another layout, or both. Both caches have the same block, kv
 * heads and head dimensions, and share no memory. An element is decoded, multiplied by its scale in f32, and
 * written as by attn_kv_write: divided by the target's scale and rounded; token-head scales of the target are
 * computed. Keys and values are judged apart: where type and granularity are the same on both sides, elements
 * and token-head scales are moved unchanged, and tensor and head scales are to be equal.
 */
struct attn_kv_convert_args {
    uint32_t struct_size;
    uint32_t count; /* pairs; 0 without */
    struct attn_kv *from;
    const struct attn_kv_desc *from_desc;
    struct attn_kv *to;
    const struct attn_kv_desc *to_desc;
    struct attn_buffer
        pairs; /* i64 [count, 2] of pages, device memory; not given: every page to its number */
};

/*
 * One step of decoding without a new batch: the first `queries` of `seqs` sequences grow by their accepted
 * tokens, and the rows of their queries become the last ones. Lengths are those of before. An array that is
 * not given is left out; seq_lens is needed, table with slots or csr_indptr, and the four arrays of csr go
 * together. Sequences from `queries` on are padding: they stay as they are, but their rows get token 0,
 * position 0 and slot -1 unless keep_padding is set. A length that its row of the table does not hold is a
 * number beyond its cache. The first `windowed` sequences have slots for the last `window` of their query
 * tokens alone, as prompts of a cache with a window; the others get slot -1.
 */
struct attn_kv_advance_step_args {
    uint32_t struct_size;
    uint32_t block;      /* tokens per page */
    uint32_t seqs;       /* padding included */
    uint32_t queries;    /* sequences that advance */
    uint32_t num_tokens; /* of tokens, positions and slots, padding included */
    uint32_t keep_padding;
    uint32_t index_dtype; /* of table and csr_indices: ATTN_INT32 (default) or ATTN_INT64 */
    uint32_t table_width;
    struct attn_buffer table;          /* [seqs, table_width]; a negative entry is an invalid block */
    int64_t table_stride;              /* bytes between rows */
    uint64_t csr_capacity;             /* entries of csr_indices */
    struct attn_buffer query_starts;   /* i32 [queries + 1]: rows of each; not given: one each */
    struct attn_buffer accepted;       /* i32 [queries]; not given: 1 each */
    struct attn_buffer sampled;        /* i64 [query tokens]: the next tokens; may be tokens itself */
    struct attn_buffer tokens;         /* written from sampled: i64 [num_tokens] */
    struct attn_buffer positions;      /* written: i64 [num_tokens] */
    struct attn_buffer slots;          /* written: i64 [num_tokens] */
    struct attn_buffer seq_lens;       /* i32 [seqs], read and written */
    struct attn_buffer context_lens;   /* written: i32 [queries], lengths without the rows */
    struct attn_buffer seq_starts;     /* written: i32 [seqs + 1], sums of seq_lens */
    struct attn_buffer csr_indptr;     /* written: i32 [seqs + 1] */
    struct attn_buffer csr_indices;    /* written up to csr_indptr[seqs] */
    struct attn_buffer last_page_lens; /* written: i32 [queries] */
    struct attn_buffer csr_pages;      /* written: i32 [queries], pages of each */
    uint32_t windowed;                 /* at most queries; 0: all query tokens have slots */
    uint32_t window;                   /* in tokens */
};

/* ---------------------------------------------------------------- merge */

/* Base of the logarithm of a log-sum-exp. */
enum attn_lse_base { ATTN_LSE_NATURAL = 1, ATTN_LSE_BASE2 = 2 };

/* One partial result. out is [num_tokens, heads, dim], lse f32 [num_tokens, heads]. */
struct attn_merge_part {
    struct attn_tensor out;
    struct attn_tensor lse;
};

/* Merges partial results over disjoint keys (docs/definition.md, section 3). */
struct attn_merge_args {
    uint32_t struct_size;
    uint32_t count; /* parts, at least 1 */
    const struct attn_merge_part *parts;
    uint32_t dtype;    /* of all parts and of out: f32, f16 or bf16 */
    uint32_t lse_base; /* enum attn_lse_base of all parts; the result is natural */
    uint32_t num_tokens;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t reserved;
    struct attn_tensor out; /* may be the out of a part */
    struct attn_tensor lse; /* optional */
};

/* out * exp(own - ln sum exp(all)), 0 where own is -inf, in place (docs/definition.md, section 3). */
struct attn_rescale_args {
    uint32_t struct_size;
    uint32_t dtype;                /* of out */
    struct attn_tensor out;        /* read and written */
    struct attn_tensor own;        /* lse of this rank */
    const struct attn_tensor *all; /* lse of every rank */
    uint32_t count;
    uint32_t lse_base; /* of own and all */
    uint32_t num_tokens;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t reserved;
};

/* ---------------------------------------------------------------- threads of the CPU plugin */

/* One task of a loop: number `index` of it. */
typedef void (*attn_task_fn)(void *arg, uint32_t index);

/* Calls fn(task_arg, i) for every i below n, in any order, on any threads; returns when all are done. */
typedef int32_t (*attn_parallel_for_fn)(void *arg, attn_task_fn fn, void *task_arg, uint32_t n);

/* The program's own work in a graph. */
typedef void (*attn_host_fn)(void *arg);

/* Whose threads work on a call. */
enum attn_executor_kind {
    ATTN_EXECUTOR_PARALLEL_FOR = 1,
    ATTN_EXECUTOR_TEAM = 2,
    ATTN_EXECUTOR_POOL = 3 /* the plugin's own pool */
};

struct attn_graph_impl;

/*
 * What `stream` points to on the CPU. NULL is the plugin's own pool. A call has completed when it returns.
 * In a team all nth threads make the same call, each with its own ith; the work is split among them, and each
 * returns when all is done. `barrier` is called by all of them.
 *
 * While a graph is captured, calls on the executor are kept instead of done. It then must stay where it is.
 */
struct attn_cpu_executor {
    uint32_t struct_size;
    uint32_t kind; /* enum attn_executor_kind */
    void *arg;     /* first argument of the two functions */
    attn_parallel_for_fn parallel_for;
    uint32_t threads; /* parallel_for and pool: most that work on a call, of those opened; 0 = all */
    uint32_t ith;     /* team */
    uint32_t nth;
    uint32_t reserved;
    void (*barrier)(void *arg);
    struct attn_graph_impl *recording; /* NULL; set while a graph is captured, by the plugin alone */
};

/* ---------------------------------------------------------------- what a query answers */

/*
 * What a kernel row does to its operands; its error bounds follow (docs/definition.md, section 6). P are the
 * softmax weights.
 */
enum attn_numerics {
    ATTN_NUMERICS_UNROUNDED = 1,  /* nothing rounded, staged f32 sums */
    ATTN_NUMERICS_P_F16 = 2,      /* P rounded to f16, row sum of unrounded P; or sums that are not staged */
    ATTN_NUMERICS_P_BF16 = 3,     /* P rounded to bf16, row sum of unrounded P */
    ATTN_NUMERICS_SUM_F16 = 4,    /* row sum of P rounded to f16 */
    ATTN_NUMERICS_SUM_BF16 = 5,   /* row sum of P rounded to bf16 */
    ATTN_NUMERICS_P_E4M3 = 6,     /* Q, K, V and P multiplied in e4m3, row sum of rounded P */
    ATTN_NUMERICS_Q_QUANTISED = 7 /* Q quantised by the kernel */
};

/* How fast a kernel row is beside what its device can do. */
enum attn_speed {
    ATTN_SPEED_OPTIMISED = 1, /* written and tuned for its device and element types */
    ATTN_SPEED_GENERIC = 2    /* serves every problem, many times slower than an optimised one */
};

/* One kernel row that serves a problem. */
struct attn_kernel_info {
    char name[64];
    char when[64];        /* for which part of a batch it is taken */
    uint32_t graph_level; /* enum attn_graph_level */
    uint32_t numerics;    /* enum attn_numerics */
    uint32_t speed;       /* enum attn_speed; 0 = the plugin does not say */
    uint32_t reserved;
};

/*
 * Answer to "do you serve this problem?". The caller gives the two arrays and their capacities; counts may
 * come back larger than the capacities (then the rest was not written). accepted = 1 if at least one kernel
 * row serves every part of a batch; reasons are given for every refusing row either way. Where a generic row
 * serves, the first reason of a row says what keeps the optimised one that is closest to the problem:
 * selection tells the user.
 */
struct attn_query {
    uint32_t struct_size;
    uint32_t accepted;
    uint32_t cost_rank; /* among backends of one device class, smallest first */
    uint32_t graph_level;
    struct attn_reason *reasons;
    uint32_t reason_capacity;
    uint32_t reason_count;
    struct attn_kernel_info *kernels;
    uint32_t kernel_capacity;
    uint32_t kernel_count;
};

/* One axis of what a backend serves: a key of the problem string and its values. */
struct attn_axis {
    const char *key;
    const char *const *values; /* names, or NULL for a range */
    uint32_t value_count;
    uint32_t reserved;
    int64_t first; /* range: first, first + step, ... last */
    int64_t last;
    int64_t step;
};

/* What a copy does; "device" is the backend's memory. */
enum attn_copy_kind { ATTN_COPY_TO_DEVICE = 1, ATTN_COPY_TO_HOST = 2, ATTN_COPY_ON_DEVICE = 3 };

/* Levels of the log, from few lines to many. */
enum attn_log_level {
    ATTN_LOG_ERROR = 1,
    ATTN_LOG_WARN = 2,
    ATTN_LOG_INFO = 3,
    ATTN_LOG_DISPATCH = 4,
    ATTN_LOG_DEBUG = 5,
    ATTN_LOG_TRACE = 6 /* one line for each call that runs attention or writes a cache */
};

/* Native objects of the caller, given to attn_backend_open. */
struct attn_open_config {
    uint32_t struct_size;
    uint32_t threads;     /* CPU: threads of the pool; 0 = ATTN_THREADS, else one per core */
    void *native_context; /* the caller's cl_context, CUcontext, ... or NULL */
};

#ifdef __cplusplus
}
#endif
#endif
