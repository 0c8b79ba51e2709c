/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The capability engine: checks a problem against a plugin's table and answers its queries. */
#include "caps.h"

#include <stdio.h>

#include "attn/plugin-util.h"
#include "check.h"
#include "kv-view.h"

/* Name of an enumerated value, counted from 1. */
static const char *name_of(uint32_t value, const char *const *names, uint32_t count)
{
    return value >= 1 && value <= count ? names[value - 1] : "unknown";
}

#define NAME(value, ...)                                                                                     \
    name_of((value), (const char *const[]){__VA_ARGS__},                                                     \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

void attn__caps_refuse(struct attn_reason *why, uint32_t code, const char *field, const char *got,
                       const char *wanted)
{
    why->code = code;
    snprintf(why->field, sizeof why->field, "%s", field);
    snprintf(why->got, sizeof why->got, "%s", got);
    snprintf(why->wanted, sizeof why->wanted, "%s", wanted);
}

static void add_reason(struct attn_query *out, struct attn_reason *why, const char *kernel)
{
    snprintf(why->kernel, sizeof why->kernel, "%s", kernel);
    snprintf(why->text, sizeof why->text, "%.31s=%.40s is not served; wanted: %.60s", why->field, why->got,
             why->wanted);
    if (out->reason_count < out->reason_capacity)
        out->reasons[out->reason_count] = *why;
    out->reason_count++;
}

void attn__caps_begin(struct attn_query *out, uint32_t cost_rank)
{
    out->accepted = 1;
    out->cost_rank = cost_rank;
    out->graph_level = ATTN_GRAPH_ALWAYS;
    out->reason_count = 0;
    out->kernel_count = 0;
}

void attn__caps_add(struct attn_query *out, struct attn_reason *why)
{
    add_reason(out, why, "");
}

/* ---------------------------------------------------------------- element types */

static uint32_t type_bit(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return ATTN__TYPE_F32;
    case ATTN_F16:
        return ATTN__TYPE_F16;
    case ATTN_BF16:
        return ATTN__TYPE_BF16;
    case ATTN_E4M3:
        return ATTN__TYPE_E4M3;
    case ATTN_E5M2:
        return ATTN__TYPE_E5M2;
    case ATTN_INT8:
        return ATTN__TYPE_INT8;
    case ATTN_E4M3FNUZ:
    case ATTN_E5M2FNUZ:
        return ATTN__TYPE_FNUZ;
    default:
        return attn_block_bytes(dtype) != 0 ? ATTN__TYPE_BLOCKS : 0;
    }
}

static const struct attn__caps *row_at(const struct attn__caps_table *table, uint32_t i)
{
    return (const void *)((const char *)table->rows + i * table->row_size);
}

/* Whether some row serves a type of keys or values. */
static bool has_kv_type(const struct attn__caps_table *table, uint32_t dtype)
{
    uint32_t types = 0;

    for (uint32_t i = 0; i < table->row_count; i++)
        types |= row_at(table, i)->kv_types;
    return attn__dtype_size(dtype) != 0 || (types & type_bit(dtype)) != 0;
}

/* ---------------------------------------------------------------- the problem as a whole */

/* Adds a reason for every predicate that does not hold. */
static void judge_problem(const struct attn__caps_table *table, const struct attn_problem *p,
                          struct attn_query *out)
{
    static const char types[] = "f32, f16, bf16, 8 bits";
    static const char count[] = "at most 2147483647";
    const uint32_t k_size = attn__dtype_size(p->k_dtype);
    const uint32_t elements = p->layout == ATTN_PAGED_X && k_size != 0 ? ATTN__PAGED_X_BYTES / k_size : 0;
    char head_dim[12], multiple[48];
    const struct {
        bool served;
        uint32_t code;
        const char *field, *got, *wanted;
    } rules[] = {
        {attn__dtype_size(p->q_dtype) != 0, ATTN_REASON_DTYPE_Q, "q", attn__dtype_name(p->q_dtype), types},
        {has_kv_type(table, p->k_dtype), ATTN_REASON_DTYPE_K, "k", attn__dtype_name(p->k_dtype), types},
        {has_kv_type(table, p->v_dtype), ATTN_REASON_DTYPE_V, "v", attn__dtype_name(p->v_dtype), types},
        {attn__dtype_size(p->out_dtype) != 0, ATTN_REASON_DTYPE_OUT, "out", attn__dtype_name(p->out_dtype),
         types},
        {elements <= 1 || p->head_dim % elements == 0, ATTN_REASON_HEAD_DIM, "head_dim", head_dim, multiple},
        {p->out_scale != ATTN_SCALES_TOKEN_HEAD, ATTN_REASON_SCALES, "out_scale", "token-head",
         "none, unit, tensor, head"},
        {p->max_seqs <= INT32_MAX, ATTN_REASON_MAX_SEQS, "max_seqs", "more", count},
        {p->max_q <= INT32_MAX, ATTN_REASON_MAX_Q, "max_q", "more", count},
        {p->max_kv <= INT32_MAX, ATTN_REASON_MAX_KV, "max_kv", "more", count},
        {p->max_rows <= INT32_MAX, ATTN_REASON_MAX_ROWS, "max_rows", "more", count},
    };
    struct attn_reason limit = {0};

    snprintf(head_dim, sizeof head_dim, "%u", p->head_dim);
    snprintf(multiple, sizeof multiple, "multiples of %u with layout=paged-x", elements);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        struct attn_reason why = {0};
        if (rules[i].served)
            continue;
        attn__caps_refuse(&why, rules[i].code, rules[i].field, rules[i].got, rules[i].wanted);
        attn__caps_add(out, &why);
    }
    table->check_limit(p, &limit);
    if (limit.code != 0)
        attn__caps_add(out, &limit);
}

/* ---------------------------------------------------------------- one row */

static void list_types(uint32_t types, const char *separator, char *text, size_t size)
{
    static const char *const names[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "fnuz", "int8", "blocks"};

    text[0] = '\0';
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t length = strlen(text);
        if ((types & UINT32_C(1) << i) != 0)
            snprintf(text + length, size - length, "%s%s", length > 0 ? separator : "", names[i]);
    }
}

static void judge_types(const struct attn__caps *row, const char *separator, const struct attn_problem *p,
                        struct attn_reason *why)
{
    const struct {
        uint32_t code, dtype, types;
        const char *field;
    } dtypes[] = {{ATTN_REASON_DTYPE_Q, p->q_dtype, row->q_types, "q"},
                  {ATTN_REASON_DTYPE_K, p->k_dtype, row->kv_types, "k"},
                  {ATTN_REASON_DTYPE_V, p->v_dtype, row->kv_types, "v"},
                  {ATTN_REASON_DTYPE_OUT, p->out_dtype, row->out_types, "out"}};
    char wanted[80];

    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if ((type_bit(dtypes[i].dtype) & dtypes[i].types) != 0)
            continue;
        list_types(dtypes[i].types, separator, wanted, sizeof wanted);
        attn__caps_refuse(why, dtypes[i].code, dtypes[i].field, attn__dtype_name(dtypes[i].dtype), wanted);
        return;
    }
    if (p->k_dtype != p->v_dtype && row->kv_mixed == 0) {
        snprintf(wanted, sizeof wanted, "%s as k", attn__dtype_name(p->k_dtype));
        attn__caps_refuse(why, ATTN_REASON_DTYPE_V, "v", attn__dtype_name(p->v_dtype), wanted);
    }
}

static void judge_dims(const struct attn__caps *row, const struct attn_problem *p, struct attn_reason *why)
{
    const uint32_t dims[] = {p->head_dim, p->head_dim_vo};
    char got[32], wanted[80];

    snprintf(got, sizeof got, p->head_dim == p->head_dim_vo ? "%u" : "%u/%u", p->head_dim, p->head_dim_vo);
    snprintf(wanted, sizeof wanted, row->dim_multiple > 1 ? "up to %u, multiples of %u" : "up to %u",
             row->dim_max, row->dim_multiple);
    for (uint32_t i = 0; i < 2; i++) {
        if (dims[i] > row->dim_max || dims[i] % row->dim_multiple != 0) {
            attn__caps_refuse(why, i == 0 ? ATTN_REASON_HEAD_DIM : ATTN_REASON_HEAD_DIM_VO, "head_dim", got,
                              wanted);
            return;
        }
    }
    if (row->vo_max != 0 && p->head_dim_vo > row->vo_max) {
        snprintf(wanted, sizeof wanted, "values of up to %u", row->vo_max);
        attn__caps_refuse(why, ATTN_REASON_HEAD_DIM_VO, "head_dim", got, wanted);
        return;
    }
    if (row->dim_equal != 0 && p->mla == 0 && p->head_dim != p->head_dim_vo)
        attn__caps_refuse(why, ATTN_REASON_HEAD_DIM_VO, "head_dim", got, "the same for q, k and v");
}

static bool has_window(const struct attn_problem *p)
{
    /* The default right side is the same as the causal flag. */
    return p->window_left >= 0 || p->window_right > 0 ||
           (p->window_right == 0 && p->causal != ATTN_CAUSAL_YES);
}

/* The first feature of a problem that a row lacks, in the plugin's order. */
static void judge_features(const struct attn__caps_table *table, const struct attn__caps *row,
                           const struct attn_problem *p, struct attn_reason *why)
{
    const bool cached = p->kv_source != ATTN_KV_NEW;
    const bool token_head = p->k_scale == ATTN_SCALES_TOKEN_HEAD || p->v_scale == ATTN_SCALES_TOKEN_HEAD;
    /* In the order of enum attn__feature. */
    const struct {
        bool asked;
        uint32_t code;
        const char *field, *got;
    } features[] = {
        {p->alibi != ATTN_ALIBI_NONE, ATTN_REASON_ALIBI, "alibi",
         NAME(p->alibi, "none", "key", "distance", "mask")},
        {p->mask != ATTN_MASK_NONE, ATTN_REASON_MASK, "mask",
         NAME(p->mask, "none", "bits", "f16", "bf16", "f32")},
        {p->kv_source == ATTN_KV_NEW, ATTN_REASON_KV_SOURCE, "kv_source", "new"},
        {p->kv_source == ATTN_KV_CACHE_NEW, ATTN_REASON_KV_SOURCE, "kv_source", "cache+new"},
        {p->layout == ATTN_PAGED_X && cached, ATTN_REASON_LAYOUT, "layout", "paged-x"},
        {has_window(p), ATTN_REASON_WINDOW, "window", "a window"},
        {p->softcap > 0, ATTN_REASON_SOFTCAP, "softcap", "a soft cap"},
        {p->sinks != 0, ATTN_REASON_SINKS, "sinks", "1"},
        {p->positions != 0, ATTN_REASON_POSITIONS, "positions", "1"},
        {p->seq_causal != 0, ATTN_REASON_CAUSAL, "seq_causal", "1"},
        {p->align == ATTN_ALIGN_START, ATTN_REASON_ALIGN, "align", "start"},
        {p->mla != 0, ATTN_REASON_MLA, "mla", "1"},
        {p->cp != 0, ATTN_REASON_CONTEXT_PARALLEL, "cp", "1"},
        {p->addressing == ATTN_DENSE && cached, ATTN_REASON_ADDRESSING, "addr", "dense"},
        {p->addressing == ATTN_CSR && cached, ATTN_REASON_ADDRESSING, "addr", "csr"},
        {token_head, ATTN_REASON_SCALES, "scales", "token-head"},
        {p->det != 0, ATTN_REASON_DETERMINISTIC, "det", "1"},
    };

    if ((row->needs & ATTN__HAS_MLA) != 0 && p->mla == 0) {
        attn__caps_refuse(why, ATTN_REASON_MLA, "mla", "0", "1");
        return;
    }
    for (uint32_t i = 0; i < table->feature_count; i++) {
        const uint32_t feature = table->features[i].feature, n = (uint32_t)__builtin_ctz(feature);
        if (!features[n].asked || (row->features & feature) != 0)
            continue;
        attn__caps_refuse(why, features[n].code, features[n].field, features[n].got,
                          table->features[i].wanted);
        return;
    }
}

/* What is checked of a row, in this order. */
enum check { CHECK_DEVICE, CHECK_Q, CHECK_K, CHECK_V, CHECK_OUT, CHECK_DIMS, CHECK_FEATURES, CHECK_REST };

/* The first reason why a row does not serve a problem, code 0 if it does; and the check that does not hold.
 */
static enum check judge_row(const struct attn__caps_table *table, const struct attn__caps *row,
                            uint32_t device, const struct attn_problem *p, struct attn_reason *why)
{
    *why = (struct attn_reason){0};
    table->check_device(row, device, why);
    if (why->code != 0)
        return CHECK_DEVICE;
    judge_types(row, table->separator, p, why);
    if (why->code != 0)
        return CHECK_Q + (why->code - ATTN_REASON_DTYPE_Q);
    judge_dims(row, p, why);
    if (why->code != 0)
        return CHECK_DIMS;
    judge_features(table, row, p, why);
    if (why->code != 0)
        return CHECK_FEATURES;
    if (table->check_resources != NULL)
        table->check_resources(row, device, p, why);
    if (why->code == 0 && p->graph > row->graph_level)
        attn__caps_refuse(why, ATTN_REASON_GRAPH, "graph",
                          NAME(p->graph, "never", "single", "uniform", "always"),
                          NAME(row->graph_level, "never", "single", "uniform", "always"));
    if (why->code == 0 && table->check_option != NULL)
        table->check_option(row, why);
    return CHECK_REST;
}

const void *attn__caps_find(const struct attn__caps_table *table, const struct attn_problem *problem,
                            uint32_t device, uint32_t phase)
{
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct attn__caps *row = row_at(table, i);
        struct attn_reason why;
        if ((row->phases & phase) == 0)
            continue;
        judge_row(table, row, device, problem, &why);
        if (why.code == 0)
            return row;
    }
    return NULL;
}

/*
 * The optimised row of a phase that comes closest to a problem which a generic one serves, or NULL: of those
 * made for what the problem has the one whose check fails last. What it lacks is what a caller would change;
 * of types of keys the row that takes several says most.
 */
static const struct attn__caps *find_closest(const struct attn__caps_table *table,
                                             const struct attn_problem *problem, uint32_t device,
                                             uint32_t phase)
{
    const struct attn__caps *closest = NULL;
    uint32_t best = 0;

    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct attn__caps *row = row_at(table, i);
        const bool mla = (row->needs & ATTN__HAS_MLA) != 0;
        struct attn_reason why;
        if ((row->phases & phase) == 0 || row->speed == ATTN_SPEED_GENERIC || (mla && problem->mla == 0))
            continue;
        const enum check check = judge_row(table, row, device, problem, &why);
        const uint32_t many = check == CHECK_K && row->kv_mixed != 0;
        const uint32_t passed = 1 + 2 * (check + (mla ? CHECK_REST : 0)) + many;
        if (passed > best) {
            best = passed;
            closest = row;
        }
    }
    return closest;
}

/* ---------------------------------------------------------------- the answer */

static void add_kernel(struct attn_query *out, const struct attn__caps *row, const char *when)
{
    if (out->kernel_count < out->kernel_capacity) {
        struct attn_kernel_info *info = &out->kernels[out->kernel_count];
        memset(info, 0, sizeof *info);
        snprintf(info->name, sizeof info->name, "%s", row->name);
        snprintf(info->when, sizeof info->when, "%s", when);
        info->graph_level = row->graph_level;
        info->numerics = row->numerics;
        info->speed = row->speed;
    }
    out->kernel_count++;
    out->graph_level = row->graph_level < out->graph_level ? row->graph_level : out->graph_level;
}

/* Why a row does not serve, if it does not. */
static void add_refusal(const struct attn__caps_table *table, const struct attn__caps *row,
                        const struct attn_problem *problem, uint32_t device, struct attn_query *out)
{
    struct attn_reason why;

    judge_row(table, row, device, problem, &why);
    if (why.code != 0)
        add_reason(out, &why, row->name);
}

/* The reasons of all rows. Those that leave a phase to a generic row come first: they matter most. */
static void add_refusals(const struct attn__caps_table *table, const struct attn_problem *problem,
                         uint32_t device, const struct attn__caps *const serving[2], struct attn_query *out)
{
    const struct attn__caps *first[2] = {NULL, NULL};

    for (uint32_t i = 0; i < 2; i++) {
        if (serving[i] == NULL || serving[i]->speed != ATTN_SPEED_GENERIC)
            continue;
        first[i] = find_closest(table, problem, device, i == 0 ? ATTN__DECODE : ATTN__PREFILL);
        if (first[i] != NULL && (i == 0 || first[i] != first[0]))
            add_refusal(table, first[i], problem, device, out);
    }
    for (uint32_t i = 0; i < table->row_count; i++)
        if (row_at(table, i) != first[0] && row_at(table, i) != first[1])
            add_refusal(table, row_at(table, i), problem, device, out);
}

static void add_rows(const struct attn__caps_table *table, const struct attn_problem *problem,
                     uint32_t device, struct attn_query *out)
{
    const struct attn__caps *decode = attn__caps_find(table, problem, device, ATTN__DECODE);
    const struct attn__caps *prefill = attn__caps_find(table, problem, device, ATTN__PREFILL);
    char when[64];

    add_refusals(table, problem, device, (const struct attn__caps *const[]){decode, prefill}, out);
    if (decode == NULL || prefill == NULL) {
        out->accepted = 0;
    } else if (decode == prefill) {
        add_kernel(out, decode, "always");
    } else {
        snprintf(when, sizeof when, "query tokens * heads / kv_heads <= %u", table->decode_rows);
        add_kernel(out, decode, when);
        snprintf(when, sizeof when, "query tokens * heads / kv_heads > %u", table->decode_rows);
        add_kernel(out, prefill, when);
    }
}

void attn__caps_answer(const struct attn__caps_table *table, const struct attn_problem *problem,
                       uint32_t device, struct attn_query *out)
{
    struct attn_problem plain = *problem;

    judge_problem(table, problem, out);
    if (attn_block_bytes(plain.k_dtype) != 0) /* that was judged */
        plain.k_dtype = ATTN_F16;
    if (attn_block_bytes(plain.v_dtype) != 0)
        plain.v_dtype = ATTN_F16;
    attn_util_refuse_unknown(out, &plain);
    out->accepted = out->reason_count == 0;
    if (out->accepted != 0)
        add_rows(table, problem, device, out);
}
