/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is served: the answer to a query, and the values between which it changes. */
#include "opencl.h"

#define MAX_DIM 576u

bool opencl_is_served(uint32_t dtype)
{
    return attn_util_is_dtype(dtype) != 0;
}

static void judge_types(struct attn_query *out, const struct attn_problem *p)
{
    static const char types[] = "f32, f16, bf16, 8 bits";

    attn_util_refuse(out, !opencl_is_served(p->q_dtype), ATTN_REASON_DTYPE_Q, "q", types);
    attn_util_refuse(out, !opencl_is_served(p->k_dtype), ATTN_REASON_DTYPE_K, "k", types);
    attn_util_refuse(out, !opencl_is_served(p->v_dtype), ATTN_REASON_DTYPE_V, "v", types);
    attn_util_refuse(out, !opencl_is_served(p->out_dtype), ATTN_REASON_DTYPE_OUT, "out", types);
    attn_util_refuse(out, p->out_scale == ATTN_SCALES_TOKEN_HEAD, ATTN_REASON_SCALES, "out_scale",
                     "none, unit, tensor, head");
}

static void judge_sizes(struct attn_query *out, const struct attn_problem *p)
{
    static const char count[] = "at most 2147483647";

    attn_util_refuse(out, p->head_dim > MAX_DIM, ATTN_REASON_HEAD_DIM, "head_dim", "up to 576");
    attn_util_refuse(out, p->head_dim_vo > MAX_DIM, ATTN_REASON_HEAD_DIM_VO, "head_dim", "up to 576");
    attn_util_refuse(out, p->max_seqs > INT32_MAX, ATTN_REASON_MAX_SEQS, "max_seqs", count);
    attn_util_refuse(out, p->max_q > INT32_MAX, ATTN_REASON_MAX_Q, "max_q", count);
    attn_util_refuse(out, p->max_kv > INT32_MAX, ATTN_REASON_MAX_KV, "max_kv", count);
    attn_util_refuse(out, (uint64_t)p->max_rows * p->heads > INT32_MAX, ATTN_REASON_MAX_ROWS, "max_rows",
                     "times heads at most 2147483647");
}

static void judge_features(struct attn_query *out, const struct attn_problem *p)
{
    const bool cached = p->kv_source != ATTN_KV_NEW;
    const uint32_t k_size = opencl_is_served(p->k_dtype) ? opencl_size(p->k_dtype) : 0;

    attn_util_refuse(out,
                     cached && p->layout == ATTN_PAGED_X && k_size != 0 && p->head_dim % (16 / k_size) != 0,
                     ATTN_REASON_HEAD_DIM, "head_dim", "whole 16 bytes with layout=paged-x");
}

static void set_kernel(struct attn_query *out, uint32_t i, const char *name, const char *when,
                       uint32_t numerics, uint32_t speed)
{
    out->kernel_count = i + 1;
    if (i >= out->kernel_capacity)
        return;
    struct attn_kernel_info *info = &out->kernels[i];
    *info = (struct attn_kernel_info){.graph_level = out->graph_level, .numerics = numerics, .speed = speed};
    snprintf(info->name, sizeof info->name, "%s", name);
    snprintf(info->when, sizeof info->when, "%s", when);
}

/* The rows of a problem that is served. Where it is the generic one, the reason says what the others want. */
static void answer_kernels(const struct opencl_device *device, const struct attn_problem *p,
                           struct attn_query *out)
{
    const uint32_t prefill = p->out_dtype == ATTN_F32 ? ATTN_NUMERICS_UNROUNDED : ATTN_NUMERICS_P_F16;
    char when[64];
    const char *field;
    uint32_t code;
    const char *wanted = opencl_config_generic(device, p, &code, &field);

    if (wanted != NULL) {
        set_kernel(out, 0, "opencl_generic", "always", ATTN_NUMERICS_UNROUNDED, ATTN_SPEED_GENERIC);
        attn_util_refuse(out, 1, code, field, wanted);
        return;
    }
    const uint32_t tokens = opencl_config_decode_tokens(p);
    snprintf(when, sizeof when, "query tokens <= %u", tokens);
    set_kernel(out, 0, "opencl_decode", when, ATTN_NUMERICS_UNROUNDED, ATTN_SPEED_OPTIMISED);
    snprintf(when, sizeof when, "query tokens > %u", tokens);
    set_kernel(out, 1, "opencl_prefill", when, prefill, ATTN_SPEED_OPTIMISED);
}

int32_t opencl_query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *problem, struct attn_query *out)
{
    const struct opencl_device *found = NULL;

    if (device != NULL) {
        if (opencl_instance_open(instance, NULL) == ATTN_OK)
            found = opencl_device_find(instance, device);
        const char *wanted = found != NULL ? found->wanted : NULL;
        attn_util_refuse(out, found == NULL, ATTN_REASON_DEVICE, "device", "opencl:N of attn-info devices");
        attn_util_refuse(out, wanted != NULL, ATTN_REASON_DEVICE_ARCH, "device",
                         wanted != NULL ? wanted : "");
    }
    judge_types(out, problem);
    judge_sizes(out, problem);
    judge_features(out, problem);
    attn_util_refuse_unknown(out, problem);
    out->accepted = out->reason_count == 0;
    out->cost_rank = 100;
    /* A launch depends on a batch's counts, addresses and strides alone, never on what its arrays hold. */
    out->graph_level = ATTN_GRAPH_ALWAYS;
    if (out->accepted)
        answer_kernels(found, problem, out);
    return ATTN_OK;
}

#define LIST(key_, ...)                                                                                      \
    {                                                                                                        \
        .key = (key_), .values = (const char *const[]){__VA_ARGS__},                                         \
        .value_count = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)                     \
    }
#define STEPS(key_, first_, last_, step_)                                                                    \
    {                                                                                                        \
        .key = (key_), .first = (first_), .last = (last_), .step = (step_)                                   \
    }

#define TYPES "f32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8"

static const struct attn_axis axes[] = {
    LIST("type", "decoder", "encoder", "encoder_only", "encoder_decoder"),
    LIST("q", TYPES),
    LIST("k", TYPES),
    LIST("v", TYPES),
    LIST("out", TYPES),
    STEPS("heads", 1, INT32_MAX, 1),
    STEPS("kv_heads", 1, INT32_MAX, 1),
    /* In layout paged-x multiples of 4, 8 or 16 are served, as the type has 4, 2 or 1 bytes. */
    STEPS("head_dim", 16, MAX_DIM, 16),
    STEPS("head_dim", 8, MAX_DIM - 8, 16),
    STEPS("head_dim", 4, MAX_DIM - 4, 8),
    STEPS("head_dim", 1, MAX_DIM - 3, 4),
    STEPS("head_dim", 2, MAX_DIM - 2, 4),
    STEPS("head_dim", 3, MAX_DIM - 1, 4),
    LIST("addr", "dense", "table", "csr"),
    LIST("index", "i32", "i64"),
    STEPS("block", 1, 1048576, 1),
    LIST("causal", "0", "1"),
    LIST("align", "end", "start"),
    STEPS("window", -1, INT32_MAX, 1),
    STEPS("softcap", 0, INT64_MAX, 1),
    LIST("alibi", "none", "key", "distance", "mask"),
    LIST("mask", "none", "bits", "f16", "bf16", "f32"),
    LIST("span", "square", "full"),
    LIST("layout", "strided", "paged-x"),
    LIST("mla", "0", "1"),
    LIST("cp", "0", "1"),
    LIST("sinks", "0", "1"),
    LIST("kv_source", "cache", "new", "cache+new"),
    LIST("q_scale", "none", "unit", "tensor", "head", "token-head", "kv-head"),
    LIST("k_scale", "none", "unit", "tensor", "head", "token-head"),
    LIST("v_scale", "none", "unit", "tensor", "head", "token-head"),
    LIST("out_scale", "none", "unit", "tensor", "head"),
    LIST("positions", "0", "1"),
    LIST("seq_causal", "0", "1"),
    LIST("lse", "0", "1"),
    LIST("det", "0", "1"),
    LIST("graph", "never", "single", "uniform", "always"),
};

int32_t opencl_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    *out = axes;
    *out_count = sizeof axes / sizeof axes[0];
    return ATTN_OK;
}
