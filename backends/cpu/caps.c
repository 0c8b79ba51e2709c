/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the plugin serves. A query and the choice of kernels ask the same predicates, so that neither can
 * promise what the other does not keep.
 */
#include <stdio.h>

#include "attn/plugin-util.h"
#include "cpu.h"
#include "kv-view.h"

/* One predicate about the problem as a whole. */
struct rule {
    bool served;
    uint32_t code;
    const char *field;
    const char *got;
    const char *wanted;
};

#define RULES 11u

/* All predicates, and text that they refer to. */
struct ruling {
    struct rule rules[RULES];
    char head_dim[12];
};

/* Name of an enumerated member, which counts from 1. */
static const char *name_of(uint32_t value, const char *const *names, uint32_t count)
{
    return value >= 1 && value <= count ? names[value - 1] : "unknown";
}

#define NAME(value, ...)                                                                                     \
    name_of((value), (const char *const[]){__VA_ARGS__},                                                     \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

static bool fits_counts(const struct attn_problem *problem)
{
    struct attn_planner planner = cpu_planner(problem, 1);
    struct attn_planner_bounds bounds;

    if (problem->max_seqs == 0 || problem->max_q == 0 || problem->max_kv == 0 || problem->max_rows == 0)
        return true;
    return attn__planner_get_bounds(&planner, &bounds);
}

struct attn_planner cpu_planner(const struct attn_problem *problem, uint32_t units)
{
    return (struct attn_planner){
        .problem = problem, .few = CPU_DECODE_ROWS, .many = CPU_PREFILL_ROWS, .units = units};
}

static void get_rules(const struct attn_problem *p, struct ruling *out)
{
    static const char types[] = "f32, f16, bf16, 8 bits";
    static const char count[] = "at most 2147483647";
    uint32_t k_size = attn__dtype_size(p->k_dtype);
    uint32_t pieces = p->layout == ATTN_PAGED_X && k_size != 0 ? ATTN__PAGED_X_BYTES / k_size : 0;
    const struct rule list[RULES] = {
        {attn__dtype_size(p->q_dtype) != 0, ATTN_REASON_DTYPE_Q, "q", attn__dtype_name(p->q_dtype), types},
        {attn__dtype_size(p->k_dtype) != 0, ATTN_REASON_DTYPE_K, "k", attn__dtype_name(p->k_dtype), types},
        {attn__dtype_size(p->v_dtype) != 0, ATTN_REASON_DTYPE_V, "v", attn__dtype_name(p->v_dtype), types},
        {attn__dtype_size(p->out_dtype) != 0, ATTN_REASON_DTYPE_OUT, "out", attn__dtype_name(p->out_dtype),
         types},
        {pieces <= 1 || p->head_dim % pieces == 0, ATTN_REASON_HEAD_DIM, "head_dim", out->head_dim,
         pieces == 4   ? "multiples of 4 with layout=paged-x"
         : pieces == 8 ? "multiples of 8 with layout=paged-x"
                       : "multiples of 16 with layout=paged-x"},
        {p->out_scale != ATTN_SCALES_TOKEN_HEAD, ATTN_REASON_SCALES, "out_scale", "token-head",
         "none, unit, tensor, head"},
        {p->max_seqs <= INT32_MAX, ATTN_REASON_MAX_SEQS, "max_seqs", "more", count},
        {p->max_q <= INT32_MAX, ATTN_REASON_MAX_Q, "max_q", "more", count},
        {p->max_kv <= INT32_MAX, ATTN_REASON_MAX_KV, "max_kv", "more", count},
        {p->max_rows <= INT32_MAX, ATTN_REASON_MAX_ROWS, "max_rows", "more", count},
        {fits_counts(p), ATTN_REASON_MAX_ROWS, "max_rows", "with max_seqs and heads",
         "a schedule of less than 2^32 works"},
    };
    memcpy(out->rules, list, sizeof list);
    snprintf(out->head_dim, sizeof out->head_dim, "%u", p->head_dim);
}

static uint32_t type_bit(uint32_t dtype)
{
    if (attn__dtype_size(dtype) == 1)
        return CPU_TYPE_8;
    return dtype == ATTN_F32 ? CPU_TYPE_F32 : dtype == ATTN_F16 ? CPU_TYPE_F16 : CPU_TYPE_BF16;
}

static void list_types(uint32_t types, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", (types & CPU_TYPE_F32) != 0 ? "f32 " : "",
             (types & CPU_TYPE_F16) != 0 ? "f16 " : "", (types & CPU_TYPE_BF16) != 0 ? "bf16 " : "");
    size_t length = strlen(text);
    if (length > 0)
        text[length - 1] = '\0';
}

/* The first feature of a problem that a row lacks. */
static void judge_features(const struct cpu_kernel *row, const struct attn_problem *p,
                           struct attn_reason *why)
{
    const struct {
        uint32_t feature;
        bool asked;
        struct rule rule;
    } features[] = {
        {CPU_ALIBI,
         p->alibi != ATTN_ALIBI_NONE,
         {false, ATTN_REASON_ALIBI, "alibi", NAME(p->alibi, "none", "key", "distance", "mask"), "none"}},
        {CPU_CACHE_NEW,
         p->kv_source == ATTN_KV_CACHE_NEW,
         {false, ATTN_REASON_KV_SOURCE, "kv_source", "cache+new", "cache, new"}},
        {CPU_MASK,
         p->mask != ATTN_MASK_NONE,
         {false, ATTN_REASON_MASK, "mask", NAME(p->mask, "none", "bits", "f16", "bf16", "f32"), "none"}},
        {CPU_PAGED_X,
         p->layout == ATTN_PAGED_X && p->kv_source != ATTN_KV_NEW,
         {false, ATTN_REASON_LAYOUT, "layout", "paged-x", "strided"}},
    };

    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        const struct rule *rule = &features[i].rule;
        if (!features[i].asked || (row->features & features[i].feature) != 0)
            continue;
        why->code = rule->code;
        snprintf(why->field, sizeof why->field, "%s", rule->field);
        snprintf(why->got, sizeof why->got, "%s", rule->got);
        snprintf(why->wanted, sizeof why->wanted, "%s", rule->wanted);
        return;
    }
}

/* The first thing that keeps a row from a problem; code 0 if nothing does. */
static struct attn_reason judge_row(const struct cpu_kernel *row, uint32_t flags,
                                    const struct attn_problem *p)
{
    struct attn_reason why = {0};
    const struct {
        uint32_t code, dtype, types;
        const char *field;
    } dtypes[] = {{ATTN_REASON_DTYPE_Q, p->q_dtype, row->q_types, "q"},
                  {ATTN_REASON_DTYPE_K, p->k_dtype, row->kv_types, "k"},
                  {ATTN_REASON_DTYPE_V, p->v_dtype, row->kv_types, "v"}};
    const struct {
        uint32_t code, dim;
        const char *field;
    } dims[] = {{ATTN_REASON_HEAD_DIM, p->head_dim, "head_dim"},
                {ATTN_REASON_HEAD_DIM_VO, p->head_dim_vo, "head_dim"}};

    const uint32_t needed = cpu_level_flags(row->level);
    if ((flags & needed) != needed) {
        why.code = ATTN_REASON_CPU_FLAGS;
        cpu_flags_text(flags, why.got, sizeof why.got);
        if (flags == 0)
            snprintf(why.got, sizeof why.got, "none");
        cpu_flags_text(needed, why.wanted, sizeof why.wanted);
        snprintf(why.field, sizeof why.field, "cpu_flags");
        return why;
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if ((type_bit(dtypes[i].dtype) & dtypes[i].types) != 0)
            continue;
        why.code = dtypes[i].code;
        snprintf(why.field, sizeof why.field, "%s", dtypes[i].field);
        snprintf(why.got, sizeof why.got, "%s", attn__dtype_name(dtypes[i].dtype));
        list_types(dtypes[i].types, why.wanted, sizeof why.wanted);
        return why;
    }
    if (p->k_dtype != p->v_dtype && row->kv_mixed == 0) {
        why.code = ATTN_REASON_DTYPE_V;
        snprintf(why.field, sizeof why.field, "v");
        snprintf(why.got, sizeof why.got, "%s", attn__dtype_name(p->v_dtype));
        snprintf(why.wanted, sizeof why.wanted, "%s as k", attn__dtype_name(p->k_dtype));
        return why;
    }
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        if (dims[i].dim <= row->dim_max && dims[i].dim % row->dim_multiple == 0)
            continue;
        why.code = dims[i].code;
        snprintf(why.field, sizeof why.field, "%s", dims[i].field);
        snprintf(why.got, sizeof why.got, "%u", dims[i].dim);
        snprintf(why.wanted, sizeof why.wanted, "multiples of %u up to %u", row->dim_multiple, row->dim_max);
        return why;
    }
    judge_features(row, p, &why);
    return why;
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

static void add_rule(struct attn_query *out, const struct rule *rule)
{
    struct attn_reason why = {.code = rule->code};

    snprintf(why.field, sizeof why.field, "%s", rule->field);
    snprintf(why.got, sizeof why.got, "%s", rule->got);
    snprintf(why.wanted, sizeof why.wanted, "%s", rule->wanted);
    add_reason(out, &why, "");
}

static void add_kernel(struct attn_query *out, const struct cpu_kernel *row, const char *when)
{
    if (out->kernel_count < out->kernel_capacity) {
        struct attn_kernel_info *info = &out->kernels[out->kernel_count];
        memset(info, 0, sizeof *info);
        snprintf(info->name, sizeof info->name, "%s", row->name);
        snprintf(info->when, sizeof info->when, "%s", when);
        info->graph_level = ATTN_GRAPH_ALWAYS;
        info->numerics = row->numerics;
    }
    out->kernel_count++;
}

/* First row of a phase that fits. The problem's rules were asked before. */
static const struct cpu_kernel *find_row(uint32_t flags, const struct attn_problem *problem, uint32_t phase)
{
    for (uint32_t i = 0; i < cpu_kernel_count; i++) {
        if ((cpu_kernels[i].phases & phase) != 0 && judge_row(&cpu_kernels[i], flags, problem).code == 0)
            return &cpu_kernels[i];
    }
    return NULL;
}

static bool is_known(const struct attn_problem *problem)
{
    struct attn_query query = {.reason_count = 0};

    attn_util_refuse_unknown(&query, problem);
    return query.reason_count == 0;
}

const struct cpu_kernel *cpu_dispatch(const struct attn_instance *instance,
                                      const struct attn_problem *problem, uint32_t phase)
{
    struct ruling ruling;

    get_rules(problem, &ruling);
    for (uint32_t i = 0; i < RULES; i++) {
        if (!ruling.rules[i].served)
            return NULL;
    }
    return is_known(problem) ? find_row(instance->flags, problem, phase) : NULL;
}

static void add_rows(struct attn_query *out, uint32_t flags, const struct attn_problem *problem)
{
    for (uint32_t i = 0; i < cpu_kernel_count; i++) {
        struct attn_reason why = judge_row(&cpu_kernels[i], flags, problem);
        if (why.code != 0)
            add_reason(out, &why, cpu_kernels[i].name);
    }
    const struct cpu_kernel *few = find_row(flags, problem, CPU_DECODE);
    const struct cpu_kernel *many = find_row(flags, problem, CPU_PREFILL);
    if (few == NULL || many == NULL) {
        out->accepted = 0;
    } else if (few == many) {
        add_kernel(out, few, "always");
    } else {
        add_kernel(out, few, "query tokens * heads / kv_heads <= 16");
        add_kernel(out, many, "query tokens * heads / kv_heads > 16");
    }
}

int32_t cpu_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *problem, uint32_t cost_rank, struct attn_query *out)
{
    struct ruling ruling;

    out->accepted = 1;
    out->cost_rank = cost_rank;
    out->graph_level = ATTN_GRAPH_ALWAYS; /* a graph is a list of calls: it holds any of them */
    out->reason_count = 0;
    out->kernel_count = 0;
    if (device != NULL && (device->type != ATTN_DEVICE_CPU || device->ordinal != 0)) {
        const struct rule rule = {false, ATTN_REASON_DEVICE, "device", "another one", "cpu:0"};
        add_rule(out, &rule);
        out->accepted = 0;
    }
    get_rules(problem, &ruling);
    for (uint32_t i = 0; i < RULES; i++) {
        if (!ruling.rules[i].served) {
            add_rule(out, &ruling.rules[i]);
            out->accepted = 0;
        }
    }
    attn_util_refuse_unknown(out, problem);
    out->accepted = out->reason_count == 0;
    if (out->accepted != 0)
        add_rows(out, instance->flags, problem);
    return ATTN_OK;
}
