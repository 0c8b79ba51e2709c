/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The limits of the original layer (the v0 attention layer of vLLM v0.6.4), as data and pure functions: what
 * its recorded results are compared with, to the text. libattn itself refuses only what a query refuses.
 *
 * A flavour is named as a backend ("cpu/flash-attn"), a flavour ("flash-attn"), or as the original does
 * ("FLASH_ATTN"). Known: flash-attn, flashinfer, rocm-flash, and for these checks alone xformers, torch-sdpa
 * and blocksparse.
 */
#ifndef COMPAT_H
#define COMPAT_H

#include "attn/attn.h"

/* What is checked; several are checked in this order, and the first limit that is crossed answers. */
enum compat_question {
    COMPAT_MODEL = 1,     /* what the model runner refuses: features, encoder/decoder models */
    COMPAT_LAYER = 2,     /* construction of a layer */
    COMPAT_CACHE = 4,     /* shape of a layer's cache */
    COMPAT_VIEWS = 8,     /* splitting the cache into views of keys and values */
    COMPAT_METADATA = 16, /* construction of metadata */
    COMPAT_FORWARD = 32   /* one forward of a layer */
};

/* Bits of compat_desc.given. */
#define COMPAT_GIVEN_WINDOW       UINT32_C(1)
#define COMPAT_GIVEN_SOFTCAP      UINT32_C(2) /* 0.0 counts as given */
#define COMPAT_GIVEN_ALIBI        UINT32_C(4) /* slopes; they have no value here */
#define COMPAT_GIVEN_BLOCKSPARSE  UINT32_C(8)
#define COMPAT_GIVEN_DECODE_QUERY UINT32_C(16) /* max_decode_query_len */

/* Bits of compat_desc.features: what a model and its server use. */
#define COMPAT_PREFIX_CACHE   UINT32_C(1)
#define COMPAT_CHUNKED        UINT32_C(2)
#define COMPAT_LORA           UINT32_C(4)
#define COMPAT_PIPELINE       UINT32_C(8)
#define COMPAT_SPECULATIVE    UINT32_C(16)
#define COMPAT_PROMPT_ADAPTER UINT32_C(32)
#define COMPAT_MULTI_STEP     UINT32_C(64)
#define COMPAT_FP8_CHECKPOINT UINT32_C(128)

/* Bits of compat_desc.parts: what one forward has. */
#define COMPAT_KEY            UINT32_C(1)
#define COMPAT_VALUE          UINT32_C(2)
#define COMPAT_HAS_CACHE      UINT32_C(4)   /* a cache with elements */
#define COMPAT_HAS_TABLE      UINT32_C(8)   /* block tables of the prefill part, not empty */
#define COMPAT_PREFILL        UINT32_C(16)  /* a prefill part */
#define COMPAT_DECODE         UINT32_C(32)  /* a decode part */
#define COMPAT_ENCODER_LENS   UINT32_C(64)  /* encoder lengths, on host and device, and their maximum */
#define COMPAT_CROSS          UINT32_C(128) /* cross slot mapping and cross block tables */
#define COMPAT_ENCODER_TOKENS UINT32_C(256) /* the number of encoder tokens */

/* What is judged. Members that no question of `questions` reads may stay zero. */
struct compat_desc {
    uint32_t struct_size;
    uint32_t questions; /* enum compat_question, or-ed */
    uint32_t given;
    uint32_t features; /* MODEL; FP8_CHECKPOINT: LAYER */
    uint32_t parts;    /* FORWARD */
    uint32_t type;     /* enum attn_type; 0 = decoder */
    /* LAYER */
    uint32_t heads;
    uint32_t kv_heads; /* 0 is refused: the layer resolves it before */
    uint32_t head_dim;
    int32_t window;
    float softcap;
    uint32_t model_dtype; /* enum attn_dtype: what cache type "auto" stands for */
    const char *kv_dtype; /* the original's name: "auto", "fp8", "fp8_e4m3", "fp8_e5m2"; NULL = "auto" */
    int32_t sparse_block; /* block-sparse parameters */
    int32_t local_blocks;
    int32_t vert_stride;
    /* CACHE, VIEWS */
    uint32_t block;
    uint64_t pages;
    /* FORWARD */
    float k_scale; /* 0 = 1.0 */
    float v_scale;
    uint32_t max_decode_query;
    uint32_t max_decode_len;
    uint32_t seqs; /* of the decode part */
    uint32_t reserved;
};

/*
 * Would the original accept this? ATTN_OK, or the status that stands for its exception, with a text that
 * begins with the original's. ATTN_E_INVALID also for an unknown flavour.
 */
int32_t compat_check(const char *flavour, const struct compat_desc *desc, struct attn_error *err);

/* How a flavour keeps a soft cap that was not given. */
enum compat_softcap {
    COMPAT_SOFTCAP_NONE = 1,  /* the flavour has none */
    COMPAT_SOFTCAP_UNSET = 2, /* stays unset */
    COMPAT_SOFTCAP_SET = 3    /* has a value; 0 = off */
};

/* What the original makes of a description that it accepts. */
struct compat_values {
    uint32_t struct_size;
    uint32_t queries_per_kv; /* LAYER */
    uint32_t window_count;   /* 0 = no window kept, 1 = one number, 2 = left and right; -1 = unlimited */
    int32_t window[2];
    uint32_t softcap_kind; /* enum compat_softcap */
    float softcap;
    uint32_t cache_rank; /* CACHE */
    uint64_t cache_dims[5];
    uint32_t key_rank; /* VIEWS: dimensions and strides in elements, within one half of the cache */
    uint32_t value_rank;
    uint64_t key_dims[5];
    uint64_t key_strides[5];
    uint64_t value_dims[4];
    uint64_t value_strides[4];
    uint32_t paged_version; /* FORWARD with a decode part: 1, 2, or 0 where no paged kernel runs */
    uint32_t partitions;    /* of 512 keys; 1 for version 1 */
};

/* compat_check, then the values that the questions ask for; the others stay zero. */
int32_t compat_get_values(const char *flavour, const struct compat_desc *desc, struct compat_values *out,
                          struct attn_error *err);

/* The flavour's name in the original, "FLASH_ATTN"; NULL if unknown. */
const char *compat_name(const char *flavour);

/* Head sizes that the flavour accepts anywhere, ascending; static. NULL if unknown. */
const uint32_t *compat_head_dims(const char *flavour, uint32_t *out_count);

/* The element type of a cache: "auto", "half", "bfloat16", "float" or "fp8" (bytes: *out is 0). */
int32_t compat_cache_dtype(const char *name, uint32_t model_dtype, uint32_t *out, struct attn_error *err);
/* How FlashInfer reads the bytes of an 8-bit cache: "fp8", "fp8_e4m3" or "fp8_e5m2". */
int32_t compat_fp8_dtype(const char *name, uint32_t *out, struct attn_error *err);

/* Which paged decode kernel of the original runs: 1 or 2; the partitions of 512 keys go to *out if wanted. */
uint32_t compat_paged_version(uint64_t seqs, uint64_t heads, uint64_t max_len, uint64_t *out_partitions);

/* 1 if the original takes its own paged kernel on a ROCm device: arch "gfx90a", ... */
int32_t compat_rocm_custom(const char *arch, uint32_t q_dtype, uint32_t head_dim, uint32_t block,
                           uint32_t queries_per_kv, uint64_t max_len);
#endif
