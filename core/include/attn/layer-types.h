/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Plain data of the serving layer, shared by callers (layer.h) and implementers (plugin.h): what a builder is
 * told about a step, and the view through which a field of the metadata is read.
 *
 * Words used here: context_len = tokens of a sequence whose keys are in the cache already; query_len = its
 * new tokens of this step; seq_len = both together; slot = block number * tokens per block + token. The token
 * axis of a step is [all prompt tokens][all decode tokens][padding of a graph].
 */
#ifndef ATTN_LAYER_TYPES_H
#define ATTN_LAYER_TYPES_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which builder, state and flow: the part of a backend's name behind the slash. */
enum attn_flavour {
    ATTN_FLASH_ATTN = 1, /* flash-attn */
    ATTN_FLASHINFER = 2, /* flashinfer */
    ATTN_ROCM_FLASH = 3, /* rocm-flash */
    ATTN_XFORMERS = 4    /* xformers: no backend of that name, but the builder and state that ROCm shares */
};

/* ---------------------------------------------------------------- reading a field */

/* The fields: field.def. */
enum attn_field {
#define ATTN_FIELD(name, value, text, scope, flavours) ATTN_FIELD_##name = (value),
#include "attn/field.def"
    ATTN_FIELDS = 37 /* one more than the last number */
};

/* What a field of the metadata is read as. */
enum attn_view_kind {
    ATTN_VIEW_NULL = 1,   /* the field has no value: not of this flavour, or not in this part */
    ATTN_VIEW_NUMBER = 2, /* `value`; flags are 0 or 1, data types enum attn_dtype */
    ATTN_VIEW_LIST = 3,   /* host memory only */
    ATTN_VIEW_ARRAY = 4   /* device memory; `host` is a copy, or NULL if only the device knows the values; of
                             steps that were built with host_only there is the copy alone */
};

/* One field. Arrays of rank 2 are rows of contiguous elements, `stride` bytes apart. */
struct attn_view {
    uint32_t struct_size;
    uint32_t kind;  /* enum attn_view_kind */
    uint32_t dtype; /* of the elements: ATTN_INT32 or ATTN_INT64 */
    uint32_t rank;  /* 1 or 2; 0 for numbers */
    uint64_t shape[2];
    int64_t stride;
    int64_t value;
    void *host;
    struct attn_buffer device;
};

/* ---------------------------------------------------------------- what a builder is made for */

/* Bits of attn_builder_group.given. */
#define ATTN_GIVEN_WINDOW UINT32_C(1)

/*
 * Leaf. One cache group: layers whose caches share block numbers. The cross group is described by the same
 * struct.
 */
struct attn_builder_group {
    uint32_t given;         /* ATTN_GIVEN_* */
    uint32_t block;         /* tokens per block */
    uint32_t window;        /* sliding window in tokens, 0 included, if given */
    uint32_t max_blocks;    /* columns of the block table: the most blocks of a sequence */
    uint32_t graph_blocks;  /* columns that a graph sees; 0 = max_blocks */
    uint32_t max_indices;   /* FlashInfer: blocks of all sequences together; 0 = max_seqs * max_blocks */
    struct attn_span table; /* the engine's own block table on the device; none: the builder allocates it */
    int64_t table_stride;   /* bytes between its rows; 0 = max_blocks elements */
    uint64_t reserved[4];
};

/*
 * Sizes are maxima; a step beyond one is ATTN_E_SIZE with both numbers. Padding of graphs counts.
 */
struct attn_builder_params {
    uint32_t struct_size;
    uint32_t flavour;                       /* enum attn_flavour; 0 = the backend's own */
    uint32_t groups;                        /* cache groups; 0 = 1 */
    uint32_t chunked;                       /* 1: chunked prefill, so that prompts have block table rows */
    const struct attn_builder_group *group; /* [groups] */
    uint32_t max_seqs;                      /* sequences of a step, and rows of the block tables */
    uint32_t max_tokens;                    /* new tokens of a step */
    uint32_t index_dtype; /* of block tables and indices: ATTN_INT32 (default), ATTN_INT64 */
    uint32_t steps;       /* steps whose copies may be under way at once; 0 = 1 */
    uint32_t heads;       /* FlashInfer reports these five */
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t q_dtype;
    uint32_t kv_dtype;
    uint32_t max_encoder_tokens;            /* of a step; 0: no encoder, no cross-attention */
    const struct attn_builder_group *cross; /* cross-attention's blocks; NULL without */
    const char *const *modalities;          /* [modality_count] names; strings must outlive the builder */
    uint32_t modality_count;
    uint32_t max_map; /* index pairs of one modality in a step */
    /*
     * Keys that cp_world ranks hold, cp_interleave at a time in turn (docs/definition.md, section 4), and
     * this one of them; all 0: one holds all. Lengths stay those of all keys; lists and rows of blocks are
     * this rank's, and tokens of others have slot -1. cp_interleave divides the blocks, and chunked is 1.
     * Experimental: may change in any release. What is refused with ranks: docs/parallel.md.
     */
    uint32_t cp_rank;
    uint32_t cp_world;
    uint32_t cp_interleave;
    uint32_t reserved;
};

/* ---------------------------------------------------------------- what a step is made of */

/* How the blocks of a sequence are given. */
enum attn_blocks_kind {
    ATTN_BLOCKS_LIST = 1, /* `blocks` and `count`; may be empty */
    ATTN_BLOCKS_NULL = 2, /* a table that is null, as of pooling models: a profile run without rows */
    ATTN_BLOCKS_ROW = 3   /* the row as it is in the block table: `count` of its cells */
};

/*
 * Leaf. The blocks of one sequence in one cache group. All zero: there is no table at all, which makes the
 * step a profile run: nothing is cached.
 */
struct attn_blocks {
    uint32_t kind; /* enum attn_blocks_kind; 0 = no table */
    uint32_t count;
    const int64_t *blocks;  /* [count]; read until attn_builder_build has returned */
    uint32_t unchanged;     /* leading blocks that are the same as at the row's last add */
    uint32_t computed;      /* prefix hit: leading blocks that were computed before */
    uint32_t window_blocks; /* decode with a window: the row shows the last so many blocks; 0 = all */
    uint32_t seq_len;       /* length that kernels see: trimmed to the window; 0 = the sequence's own */
    uint64_t reserved;
};

/*
 * Leaf. Embeddings of one modality among the new tokens of a prompt: row sources[i] of the sequence's own
 * embeddings belongs at its new token destinations[i]. The metadata holds the maps of all sequences one
 * behind the other, counted in the step's embeddings and tokens.
 */
struct attn_index_map {
    uint32_t modality;           /* number in attn_builder_params.modalities */
    uint32_t count;              /* pairs */
    const int64_t *sources;      /* [count] below rows */
    const int64_t *destinations; /* [count] below query_len */
    uint64_t rows;               /* embeddings that the sequence brings */
};

/* Bits of attn_builder_add_args.given. */
#define ATTN_GIVEN_ROW UINT32_C(1)

/* One sequence of a step. Prompts come before decodes. */
struct attn_builder_add_args {
    uint32_t struct_size;
    uint32_t given;      /* ATTN_GIVEN_* */
    uint32_t row;        /* row of the block tables, if given; the rows of a step follow one another */
    uint32_t prompt;     /* 1: prompt or chunk of one; 0: decode */
    uint32_t prefix_hit; /* 1: leading blocks of a prompt were found in the prefix cache */
    uint32_t context_len;
    uint32_t query_len;
    uint32_t encoder_len;             /* tokens of the encoder's sequence */
    const struct attn_blocks *blocks; /* one per cache group */
    const struct attn_blocks *cross;  /* cross-attention's blocks; NULL = no table */
    const struct attn_index_map *maps;
    uint32_t map_count;
    uint32_t reserved;
};

/* New blocks of a row: cells `first` to `first` + `count` of the sequence's list. */
struct attn_builder_row_args {
    uint32_t struct_size;
    uint32_t group; /* cache group; `groups` = the cross table */
    uint32_t row;
    uint32_t first;
    uint32_t count;
    uint32_t reserved;
    const int64_t *blocks;
};

/*
 * A step that is on the device already: one batch per cache group, all of the same sequences and rows,
 * prompts first. Of a batch q_offsets, kv_lens, table and its stride and width are read, and max_q and
 * max_kv. The arrays are shown as they are, so that they must stay as long as the metadata.
 */
struct attn_builder_device_args {
    uint32_t struct_size;
    uint32_t prefills;
    uint32_t prompt_tokens;
    uint32_t max_prefill_seq_len;  /* upper bounds are accepted */
    uint32_t max_decode_query_len; /* 0 = max_q */
    uint32_t reserved;
    const struct attn_batch *const *batches; /* [groups] */
    struct attn_buffer positions;            /* written if given: i64 [num_tokens] */
};

/* How a step ends. */
struct attn_builder_build_args {
    uint32_t struct_size;
    uint32_t graph; /* 1: for a captured graph, padded by `pad` sequences */
    uint32_t pad;
    /* 1: for a captured graph, into which attn_state_prepare copies the step. The build copies nothing, and
       arrays have a host copy alone. No difference where the device is the host. */
    uint32_t host_only;
};

/* ---------------------------------------------------------------- after a step */

/* A part of a step. */
enum attn_part {
    ATTN_PART_PREFILL = 1, /* prompts and chunks of them */
    ATTN_PART_DECODE = 2   /* the rest, with the padding of a graph */
};

/*
 * One step of decoding in place. Every sequence keeps its number of query tokens and grows by its accepted
 * ones; the rows of its query become its last ones.
 */
struct attn_advance_args {
    uint32_t struct_size;
    uint32_t seqs;    /* of the step, padding of a graph included */
    uint32_t queries; /* without it */
    uint32_t
        prefill_to_decode;   /* 1: prefills of the last step become decodes of one token (FlashAttention) */
    const int32_t *accepted; /* host memory [queries]; NULL: 1 each */
    uint32_t max_accepted;   /* largest count that only the device knows; 0 = 1 */
    uint32_t reserved;
    struct attn_buffer
        accepted_device;          /* i32 [queries]: the same counts for a device with memory of its own */
    struct attn_buffer sampled;   /* i64 [query tokens]: the next tokens; FlashInfer wants them */
    struct attn_buffer tokens;    /* i64 [tokens of the step], written from sampled, which it may be */
    struct attn_buffer positions; /* i64 [tokens of the step], written; may be left out */
};

/* ---------------------------------------------------------------- a serialised step */

#define ATTN_SERIALISED_MAGIC   UINT64_C(0x504554534e545441) /* attn_serialised_header.magic */
#define ATTN_SERIALISED_VERSION UINT32_C(1)                  /* attn_serialised_header.version */

/*
 * What attn_metadata_serialise writes: this header, a word per cache group (tokens per block), the records,
 * and the elements of arrays and lists, each at a multiple of 8 bytes from the start. Little-endian.
 */
struct attn_serialised_header {
    uint64_t magic; /* "ATTNSTEP" */
    uint32_t version;
    uint32_t records;
    uint64_t bytes; /* of all */
    uint32_t flavour;
    uint32_t groups;
    uint32_t modalities;
    uint32_t index_dtype;
    uint32_t seqs;
    uint32_t queries;
    uint32_t first_row;
    uint32_t untabled; /* prefills whose blocks are in no block table */
};

/* One field that has a value. Rows of arrays of rank 2 follow one another without a gap. */
struct attn_serialised_record {
    uint32_t field; /* enum attn_field */
    uint32_t index; /* cache group or modality */
    uint32_t kind;  /* enum attn_view_kind */
    uint32_t dtype;
    uint32_t rank;
    uint32_t reserved;
    uint64_t shape[2];
    int64_t value;
    uint64_t offset; /* of the elements, from the start */
};

/* ---------------------------------------------------------------- what a state is made for */

/*
 * Leaf. A layer class of a model: a problem with all four maxima, and the cache group that its layers use.
 *
 * Prompts whose blocks are in no table, and prompts of cross-attention, read their keys from k_new and v_new
 * even where the problem reads a cache; then a step can have two runs, prompts and decodes.
 */
struct attn_layer_class {
    const struct attn_problem *problem;
    uint32_t group;     /* encoder classes and cross-attention have none: 0 */
    uint32_t new_dtype; /* of k_new and v_new where the problem reads the cache alone: f32, f16 or bf16;
                           0 = that of q, or bf16 if q has 8 bits */
};

struct attn_collectives; /* attn/parallel.h */

/* Capture buffers follow from max_batch, max_kv and the groups, everything else from the problems' maxima. */
struct attn_state_params {
    uint32_t struct_size;
    uint32_t flavour;                       /* enum attn_flavour; 0 = the backend's own */
    const struct attn_builder_group *group; /* [groups], as the builder has them; `table` does not count */
    uint32_t groups;                        /* cache groups; 0 = 1 */
    uint32_t index_dtype;                   /* of FlashInfer's indices: ATTN_INT32 (default), ATTN_INT64 */
    uint32_t max_capture_len;               /* most tokens of a sequence in a graph; 0 = the least max_kv */
    uint32_t steps;                         /* steps whose copies may be under way at once; 0 = 1 */
    const struct attn_builder_group *cross; /* cross-attention's blocks; NULL without */
    uint32_t capture_tokens;                /* most query tokens of a sequence in a graph; 0 = 1 */
    uint32_t capture_num_tokens; /* most query tokens of a graph of any mix; 0: there are no such graphs */
    /*
     * What connects the ranks that hold the keys (attn/parallel.h), for steps of builders with cp_rank and
     * cp_world; NULL: one holds all. Copied. Then all problems have cp=1 and lse=1. Experimental: may change
     * in any release.
     */
    const struct attn_collectives *collectives;
    uint32_t cp_heads; /* with collectives, ATTN_CP_HEADS_SPLIT or ATTN_CP_HEADS_ALL: what heads q, out and
                          lse of layers have */
    uint32_t cp_interleave; /* with collectives: that of all steps, for graphs; 0: any, and no graphs */
};

/*
 * One size to capture: decodes of `tokens` query tokens each, or with num_tokens any mix of prompts and
 * decodes of up to `batch` sequences.
 */
struct attn_state_capture_args {
    uint32_t struct_size;
    uint32_t batch;           /* sequences */
    uint32_t encoder_decoder; /* 1: with the fields of cross-attention; not with num_tokens */
    uint32_t tokens;          /* query tokens of each sequence, as to verify tokens - 1 drafted ones; 0 = 1 */
    uint32_t num_tokens;      /* query tokens of all sequences of any mix; 0: decodes of `tokens` each */
    uint32_t reserved;
};

/* What the one run of a layer class has in the step that was begun. Valid until the next begin. */
struct attn_state_step {
    uint32_t struct_size;
    uint32_t reserved;
    const struct attn_plan *plan;
    const struct attn_batch *batch; /* no sequences: the step has nothing for this class */
    const struct attn_span *schedule;
    const struct attn_scratch *scratch;
};

/* ---------------------------------------------------------------- layers */

/* What one layer is. */
struct attn_layer_desc {
    uint32_t struct_size;
    uint32_t class_index; /* of its class among those of the states that it runs with */
    const struct attn_layer_class *layer_class;
    float softmax_scale;             /* required: finite and > 0, no default */
    uint32_t sinks_dtype;            /* ATTN_F32 or ATTN_BF16 */
    struct attn_buffer alibi_slopes; /* f32 [heads], exactly if the problem has alibi; stays the caller's */
    struct attn_buffer sinks;        /* [heads], exactly if the problem has sinks; stays the caller's */
};

/*
 * One forward of one layer, all in the backend's memory. Rows are the step's tokens in its order: prompts,
 * decodes, padding. Of `encoder` and of cross-attention's keys they are the encoder's tokens of all prompts.
 * With ranks `heads` are this rank's where heads are split, keys and values those of all new tokens, and lse
 * may be left out.
 */
struct attn_layer_tensors {
    uint32_t struct_size;
    uint32_t mask_packed;      /* as in attn_tensors, like all that begins with mask */
    struct attn_tensor q;      /* [num_tokens, heads, head_dim]; with q_rope the MLA columns alone */
    struct attn_tensor q_rope; /* mla, optional */
    struct attn_tensor
        k_new; /* [num_tokens, kv_heads, head_dim]; none: nothing is written, keys are in the cache */
    struct attn_tensor v_new; /* [num_tokens, kv_heads, head_dim_vo]; none where the cache has no v */
    struct attn_tensor
        k_rope;             /* MLA, optional: rope columns of k_new, which then has the MLA columns alone */
    struct attn_tensor out; /* [num_tokens, heads, head_dim_vo], written */
    struct attn_tensor lse; /* f32 [num_tokens, heads], written exactly if the problem has lse */
    struct attn_buffer mask;
    struct attn_buffer mask_starts;
    int64_t mask_seq_stride;
    int64_t mask_head_stride;
    int64_t mask_row_stride;
    struct attn_scale q_scale;
    struct attn_scale k_new_scale;
    struct attn_scale v_new_scale;
    struct attn_scale out_scale;
};

#ifdef __cplusplus
}
#endif
#endif
