/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The step of libattn-serving: what a builder makes of the engine's sequences, what a state makes the batches
 * of kernels from, and what the buffers of a captured graph hold. The fields of attn_metadata_get are a view
 * of it; the names in the comments of the members are vLLM v0.6.4's, as in field.def.
 *
 * The token axis is [all prompt tokens][all decode tokens][padding of a graph]; sequences are in that order.
 */
#ifndef ATTN_SERVING_STEP_H
#define ATTN_SERVING_STEP_H

#include "attn/layer-types.h"

/* A number that a step leaves out: its field has no value. */
#define ATTN_STEP_NONE UINT32_MAX

/* One array of a step, or a table of `count` rows. */
struct attn_step_array {
    uint32_t dtype;            /* ATTN_INT32 or ATTN_INT64; 0: the step has no such array */
    uint32_t width;            /* of a table: columns */
    uint64_t count;            /* elements; of a table: rows */
    int64_t stride;            /* of a table: bytes between rows */
    void *host;                /* NULL: the device alone has the values */
    struct attn_buffer device; /* where kernels read; data NULL: the host alone has the values */
};

/* The members that each cache group has of its own. */
struct attn_step_group {
    struct attn_step_array slots;         /* i64 [tokens]: slot_mapping; -1: not written */
    struct attn_step_array seq_lens;      /* i32 [seqs]: seq_lens_tensor, trimmed to a window */
    struct attn_step_array seq_lens_list; /* i32 [seqs], on the host alone: seq_lens */
    struct attn_step_array seq_starts;    /* i32 [seqs + 1], sums of seq_lens: seq_start_loc */
    struct attn_step_array rank_lens;     /* i32 [seqs], with ranks: keys that this one holds; no field */
    struct attn_step_array table;         /* [rows, width]: block_tables */
    /* Of flavours with pages. Padding has none; sequences of a profile run are left out. */
    struct attn_step_array page_starts;    /* i32 [seqs + 1]: paged_kv_indptr */
    struct attn_step_array page_indices;   /* paged_kv_indices; behind page_starts[seqs]: room to grow */
    struct attn_step_array last_page_lens; /* i32 [seqs], tokens: paged_kv_last_page_len */
    struct attn_step_array pages_in_use;   /* i32 [seqs], 0 until the step advances: block_table_bound */
    uint32_t max_decode_len;               /* max_decode_seq_len */
    uint32_t block;                        /* tokens per block: page_size */
};

/* Of steps that run an encoder, or that have cross-attention over the cached output of one. */
struct attn_step_encoder {
    struct attn_step_array seq_lens;      /* i32 [seqs]: encoder_seq_lens_tensor */
    struct attn_step_array seq_lens_list; /* encoder_seq_lens */
    struct attn_step_array seq_starts;    /* i32 [seqs + 1]: encoder_seq_start_loc */
    struct attn_step_array slots;         /* i64 [tokens of the prompts' encoders]: cross_slot_mapping */
    struct attn_step_array table;         /* [seqs, width]: cross_block_tables */
    uint32_t max_len;                     /* max_encoder_seq_len */
    uint32_t num_tokens;                  /* num_encoder_tokens */
};

/* Of one modality: embedding sources[i] belongs at prompt token destinations[i]. i64, on the host alone. */
struct attn_step_map {
    struct attn_step_array sources;
    struct attn_step_array destinations;
};

struct attn_step {
    uint64_t
        number; /* counts the steps of a builder, so that what was copied of one can be told from the next */
    uint32_t groups;
    uint32_t modalities;
    uint32_t seqs;                   /* sequences, padding included */
    uint32_t queries;                /* sequences without padding */
    uint32_t num_tokens;             /* padding included */
    uint32_t first_row;              /* row of sequence 0 in the block tables */
    uint32_t prefills_without_table; /* prompts whose blocks no row of block_tables shows */
    uint32_t prefills;               /* num_prefills */
    uint32_t prefill_tokens;         /* num_prefill_tokens */
    uint32_t
        decode_tokens; /* num_decode_tokens: as the flavour counts them, which is with padding in graphs */
    uint32_t graph;    /* use_cuda_graph */
    uint32_t max_prefill_len; /* max_prefill_seq_len */
    uint32_t max_q;           /* max_query_len */
    uint32_t max_decode_q;    /* max_decode_query_len, decode_query_len */
    uint32_t profile;         /* is_profile_run */
    uint32_t heads;           /* num_qo_heads, and so on: what a builder's parameters say of the model */
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t kv_dtype;
    uint32_t q_dtype;
    uint32_t cp_rank; /* of the builder's parameters too; cp_world 0: keys are on one rank */
    uint32_t cp_world;
    uint32_t cp_interleave;
    struct attn_step_array query_starts;  /* i32 [queries + 1], and on to seqs + 1: query_start_loc */
    struct attn_step_array decode_starts; /* i32 [queries - prefills + 1]: those of the decodes, from 0 on */
    struct attn_step_array context_lens;  /* i32 [queries]: context_lens_tensor */
    struct attn_step_encoder encoder;
    struct attn_step_group *group; /* [groups] */
    struct attn_step_map *map;     /* [modalities] */
};

#endif
