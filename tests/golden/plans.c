/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* States on the recording plugin, and its calls written as the original's. */
#define _GNU_SOURCE
#include "plans.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The plugin as the library has loaded it. */
static void *symbol(const char *name)
{
    char program[PATH_MAX];
    char path[PATH_MAX + 32];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);

    if (size <= 0)
        return NULL;
    program[size] = '\0';
    snprintf(path, sizeof path, "%s/libattn-golden.so", dirname(program));
    void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *found = handle != NULL ? dlsym(handle, name) : NULL;
    if (handle != NULL)
        dlclose(handle);
    return found;
}

const struct recorded_call *plans_calls(uint32_t *out_count)
{
    void *found = symbol(RECORDER_CALLS);
    recorder_calls_fn calls;

    *out_count = 0;
    memcpy(&calls, &found, sizeof calls);
    return found != NULL ? calls(out_count) : NULL;
}

void plans_clear(void)
{
    void *found = symbol(RECORDER_CLEAR);
    recorder_clear_fn clear;

    memcpy(&clear, &found, sizeof clear);
    if (found != NULL)
        clear();
}

const char *plans_backend(uint32_t flavour)
{
    return flavour == ATTN_FLASH_ATTN   ? "golden/flash-attn"
           : flavour == ATTN_FLASHINFER ? "golden/flashinfer"
                                        : "golden/rocm-flash";
}

int32_t plans_problem(const struct plans_model *model, struct attn_problem *problem, struct attn_error *err)
{
    char text[256];

    snprintf(text, sizeof text,
             "heads=8 kv_heads=2 head_dim=128 q=f16 addr=%s block=%lld max_seqs=%lld max_q=%lld max_kv=%lld "
             "max_rows=%lld graph=single",
             model->flavour == ATTN_FLASHINFER ? "csr" : "table", (long long)model->block,
             (long long)model->max_seqs, (long long)model->max_tokens, (long long)model->max_len,
             (long long)model->max_tokens);
    return attn_problem_parse(text, problem, err);
}

struct attn_state *plans_state(struct golden *g, struct attn_backend *backend,
                               const struct plans_model *model)
{
    struct attn_builder_group group = {.block = (uint32_t)model->block,
                                       .max_blocks = (uint32_t)model->max_blocks,
                                       .graph_blocks = (uint32_t)model->columns,
                                       .max_indices = (uint32_t)model->max_indices};
    struct attn_problem problem;
    struct attn_layer_class class = {.problem = &problem};
    struct attn_state_params params;
    struct attn_state *state = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&params);
    params.flavour = model->flavour;
    params.group = &group;
    params.groups = 1;
    params.max_capture_len = (uint32_t)(model->columns * model->block);
    params.cross = model->cross ? &group : NULL;
    int32_t status = plans_problem(model, &problem, &err);
    if (status == ATTN_OK)
        status = attn_state_create(backend, &class, 1, &params, &state, &err);
    return golden_ok(g, "attn_state_create", status, &err) ? state : NULL;
}

static json_t *tensor(json_t *values)
{
    return json_pack("{s:s, s:[I], s:o}", "d", "int32", "s", (json_int_t)json_array_size(values), "v",
                     values);
}

static json_t *numbers(const int32_t *values, size_t first, size_t end)
{
    return values != NULL && end >= first ? golden_list_i32(values + first, end - first) : json_array();
}

static void append_sizes(json_t *args, const struct attn_problem *problem)
{
    json_array_append_new(args, json_integer(problem->heads));
    json_array_append_new(args, json_integer(problem->kv_heads));
    json_array_append_new(args, json_integer(problem->head_dim));
    json_array_append_new(args, json_integer(problem->block));
}

static size_t used(const struct recorded_call *call)
{
    return call->csr_indptr != NULL ? (size_t)call->csr_indptr[call->seqs] : 0;
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype == ATTN_F16 ? "float16" : dtype == ATTN_BF16 ? "bfloat16" : attn_dtype_name(dtype);
}

/* Tokens in the last page of each sequence: as given, and what its length leaves beside its other pages. */
static json_t *last_pages(const struct recorded_call *call)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < call->seqs; i++) {
        int32_t pages = call->csr_indptr != NULL ? call->csr_indptr[i + 1] - call->csr_indptr[i] : 0;
        int32_t length = call->kv_lens != NULL ? call->kv_lens[i] : -1;
        int32_t rest = pages > 0 ? length - (pages - 1) * (int32_t)call->problem.block : 0;
        bool same = call->last_page_lens == NULL || call->last_page_lens[i] == rest;
        json_array_append_new(list, same ? json_integer(rest) : json_string("not what kv_lens say"));
    }
    return list;
}

json_t *plans_prefill(const struct recorded_call *call, const char *name)
{
    json_t *args = json_array();

    json_array_append_new(args, tensor(numbers(call->q_offsets, 0, call->seqs + (size_t)1)));
    json_array_append_new(args, tensor(numbers(call->csr_indptr, 0, call->seqs + (size_t)1)));
    json_array_append_new(args, tensor(numbers(call->csr_indices, 0, used(call))));
    json_array_append_new(args, tensor(last_pages(call)));
    append_sizes(args, &call->problem);
    return json_pack("[s, o, {}]", name, args);
}

json_t *plans_decode(const struct recorded_call *call, const char *name)
{
    json_t *args = json_array();
    bool plain = call->problem.alibi == ATTN_ALIBI_NONE && call->problem.positions == 0;

    json_array_append_new(args, tensor(numbers(call->csr_indptr, 0, call->seqs + (size_t)1)));
    json_array_append_new(args, tensor(numbers(call->csr_indices, 0, used(call))));
    json_array_append_new(args, tensor(last_pages(call)));
    append_sizes(args, &call->problem);
    return json_pack("[s, o, {s:s, s:s, s:s}]", name, args, "pos_encoding_mode", plain ? "NONE" : "?",
                     "data_type", dtype_name(call->problem.k_dtype), "q_data_type",
                     dtype_name(call->problem.q_dtype));
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The array of indices is as long as the step has blocks; a plan is told of those in use. */
static void cut_indices(json_t *expected, const json_t *actual, size_t at)
{
    json_t *wanted = json_array_get(json_array_get(expected, 1), at);
    const json_t *given = json_array_get(json_array_get(actual, 1), at);
    json_t *values = json_object_get(wanted, "v");
    size_t count = json_array_size(json_object_get(given, "v"));

    if (values == NULL)
        return; /* long arrays were recorded by their shape alone */
    while (json_array_size(values) > count)
        json_array_remove(values, json_array_size(values) - 1);
    json_object_del(wanted, "s");
}

void plans_compare(struct golden *g, const json_t *expected, const json_t *actual)
{
    json_t *wanted = json_array();
    size_t i;
    json_t *call;

    json_array_foreach(expected, i,
                       call) if (!ends_with(json_string_value(json_array_get(call, 0)), ".end_forward"))
        json_array_append_new(wanted, json_deep_copy(call));
    json_array_foreach(wanted, i, call)
    {
        const char *name = json_string_value(json_array_get(call, 0));
        if (!ends_with(name, ".begin_forward"))
            continue;
        size_t at = strstr(name, "Prefill") != NULL ? 2 : 1;
        cut_indices(call, json_array_get(actual, i), at);
        if (json_object_get(json_array_get(json_array_get(call, 1), at), "v") == NULL)
            json_object_del(json_array_get(json_array_get(call, 1), at), "s");
    }
    golden_same(g, "calls", wanted, actual, NULL);
    json_decref(wanted);
}
