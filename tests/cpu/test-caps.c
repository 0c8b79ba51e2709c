/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the capability engine says of each part of a problem that no row of a table serves. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "attn/attn.h"
#include "caps.h"

#define BASE "heads=8 kv_heads=8 head_dim=64 q=f16 addr=table block=16 "

static const struct attn__caps_feature features[] = {
    {ATTN__HAS_ALIBI, "w"},      {ATTN__HAS_MASK, "w"},        {ATTN__HAS_NEW, "w"},
    {ATTN__HAS_CACHE_NEW, "w"},  {ATTN__HAS_PAGED_X, "w"},     {ATTN__HAS_WINDOW, "w"},
    {ATTN__HAS_SOFTCAP, "w"},    {ATTN__HAS_SINKS, "w"},       {ATTN__HAS_POSITIONS, "w"},
    {ATTN__HAS_SEQ_CAUSAL, "w"}, {ATTN__HAS_ALIGN_START, "w"}, {ATTN__HAS_MLA, "w"},
    {ATTN__HAS_CP, "w"},         {ATTN__HAS_DENSE, "w"},       {ATTN__HAS_CSR, "w"},
    {ATTN__HAS_TOKEN_HEAD, "w"}, {ATTN__HAS_DET, "w"}};

static void allow(const struct attn_problem *problem, struct attn_reason *why)
{
    (void)problem;
    (void)why;
}

static void allow_device(const void *row, uint32_t device, struct attn_reason *why)
{
    (void)row;
    if (device != 7)
        attn__caps_refuse(why, ATTN_REASON_DEVICE, "device", "another", "7");
}

static struct attn__caps row;

static void ask(const char *keys, uint32_t device, struct attn_query *query)
{
    const struct attn__caps_table table = {.rows = &row,
                                           .row_size = sizeof row,
                                           .row_count = 1,
                                           .features = features,
                                           .feature_count = sizeof features / sizeof features[0],
                                           .separator = ", ",
                                           .check_limit = allow,
                                           .check_device = allow_device};
    struct attn_problem given, problem;
    struct attn_error err;
    char text[512];

    ATTN_INIT(&err);
    ATTN_INIT(&given);
    ATTN_INIT(&problem);
    snprintf(text, sizeof text, "%s%s", strncmp(keys, "heads", 5) == 0 ? "" : BASE, keys);
    cr_assert_eq(attn_problem_parse(text, &given, &err), ATTN_OK, "%s: %s", text, err.message);
    cr_assert_eq(attn_problem_resolve(&given, &problem, &err), ATTN_OK, "%s: %s", text, err.message);
    attn__caps_begin(query, 3);
    attn__caps_answer(&table, &problem, device, query);
}

static void set_up(void)
{
    row = (struct attn__caps){.name = "narrow",
                              .phases = ATTN__DECODE | ATTN__PREFILL,
                              .q_types = ATTN__TYPE_F16 | ATTN__TYPE_E5M2,
                              .kv_types = ATTN__TYPE_F16 | ATTN__TYPES_8,
                              .out_types = ATTN__TYPE_F16 | ATTN__TYPE_F32,
                              .dim_multiple = 8,
                              .dim_max = 128,
                              .graph_level = ATTN_GRAPH_SINGLE};
}

TestSuite(caps, .init = set_up);

static void refused(const char *keys, uint32_t code, const char *field, const char *got, const char *wanted)
{
    struct attn_reason reasons[4];
    struct attn_query query = {.reasons = reasons, .reason_capacity = 4};
    char text[sizeof reasons[0].text];

    ask(keys, 7, &query);
    cr_assert_eq(query.accepted, 0, "%s", keys);
    cr_assert_eq(query.reason_count, 1, "%s", keys);
    cr_expect_eq(reasons[0].code, code, "%s: %s", keys, attn_reason_name(reasons[0].code));
    cr_expect_str_eq(reasons[0].field, field, "%s: %s", keys, reasons[0].field);
    cr_expect_str_eq(reasons[0].got, got, "%s: %s", keys, reasons[0].got);
    cr_expect_str_eq(reasons[0].wanted, wanted, "%s: %s", keys, reasons[0].wanted);
    snprintf(text, sizeof text, "%s=%s is not served; wanted: %s", field, got, wanted);
    cr_expect_str_eq(reasons[0].text, text, "%s: %s", keys, reasons[0].text);
}

Test(caps, a_row_that_serves)
{
    struct attn_kernel_info kernel;
    struct attn_query query = {.kernels = &kernel, .kernel_capacity = 1};

    ask("", 7, &query);
    cr_assert_eq(query.accepted, 1);
    cr_assert_eq(query.reason_count, 0);
    cr_assert_eq(query.kernel_count, 1);
    cr_assert_eq(query.cost_rank, 3);
    cr_assert_eq(query.graph_level, ATTN_GRAPH_SINGLE);
    cr_assert_str_eq(kernel.name, "narrow");
    cr_assert_str_eq(kernel.when, "always");
    ask("", 6, &query);
    cr_assert_eq(query.accepted, 0);
    cr_assert_eq(query.reason_count, 1);
}

Test(caps, types)
{
    static const char kv[] = "f16, e4m3, e5m2, fnuz, int8";

    refused("heads=8 head_dim=64 q=bf16", ATTN_REASON_DTYPE_Q, "q", "bf16", "f16, e5m2");
    refused("k=bf16", ATTN_REASON_DTYPE_K, "k", "bf16", kv);
    refused("v=f32", ATTN_REASON_DTYPE_V, "v", "f32", kv);
    refused("out=bf16", ATTN_REASON_DTYPE_OUT, "out", "bf16", "f32, f16");
    refused("v=int8 v_scale=unit", ATTN_REASON_DTYPE_V, "v", "int8", "f16 as k");
    row.out_types = ATTN__TYPES_ALL & ~(uint32_t)ATTN__TYPE_F16;
    refused("", ATTN_REASON_DTYPE_OUT, "out", "f16", "f32, bf16, e4m3, e5m2, fnuz, int8");
}

Test(caps, dimensions)
{
    refused("heads=8 q=f16 head_dim=136", ATTN_REASON_HEAD_DIM, "head_dim", "136",
            "up to 128, multiples of 8");
    refused("heads=8 q=f16 head_dim=60", ATTN_REASON_HEAD_DIM, "head_dim", "60", "up to 128, multiples of 8");
    refused("heads=8 q=f16 head_dim=64/12", ATTN_REASON_HEAD_DIM_VO, "head_dim", "64/12",
            "up to 128, multiples of 8");
    row.vo_max = 32;
    refused("", ATTN_REASON_HEAD_DIM_VO, "head_dim", "64", "values of up to 32");
    row.vo_max = 0;
    row.dim_equal = row.dim_multiple = 1;
    refused("heads=8 q=f16 head_dim=64/32", ATTN_REASON_HEAD_DIM_VO, "head_dim", "64/32",
            "the same for q, k and v");
    refused("heads=8 q=f16 head_dim=129", ATTN_REASON_HEAD_DIM, "head_dim", "129", "up to 128");
}

Test(caps, features)
{
    refused("alibi=distance", ATTN_REASON_ALIBI, "alibi", "distance", "w");
    refused("mask=bf16", ATTN_REASON_MASK, "mask", "bf16", "w");
    refused("heads=8 q=f16 head_dim=64 kv_source=new", ATTN_REASON_KV_SOURCE, "kv_source", "new", "w");
    refused("kv_source=cache+new", ATTN_REASON_KV_SOURCE, "kv_source", "cache+new", "w");
    refused("layout=paged-x", ATTN_REASON_LAYOUT, "layout", "paged-x", "w");
    refused("window=5", ATTN_REASON_WINDOW, "window", "a window", "w");
    refused("causal=0 window=-1/0", ATTN_REASON_WINDOW, "window", "a window", "w");
    refused("causal=0 window=-1/3", ATTN_REASON_WINDOW, "window", "a window", "w");
    refused("softcap=30", ATTN_REASON_SOFTCAP, "softcap", "a soft cap", "w");
    refused("sinks=1", ATTN_REASON_SINKS, "sinks", "1", "w");
    refused("positions=1", ATTN_REASON_POSITIONS, "positions", "1", "w");
    refused("seq_causal=1", ATTN_REASON_CAUSAL, "seq_causal", "1", "w");
    refused("align=start", ATTN_REASON_ALIGN, "align", "start", "w");
    refused("heads=8 kv_heads=1 q=f16 head_dim=64/32 mla=1", ATTN_REASON_MLA, "mla", "1", "w");
    refused("cp=1", ATTN_REASON_CONTEXT_PARALLEL, "cp", "1", "w");
    refused("heads=8 q=f16 head_dim=64 addr=dense", ATTN_REASON_ADDRESSING, "addr", "dense", "w");
    refused("heads=8 q=f16 head_dim=64 addr=csr", ATTN_REASON_ADDRESSING, "addr", "csr", "w");
    refused("kv=int8 k_scale=unit v_scale=token-head", ATTN_REASON_SCALES, "scales", "token-head", "w");
    refused("det=1", ATTN_REASON_DETERMINISTIC, "det", "1", "w");
    refused("graph=uniform", ATTN_REASON_GRAPH, "graph", "uniform", "single");
    row.needs = ATTN__HAS_MLA;
    refused("", ATTN_REASON_MLA, "mla", "0", "1");
}
