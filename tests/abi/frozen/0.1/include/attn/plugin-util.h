/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What most plugins that compute in host memory write anyway: filling an error, answering a query, the cache
 * shape of the flash-attn flavour, and finding a key. Header only and optional.
 */
#ifndef ATTN_PLUGIN_UTIL_H
#define ATTN_PLUGIN_UTIL_H

#include <stdio.h>
#include <stdlib.h>

#include "attn/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills err (may be NULL) with "field: text" and returns status. */
static inline int32_t attn_util_fail(struct attn_error *err, int32_t status, const char *field,
                                     const char *text)
{
    if (err) {
        err->status = status;
        snprintf(err->field, sizeof err->field, "%s", field);
        snprintf(err->message, sizeof err->message, "%s: %s", field, text);
    }
    return status;
}

/* Address of a buffer in host memory, NULL if it is not given. */
static inline char *attn_util_at(const struct attn_buffer *buffer)
{
    return buffer->data ? (char *)buffer->data + buffer->byte_offset : NULL;
}

/* Entry `alloc` of struct attn_memory_table: `size` bytes of host memory. */
static inline int32_t attn_util_alloc(struct attn_backend_impl *backend, uint64_t size,
                                      struct attn_buffer *out, struct attn_error *err)
{
    (void)backend;
    out->byte_offset = 0;
    out->data = size <= SIZE_MAX - 64 ? aligned_alloc(64, (size_t)(size + 63) / 64 * 64) : NULL;
    return out->data ? ATTN_OK : attn_util_fail(err, ATTN_E_MEMORY, "size", "out of memory");
}

/* Entry `free` of struct attn_memory_table. */
static inline void attn_util_free(struct attn_backend_impl *backend, const struct attn_buffer *buffer)
{
    (void)backend;
    free(buffer->data);
}

/* Entry `copy` of struct attn_memory_table: `size` bytes at once, whatever `kind` and `stream` say. */
static inline int32_t attn_util_copy(struct attn_backend_impl *backend, const struct attn_buffer *to,
                                     const struct attn_buffer *from, uint64_t size, uint32_t kind,
                                     void *stream, struct attn_error *err)
{
    (void)backend, (void)kind, (void)stream, (void)err;
    memcpy(attn_util_at(to), attn_util_at(from), (size_t)size);
    return ATTN_OK;
}

/* Adds the reason "field: only `wanted` is served", of this `code`, to a query if `refused`. */
static inline void attn_util_refuse(struct attn_query *query, int refused, uint32_t code, const char *field,
                                    const char *wanted)
{
    if (!refused)
        return;
    if (query->reason_count < query->reason_capacity) {
        struct attn_reason *reason = &query->reasons[query->reason_count];
        memset(reason, 0, sizeof *reason);
        reason->code = code;
        snprintf(reason->field, sizeof reason->field, "%s", field);
        snprintf(reason->wanted, sizeof reason->wanted, "%s", wanted);
        snprintf(reason->text, sizeof reason->text, "%s: only %s is served", field, wanted);
    }
    query->reason_count++;
}

/* Whether `dtype` is a type of elements that this version of the interface has; those in blocks are not. */
static inline int attn_util_is_dtype(uint32_t dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F16 || dtype == ATTN_BF16 || dtype == ATTN_INT8 ||
           dtype == ATTN_E4M3 || dtype == ATTN_E4M3FNUZ || dtype == ATTN_E5M2 || dtype == ATTN_E5M2FNUZ;
}

/*
 * Refuses values that this version of the interface does not have. A later host may know more of them, in
 * members that are here already, and then only the plugin can tell that it does not serve them.
 */
static inline void attn_util_refuse_unknown(struct attn_query *query, const struct attn_problem *p)
{
    const struct {
        const char *key;
        uint32_t value, least, most;
    } members[] = {{"type", p->type, ATTN_DECODER, ATTN_ENCODER_DECODER},
                   {"addr", p->addressing, ATTN_DENSE, ATTN_CSR},
                   {"causal", p->causal, ATTN_CAUSAL_NO, ATTN_CAUSAL_YES},
                   {"align", p->align, ATTN_ALIGN_END, ATTN_ALIGN_START},
                   {"alibi", p->alibi, ATTN_ALIBI_NONE, ATTN_ALIBI_MASK},
                   {"mask", p->mask, ATTN_MASK_NONE, ATTN_MASK_F32},
                   {"span", p->span, ATTN_SPAN_SQUARE, ATTN_SPAN_FULL},
                   {"kv_source", p->kv_source, ATTN_KV_CACHE, ATTN_KV_CACHE_NEW},
                   {"layout", p->layout, ATTN_STRIDED, ATTN_PAGED_X},
                   {"q_scale", p->q_scale, ATTN_SCALES_NONE, ATTN_SCALES_KV_HEAD},
                   {"k_scale", p->k_scale, ATTN_SCALES_NONE, ATTN_SCALES_TOKEN_HEAD},
                   {"v_scale", p->v_scale, ATTN_SCALES_NONE, ATTN_SCALES_TOKEN_HEAD},
                   {"out_scale", p->out_scale, ATTN_SCALES_NONE, ATTN_SCALES_TOKEN_HEAD},
                   {"graph", p->graph, ATTN_GRAPH_NEVER, ATTN_GRAPH_ALWAYS},
                   {"sinks", p->sinks, 0, 1},
                   {"positions", p->positions, 0, 1},
                   {"seq_causal", p->seq_causal, 0, 1},
                   {"mla", p->mla, 0, 1},
                   {"cp", p->cp, 0, 1},
                   {"lse", p->lse, 0, 1},
                   {"det", p->det, 0, 1},
                   {"given", p->given, 0, ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT}};
    const struct {
        const char *key;
        uint32_t dtype;
    } types[] = {{"q", p->q_dtype}, {"k", p->k_dtype}, {"v", p->v_dtype}, {"out", p->out_dtype}};
    uint32_t reserved = 0;

    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        attn_util_refuse(query, members[i].value < members[i].least || members[i].value > members[i].most,
                         ATTN_REASON_UNKNOWN_TO_PLUGIN, members[i].key, "a value that the plugin knows");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        attn_util_refuse(query, !attn_util_is_dtype(types[i].dtype), ATTN_REASON_UNKNOWN_TO_PLUGIN,
                         types[i].key, "a type that the plugin knows");
    attn_util_refuse(query, p->index_dtype != ATTN_INT32 && p->index_dtype != ATTN_INT64,
                     ATTN_REASON_UNKNOWN_TO_PLUGIN, "index", "i32 or i64");
    for (size_t i = 0; i < sizeof p->reserved / sizeof *p->reserved; i++)
        reserved |= p->reserved[i];
    attn_util_refuse(query, reserved != 0, ATTN_REASON_UNKNOWN_TO_PLUGIN, "reserved", "0");
}

/* Refuses every key that a problem need not have: what a new plugin leaves for later. */
static inline void attn_util_refuse_extras(struct attn_query *query, const struct attn_problem *p)
{
    attn_util_refuse_unknown(query, p);
    attn_util_refuse(query, p->kv_source != ATTN_KV_CACHE, ATTN_REASON_KV_SOURCE, "kv_source", "cache");
    attn_util_refuse(query,
                     p->window_left >= 0 || ((p->given & ATTN_GIVEN_WINDOW_RIGHT) && p->window_right >= 0),
                     ATTN_REASON_WINDOW, "window", "-1");
    attn_util_refuse(query, p->softcap > 0, ATTN_REASON_SOFTCAP, "softcap", "0");
    attn_util_refuse(query, p->alibi != ATTN_ALIBI_NONE, ATTN_REASON_ALIBI, "alibi", "none");
    attn_util_refuse(query, p->sinks != 0, ATTN_REASON_SINKS, "sinks", "0");
    attn_util_refuse(query, p->mask != ATTN_MASK_NONE, ATTN_REASON_MASK, "mask", "none");
    attn_util_refuse(query, p->layout != ATTN_STRIDED, ATTN_REASON_LAYOUT, "layout", "strided");
    attn_util_refuse(query, p->q_scale != ATTN_SCALES_NONE, ATTN_REASON_SCALES, "q_scale", "none");
    attn_util_refuse(query, p->positions != 0, ATTN_REASON_POSITIONS, "positions", "0");
    attn_util_refuse(query, p->seq_causal != 0, ATTN_REASON_CAUSAL, "seq_causal", "0");
    attn_util_refuse(query, p->mla != 0, ATTN_REASON_MLA, "mla", "0");
    attn_util_refuse(query, p->cp != 0, ATTN_REASON_CONTEXT_PARALLEL, "cp", "0");
    attn_util_refuse(query, p->graph != ATTN_GRAPH_NEVER, ATTN_REASON_GRAPH, "graph", "never");
}

/*
 * Ends a query: accepted if nothing was refused, then with one kernel row, called `kernel` and taken `when`,
 * which computes as `numerics` (enum attn_numerics) says. `cost_rank` is the backend's place in its class.
 */
static inline int32_t attn_util_answer(struct attn_query *query, const char *kernel, const char *when,
                                       uint32_t numerics, uint32_t cost_rank)
{
    query->accepted = query->reason_count == 0;
    query->cost_rank = cost_rank;
    query->graph_level = ATTN_GRAPH_NEVER;
    query->kernel_count = query->accepted;
    if (query->accepted && query->kernel_capacity > 0) {
        memset(query->kernels, 0, sizeof *query->kernels);
        snprintf(query->kernels->name, sizeof query->kernels->name, "%s", kernel);
        snprintf(query->kernels->when, sizeof query->kernels->when, "%s", when);
        query->kernels->graph_level = ATTN_GRAPH_NEVER;
        query->kernels->numerics = numerics;
    }
    return ATTN_OK;
}

/* States the `speed` of all kernel rows of an answer (enum attn_speed). */
static inline void attn_util_speed(struct attn_query *query, uint32_t speed)
{
    for (uint32_t i = 0; i < query->kernel_count && i < query->kernel_capacity; i++)
        query->kernels[i].speed = speed;
}

/* Refuses `k_dtype` and `v_dtype` that have blocks, as `k_name` and `v_name`: what the caller calls them. */
static inline int32_t attn_util_refuse_blocks(uint32_t k_dtype, uint32_t v_dtype, const char *k_name,
                                              const char *v_name, struct attn_error *err)
{
    const int k_blocks = attn_block_bytes(k_dtype) != 0;

    if (!k_blocks && attn_block_bytes(v_dtype) == 0)
        return ATTN_OK;
    return attn_util_fail(err, ATTN_E_UNSUPPORTED, k_blocks ? k_name : v_name,
                          "types that have blocks are not served; f32, f16, bf16 and 8-bit types are");
}

/* The cache shape [2, pages, block, kv heads, dim]; element sizes from the problem's types (bits 8 to 15). */
static inline int32_t attn_util_shape(const struct attn_problem *p, uint32_t pages, struct attn_kv_shape *out,
                                      struct attn_error *err)
{
    const uint64_t k_head = (uint64_t)p->head_dim * (p->k_dtype >> 11 & 31);
    const uint64_t v_head = (uint64_t)p->head_dim_vo * (p->v_dtype >> 11 & 31);
    const uint64_t k_page = k_head * p->kv_heads * p->block, v_page = v_head * p->kv_heads * p->block;
    const int32_t status = attn_util_refuse_blocks(p->k_dtype, p->v_dtype, "k", "v", err);
    const long double bytes = ((long double)k_head + (long double)v_head) * p->kv_heads * p->block * pages;

    if (status != ATTN_OK)
        return status;
    if (bytes > 9.2e18L)
        return attn_util_fail(err, ATTN_E_INVALID, "pages",
                              "the cache would exceed 2^63 bytes; fewer pages are accepted");
    out->rank = 5;
    out->dims[0] = 2;
    out->dims[1] = pages;
    out->dims[2] = p->block;
    out->dims[3] = p->kv_heads;
    out->dims[4] = p->head_dim;
    out->bytes = (k_page + v_page) * pages;
    out->v_offset = k_page * pages;
    ATTN_INIT(&out->desc);
    out->desc.k_dtype = p->k_dtype;
    out->desc.v_dtype = p->v_dtype;
    out->desc.layout = ATTN_STRIDED;
    out->desc.pages = pages;
    out->desc.block = p->block;
    out->desc.kv_heads = p->kv_heads;
    out->desc.head_dim = p->head_dim;
    out->desc.head_dim_vo = p->head_dim_vo;
    out->desc.k_page_stride = (int64_t)k_page;
    out->desc.k_token_stride = (int64_t)(k_head * p->kv_heads);
    out->desc.k_head_stride = (int64_t)k_head;
    out->desc.v_page_stride = (int64_t)v_page;
    out->desc.v_token_stride = (int64_t)(v_head * p->kv_heads);
    out->desc.v_head_stride = (int64_t)v_head;
    return ATTN_OK;
}

/* ---------------------------------------------------------------- objects that keep only their input */

/* Entry `open` of struct attn_backend_table for a backend without state. */
static inline int32_t attn_util_open(struct attn_instance *instance, const struct attn_device *device,
                                     const struct attn_open_config *config, struct attn_backend_impl **out,
                                     struct attn_error *err)
{
    static char nothing;

    (void)instance, (void)device, (void)config, (void)err;
    *out = (struct attn_backend_impl *)(void *)&nothing;
    return ATTN_OK;
}

/* Entry `close` of struct attn_backend_table for a backend without state. */
static inline void attn_util_close(struct attn_backend_impl *backend)
{
    (void)backend;
}

/* Entry `finish` of struct attn_plugin for a plugin without state. */
static inline void attn_util_finish(struct attn_instance *instance)
{
    (void)instance;
}

/* A cache handle that is a copy of its description. Refuses types that have blocks. */
static inline int32_t attn_util_kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                                          struct attn_kv_impl **out, struct attn_error *err)
{
    const int32_t status = attn_util_refuse_blocks(desc->k_dtype, desc->v_dtype, "k_dtype", "v_dtype", err);
    struct attn_kv_desc *copy;

    (void)backend;
    *out = NULL;
    if (status != ATTN_OK)
        return status;
    copy = (struct attn_kv_desc *)malloc(sizeof *copy);
    *out = (struct attn_kv_impl *)(void *)copy;
    if (!copy)
        return attn_util_fail(err, ATTN_E_MEMORY, "kv", "out of memory");
    *copy = *desc;
    return ATTN_OK;
}

/* Frees what attn_util_kv_create made. */
static inline void attn_util_kv_destroy(struct attn_kv_impl *kv)
{
    free(kv);
}

/* The description in force: the handle's, or the bare one. */
static inline const struct attn_kv_desc *attn_util_kv(const struct attn_kv_impl *kv,
                                                      const struct attn_kv_desc *desc)
{
    return kv ? (const struct attn_kv_desc *)(const void *)kv : desc;
}

/* A plan that is a copy of its problem and schedules nothing. */
static inline int32_t attn_util_plan_create(struct attn_backend_impl *backend,
                                            const struct attn_problem *problem, struct attn_plan_impl **out,
                                            struct attn_error *err)
{
    struct attn_problem *copy = (struct attn_problem *)malloc(sizeof *copy);

    (void)backend;
    *out = (struct attn_plan_impl *)(void *)copy;
    if (!copy)
        return attn_util_fail(err, ATTN_E_MEMORY, "plan", "out of memory");
    *copy = *problem;
    return ATTN_OK;
}

/* Frees what attn_util_plan_create made. */
static inline void attn_util_plan_destroy(struct attn_plan_impl *plan)
{
    free(plan);
}

/* The problem of a plan that attn_util_plan_create made. */
static inline const struct attn_problem *attn_util_problem(const struct attn_plan_impl *plan)
{
    return (const struct attn_problem *)(const void *)plan;
}

/* Entry `sizes` of struct attn_plan_table for a plan that needs no memory. */
static inline int32_t attn_util_plan_sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    (void)plan;
    out->alignment = 64;
    return ATTN_OK;
}

/* Entry `prepare` of struct attn_plan_table for a plan that schedules nothing. */
static inline int32_t attn_util_plan_prepare(const struct attn_plan_impl *plan,
                                             const struct attn_batch *batch, const struct attn_span *schedule,
                                             const struct attn_span *staging, void *stream,
                                             struct attn_error *err)
{
    (void)plan, (void)batch, (void)schedule, (void)staging, (void)stream, (void)err;
    return ATTN_OK;
}

/* ---------------------------------------------------------------- threads of the caller's team */

/* Number of this thread among the *out_count that make the call together; without a team 0 of 1. */
static inline uint32_t attn_util_member(const void *stream, uint32_t *out_count)
{
    const struct attn_cpu_executor *executor = (const struct attn_cpu_executor *)stream;
    const int team = executor != NULL && executor->kind == ATTN_EXECUTOR_TEAM;

    *out_count = team ? executor->nth : 1;
    return team ? executor->ith : 0;
}

/* Waits for the rest of the team. */
static inline int32_t attn_util_join(const void *stream)
{
    const struct attn_cpu_executor *executor = (const struct attn_cpu_executor *)stream;

    if (executor != NULL && executor->kind == ATTN_EXECUTOR_TEAM)
        executor->barrier(executor->arg);
    return ATTN_OK;
}

/* ---------------------------------------------------------------- addresses in host memory */

/* Address of element (row, head, 0) of a tensor. */
static inline char *attn_util_element(const struct attn_tensor *tensor, int64_t row, uint32_t head)
{
    return attn_util_at(&tensor->buffer) + row * tensor->token_stride + head * tensor->head_stride;
}

/* Address of the key of (page, token, head) of a cache. */
static inline char *attn_util_key(const struct attn_kv_desc *d, int64_t page, int64_t token, uint32_t head)
{
    return attn_util_at(&d->k) + page * d->k_page_stride + token * d->k_token_stride +
           head * d->k_head_stride;
}

/* Address of the value of (page, token, head) of a cache. */
static inline char *attn_util_value(const struct attn_kv_desc *d, int64_t page, int64_t token, uint32_t head)
{
    return attn_util_at(&d->v) + page * d->v_page_stride + token * d->v_token_stride +
           head * d->v_head_stride;
}

/* Page of key `key` of sequence `seq` with dense or table addressing, negative in an invalid block; *token in
 * it. */
static inline int64_t attn_util_locate(const struct attn_batch *batch, uint32_t addressing, uint32_t block,
                                       uint32_t seq, int64_t key, int64_t *token)
{
    const int32_t *starts = (const int32_t *)(void *)attn_util_at(&batch->kv_offsets);

    if (addressing == ATTN_DENSE) {
        *token = key + (starts ? starts[seq] : 0);
        return starts ? 0 : (int64_t)seq;
    }
    *token = key % block;
    return ((const int32_t *)(void *)(attn_util_at(&batch->table) + seq * batch->table_stride))[key / block];
}

/*
 * Where row `row` of a write goes: its page, of `block` tokens, negative = nowhere; *token in it. Not for CSR
 * without slots.
 */
static inline int64_t attn_util_place(const struct attn_kv_write_args *args, uint32_t block, uint32_t row,
                                      int64_t *token)
{
    const int64_t *slots = (const int64_t *)(void *)attn_util_at(&args->slot_mapping);
    const int32_t *q, *lens;
    uint32_t seq = 0;

    *token = 0;
    if (slots) {
        *token = slots[row] < 0 ? 0 : slots[row] % block;
        return slots[row] < 0 ? -1 : slots[row] / block;
    }
    q = (const int32_t *)(void *)attn_util_at(&args->batch->q_offsets);
    lens = (const int32_t *)(void *)attn_util_at(&args->batch->kv_lens);
    while (seq < args->batch->seqs && q[seq + 1] <= (int64_t)row)
        seq++;
    if (seq == args->batch->seqs || (int64_t)row + lens[seq] < q[seq + 1])
        return -1;
    return attn_util_locate(args->batch, args->addressing, block, seq, (int64_t)row + lens[seq] - q[seq + 1],
                            token);
}

#ifdef __cplusplus
}
#endif
#endif
