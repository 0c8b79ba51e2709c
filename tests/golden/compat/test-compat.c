/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The original's limits: each crossed alone, with its status and the first words of its text. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "compat.h"

/* A description that every flavour accepts in every question. */
static void good(struct compat_desc *desc, uint32_t questions)
{
    ATTN_INIT(desc);
    desc->questions = questions;
    desc->type = ATTN_DECODER;
    desc->heads = 8;
    desc->kv_heads = 2;
    desc->head_dim = 64;
    desc->model_dtype = ATTN_F16;
    desc->block = 16;
    desc->pages = 4;
    desc->seqs = 3;
    desc->max_decode_query = 1;
    desc->max_decode_len = 100;
    desc->given = COMPAT_GIVEN_DECODE_QUERY;
    desc->parts = COMPAT_KEY | COMPAT_VALUE | COMPAT_HAS_CACHE | COMPAT_DECODE;
}

enum { MODEL = COMPAT_MODEL, LAYER = COMPAT_LAYER, CACHE = COMPAT_CACHE };
enum { VIEWS = COMPAT_VIEWS, METADATA = COMPAT_METADATA, FORWARD = COMPAT_FORWARD };

/* One member changed. */
struct limit {
    const char *flavour;
    uint32_t question;
    int32_t status;
    const char *text;
    size_t member; /* offset of a 32-bit member; 0 = none */
    uint32_t value;
    uint32_t given;
    uint32_t features;
    uint32_t parts; /* flipped */
    uint32_t type;
    const char *kv_dtype;
};

#define AT(name)  offsetof(struct compat_desc, name)
#define BAD       ATTN_E_INVALID
#define UNSERVED  ATTN_E_UNSUPPORTED
#define ENC_LENS  COMPAT_ENCODER_LENS
#define SPLIT     (COMPAT_PREFILL | COMPAT_DECODE)
#define PREFIX    (COMPAT_PREFILL | COMPAT_DECODE | COMPAT_HAS_TABLE)
#define ALL_CROSS (ENC_LENS | COMPAT_CROSS | COMPAT_ENCODER_TOKENS)

static const struct limit limits[] = {
    /* construction */
    {"flash-attn", LAYER, BAD, "FlashAttention does not support block-sparse attention.",
     .given = COMPAT_GIVEN_BLOCKSPARSE},
    {"FLASH_ATTN", LAYER, BAD,
     "Head size 80 is not supported by FlashAttention. Supported head sizes are: [32, 64, 96, 128, 160, 192, "
     "224, 256].",
     .member = AT(head_dim), .value = 80},
    {"flashinfer", LAYER, BAD, "Sliding window is not supported in FlashInfer.",
     .given = COMPAT_GIVEN_WINDOW},
    {"flashinfer", METADATA, BAD, "Only [64, 128, 256] are supported for head_dim, received 80.",
     .member = AT(head_dim), .value = 80},
    {"rocm-flash", LAYER, BAD, "ROCmFlashAttention does not support blocksparse attention.",
     .given = COMPAT_GIVEN_BLOCKSPARSE},
    {"rocm-flash", LAYER, BAD, "ROCmFlashAttention does not support attention logits soft capping.",
     .given = COMPAT_GIVEN_SOFTCAP},
    {"cpu/rocm-flash", LAYER, BAD,
     "Head size 160 is not supported by PagedAttention. Supported head sizes are: [32, 64, 80, 96, 112, 120, "
     "128, 192, 256].",
     .member = AT(head_dim), .value = 160},
    {"xformers", LAYER, BAD, "XFormers does not support block-sparse attention.",
     .given = COMPAT_GIVEN_BLOCKSPARSE},
    {"xformers", LAYER, BAD, "XFormers does not support attention logits soft capping.",
     .given = COMPAT_GIVEN_SOFTCAP},
    {"torch-sdpa", LAYER, BAD, "Torch SPDA does not support block-sparse attention.",
     .given = COMPAT_GIVEN_BLOCKSPARSE},
    {"torch-sdpa", LAYER, BAD, "Torch SPDA does not support logits soft cap.", .given = COMPAT_GIVEN_SOFTCAP},
    {"torch-sdpa", LAYER, UNSERVED,
     "Torch SDPA backend does not support FP8 KV cache. Please use xFormers backend instead.",
     .kv_dtype = "fp8"},
    {"flash-attn", LAYER, BAD, "fp8_e5m2 kv-cache is not supported with fp8 checkpoints.",
     .features = COMPAT_FP8_CHECKPOINT, .kv_dtype = "fp8_e5m2"},
    {"rocm-flash", LAYER, BAD, "kv_heads is 3", .member = AT(kv_heads), .value = 3},
    {"flashinfer", LAYER, BAD, "kv_heads is 0", .member = AT(kv_heads), .value = 0},
    {"blocksparse", LAYER, BAD, "blocksparse:", .given = 0},
    {"blocksparse", LAYER, BAD, "alibi:", .given = COMPAT_GIVEN_ALIBI | COMPAT_GIVEN_BLOCKSPARSE},
    {"blocksparse", LAYER, BAD, "sparse_block:", .given = COMPAT_GIVEN_BLOCKSPARSE},
    /* caches */
    {"flash-attn", CACHE, BAD, "Block size must be a multiple of 16.", .member = AT(block), .value = 24},
    {"xformers", CACHE, BAD, "Unknown kv cache dtype: int4", .kv_dtype = "int4"},
    {"rocm-flash", CACHE, BAD, "block is 0", .member = AT(block), .value = 0},
    {"rocm-flash", VIEWS, BAD, "head_dim is 120", .member = AT(head_dim), .value = 120, .kv_dtype = "fp8"},
    {"xformers", VIEWS, BAD, "model_dtype", .member = AT(model_dtype), .value = 0},
    /* forward */
    {"flash-attn", FORWARD, BAD, "key/v_scale is not supported in FlashAttention.", .member = AT(k_scale),
     .value = 0x3f000000},
    {"flash-attn", FORWARD, BAD, "key/v_scale is not supported in FlashAttention.", .member = AT(v_scale),
     .value = 0x3f000000},
    {"torch-sdpa", FORWARD, BAD, "k_scale is 0.5", .member = AT(k_scale), .value = 0x3f000000},
    {"flash-attn", FORWARD, BAD, "Encoder attention requires setting encoder metadata attributes.",
     .type = ATTN_ENCODER},
    {"xformers", FORWARD, BAD,
     "Encoder/decoder cross-attention requires setting cross-attention metadata attributes.",
     .type = ATTN_ENCODER_DECODER, .parts = ENC_LENS},
    {"flash-attn", FORWARD, BAD, "num_encoder_tokens", .type = ATTN_ENCODER, .parts = ENC_LENS},
    {"flashinfer", FORWARD, UNSERVED,
     "Encoder self-attention and encoder/decoder cross-attention are not implemented for FlashInferImpl",
     .type = ATTN_ENCODER_ONLY},
    {"rocm-flash", FORWARD, UNSERVED,
     "Encoder self-attention and encoder/decoder cross-attention are not implemented for "
     "ROCmFlashAttentionImpl",
     .type = ATTN_ENCODER},
    {"xformers", FORWARD, BAD, "one of key and value is given", .parts = COMPAT_VALUE},
    {"flash-attn", FORWARD, BAD, "metadata has neither", .parts = COMPAT_DECODE},
    {"torch-sdpa", FORWARD, BAD, "metadata has a prefill and a decode part", .parts = COMPAT_PREFILL},
    {"torch-sdpa", FORWARD, BAD, "Torch SDPA backend doesn't support prefix decoding.", .parts = PREFIX},
    {"flash-attn", FORWARD, BAD, "Should not have decode for encoder only model.", .type = ATTN_ENCODER_ONLY,
     .parts = COMPAT_PREFILL},
    {"flash-attn", FORWARD, BAD, "Only decoder-only models support prefix caching", .type = ATTN_ENCODER_ONLY,
     .parts = PREFIX},
    {"xformers", FORWARD, BAD, "type is encoder_only; prefix caching", .type = ATTN_ENCODER_ONLY,
     .parts = PREFIX},
    {"flash-attn", FORWARD, BAD, "Only decoder-only models support max_decode_query_len > 1",
     .member = AT(max_decode_query), .value = 2, .type = ATTN_ENCODER_DECODER, .parts = ALL_CROSS},
    {"flash-attn", FORWARD, BAD, "Invalid attention type", .type = ATTN_ENCODER_ONLY},
    {"flash-attn", FORWARD, BAD, "max_decode_query_len is not given", .member = AT(given), .value = 0},
    {"flashinfer", FORWARD, BAD, "decode_query_len is 2; beside prompts", .member = AT(max_decode_query),
     .value = 2, .parts = COMPAT_PREFILL},
    {"rocm-flash", FORWARD, BAD, "Unsupported block size: 64", .member = AT(block), .value = 64},
    {"xformers", FORWARD, BAD, "type is encoder_only; it has no decode part", .type = ATTN_ENCODER_ONLY},
    {"flash-attn", FORWARD, BAD, "Invalid attention type 5", .member = AT(type), .value = 5},
    /* models */
    {"xformers", MODEL, UNSERVED, "Prefix caching for encoder/decoder models is not currently supported.",
     .type = ATTN_ENCODER_DECODER, .features = COMPAT_PREFIX_CACHE | COMPAT_CHUNKED},
    {"flash-attn", MODEL, UNSERVED,
     "Sliding window attention for encoder/decoder models is not currently supported.",
     .type = ATTN_ENCODER_DECODER, .given = COMPAT_GIVEN_WINDOW, .features = COMPAT_CHUNKED},
    {"flash-attn", MODEL, UNSERVED, "Chunked prefill for encoder/decoder models is not currently supported.",
     .type = ATTN_ENCODER_DECODER, .features = COMPAT_CHUNKED | COMPAT_LORA},
    {"flash-attn", MODEL, UNSERVED,
     "Models with logits_soft_cap require FlashInfer backend, which is currently not supported for "
     "encoder/decoder models.",
     .type = ATTN_ENCODER_DECODER, .given = COMPAT_GIVEN_SOFTCAP},
    {"flash-attn", MODEL, UNSERVED, "LoRA is currently not currently supported with encoder/decoder models.",
     .type = ATTN_ENCODER_DECODER, .features = COMPAT_LORA | COMPAT_PIPELINE},
    {"flash-attn", MODEL, UNSERVED,
     "Pipeline parallelism is not currently supported with encoder/decoder models.", .type = ATTN_ENCODER,
     .features = COMPAT_PIPELINE | COMPAT_SPECULATIVE},
    {"flash-attn", MODEL, UNSERVED,
     "Speculative decoding is not currently supported with encoder/decoder models.",
     .type = ATTN_ENCODER_DECODER, .features = COMPAT_SPECULATIVE | COMPAT_PROMPT_ADAPTER},
    {"flash-attn", MODEL, UNSERVED,
     "Prompt adapters are not currently supported with encoder/decoder models.", .type = ATTN_ENCODER_DECODER,
     .features = COMPAT_PROMPT_ADAPTER},
    {"flashinfer", MODEL, UNSERVED,
     "XFormers and Flash-Attention are the only backends currently supported with encoder/decoder models.",
     .type = ATTN_ENCODER_DECODER},
    {"xformers", MODEL, BAD,
     "Multi-Step not supported for attention backend: XFORMERS. Set VLLM_ATTENTION_BACKEND to a value from "
     "['FLASH_ATTN', 'ROCM_FLASH', 'FLASHINFER'].",
     .features = COMPAT_MULTI_STEP},
    {"rocm-flash", MODEL, BAD,
     "Multi-Step + Chunked-Prefill not supported for attention backend: ROCM_FLASH. Set "
     "VLLM_ATTENTION_BACKEND to a value from ['FLASH_ATTN'].",
     .features = COMPAT_MULTI_STEP | COMPAT_CHUNKED},
    /* the call itself */
    {"pallas", LAYER, BAD, "flavour pallas is not known", .given = 0},
    {"flash-attn", 64, BAD, "questions is 0x40", .given = 0},
};

Test(compat, every_limit_has_its_status_and_text)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *limit = &limits[i];
        struct compat_desc desc;
        struct attn_error err;
        ATTN_INIT(&err);
        good(&desc, limit->question);
        desc.given |= limit->given;
        desc.features |= limit->features;
        desc.parts ^= limit->parts;
        desc.kv_dtype = limit->kv_dtype;
        if (limit->type != 0)
            desc.type = limit->type;
        if (limit->member != 0)
            memcpy((char *)&desc + limit->member, &limit->value, sizeof limit->value);
        int32_t status = compat_check(limit->flavour, &desc, &err);
        cr_expect_eq(status, limit->status, "%zu: %s: %d", i, limit->text, status);
        cr_expect_eq(strncmp(err.message, limit->text, strlen(limit->text)), 0, "%zu: %s\nis: %s", i,
                     limit->text, err.message);
        cr_expect_eq(compat_check(limit->flavour, &desc, NULL), limit->status);
    }
}

Test(compat, what_crosses_no_limit_is_accepted)
{
    static const char *const flavours[] = {"flash-attn", "flashinfer", "rocm-flash", "xformers",
                                           "torch-sdpa"};
    struct compat_desc desc;
    struct attn_error err;

    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof flavours / sizeof *flavours; i++) {
        good(&desc, MODEL | LAYER | CACHE | VIEWS | METADATA | FORWARD);
        cr_expect_eq(compat_check(flavours[i], &desc, &err), ATTN_OK, "%s: %s", flavours[i], err.message);
    }
    good(&desc, FORWARD);
    desc.type = ATTN_ENCODER_DECODER;
    desc.parts ^= ALL_CROSS;
    cr_expect_eq(compat_check("flash-attn", &desc, &err), ATTN_OK);
    good(&desc, FORWARD);
    desc.parts ^= PREFIX;
    cr_expect_eq(compat_check("rocm-flash", &desc, &err), ATTN_OK);
    good(&desc, LAYER);
    desc.given |= COMPAT_GIVEN_BLOCKSPARSE;
    desc.sparse_block = 16;
    desc.vert_stride = 1;
    cr_expect_eq(compat_check("blocksparse", &desc, &err), ATTN_OK);
    cr_expect_eq(compat_check("flashinfer", &desc, &err), ATTN_OK, "block-sparse is ignored there");
    good(&desc, LAYER);
    desc.head_dim = 80;
    cr_expect_eq(compat_check("flashinfer", &desc, &err), ATTN_OK, "looked at with the metadata");
}

Test(compat, values_follow_the_flavour)
{
    struct compat_desc desc;
    struct compat_values values;

    good(&desc, LAYER | CACHE | VIEWS | FORWARD);
    desc.given |= COMPAT_GIVEN_WINDOW;
    desc.window = 7;
    ATTN_INIT(&values);
    cr_assert_eq(compat_get_values("flash-attn", &desc, &values, NULL), ATTN_OK);
    cr_expect_eq(values.window[0], 6);
    cr_expect_eq(values.window[1], 0);
    cr_expect_eq(values.cache_rank, 5);
    cr_expect_eq(values.paged_version, 0);
    ATTN_INIT(&values);
    cr_assert_eq(compat_get_values("rocm-flash", &desc, &values, NULL), ATTN_OK);
    cr_expect_eq(values.window[0], 7);
    cr_expect_eq(values.window[1], 7);
    cr_expect_eq(values.cache_rank, 3);
    cr_expect_eq(values.cache_dims[2], 16 * 2 * 64);
    cr_expect_eq(values.key_dims[4], 8);
    cr_expect_eq(values.paged_version, 1);
    desc.given = COMPAT_GIVEN_DECODE_QUERY;
    ATTN_INIT(&values);
    cr_assert_eq(compat_get_values("flashinfer", &desc, &values, NULL), ATTN_OK);
    cr_expect_eq(values.cache_dims[0], 4);
    cr_expect_eq(values.cache_dims[1], 2);
    cr_expect_eq(values.key_strides[0], 2 * 16 * 2 * 64, "keys and values of a page lie side by side");
    cr_expect_eq(values.softcap_kind, COMPAT_SOFTCAP_UNSET);
}

Test(compat, choices_of_paged_kernels)
{
    uint64_t partitions;

    cr_expect_eq(compat_paged_version(1, 1, 8192, &partitions), 2);
    cr_expect_eq(partitions, 16);
    cr_expect_eq(compat_paged_version(513, 1, 8192, NULL), 1);
    cr_expect_eq(compat_paged_version(513, 1, 8193, NULL), 2);
    cr_expect_eq(compat_paged_version(UINT64_MAX, UINT64_MAX, 600, NULL), 1, "no overflow");
    cr_expect_eq(compat_rocm_custom("gfx942:sramecc+", ATTN_BF16, 128, 16, 16, 32768), 1);
    cr_expect_eq(compat_rocm_custom("gfx9400", ATTN_BF16, 128, 16, 16, 32768), 0);
    cr_expect_eq(compat_rocm_custom(NULL, ATTN_F16, 64, 32, 1, 1), 0);
    cr_expect_eq(compat_name("cpu/rocm-flash")[0], 'R');
    cr_expect_null(compat_name("pallas"));
    cr_expect_null(compat_head_dims("pallas", NULL));
}
