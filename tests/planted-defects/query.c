/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is served, once as predicates and once as axes. */
#include "defect.h"

#define LIST(key_, ...)                                                                                      \
    {                                                                                                        \
        .key = (key_), .values = (const char *const[]){__VA_ARGS__},                                         \
        .value_count = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)                     \
    }
#define RANGE(key_, first_, last_)                                                                           \
    {                                                                                                        \
        .key = (key_), .first = (first_), .last = (last_), .step = 1                                         \
    }
#define CLAIMED_DIM (DIM_MAX + 64)
#define BLOCK_MAX   1048576

/* The first row is for claims_dim alone, the last for everyone else. */
static const struct attn_axis axes[] = {
    RANGE("head_dim", 1, CLAIMED_DIM),
    LIST("type", "decoder"),
    LIST("q", "f32", "f16", "bf16"),
    LIST("k", "f32", "f16", "bf16", "e4m3", "int8"),
    LIST("v", "f32", "f16", "bf16", "e4m3", "int8"),
    LIST("out", "f32", "f16", "bf16"),
    RANGE("heads", 1, INT32_MAX),
    RANGE("kv_heads", 1, INT32_MAX),
    LIST("addr", "dense", "table"),
    LIST("index", "i32", "i64"),
    RANGE("block", 1, BLOCK_MAX),
    LIST("causal", "0", "1"),
    LIST("align", "end", "start"),
    RANGE("window", -1, INT32_MAX),
    RANGE("softcap", 0, INT64_MAX),
    LIST("alibi", "none", "key", "distance"),
    LIST("sinks", "0", "1"),
    LIST("mask", "none", "bits"),
    LIST("span", "square", "full"),
    LIST("kv_source", "cache"),
    LIST("layout", "strided"),
    LIST("q_scale", "none"),
    LIST("k_scale", "none", "unit", "tensor", "head", "token-head"),
    LIST("v_scale", "none", "unit", "tensor", "head", "token-head"),
    LIST("out_scale", "none"),
    LIST("positions", "0", "1"),
    LIST("seq_causal", "0", "1"),
    LIST("mla", "0"),
    LIST("cp", "0"),
    LIST("lse", "0", "1"),
    LIST("det", "0", "1"),
    LIST("graph", "never"),
    RANGE("head_dim", 1, DIM_MAX),
};

int32_t defect_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    *out = IS(claims_dim) ? axes : axes + 1;
    *out_count = sizeof axes / sizeof *axes - 1;
    return ATTN_OK;
}

bool limits_init(struct limits *limits, const struct attn_problem *p)
{
    const uint64_t rows = p->max_rows, live = p->max_seqs < rows ? p->max_seqs : rows;
    const bool is_split = p->max_kv > SPLIT_KEYS;
    uint64_t bytes;

    limits->slots = is_split ? live * SPLITS_MAX : 0;
    limits->items = rows + limits->slots;
    limits->counters = is_split ? (live * SPLITS_MAX / 2 < rows ? live * SPLITS_MAX / 2 : rows) : 0;
    return limits->items <= UINT32_MAX && limits->slots <= UINT32_MAX &&
           !__builtin_mul_overflow(limits->slots * sizeof(float) * (p->head_dim_vo + 1u), p->heads, &bytes) &&
           bytes <= INT64_MAX;
}

int32_t defect_query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *p, struct attn_query *out)
{
    const uint32_t dim_max = IS(claims_dim) ? CLAIMED_DIM : DIM_MAX;
    static const char plain[] = "f32, f16 or bf16", cached[] = "f32, f16, bf16, e4m3 or int8";
    struct limits limits;

    (void)instance;
    attn_util_refuse(out, device && (device->type != ATTN_DEVICE_CPU || device->ordinal != 0),
                     ATTN_REASON_DEVICE, "device", "cpu:0");
    attn_util_refuse(out, p->type != ATTN_DECODER, ATTN_REASON_ATTN_TYPE, "type", "decoder");
    attn_util_refuse(out, !is_served(p->q_dtype, false), ATTN_REASON_DTYPE_Q, "q", plain);
    attn_util_refuse(out, !is_served(p->k_dtype, true), ATTN_REASON_DTYPE_K, "k", cached);
    attn_util_refuse(out, !is_served(p->v_dtype, true), ATTN_REASON_DTYPE_V, "v", cached);
    attn_util_refuse(out, !is_served(p->out_dtype, false), ATTN_REASON_DTYPE_OUT, "out", plain);
    attn_util_refuse(out, p->head_dim > dim_max, ATTN_REASON_HEAD_DIM, "head_dim", "1 to 512");
    attn_util_refuse(out, p->head_dim_vo > dim_max, ATTN_REASON_HEAD_DIM_VO, "head_dim", "1 to 512");
    if (IS(refuses_dim))
        attn_util_refuse(out, p->head_dim % 8 != 0, ATTN_REASON_HEAD_DIM, "head_dim", "multiples of 8");
    attn_util_refuse(out, p->addressing == ATTN_CSR, ATTN_REASON_ADDRESSING, "addr", "dense or table");
    attn_util_refuse(out, p->kv_source != ATTN_KV_CACHE, ATTN_REASON_KV_SOURCE, "kv_source", "cache");
    attn_util_refuse(out, p->alibi == ATTN_ALIBI_MASK, ATTN_REASON_ALIBI, "alibi", "none, key or distance");
    attn_util_refuse(out, p->mask > ATTN_MASK_BITS, ATTN_REASON_MASK, "mask", "none or bits");
    attn_util_refuse(out, p->layout != ATTN_STRIDED, ATTN_REASON_LAYOUT, "layout", "strided");
    attn_util_refuse(out, p->q_scale != ATTN_SCALES_NONE, ATTN_REASON_SCALES, "q_scale", "none");
    attn_util_refuse(out, p->out_scale != ATTN_SCALES_NONE, ATTN_REASON_SCALES, "out_scale", "none");
    attn_util_refuse(out, p->mla != 0, ATTN_REASON_MLA, "mla", "0");
    attn_util_refuse(out, p->cp != 0, ATTN_REASON_CONTEXT_PARALLEL, "cp", "0");
    attn_util_refuse(out, p->graph > ATTN_GRAPH_NEVER, ATTN_REASON_GRAPH, "graph", "never");
    attn_util_refuse_unknown(out, p);
    attn_util_refuse(out, !limits_init(&limits, p), ATTN_REASON_MAX_ROWS, "max_rows", "fewer rows");
    attn_util_answer(out, "attention_plain", "always", ATTN_NUMERICS_UNROUNDED, 100);
    attn_util_speed(out, ATTN_SPEED_GENERIC);
    return ATTN_OK;
}
