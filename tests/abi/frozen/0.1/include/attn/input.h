/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What an engine works out before it describes a step to a builder: which tokens of a sequence are computed,
 * where their keys go, and whether a graph can be launched and how far the batch is padded for it. Pure
 * functions of host memory that allocate nothing; any thread may call them. Lengths are in tokens. A number
 * that is out of range is ATTN_E_INVALID, and then nothing was written.
 */
#ifndef ATTN_INPUT_H
#define ATTN_INPUT_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- where new tokens go */

/*
 * 1 if a batch has no cache yet, which makes it a profile run: `lists` is NULL, or each of its `count`
 * members (the block list of a sequence) is. No members count as none given. A list without blocks is a list:
 * it is given by any address but NULL.
 */
ATTN_API int attn_input_is_profile(const void *const *lists, uint32_t count);

/*
 * First token of a sequence whose key is kept: with a window (negative = none) those of a prompt before its
 * last `window` ones are not. An index from the first token of the sequence, computed from query_len
 * alone as in vLLM.
 */
ATTN_API int64_t attn_input_start(int prompt, int64_t query_len, int64_t window);

/* One sequence, for attn_slot_mapping. */
struct attn_slot_args {
    uint32_t struct_size;
    uint32_t profile; /* 1: there is no cache, seq_len slots are -1 */
    int64_t seq_len;
    int64_t context_len;  /* tokens whose keys are in the cache already */
    int64_t start;        /* attn_input_start */
    uint32_t block;       /* tokens per page, 1 at least */
    uint32_t block_dtype; /* of blocks: ATTN_INT32 (default) or ATTN_INT64 */
    const void *blocks;   /* pages of the whole sequence from its first token on; a negative one is invalid */
    uint64_t block_count;
    uint32_t cp_rank;       /* keys sharded over ranks: this one, how many, and how many in a row on each */
    uint32_t cp_world;      /* 0 = not sharded */
    uint32_t cp_interleave; /* divides block */
    uint32_t reserved;
};

/*
 * Slots of the new tokens of one sequence: first max(0, start - context_len) times -1, then, for every
 * position from max(start, context_len) to seq_len, the place page * block + token in the page, or -1 if it
 * lies in an invalid block or on another rank. All or nothing: an error leaves `slots` alone. ATTN_E_SIZE:
 * there are more than `capacity` of them. *out_count gets the number of slots, of those needed with
 * ATTN_E_SIZE; `slots` may be NULL with capacity 0.
 */
ATTN_API int32_t attn_slot_mapping(const struct attn_slot_args *args, int64_t *slots, uint64_t capacity,
                                   uint64_t *out_count, struct attn_error *err);

/* ---------------------------------------------------------------- which tokens are computed */

/* Bits of attn_input_rules.given. */
#define ATTN_GIVEN_INPUT_WINDOW UINT32_C(1)

/* What holds for all steps of an engine. Members without a comment are 0 or 1. */
struct attn_input_rules {
    uint32_t struct_size;
    uint32_t given; /* ATTN_GIVEN_INPUT_WINDOW: window counts */
    uint32_t block; /* tokens per page */
    uint32_t window;
    uint32_t max_seqs;        /* most sequences of a step */
    uint32_t max_capture_len; /* most tokens of a sequence for which graphs are captured */
    uint32_t chunked_prefill;
    uint32_t multi_step; /* several steps are run for one decision of the scheduler */
    uint32_t encoder_decoder;
    uint32_t eager; /* no graphs */
};

/* One sequence as the scheduler gives it. */
struct attn_input_request {
    uint32_t struct_size;
    uint32_t prompt;        /* 1: not all tokens of the prompt are computed yet */
    uint32_t total_len;     /* tokens that are known */
    uint32_t computed_len;  /* tokens whose keys are in the cache */
    uint32_t chunk;         /* prompt: most tokens to compute now */
    uint32_t cached_blocks; /* prompt: full pages of its beginning that the cache holds already, hits */
};

/* The same sequence as a builder takes it. Tokens [context_len, orig_seq_len) are computed. */
struct attn_input {
    uint32_t struct_size;
    uint32_t prefix_hit; /* 1: there were hits, and they count */
    uint32_t context_len;
    uint32_t query_len;
    uint32_t orig_seq_len;
    uint32_t seq_len;       /* tokens to attend to: decode with a window trims it */
    uint32_t window_blocks; /* pages at the end of the table that a trimmed sequence uses; 0 = all */
    uint32_t reserved;
};

/*
 * Prepares a sequence. Hits shorten a prompt that has no window, to its last token if they cover all of it.
 * A window shortens a decode to whole pages of the window and what the last page holds.
 */
ATTN_API int32_t attn_input_prepare(const struct attn_input_rules *rules,
                                    const struct attn_input_request *request, struct attn_input *out,
                                    struct attn_error *err);

/* ---------------------------------------------------------------- drafted tokens */

/*
 * A tree of drafted tokens behind a context, to verify all its branches at once: its mask, for problems with
 * mask=bits span=square, and the RoPE positions of its tokens. `parents[i]` is the token that token i
 * follows, one before it; -1: the last token of the context, which any number of tokens may follow. Token i
 * sees the context, its ancestors and itself.
 *
 * Row i of the mask begins at byte i * row_stride; bit c % 8 of its byte c / 8 is token c. Bits of a row
 * behind the tree are cleared. `positions` [count] may be NULL: context_len and the number of ancestors.
 * ATTN_E_INVALID names what cannot be, ATTN_E_SIZE a row_stride below (count + 7) / 8; nothing is written
 * then.
 */
ATTN_API int32_t attn_tree_mask(const int32_t *parents, uint32_t count, int64_t context_len, void *mask,
                                uint64_t row_stride, int64_t *positions, struct attn_error *err);

/* ---------------------------------------------------------------- graphs */

/* Largest batch that graphs are captured for. */
#define ATTN_GRAPH_BATCH_MAX UINT32_C(8192)

/* Size that a batch is padded to: 0, 1, 2, 4, then multiples of 8. `seqs` is at most UINT32_MAX - 7. */
ATTN_API uint32_t attn_graph_padded(uint32_t seqs);

/* Largest size captured for at most `max_seqs` sequences. */
ATTN_API uint32_t attn_graph_largest(uint32_t max_seqs);

/*
 * The sizes to capture, from small to large: 1, 2, 4, 8, 16, 24 ... attn_graph_largest(max_seqs). Writes at
 * most `capacity` of them and returns how many there are.
 */
ATTN_API uint32_t attn_graph_sizes(uint32_t max_seqs, uint32_t *out, uint32_t capacity);

/* A step, all sequences together. */
struct attn_input_step {
    uint32_t struct_size;
    uint32_t seqs;
    uint32_t prompts;         /* how many of them are prompts */
    uint32_t max_decode_len;  /* largest seq_len of a decode */
    uint32_t max_encoder_len; /* largest encoder length, 0 without an encoder */
    uint32_t reserved;
};

/*
 * Sequences to add to a step for a graph, in *out_pad: 0 or more, or -1 if it runs without one. The same
 * number of tokens is added, of id 0 and position 0.
 */
ATTN_API int32_t attn_graph_pad(const struct attn_input_rules *rules, const struct attn_input_step *step,
                                int32_t *out_pad, struct attn_error *err);

#ifdef __cplusplus
}
#endif
#endif
