/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The axes of what is served: per key of the problem string its values, or a range of one answer. */
#include "cuda.h"

#define LIST(key_, ...)                                                                                      \
    {                                                                                                        \
        .key = (key_), .values = (const char *const[]){__VA_ARGS__},                                         \
        .value_count = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)                     \
    }
#define STEPS(key_, first_, last_, step_)                                                                    \
    {                                                                                                        \
        .key = (key_), .first = (first_), .last = (last_), .step = (step_)                                   \
    }
#define RANGE(key_, first_, last_) STEPS(key_, first_, last_, 1)

static const struct attn_axis axes[] = {
    LIST("type", "decoder", "encoder", "encoder_only", "encoder_decoder"),
    LIST("q", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),
    LIST("k", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),
    LIST("v", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),
    LIST("out", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),
    RANGE("heads", 1, INT32_MAX),
    RANGE("kv_heads", 1, INT32_MAX),
    /* In layout paged-x multiples of 4, 8 or 16 are served, as the type has 4, 2 or 1 bytes. */
    STEPS("head_dim", 16, 576, 16),
    STEPS("head_dim", 8, 568, 16),
    STEPS("head_dim", 4, 572, 8),
    STEPS("head_dim", 1, 573, 4),
    STEPS("head_dim", 2, 574, 4),
    STEPS("head_dim", 3, 575, 4),
    LIST("addr", "dense", "table", "csr"),
    LIST("index", "i32", "i64"),
    RANGE("block", 1, 1048576),
    LIST("causal", "0", "1"),
    LIST("align", "end", "start"),
    RANGE("window", -1, INT32_MAX),
    RANGE("softcap", 0, INT64_MAX),
    LIST("alibi", "none", "key", "distance", "mask"),
    LIST("sinks", "0", "1"),
    LIST("mask", "none", "bits", "f16", "bf16", "f32"),
    LIST("span", "square", "full"),
    LIST("kv_source", "cache", "new", "cache+new"),
    LIST("layout", "strided", "paged-x"),
    LIST("q_scale", "none", "unit", "tensor", "head", "token-head", "kv-head"),
    LIST("k_scale", "none", "unit", "tensor", "head", "token-head"),
    LIST("v_scale", "none", "unit", "tensor", "head", "token-head"),
    LIST("out_scale", "none", "unit", "tensor", "head"),
    LIST("positions", "0", "1"),
    LIST("seq_causal", "0", "1"),
    LIST("mla", "0", "1"),
    LIST("cp", "0", "1"),
    LIST("lse", "0", "1"),
    LIST("det", "0", "1"),
    LIST("graph", "never", "single", "uniform", "always"),
};

int32_t cuda_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    *out = axes;
    *out_count = sizeof axes / sizeof axes[0];
    return ATTN_OK;
}
