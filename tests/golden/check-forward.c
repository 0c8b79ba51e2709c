/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* forward_traces.json: which kernels a layer calls in a step, in which order, and with what. */
#include <stdio.h>
#include <string.h>

#include "compat/run.h"
#include "plans.h"
#include "rules.h"
#include "steps.h"
#include "trace-calls.h"
#include "trace-step.h"

enum { MOST_HEADS = 64 };

/* One row, and what was made for it. */
struct trace {
    const json_t *row;
    const json_t *inputs;
    uint32_t flavour;
    uint32_t type;
    int64_t pages; /* 0: no cache */
    int64_t block;
    float slopes[MOST_HEADS];
    float scales[2]; /* of keys and values */
    struct trace_step step;
    struct attn_problem problem;
    struct attn_layer_class class;
    struct attn_layer_desc desc;
    struct attn_backend *backend;
    struct attn_builder *builder;
    struct attn_metadata *metadata;
    struct attn_state *state;
    struct attn_layer *layer;
    struct attn_kv *kv;
    char *memory; /* of all tensors, and of the cache */
};

static uint32_t type_of(const char *name)
{
    static const char *const names[] = {"DECODER", "ENCODER", "ENCODER_ONLY", "ENCODER_DECODER"};
    static const uint32_t types[] = {ATTN_DECODER, ATTN_ENCODER, ATTN_ENCODER_ONLY, ATTN_ENCODER_DECODER};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return types[i];
    return 0;
}

static bool open_trace(struct golden *g, const json_t *row, struct trace *t)
{
    const json_t *shape = json_object_get(row, "kv_cache");

    *t = (struct trace){.row = row, .inputs = json_object_get(row, "inputs"), .block = 16};
    t->flavour = step_flavour(golden_text(row, "backend", ""));
    t->type = type_of(golden_text(row, "attn_type", ""));
    if (t->flavour == 0 || t->type == 0 || !json_is_object(t->inputs)) {
        golden_differ(g, "the row has no backend, attn_type or inputs that are known");
        return false;
    }
    if (json_array_size(shape) == 5) {
        t->block = (int64_t)json_integer_value(json_array_get(shape, 2));
        t->pages = (int64_t)json_integer_value(json_array_get(shape, t->flavour == ATTN_FLASHINFER ? 0 : 1));
    }
    t->scales[0] = (float)golden_real(t->inputs, "k_scale", 1);
    t->scales[1] = (float)golden_real(t->inputs, "v_scale", 1);
    t->backend = golden_backend(g, plans_backend(t->flavour), "heads=8 head_dim=128 q=f16");
    if (t->backend == NULL)
        golden_differ(g, "no recording backend");
    return t->backend != NULL;
}

static bool is_cache_type(const struct trace *t, const char *name)
{
    return strncmp(golden_text(t->inputs, "kv_cache_dtype", "auto"), name, strlen(name)) == 0;
}

static int32_t parse_problem(struct trace *t, struct attn_error *err)
{
    static const char *const types[] = {
        [ATTN_DECODER] = "decoder",
        [ATTN_ENCODER] = "encoder",
        [ATTN_ENCODER_ONLY] = "encoder_only",
        [ATTN_ENCODER_DECODER] = "encoder_decoder",
    };
    const json_t *window = json_object_get(t->inputs, "window");
    const bool bytes = !is_cache_type(t, "auto");
    const bool cached = t->type == ATTN_DECODER || t->type == ATTN_ENCODER_DECODER;
    char text[512];
    int used = snprintf(
        text, sizeof text,
        "type=%s q=f32 heads=%lld kv_heads=%lld head_dim=%lld block=%lld addr=%s softcap=%g max_seqs=%u "
        "max_q=%u max_kv=%u max_rows=%u",
        types[t->type], (long long)golden_int(t->inputs, "heads", 0),
        (long long)golden_int(t->inputs, "kv_heads", 0), (long long)golden_int(t->inputs, "head_size", 0),
        (long long)t->block, t->flavour == ATTN_FLASHINFER && cached ? "csr" : "table",
        golden_real(t->inputs, "logits_soft_cap", 0), t->step.seqs, t->step.tokens, t->step.max_len,
        t->step.tokens + t->step.max_len);

    if (json_is_array(window))
        window = json_array_get(window, 0);
    if (json_is_integer(window)) /* tokens in sight, the query's own included */
        used += snprintf(text + used, sizeof text - (size_t)used, " window=%lld",
                         (long long)json_integer_value(window) - 1);
    if (json_is_array(json_object_get(t->inputs, "alibi_slopes")))
        used += snprintf(text + used, sizeof text - (size_t)used, " alibi=key");
    if (bytes && cached)
        snprintf(text + used, sizeof text - (size_t)used, " kv=%s scales=tensor",
                 is_cache_type(t, "fp8_e5m2") ? "e5m2" : "e4m3");
    t->class = (struct attn_layer_class){.problem = &t->problem};
    return attn_problem_parse(text, &t->problem, err);
}

static int32_t make_state(struct trace *t, struct attn_error *err)
{
    struct attn_state_params params;

    ATTN_INIT(&params);
    params.flavour = t->flavour;
    params.group = &t->step.group;
    params.cross = t->step.has_cross ? &t->step.cross : NULL;
    return attn_state_create(t->backend, &t->class, 1, &params, &t->state, err);
}

static int32_t make_layer(struct trace *t, struct attn_error *err)
{
    const json_t *slopes = json_object_get(t->inputs, "alibi_slopes");
    const int32_t status = compat_check_layer(t->backend, &t->problem, err);

    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&t->desc);
    t->desc.layer_class = &t->class;
    t->desc.softmax_scale = (float)golden_real(t->inputs, "scale", 0);
    for (size_t h = 0; h < json_array_size(slopes) && h < MOST_HEADS; h++)
        t->slopes[h] = (float)json_number_value(json_array_get(slopes, h));
    if (json_is_array(slopes))
        t->desc.alibi_slopes.data = t->slopes;
    return attn_layer_create(t->backend, &t->desc, &t->layer, err);
}

static int32_t make_cache(struct trace *t, struct attn_error *err)
{
    struct attn_problem problem = t->problem;
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;

    if (t->pages == 0)
        return ATTN_OK;
    problem.kv_source = ATTN_KV_CACHE;
    ATTN_INIT(&shape);
    ATTN_INIT(&desc);
    int32_t status = attn_kv_get_shape(t->backend, &problem, (uint32_t)t->pages, &shape, err);
    if (status != ATTN_OK)
        return status;
    t->memory = golden_memory((size_t)shape.bytes + 1, 1);
    const struct attn_buffer memory = {t->memory, 0};
    attn_kv_desc_init(&desc, &shape, &memory);
    struct attn_scale *scales[] = {&desc.k_scale, &desc.v_scale};
    for (int i = 0; i < 2 && !is_cache_type(t, "auto"); i++)
        *scales[i] = (struct attn_scale){
            .kind = ATTN_SCALE_HOST, .granularity = ATTN_SCALES_TENSOR, .buffer.data = &t->scales[i]};
    return attn_kv_create(t->backend, &desc, &t->kv, err);
}

static struct attn_tensor tensor(char *memory, int64_t heads, int64_t dim)
{
    return (struct attn_tensor){.buffer.data = memory,
                                .token_stride = heads * dim * (int64_t)sizeof(float),
                                .head_stride = dim * (int64_t)sizeof(float)};
}

static int32_t forward(const struct trace *t, struct attn_error *err)
{
    const int64_t heads = t->problem.heads, kv_heads = t->problem.kv_heads, dim = t->problem.head_dim;
    const size_t rows = (size_t)t->step.tokens + t->step.max_len;
    char *memory = golden_memory(rows * (size_t)(heads * dim), sizeof(float));
    struct attn_layer_tensors tensors;
    struct compat_parts parts;

    ATTN_INIT(&tensors);
    tensors.q = tensors.out = tensor(memory, heads, dim);
    if (golden_bool(t->inputs, "key_value"))
        tensors.k_new = tensors.v_new = tensor(memory, kv_heads, dim);
    const struct compat_run run = {.backend = t->backend,
                                   .problem = &t->problem,
                                   .desc = &t->desc,
                                   .layer = t->layer,
                                   .state = t->state,
                                   .metadata = t->metadata,
                                   .kv = t->kv,
                                   .tensors = &tensors,
                                   .k_scale = t->scales[0],
                                   .v_scale = t->scales[1]};
    int32_t status = compat_split(&run, &parts, err);
    if (status == ATTN_OK)
        status = compat_forward_layer(&run, &parts, err);
    free(memory);
    return status;
}

static int32_t run(struct golden *g, struct trace *t, struct attn_error *err)
{
    const json_t *meta = json_object_get(t->row, "meta");
    int32_t status =
        trace_build(meta, t->flavour, t->block, t->backend, &t->step, &t->builder, &t->metadata, err);

    if (status == ATTN_OK) {
        const struct step plain = {.pad = -1};
        step_check_fields(g, "meta", &plain, 0, meta, t->metadata);
        status = parse_problem(t, err);
    }
    if (status == ATTN_OK)
        status = make_layer(t, err);
    if (status == ATTN_OK)
        status = make_state(t, err);
    if (status == ATTN_OK)
        status = make_cache(t, err);
    if (status == ATTN_OK)
        status = attn_state_begin_forward(t->state, t->metadata, NULL, err);
    plans_clear();
    return status == ATTN_OK ? forward(t, err) : status;
}

/* ---------------------------------------------------------------- what was recorded */

static void set_number(json_t *named, const char *key, double value)
{
    json_object_set_new(named, key, json_real(value));
}

/* Rule: what the layer was made with is in every call of it. */
static void mend_prompts(const struct trace *t, json_t *named, bool wrapper)
{
    const json_t *slopes = json_object_get(t->inputs, "alibi_slopes");

    if (wrapper) {
        set_number(named, "sm_scale", golden_real(t->inputs, "scale", 0));
        rules_hit(RULE_SCALE);
    } else if (!json_object_get(named, "softcap")) {
        set_number(named, "softcap", golden_real(t->inputs, "logits_soft_cap", 0));
        rules_hit(RULE_SCALE);
    }
    if (wrapper && json_is_array(slopes))
        json_object_set_new(named, "alibi_slopes",
                            json_pack("{s:s, s:[I], s:O}", "d", "float32", "s",
                                      (json_int_t)json_array_size(slopes), "v", slopes));
}

static void mend_scales(const struct trace *t, json_t *call, json_t *args, json_t *named)
{
    if (!is_cache_type(t, "auto") || (t->scales[0] == 1 && t->scales[1] == 1))
        return;
    if (strcmp(json_string_value(json_array_get(call, 0)), "reshape_and_cache_flash") == 0) {
        json_array_set_new(args, 6, json_real(1));
        json_array_set_new(args, 7, json_real(1));
        rules_hit(RULE_PLAIN_SCALES);
    } else if (json_object_get(named, "k_scale") != NULL) {
        set_number(named, "k_scale", 1);
        set_number(named, "v_scale", 1);
        rules_hit(RULE_PLAIN_SCALES);
    }
}

/* Values of tensors do not count: the inputs were zeros. Of those that do, none is a null or left out. */
static void plain_tensor(json_t *value)
{
    const char *dtype = golden_text(value, "d", "");

    if (strcmp(dtype, "int32") != 0 && strcmp(dtype, "int64") != 0)
        json_object_del(value, "v");
}

static void level(json_t *call)
{
    json_t *args = json_array_get(call, 1);
    json_t *named = json_array_get(call, 2);
    size_t i;
    const char *key;
    json_t *value;

    json_array_foreach(args, i, value) plain_tensor(value);
    json_object_foreach(named, key, value)
    {
        if (strcmp(key, "alibi_slopes") != 0)
            plain_tensor(value);
    }
    const char *const caps[] = {"softcap", "logits_soft_cap"};
    for (size_t c = 0; c < 2; c++)
        if (json_is_null(json_object_get(named, caps[c])) && json_object_get(named, caps[c]) != NULL)
            set_number(named, caps[c], 0);
    if (strcmp(json_string_value(json_array_get(call, 0)), "flash_attn_with_kvcache") == 0 ||
        strstr(json_string_value(json_array_get(call, 0)), "Decode") != NULL)
        json_object_del(named, "causal");
}

static json_t *wanted_calls(const struct trace *t)
{
    json_t *list = json_deep_copy(json_object_get(t->row, "calls"));
    size_t i;
    json_t *call;

    json_array_foreach(list, i, call)
    {
        const char *name = json_string_value(json_array_get(call, 0));
        json_t *named = json_array_get(call, 2);
        const bool wrapper = strstr(name, "Prefill") != NULL;
        if (t->flavour == ATTN_FLASHINFER && (wrapper || strcmp(name, "flash_attn_varlen_func") == 0))
            mend_prompts(t, named, wrapper);
        mend_scales(t, call, json_array_get(call, 1), named);
        level(call);
    }
    return list;
}

/* ---------------------------------------------------------------- */

static void compare(struct golden *g, const struct trace *t)
{
    uint32_t count;
    const struct recorded_call *calls = plans_calls(&count);
    json_t *wanted = wanted_calls(t);
    json_t *actual = trace_calls(calls, count, t->flavour == ATTN_FLASHINFER,
                                 golden_int(json_object_get(t->row, "meta"), "num_prefills", 0) > 0);

    golden_same(g, "calls", wanted, actual, NULL);
    json_decref(wanted);
    json_decref(actual);
}

static void close_trace(struct trace *t)
{
    attn_kv_destroy(t->kv);
    attn_layer_destroy(t->layer);
    attn_state_destroy(t->state);
    attn_builder_destroy(t->builder);
    attn_backend_destroy(t->backend);
    free(t->memory);
}

void check_forward(struct golden *g, const json_t *data)
{
    size_t i;
    json_t *row;

    json_array_foreach(data, i, row)
    {
        const json_t *exception = golden_exception(row);
        struct trace trace;
        struct attn_error err;
        ATTN_INIT(&err);
        /* What the original refuses only the model of it does. */
        (exception != NULL ? golden_begin_model : golden_begin)(
            g, "[%zu] %s %s", i, golden_text(row, "backend", ""), golden_text(row, "tag", ""));
        if (open_trace(g, row, &trace)) {
            const int32_t status = run(g, &trace, &err);
            if (exception != NULL)
                golden_check_exception(g, exception, status, &err);
            else if (golden_ok(g, "forward", status, &err))
                compare(g, &trace);
        }
        close_trace(&trace);
        golden_end(g);
    }
}
