/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls of the recording plugin, written as the kernels of the original were called. */
#include "trace-calls.h"

#include <string.h>

static const char *torch_name(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return "float32";
    case ATTN_F16:
        return "float16";
    case ATTN_BF16:
        return "bfloat16";
    case ATTN_E4M3:
        return "float8_e4m3fn";
    case ATTN_E5M2:
        return "float8_e5m2";
    default:
        return "?";
    }
}

static bool is_byte(uint32_t dtype)
{
    return dtype == ATTN_E4M3 || dtype == ATTN_E5M2;
}

static json_t *shape(const char *dtype, const uint64_t *dims, size_t rank)
{
    return json_pack("{s:o, s:s}", "s", golden_list_u64(dims, rank), "d", dtype);
}

static json_t *rows_of(uint64_t rows, uint64_t heads, uint64_t dim, uint32_t dtype)
{
    const uint64_t dims[] = {rows, heads, dim};

    return shape(torch_name(dtype), dims, 3);
}

static json_t *half_of(const struct attn_kv_desc *cache, const char *dtype)
{
    const uint64_t dims[] = {cache->pages, cache->block, cache->kv_heads, cache->head_dim};

    return shape(dtype, dims, 4);
}

static json_t *ints(const int32_t *values, uint64_t count)
{
    return json_pack("{s:s, s:[I], s:o}", "d", "int32", "s", (json_int_t)count, "v",
                     values != NULL ? golden_list_i32(values, (size_t)count) : json_null());
}

static json_t *table_of(const struct recorded_call *call)
{
    return json_pack("{s:s, s:[I,I], s:o}", "d", "int32", "s", (json_int_t)call->seqs,
                     (json_int_t)call->table_width, "v",
                     golden_list_i32(call->table, (size_t)call->seqs * call->table_width));
}

static double scale_of(const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_HOST ? (double)*(const float *)scale->buffer.data : 1.0;
}

/* ---------------------------------------------------------------- writes */

static const char *cache_name(uint32_t dtype)
{
    return dtype == ATTN_E5M2 ? "fp8_e5m2" : dtype == ATTN_E4M3 ? "fp8" : "auto";
}

static json_t *write_call(const struct recorded_call *call)
{
    const struct attn_kv_desc *cache = &call->cache;
    const char *stored = is_byte(cache->k_dtype) ? "uint8" : torch_name(cache->k_dtype);
    json_t *fresh = rows_of(call->rows, cache->kv_heads, cache->head_dim, call->new_dtype);
    json_t *slots = json_pack("{s:s, s:[I], s:o}", "d", "int64", "s", (json_int_t)call->rows, "v",
                              golden_list_i64(call->slots, call->rows));
    json_t *args =
        json_pack("[O, o, o, o, o, s, f, f]", fresh, fresh, half_of(cache, stored), half_of(cache, stored),
                  slots, cache_name(cache->k_dtype), scale_of(&cache->k_scale), scale_of(&cache->v_scale));

    return json_pack("[s, o, {}]", "reshape_and_cache_flash", args);
}

/* ---------------------------------------------------------------- runs */

static bool one_each(const struct recorded_call *call)
{
    for (uint32_t i = 0; i < call->seqs; i++)
        if (call->q_offsets[i + 1] - call->q_offsets[i] != 1)
            return false;
    return true;
}

static json_t *slopes_of(const struct recorded_call *call)
{
    json_t *list = json_array();

    if (call->slopes == NULL) {
        json_decref(list);
        return json_null();
    }
    for (uint32_t h = 0; h < call->problem.heads; h++)
        json_array_append_new(list, json_real((double)call->slopes[h]));
    return json_pack("{s:s, s:[I], s:o}", "d", "float32", "s", (json_int_t)call->problem.heads, "v", list);
}

/* What all calls name alike. Causality says nothing where every sequence has one query. */
static json_t *named(const struct recorded_call *call, const char *cap)
{
    json_t *all =
        json_pack("{s:f, s:[i,i], s:o, s:f}", "softmax_scale", (double)call->softmax_scale, "window_size",
                  call->problem.window_left, call->problem.window_left < 0 ? -1 : call->problem.window_right,
                  "alibi_slopes", slopes_of(call), cap, (double)call->problem.softcap);

    if (!one_each(call))
        json_object_set_new(all, "causal", json_boolean(call->problem.causal == ATTN_CAUSAL_YES));
    return all;
}

/* Where each sequence's keys begin, one behind the other. */
static json_t *key_starts(const struct recorded_call *call)
{
    int32_t *starts = golden_memory(call->seqs + (size_t)1, sizeof *starts);

    for (uint32_t i = 0; i < call->seqs; i++)
        starts[i + 1] = starts[i] + call->kv_lens[i];
    json_t *list = ints(starts, call->seqs + UINT64_C(1));
    free(starts);
    return list;
}

static json_t *varlen_call(const struct recorded_call *call)
{
    const struct attn_problem *p = &call->problem;
    const int32_t *starts = call->kv_offsets != NULL ? call->kv_offsets : call->q_offsets;
    json_t *all = named(call, "softcap");

    json_object_set_new(all, "q", rows_of(call->rows, p->heads, p->head_dim, p->q_dtype));
    json_object_set_new(all, "cu_seqlens_q", ints(call->q_offsets, call->seqs + UINT64_C(1)));
    json_object_set_new(all, "max_seqlen_q", json_integer(call->max_q));
    json_object_set_new(all, "max_seqlen_k", json_integer(call->max_kv));
    if (call->cached) {
        json_object_set_new(all, "k", half_of(&call->cache, torch_name(p->k_dtype)));
        json_object_set_new(all, "v", half_of(&call->cache, torch_name(p->v_dtype)));
        json_object_set_new(all, "cu_seqlens_k", key_starts(call));
        json_object_set_new(all, "block_table", table_of(call));
    } else {
        json_object_set_new(all, "k",
                            rows_of((uint64_t)starts[call->seqs], p->kv_heads, p->head_dim, p->k_dtype));
        json_object_set_new(all, "v",
                            rows_of((uint64_t)starts[call->seqs], p->kv_heads, p->head_dim_vo, p->v_dtype));
        json_object_set_new(all, "cu_seqlens_k", ints(starts, call->seqs + UINT64_C(1)));
    }
    return json_pack("[s, [], o]", "flash_attn_varlen_func", all);
}

static json_t *decode_call(const struct recorded_call *call)
{
    const struct attn_problem *p = &call->problem;
    const uint64_t dims[] = {call->rows, 1, p->heads, p->head_dim};
    json_t *all = named(call, "softcap");

    json_object_set_new(all, "q", shape(torch_name(p->q_dtype), dims, 4));
    json_object_set_new(all, "k_cache", half_of(&call->cache, torch_name(p->k_dtype)));
    json_object_set_new(all, "v_cache", half_of(&call->cache, torch_name(p->v_dtype)));
    json_object_set_new(all, "block_table", table_of(call));
    json_object_set_new(all, "cache_seqlens", ints(call->kv_lens, call->seqs));
    return json_pack("[s, [], o]", "flash_attn_with_kvcache", all);
}

static json_t *wrapper_call(const struct recorded_call *call, bool prompts)
{
    const struct attn_problem *p = &call->problem;
    const struct attn_kv_desc *cache = &call->cache;
    const uint64_t dims[] = {cache->pages, 2, cache->block, cache->kv_heads, cache->head_dim};
    json_t *all = named(call, "logits_soft_cap");

    json_object_del(all, "window_size"); /* this flavour has none */
    json_object_set(all, "sm_scale", json_object_get(all, "softmax_scale"));
    json_object_del(all, "softmax_scale");
    json_object_set_new(all, "k_scale", json_real(scale_of(&cache->k_scale)));
    json_object_set_new(all, "v_scale", json_real(scale_of(&cache->v_scale)));
    if (prompts)
        json_object_set_new(all, "causal", json_boolean(p->causal == ATTN_CAUSAL_YES));
    else
        json_object_del(all, "causal");
    return json_pack("[s, [o, o], o]",
                     prompts ? "BatchPrefillWithPagedKVCacheWrapper.forward"
                             : "BatchDecodeWithPagedKVCacheWrapper.forward",
                     rows_of(call->rows, p->heads, p->head_dim, p->q_dtype),
                     shape(torch_name(cache->k_dtype), dims, 5), all);
}

json_t *trace_calls(const struct recorded_call *calls, uint32_t count, bool infer, bool prompts)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        const struct recorded_call *call = &calls[i];
        if (call->kind == RECORDED_WRITE)
            json_array_append_new(list, write_call(call));
        if (call->kind != RECORDED_RUN)
            continue;
        if (infer && call->cached)
            json_array_append_new(list, wrapper_call(call, prompts));
        else if (call->cached && !prompts && one_each(call))
            json_array_append_new(list, decode_call(call));
        else
            json_array_append_new(list, varlen_call(call));
        prompts = false;
    }
    return list;
}
