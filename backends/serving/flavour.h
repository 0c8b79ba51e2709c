/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What flavours do differently. Each has its record in a file of its own: flash-attn.c, flashinfer.c,
 * rocm-flash.c, xformers.c.
 */
#ifndef ATTN_SERVING_FLAVOUR_H
#define ATTN_SERVING_FLAVOUR_H

#include <stdbool.h>

#include "attn/plugin.h"

/* Bits of sets of flavours. */
#define ATTN__IN(flavour) (1u << (flavour))

struct attn__flavour {
    uint32_t number;           /* enum attn_flavour */
    const char *name;          /* "flash-attn" */
    const char *original_name; /* "FLASH_ATTN", in vLLM's messages */
    const char *module_name;   /* "rocm_flash_attn", in vLLM's message on prefill_to_decode; NULL: accepted */
    bool pages;  /* kernels read lists of pages, which a step has beside its block tables: flashinfer.h */
    bool drafts; /* a decode may have several query tokens */
    bool hit_shows_all;       /* a prefix hit of one prompt shows the blocks of all prompts of the step */
    bool empty_steps;         /* a step may have no sequences, or no query tokens */
    bool graph_rows_are_seqs; /* a graph sees a row of block_tables for each sequence, not each token */
    bool graph_prompts_are_decodes; /* num_decode_tokens of a graph counts the tokens of prompts too */
    bool no_decode_q;               /* max_decode_query_len is left out */
    bool parts_need_all;            /* a part wants every array to be set */
    bool no_advance;                /* steps do not advance in place */
    bool sampled;                   /* advancing wants the sampled tokens */
    bool grows_past_window;         /* a sequence may advance beyond its window */
    bool captures_cross;            /* graphs may have cross-attention */
};

/* The shapes of their caches: entries of struct attn_kv_table. */
int32_t attn__kv_shape_flash_attn(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                  uint32_t pages, struct attn_kv_shape *out, struct attn_error *err);
int32_t attn__kv_shape_flashinfer(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                  uint32_t pages, struct attn_kv_shape *out, struct attn_error *err);
int32_t attn__kv_shape_rocm_flash(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                  uint32_t pages, struct attn_kv_shape *out, struct attn_error *err);

extern const struct attn__flavour attn__flash_attn, attn__flashinfer, attn__rocm_flash, attn__xformers;

/* NULL for a number that is no flavour. */
const struct attn__flavour *attn__flavour_get(uint32_t number);
/*
 * The flavour of a number, or with 0 that of the backend's name; names that no flavour has get
 * FlashAttention's rules. Refuses other numbers, and 0 without a backend.
 */
int32_t attn__flavour_choose(const struct attn_serving_host *host, uint32_t number,
                             const struct attn__flavour **out, struct attn_error *err);

#endif
