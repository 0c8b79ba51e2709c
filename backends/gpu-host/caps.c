/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What the plugin serves. A query and the choice of kernels ask the same predicates, so that neither can
 * promise what the other does not keep.
 */
#include <stdio.h>

#include "attn/plugin-util.h"
#include "host.h"
#include "kv-view.h"

static void refuse(struct attn_reason *why, uint32_t code, const char *field, const char *got,
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

/* ---------------------------------------------------------------- the problem as a whole */

#define RULES 11u

/* Asks every rule; the first ones that do not hold go to `out`, if given. True if all hold. */
static bool judge_problem(const struct attn_problem *p, struct attn_query *out)
{
    static const char types[] = "f32, f16, bf16, 8 bits";
    static const char count[] = "at most 2147483647";
    uint32_t k_size = attn__dtype_size(p->k_dtype);
    uint32_t pieces = p->layout == ATTN_PAGED_X && k_size != 0 ? ATTN__PAGED_X_BYTES / k_size : 0;
    char head_dim[12], multiple[48];
    const struct {
        bool served;
        uint32_t code;
        const char *field, *got, *wanted;
    } rules[RULES] = {
        {attn__dtype_size(p->q_dtype) != 0, ATTN_REASON_DTYPE_Q, "q", attn__dtype_name(p->q_dtype), types},
        {attn__dtype_size(p->k_dtype) != 0, ATTN_REASON_DTYPE_K, "k", attn__dtype_name(p->k_dtype), types},
        {attn__dtype_size(p->v_dtype) != 0, ATTN_REASON_DTYPE_V, "v", attn__dtype_name(p->v_dtype), types},
        {attn__dtype_size(p->out_dtype) != 0, ATTN_REASON_DTYPE_OUT, "out", attn__dtype_name(p->out_dtype),
         types},
        {pieces <= 1 || p->head_dim % pieces == 0, ATTN_REASON_HEAD_DIM, "head_dim", head_dim, multiple},
        {p->out_scale != ATTN_SCALES_TOKEN_HEAD, ATTN_REASON_SCALES, "out_scale", "token-head",
         "none, unit, tensor, head"},
        {p->max_seqs <= INT32_MAX, ATTN_REASON_MAX_SEQS, "max_seqs", "more", count},
        {p->max_q <= INT32_MAX, ATTN_REASON_MAX_Q, "max_q", "more", count},
        {p->max_kv <= INT32_MAX, ATTN_REASON_MAX_KV, "max_kv", "more", count},
        {p->max_rows <= INT32_MAX, ATTN_REASON_MAX_ROWS, "max_rows", "more", count},
        {(uint64_t)p->max_rows * p->heads <= INT32_MAX, ATTN_REASON_MAX_ROWS, "max_rows", "times heads more",
         count},
    };
    bool all = true;

    snprintf(head_dim, sizeof head_dim, "%u", p->head_dim);
    snprintf(multiple, sizeof multiple, "multiples of %u with layout=paged-x", pieces);
    for (uint32_t i = 0; i < RULES; i++) {
        struct attn_reason why = {0};
        if (rules[i].served)
            continue;
        all = false;
        refuse(&why, rules[i].code, rules[i].field, rules[i].got, rules[i].wanted);
        if (out != NULL)
            add_reason(out, &why, "");
    }
    return all;
}

/* ---------------------------------------------------------------- one row */

static uint32_t type_bit(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return GPU_TYPE_F32;
    case ATTN_F16:
        return GPU_TYPE_F16;
    case ATTN_BF16:
        return GPU_TYPE_BF16;
    case ATTN_E4M3:
        return GPU_TYPE_E4M3;
    case ATTN_E5M2:
        return GPU_TYPE_E5M2;
    case ATTN_INT8:
        return GPU_TYPE_INT8;
    default:
        return GPU_TYPE_FNUZ;
    }
}

static void list_types(uint32_t types, char *text, size_t size)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } all[] = {{GPU_TYPE_F32, "f32"},   {GPU_TYPE_F16, "f16"},   {GPU_TYPE_BF16, "bf16"},
               {GPU_TYPE_E4M3, "e4m3"}, {GPU_TYPE_E5M2, "e5m2"}, {GPU_TYPE_FNUZ, "fnuz"},
               {GPU_TYPE_INT8, "int8"}};

    text[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        size_t length = strlen(text);
        if ((types & all[i].bit) != 0)
            snprintf(text + length, size - length, "%s%s", length > 0 ? ", " : "", all[i].name);
    }
}

static void judge_types(const struct gpu_kernel *row, const struct attn_problem *p, struct attn_reason *why)
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
        list_types(dtypes[i].types, wanted, sizeof wanted);
        refuse(why, dtypes[i].code, dtypes[i].field, attn__dtype_name(dtypes[i].dtype), wanted);
        return;
    }
    if (p->k_dtype != p->v_dtype && row->kv_mixed == 0) {
        snprintf(wanted, sizeof wanted, "%s as k", attn__dtype_name(p->k_dtype));
        refuse(why, ATTN_REASON_DTYPE_V, "v", attn__dtype_name(p->v_dtype), wanted);
    }
}

static void judge_dims(const struct gpu_kernel *row, const struct attn_problem *p, struct attn_reason *why)
{
    const uint32_t dims[] = {p->head_dim, p->head_dim_vo};
    char got[32], wanted[80];

    snprintf(got, sizeof got, p->head_dim == p->head_dim_vo ? "%u" : "%u/%u", p->head_dim, p->head_dim_vo);
    snprintf(wanted, sizeof wanted, row->dim_multiple > 1 ? "up to %u, multiples of %u" : "up to %u",
             row->dim_max, row->dim_multiple);
    for (uint32_t i = 0; i < 2; i++) {
        if (dims[i] > row->dim_max || dims[i] % row->dim_multiple != 0) {
            refuse(why, i == 0 ? ATTN_REASON_HEAD_DIM : ATTN_REASON_HEAD_DIM_VO, "head_dim", got, wanted);
            return;
        }
    }
    if (row->vo_max != 0 && p->head_dim_vo > row->vo_max) {
        snprintf(wanted, sizeof wanted, "values of up to %u", row->vo_max);
        refuse(why, ATTN_REASON_HEAD_DIM_VO, "head_dim", got, wanted);
        return;
    }
    if (row->dim_equal != 0 && p->mla == 0 && p->head_dim != p->head_dim_vo)
        refuse(why, ATTN_REASON_HEAD_DIM_VO, "head_dim", got, "the same for q, k and v");
}

static bool has_window(const struct attn_problem *p)
{
    /* The default right side says no more than the causal flag does. */
    return p->window_left >= 0 || (p->window_right > 0) ||
           (p->window_right == 0 && p->causal != ATTN_CAUSAL_YES);
}

/* Name of an enumerated member, which counts from 1. */
static const char *name_of(uint32_t value, const char *const *names, uint32_t count)
{
    return value >= 1 && value <= count ? names[value - 1] : "unknown";
}

#define NAME(value, ...)                                                                                     \
    name_of((value), (const char *const[]){__VA_ARGS__},                                                     \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* The first feature of a problem that a row lacks. */
static void judge_features(const struct gpu_kernel *row, const struct attn_problem *p,
                           struct attn_reason *why)
{
    const bool cached = p->kv_source != ATTN_KV_NEW;
    const bool token_head = p->k_scale == ATTN_SCALES_TOKEN_HEAD || p->v_scale == ATTN_SCALES_TOKEN_HEAD;
    const struct {
        uint32_t feature;
        bool asked;
        uint32_t code;
        const char *field, *got, *wanted;
    } features[] = {
        {GPU_ALIBI, p->alibi != ATTN_ALIBI_NONE, ATTN_REASON_ALIBI, "alibi",
         NAME(p->alibi, "none", "key", "distance", "mask"), "none"},
        {GPU_MASK, p->mask != ATTN_MASK_NONE, ATTN_REASON_MASK, "mask",
         NAME(p->mask, "none", "bits", "f16", "bf16", "f32"), "none"},
        {GPU_NEW, p->kv_source == ATTN_KV_NEW, ATTN_REASON_KV_SOURCE, "kv_source", "new", "cache"},
        {GPU_CACHE_NEW, p->kv_source == ATTN_KV_CACHE_NEW, ATTN_REASON_KV_SOURCE, "kv_source", "cache+new",
         "cache"},
        {GPU_PAGED_X, p->layout == ATTN_PAGED_X && cached, ATTN_REASON_LAYOUT, "layout", "paged-x",
         "strided"},
        {GPU_WINDOW, has_window(p), ATTN_REASON_WINDOW, "window", "a window", "-1"},
        {GPU_SOFTCAP, p->softcap > 0, ATTN_REASON_SOFTCAP, "softcap", "a soft cap", "0"},
        {GPU_SINKS, p->sinks != 0, ATTN_REASON_SINKS, "sinks", "1", "0"},
        {GPU_POSITIONS, p->positions != 0, ATTN_REASON_POSITIONS, "positions", "1", "0"},
        {GPU_SEQ_CAUSAL, p->seq_causal != 0, ATTN_REASON_CAUSAL, "seq_causal", "1", "0"},
        {GPU_ALIGN_START, p->align == ATTN_ALIGN_START, ATTN_REASON_ALIGN, "align", "start", "end"},
        {GPU_MLA, p->mla != 0, ATTN_REASON_MLA, "mla", "1", "0"},
        {GPU_CP, p->cp != 0, ATTN_REASON_CONTEXT_PARALLEL, "cp", "1", "0"},
        {GPU_DENSE, p->addressing == ATTN_DENSE && cached, ATTN_REASON_ADDRESSING, "addr", "dense",
         "table, csr"},
        {GPU_CSR, p->addressing == ATTN_CSR && cached, ATTN_REASON_ADDRESSING, "addr", "csr", "table"},
        {GPU_TOKEN_HEAD, token_head, ATTN_REASON_SCALES, "scales", "token-head", "unit, tensor, head"},
        {GPU_DET, p->det != 0, ATTN_REASON_DETERMINISTIC, "det", "1", "0"},
    };

    if ((row->needs & GPU_MLA) != 0 && p->mla == 0) {
        refuse(why, ATTN_REASON_MLA, "mla", "0", "1");
        return;
    }
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (!features[i].asked || (row->features & features[i].feature) != 0)
            continue;
        refuse(why, features[i].code, features[i].field, features[i].got, features[i].wanted);
        return;
    }
}

/* The first thing that keeps a row from a problem; code 0 if nothing does. arch 0: not asked. */
static struct attn_reason judge_row(const struct gpu_kernel *row, uint32_t arch, const struct attn_problem *p)
{
    struct attn_reason why = {0};
    char got[16], wanted[32];

    if (arch != 0 && arch < row->arch) {
        snprintf(got, sizeof got, GPU_VENDOR_ARCH, arch);
        snprintf(wanted, sizeof wanted, GPU_VENDOR_ARCH " or newer", row->arch);
        refuse(&why, ATTN_REASON_DEVICE_ARCH, "device", got, wanted);
    }
    if (why.code == 0)
        judge_types(row, p, &why);
    if (why.code == 0)
        judge_dims(row, p, &why);
    if (why.code == 0)
        judge_features(row, p, &why);
    if (why.code == 0 && arch != 0 && row->family->shared_of != NULL &&
        gpu_vendor_shared(arch) < row->family->shared_of(p, row->phases)) {
        snprintf(got, sizeof got, GPU_VENDOR_ARCH, arch);
        snprintf(wanted, sizeof wanted, "%u KiB of shared memory",
                 (row->family->shared_of(p, row->phases) + 1023) >> 10);
        refuse(&why, ATTN_REASON_DEVICE_ARCH, "device", got, wanted);
    }
    if (why.code == 0 && p->graph > row->graph_level)
        refuse(&why, ATTN_REASON_GRAPH, "graph", NAME(p->graph, "never", "single", "uniform", "always"),
               NAME(row->graph_level, "never", "single", "uniform", "always"));
    return why;
}

/* First row of a phase that fits. The problem's rules were asked before. */
static const struct gpu_kernel *find_row(uint32_t arch, const struct attn_problem *problem, uint32_t phase)
{
    for (uint32_t i = 0; i < gpu_kernel_count; i++) {
        if ((gpu_kernels[i].phases & phase) != 0 && judge_row(&gpu_kernels[i], arch, problem).code == 0)
            return &gpu_kernels[i];
    }
    return NULL;
}

const struct gpu_kernel *gpu_dispatch(const struct attn_problem *problem, uint32_t phase, uint32_t arch)
{
    struct attn_query query = {.reason_count = 0};

    attn_util_refuse_unknown(&query, problem);
    if (query.reason_count != 0 || !judge_problem(problem, NULL))
        return NULL;
    return find_row(arch, problem, phase);
}

/* ---------------------------------------------------------------- the query */

static void add_kernel(struct attn_query *out, const struct gpu_kernel *row, const char *when)
{
    if (out->kernel_count < out->kernel_capacity) {
        struct attn_kernel_info *info = &out->kernels[out->kernel_count];
        memset(info, 0, sizeof *info);
        snprintf(info->name, sizeof info->name, "%s", row->name);
        snprintf(info->when, sizeof info->when, "%s", when);
        info->graph_level = row->graph_level;
        info->numerics = row->numerics;
    }
    out->kernel_count++;
    out->graph_level = row->graph_level < out->graph_level ? row->graph_level : out->graph_level;
}

static void add_rows(struct attn_query *out, uint32_t arch, const struct attn_problem *problem)
{
    char when[64];

    for (uint32_t i = 0; i < gpu_kernel_count; i++) {
        struct attn_reason why = judge_row(&gpu_kernels[i], arch, problem);
        if (why.code != 0)
            add_reason(out, &why, gpu_kernels[i].name);
    }
    const struct gpu_kernel *few = find_row(arch, problem, GPU_FEW_ROWS);
    const struct gpu_kernel *many = find_row(arch, problem, GPU_MANY_ROWS);
    if (few == NULL || many == NULL) {
        out->accepted = 0;
    } else if (few == many) {
        add_kernel(out, few, "always");
    } else {
        snprintf(when, sizeof when, "query tokens * heads / kv_heads <= %u", GPU_FEW);
        add_kernel(out, few, when);
        snprintf(when, sizeof when, "query tokens * heads / kv_heads > %u", GPU_FEW);
        add_kernel(out, many, when);
    }
}

/* Whether an earlier error has ended what this instance can do on a device. */
static bool is_lost(struct attn_instance *instance, const struct gpu_device_record *record)
{
    bool lost = false;

    pthread_mutex_lock(&instance->lock);
    for (const struct gpu_context *context = instance->contexts; context != NULL; context = context->next)
        lost = lost || (context->record == record && context->primary && gpu_is_lost(context));
    pthread_mutex_unlock(&instance->lock);
    return lost;
}

/* The device's own reasons. *out_arch stays 0 if it is none of ours. */
static void judge_device(struct attn_instance *instance, const struct attn_device *device,
                         struct attn_query *out, uint32_t *out_arch)
{
    struct attn_reason why = {0};
    const char *served = NULL;
    const struct gpu_device_record *record =
        gpu_instance_open(instance, NULL) == ATTN_OK ? gpu_device_find(instance, device) : NULL;

    *out_arch = record != NULL ? record->arch : 0;
    if (record == NULL) {
        refuse(&why, ATTN_REASON_DEVICE, "device", "another one",
               GPU_VENDOR_DEVICE ":N of attn-info devices");
    } else if (!gpu_vendor_serves(record, &served)) {
        refuse(&why, ATTN_REASON_DEVICE_ARCH, "device", record->info.arch, served);
    } else if (is_lost(instance, record)) {
        refuse(&why, ATTN_REASON_DEVICE_LOST, "device", "lost after an error", "a device that works");
    }
    if (why.code != 0)
        add_reason(out, &why, "");
}

int32_t gpu_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *problem, uint32_t cost_rank, struct attn_query *out)
{
    uint32_t arch = 0;

    out->accepted = 1;
    out->cost_rank = cost_rank;
    out->graph_level = ATTN_GRAPH_ALWAYS;
    out->reason_count = 0;
    out->kernel_count = 0;
    if (device != NULL)
        judge_device(instance, device, out, &arch);
    (void)judge_problem(problem, out);
    attn_util_refuse_unknown(out, problem);
    out->accepted = out->reason_count == 0;
    if (out->accepted != 0)
        add_rows(out, arch, problem);
    return ATTN_OK;
}
