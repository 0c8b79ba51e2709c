/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Argument blocks of the kernels that write, map slots, gather and convert. */
#include <string.h>

#include "kv-resolve.h"

/* The alignment of a batch whose indices are of the given type. */
static int32_t check_batch(const struct attn_batch *batch, uint32_t index_dtype, struct attn_error *err)
{
    const struct attn_problem problem = {.index_dtype = index_dtype};

    return attn__batch_align(&problem, batch, err);
}

/* ---------------------------------------------------------------- write */

/* Refuses per-vector scales that the kernel cannot write, which are in host memory. */
static int32_t check_written(const struct attn_scale *scale, const char *name, struct attn_error *err)
{
    if (scale->kind != ATTN_SCALE_HOST || scale->granularity != ATTN_SCALES_TOKEN_HEAD)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_UNSUPPORTED, 0, name,
                      "%s is token-head and in host memory; in device memory it is served", name);
}

int32_t gpu_kv_write_check(const struct attn_kv_write_args *args, const struct attn_kv_desc *desc,
                           struct attn_error *err)
{
    int32_t status = check_written(&desc->k_scale, "k_scale", err);

    if (status == ATTN_OK)
        status = check_written(&desc->v_scale, "v_scale", err);
    if (status == ATTN_OK && args->batch != NULL)
        status = check_batch(args->batch, args->index_dtype, err);
    return status == ATTN_OK ? attn__write_align(args, err) : status;
}

void gpu_kv_write_resolve(struct gpu_kv_write *out, const struct attn_kv_write_args *args,
                          const struct attn_kv_desc *desc, const struct gpu_kv_share *share)
{
    const uint32_t types[] = {args->k_dtype, args->v_dtype};

    memset(out, 0, sizeof *out);
    out->sides = gpu_kv_sides(desc);
    out->heads = share->count;
    out->page = share->page;
    out->token = share->token;
    out->rows = args->num_tokens;
    out->block = desc->block;
    out->pages = desc->pages;
    out->each = gpu_kv_each(args->num_tokens);
    out->slots = gpu_address(&args->slot_mapping);
    if (out->slots == 0)
        out->batch = gpu_kv_batch_of(args->batch, args->addressing, args->index_dtype, desc->block);
    for (uint32_t i = 0; i < out->sides; i++) {
        out->to[i] = gpu_kv_side_of(desc, i == 1, share);
        out->from[i] = gpu_kv_tensor_of(i == 0 ? &args->k_new : &args->v_new, share->first);
        out->from_dtype[i] = types[i];
        out->wide[i] = gpu_kv_wide(&out->to[i], &out->from[i], types[i]);
    }
    if (out->sides == 1 && args->k_rope.buffer.data != NULL) {
        out->rope = gpu_kv_tensor_of(&args->k_rope, share->first);
        out->split = desc->head_dim_vo;
        if (out->split % 4 != 0 || gpu_kv_wide_tensor(&out->rope, 4, types[0]) == 1)
            out->wide[0] = 1;
    }
    for (uint32_t i = 0; i < out->sides; i++) {
        const struct gpu_kv_kind from = gpu_kv_kind_of_tensor(&out->from[i], types[i]);
        const struct gpu_kv_kind to = gpu_kv_kind_of_side(&out->to[i]);
        gpu_kv_rows_resolve(&out->by_row[i], &from, &to, out->to[i].cache.dim, out->heads,
                            types[i] == out->to[i].cache.dtype, out->to[i].token_head != 0);
    }
    if (out->rope.base != 0)
        gpu_kv_rows_split(&out->by_row[0], &out->rope, types[0], out->split);
    out->shares = gpu_kv_shares(out->by_row, out->rows);
}

/* ---------------------------------------------------------------- slots */

int32_t gpu_kv_slots_check(const struct attn_kv_slot_mapping_args *args, struct attn_error *err)
{
    const struct attn__place place = {&args->slots, sizeof(int64_t), "slots"};
    const int32_t status = attn__align_check(&place, 1, err);

    return status == ATTN_OK ? check_batch(args->batch, args->index_dtype, err) : status;
}

void gpu_kv_slots_resolve(struct gpu_kv_slots *out, const struct attn_kv_slot_mapping_args *args)
{
    *out = (struct gpu_kv_slots){
        .slots = gpu_address(&args->slots),
        .block = args->block,
        .batch = gpu_kv_batch_of(args->batch, args->addressing, args->index_dtype, args->block)};
}

/* ---------------------------------------------------------------- gather */

int32_t gpu_kv_gather_check(const struct attn_kv_gather_args *args, const struct attn_kv_desc *desc,
                            struct attn_error *err)
{
    int32_t status = gpu_kv_scales_check(desc, err);

    if (status == ATTN_OK)
        status = attn__gather_align(args, err);
    return status == ATTN_OK ? check_batch(args->batch, args->index_dtype, err) : status;
}

void gpu_kv_gather_resolve(struct gpu_kv_gather *out, const struct attn_kv_gather_args *args,
                           const struct attn_kv_desc *desc, uint32_t first, uint32_t count)
{
    const struct gpu_kv_share share = {-1, -1, first, count};

    memset(out, 0, sizeof *out);
    out->heads = count;
    out->tokens = args->tokens;
    out->each = gpu_kv_each(args->tokens);
    out->offsets = gpu_address(&args->offsets);
    out->starts = gpu_address(&args->starts);
    out->batch = gpu_kv_batch_of(args->batch, args->addressing, args->index_dtype, desc->block);
    for (uint32_t i = 0; i < 2; i++) {
        const struct attn_tensor *to = i == 0 ? &args->k : &args->v;
        if (to->buffer.data == NULL)
            continue;
        out->from[i] = gpu_kv_side_of(desc, i == 1, &share);
        out->to[i] = gpu_kv_tensor_of(to, first);
        out->scales[i] = gpu_kv_tensor_of(i == 0 ? &args->k_scales : &args->v_scales, first);
        out->to_dtype[i] = i == 0 ? args->k_dtype : args->v_dtype;
        out->moved[i] = out->to_dtype[i] == out->from[i].cache.dtype;
        out->wide[i] = gpu_kv_wide(&out->from[i], &out->to[i], out->to_dtype[i]);
        const struct gpu_kv_kind source = gpu_kv_kind_of_side(&out->from[i]);
        const struct gpu_kv_kind target = gpu_kv_kind_of_tensor(&out->to[i], out->to_dtype[i]);
        gpu_kv_rows_resolve(&out->by_row[i], &source, &target, out->from[i].cache.dim, count,
                            out->moved[i] != 0, false);
    }
    out->shares = gpu_kv_shares(out->by_row, out->tokens);
}

/* ---------------------------------------------------------------- convert */

int32_t gpu_kv_pairs_check(const struct attn_buffer *pairs, struct attn_error *err)
{
    const struct attn__place place = {pairs, sizeof(int64_t), "pairs"};

    return attn__align_check(&place, 1, err);
}

int32_t gpu_kv_convert_check(const struct attn_kv_convert_args *args, const struct attn_kv_desc *from,
                             const struct attn_kv_desc *to, struct attn_error *err)
{
    int32_t status = gpu_kv_pairs_check(&args->pairs, err);

    if (status == ATTN_OK)
        status = gpu_kv_scales_check(from, err);
    return status == ATTN_OK ? gpu_kv_scales_check(to, err) : status;
}

static uint32_t granularity(const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_UNIT ? (uint32_t)ATTN_SCALES_UNIT : scale->granularity;
}

static bool is_moved(const struct attn_kv_desc *from, const struct attn_kv_desc *to, bool values)
{
    uint32_t dtype = values ? from->v_dtype : from->k_dtype;

    if (dtype != (values ? to->v_dtype : to->k_dtype))
        return false;
    return attn__dtype_size(dtype) != 1 || granularity(values ? &from->v_scale : &from->k_scale) ==
                                               granularity(values ? &to->v_scale : &to->k_scale);
}

void gpu_kv_convert_resolve(struct gpu_kv_convert *out, const struct attn_kv_convert_args *args,
                            const struct attn_kv_desc *from, const struct attn_kv_desc *to, uint32_t first,
                            uint32_t count)
{
    const struct gpu_kv_share share = {-1, -1, first, count};

    memset(out, 0, sizeof *out);
    out->sides = gpu_kv_sides(from);
    out->heads = count;
    out->block = from->block;
    out->pairs = gpu_address(&args->pairs);
    out->count = out->pairs != 0 ? args->count : from->pages;
    out->from_pages = from->pages;
    out->to_pages = to->pages;
    out->each = gpu_kv_each_of_block(out->block);
    for (uint32_t i = 0; i < out->sides; i++) {
        out->from[i] = gpu_kv_side_of(from, i == 1, &share);
        out->to[i] = gpu_kv_side_of(to, i == 1, &share);
        out->moved[i] = is_moved(from, to, i == 1);
        const bool four = gpu_kv_wide(&out->from[i], NULL, 0) == 4 && gpu_kv_wide(&out->to[i], NULL, 0) == 4;
        out->wide[i] = four ? 4 : 1;
        const struct gpu_kv_kind source = gpu_kv_kind_of_side(&out->from[i]);
        const struct gpu_kv_kind target = gpu_kv_kind_of_side(&out->to[i]);
        gpu_kv_rows_resolve(&out->by_row[i], &source, &target, out->to[i].cache.dim, count,
                            out->moved[i] != 0, out->to[i].token_head != 0);
    }
    /* Each CTA scans all pairs, so that a warp gets at least eight vectors, if there are so many. */
    const uint32_t rows = out->each * (GPU_KV_THREADS / 32);
    const uint64_t shares = gpu_kv_rows_by_vector(out->by_row) ? ((uint64_t)out->block * count + 63) / 64
                                                               : ((uint64_t)out->block + rows - 1) / rows;
    out->parts = shares < 32 ? (uint32_t)shares : 32;
}
