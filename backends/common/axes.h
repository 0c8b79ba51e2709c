/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The axes of a plugin that serves everything: for each key of the problem string its values, or a range of
 * one answer. */
#ifndef ATTN_COMMON_AXES_H
#define ATTN_COMMON_AXES_H

#include "attn/types.h"

#define ATTN__AXIS_LIST(key_, ...)                                                                           \
    {                                                                                                        \
        .key = (key_), .values = (const char *const[]){__VA_ARGS__},                                         \
        .value_count = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)                     \
    }
#define ATTN__AXIS_STEPS(key_, first_, last_, step_)                                                         \
    {                                                                                                        \
        .key = (key_), .first = (first_), .last = (last_), .step = (step_)                                   \
    }

/*
 * Every axis but type and graph; `max_dim` is the largest head_dim, a multiple of 16. In layout paged-x
 * multiples of 4, 8 or 16 are served, as the type has 4, 2 or 1 bytes.
 */
#define ATTN__AXIS_TYPES ATTN__AXIS_LIST("type", "decoder", "encoder", "encoder_only", "encoder_decoder")
#define ATTN__AXES_BLOCKS                                                                                    \
    ATTN__AXIS_LIST("k", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"),                                  \
        ATTN__AXIS_LIST("v", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
#define ATTN__AXES(max_dim)                                                                                  \
    ATTN__AXIS_LIST("q", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),              \
        ATTN__AXIS_LIST("k", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),          \
        ATTN__AXIS_LIST("v", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),          \
        ATTN__AXIS_LIST("out", "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"),        \
        ATTN__AXIS_STEPS("heads", 1, INT32_MAX, 1), ATTN__AXIS_STEPS("kv_heads", 1, INT32_MAX, 1),           \
        ATTN__AXIS_STEPS("head_dim", 16, (max_dim), 16), ATTN__AXIS_STEPS("head_dim", 8, (max_dim)-8, 16),   \
        ATTN__AXIS_STEPS("head_dim", 4, (max_dim)-4, 8), ATTN__AXIS_STEPS("head_dim", 1, (max_dim)-3, 4),    \
        ATTN__AXIS_STEPS("head_dim", 2, (max_dim)-2, 4), ATTN__AXIS_STEPS("head_dim", 3, (max_dim)-1, 4),    \
        ATTN__AXIS_LIST("addr", "dense", "table", "csr"), ATTN__AXIS_LIST("index", "i32", "i64"),            \
        ATTN__AXIS_STEPS("block", 1, 1048576, 1), ATTN__AXIS_LIST("causal", "0", "1"),                       \
        ATTN__AXIS_LIST("align", "end", "start"), ATTN__AXIS_STEPS("window", -1, INT32_MAX, 1),              \
        ATTN__AXIS_STEPS("softcap", 0, INT64_MAX, 1),                                                        \
        ATTN__AXIS_LIST("alibi", "none", "key", "distance", "mask"), ATTN__AXIS_LIST("sinks", "0", "1"),     \
        ATTN__AXIS_LIST("mask", "none", "bits", "f16", "bf16", "f32"),                                       \
        ATTN__AXIS_LIST("span", "square", "full"),                                                           \
        ATTN__AXIS_LIST("kv_source", "cache", "new", "cache+new"),                                           \
        ATTN__AXIS_LIST("layout", "strided", "paged-x"),                                                     \
        ATTN__AXIS_LIST("q_scale", "none", "unit", "tensor", "head", "token-head", "kv-head"),               \
        ATTN__AXIS_LIST("k_scale", "none", "unit", "tensor", "head", "token-head"),                          \
        ATTN__AXIS_LIST("v_scale", "none", "unit", "tensor", "head", "token-head"),                          \
        ATTN__AXIS_LIST("out_scale", "none", "unit", "tensor", "head"),                                      \
        ATTN__AXIS_LIST("positions", "0", "1"), ATTN__AXIS_LIST("seq_causal", "0", "1"),                     \
        ATTN__AXIS_LIST("mla", "0", "1"), ATTN__AXIS_LIST("cp", "0", "1"), ATTN__AXIS_LIST("lse", "0", "1"), \
        ATTN__AXIS_LIST("det", "0", "1")

#endif
