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

static void refuse_by_option(const void *row, struct attn_reason *why)
{
    if (strcmp(((const struct attn__caps *)row)->name, "ruled_out") == 0)
        attn__caps_refuse(why, ATTN_REASON_OPTION, "ATTN_X", "off", "on");
}

static void ask_rows(const struct attn__caps *rows, uint32_t count, const char *keys, uint32_t device,
                     struct attn_query *query)
{
    const struct attn__caps_table table = {.rows = rows,
                                           .row_size = sizeof *rows,
                                           .row_count = count,
                                           .decode_rows = 16,
                                           .features = features,
                                           .feature_count = sizeof features / sizeof features[0],
                                           .separator = ", ",
                                           .check_limit = allow,
                                           .check_device = allow_device,
                                           .check_option = refuse_by_option};
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

static struct attn__caps row;

static void ask(const char *keys, uint32_t device, struct attn_query *query)
{
    ask_rows(&row, 1, keys, device, query);
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
                              .graph_level = ATTN_GRAPH_SINGLE,
                              .speed = ATTN_SPEED_OPTIMISED};
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
    cr_assert_eq(kernel.speed, ATTN_SPEED_OPTIMISED);
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

/* ---------------------------------------------------------------- generic rows */

#define ROW(name_, speed_, phases_, type_, dim_, features_, needs_)                                          \
    {                                                                                                        \
        .name = (name_), .phases = (phases_), .q_types = (type_), .kv_types = (type_),                       \
        .out_types = ATTN__TYPES_ALL, .dim_multiple = 1, .dim_max = (dim_), .features = (features_),         \
        .needs = (needs_), .graph_level = ATTN_GRAPH_ALWAYS, .speed = ATTN_SPEED_##speed_                    \
    }
#define BOTH (ATTN__DECODE | ATTN__PREFILL)
#define MOST (ATTN__HAS_ALL & ~(uint32_t)(ATTN__HAS_MLA | ATTN__HAS_ALIBI))

/* A table as that of a GPU: rows of two types, one that needs MLA, one by option, and one for the rest. */
static const struct attn__caps rows[] = {
    ROW("decode_bf16", OPTIMISED, ATTN__DECODE, ATTN__TYPE_BF16, 128, MOST, 0),
    ROW("decode_f16", OPTIMISED, ATTN__DECODE, ATTN__TYPE_F16, 128, MOST, 0),
    ROW("ruled_out", OPTIMISED, ATTN__DECODE, ATTN__TYPE_E4M3, 128, MOST, 0),
    {.name = "decode_mixed",
     .phases = ATTN__DECODE,
     .q_types = ATTN__TYPE_F16,
     .kv_types = ATTN__TYPES_16,
     .kv_mixed = 1,
     .out_types = ATTN__TYPES_ALL,
     .dim_multiple = 1,
     .dim_max = 128,
     .features = MOST,
     .graph_level = ATTN_GRAPH_ALWAYS,
     .speed = ATTN_SPEED_OPTIMISED},
    ROW("prefill_bf16", OPTIMISED, ATTN__PREFILL, ATTN__TYPE_BF16, 256, MOST, 0),
    ROW("prefill_f16", OPTIMISED, ATTN__PREFILL, ATTN__TYPE_F16, 256, MOST, 0),
    ROW("prefill_e4m3", OPTIMISED, ATTN__PREFILL, ATTN__TYPE_E4M3, 128, MOST, 0),
    ROW("mla_f16", OPTIMISED, BOTH, ATTN__TYPE_F16, 576, ATTN__HAS_ALL, ATTN__HAS_MLA),
    ROW("reference", GENERIC, BOTH, ATTN__TYPES_ALL, 1024, ATTN__HAS_ALL, 0),
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* Asks, and expects that the first reasons are those of these rows about these keys. */
static void generic(const char *keys, uint32_t count, const char *kernels, const char *first,
                    const char *second)
{
    struct attn_reason reasons[ROWS];
    struct attn_kernel_info served[4];
    struct attn_query query = {
        .reasons = reasons, .reason_capacity = ROWS, .kernels = served, .kernel_capacity = 4};
    char text[1024] = "", reason[160];

    ask_rows(rows, ROWS, keys, 7, &query);
    cr_assert_eq(query.accepted, 1, "%s", keys);
    for (uint32_t i = 0; i < query.kernel_count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %u", i > 0 ? ", " : "",
                 served[i].name, served[i].speed);
    cr_expect_str_eq(text, kernels, "%s: %s", keys, text);
    const char *const wanted[] = {first, second};
    for (uint32_t i = 0; i < 2 && wanted[i] != NULL; i++) {
        snprintf(reason, sizeof reason, "%s %s=%s", reasons[i].kernel, reasons[i].field, reasons[i].got);
        cr_expect_str_eq(reason, wanted[i], "%s: %s", keys, reason);
    }
    /* Each row that would not serve has one reason all the same. */
    for (uint32_t i = 0; i < query.reason_count; i++)
        for (uint32_t j = 0; j < i; j++)
            cr_expect_str_neq(reasons[i].kernel, reasons[j].kernel, "%s", keys);
    cr_expect_eq(query.reason_count, count, "%s: %u", keys, query.reason_count);
}

Test(caps, the_reason_of_the_closest_row_leads_where_a_generic_one_serves)
{
    generic("", 5, "decode_f16 1, prefill_f16 1", "decode_bf16 q=f16", "ruled_out q=f16");
    generic("heads=8 q=f16 head_dim=192", 7, "reference 2, prefill_f16 1", "decode_f16 head_dim=192",
            "decode_bf16 q=f16");
    generic("alibi=key", 8, "reference 2", "decode_f16 alibi=key", "prefill_f16 alibi=key");
    generic("heads=8 q=f32 head_dim=64", 8, "reference 2", "decode_bf16 q=f32", "prefill_bf16 q=f32");
    /* It is nearer in everything but the one thing that it is for. */
    generic("heads=8 q=f16 head_dim=512", 8, "reference 2", "decode_f16 head_dim=512",
            "prefill_f16 head_dim=512");
    generic("heads=8 kv_heads=1 head_dim=576/512 q=f16 mla=1 block=16 kv=bf16", 8, "reference 2",
            "mla_f16 k=bf16", "decode_bf16 q=f16");
    /* The row of many types says more about what is wanted. */
    generic("kv=f32", 8, "reference 2", "decode_mixed k=f32", "prefill_f16 k=f32");
    /* An option is named where it alone decides. */
    generic("heads=8 head_dim=64 q=e4m3 q_scale=unit kv=e4m3 scales=unit", 7, "reference 2, prefill_e4m3 1",
            "ruled_out ATTN_X=off", "decode_bf16 q=e4m3");
}
