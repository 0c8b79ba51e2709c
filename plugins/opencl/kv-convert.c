/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Converts pages to another element type or layout, keys and values by a launch each. */
#include "opencl.h"

/* Work-groups of a page: each looks through all pairs, so that they are to have some vectors each. */
#define MAX_GROUPS 32u

static uint32_t granularity(const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_UNIT ? (uint32_t)ATTN_SCALES_UNIT : scale->granularity;
}

static bool is_moved(const struct attn_kv_desc *from, const struct attn_kv_desc *to, bool values)
{
    const uint32_t dtype = values ? from->v_dtype : from->k_dtype;

    if (dtype != (values ? to->v_dtype : to->k_dtype))
        return false;
    return opencl_size(dtype) != 1 || granularity(values ? &from->v_scale : &from->k_scale) ==
                                          granularity(values ? &to->v_scale : &to->k_scale);
}

/* Keys or values with their scale, as the buffers from number `which` on. */
static int32_t add_side(struct attn_backend_impl *backend, struct opencl_launch *launch, uint32_t which,
                        const struct attn_kv_desc *desc, bool values, struct opencl_side *out,
                        struct attn_error *err)
{
    const uint64_t counts[3] = {desc->pages, desc->block, desc->kv_heads};
    const struct attn_scale *scale = values ? &desc->v_scale : &desc->k_scale;
    struct opencl_scale_source source;
    int32_t status =
        opencl_scale_resolve(backend, scale, counts, values ? "v_scale" : "k_scale", &source, err);

    *out = opencl_side_of(desc, values);
    out->own = opencl_has_own_scales(scale, (uint32_t)out->dtype);
    out->scale = source.scale;
    out->scale_at = source.buffer != NULL ? source.at : -1;
    launch->buffers[which + 1] = source.buffer;
    launch->owned[which] = source.owned;
    if (status == ATTN_OK)
        status = opencl_launch_place(launch, which, values ? &desc->v : &desc->k,
                                     opencl_size((uint32_t)out->dtype), values ? "v" : "k", &out->at, err);
    return status;
}

static int32_t convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                       const struct attn_kv_desc *from, const struct attn_kv_desc *to, bool values,
                       void *stream, struct attn_error *err)
{
    struct opencl_launch launch = {.buffer_count = OPENCL_CONVERT_PAIRS + 1, .size = sizeof launch.convert};
    struct opencl_convert *a = &launch.convert;
    int32_t status = opencl_launch_place(&launch, OPENCL_CONVERT_PAIRS, &args->pairs, sizeof(opencl_i64),
                                         "pairs", &a->pairs, err);

    a->count = (opencl_i32)(a->pairs >= 0 ? args->count : from->pages);
    a->block = (opencl_i32)from->block;
    a->heads = (opencl_i32)from->kv_heads;
    a->moved = is_moved(from, to, values);
    if (status == ATTN_OK)
        status = add_side(backend, &launch, OPENCL_CONVERT_FROM, from, values, &a->from, err);
    if (status == ATTN_OK)
        status = add_side(backend, &launch, OPENCL_CONVERT_TO, to, values, &a->to, err);
    const uint64_t vectors = (uint64_t)from->block * from->kv_heads;
    const struct opencl_grid grid = {
        {(size_t)a->count, vectors < MAX_GROUPS ? (size_t)vectors : MAX_GROUPS, 1}, OPENCL_ITEMS};
    if (status == ATTN_OK)
        status = opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_convert], &launch, &grid,
                                       stream, err);
    opencl_launch_release(backend, &launch);
    return status;
}

int32_t opencl_kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err)
{
    const struct attn_kv_desc *source = attn_util_kv(from->kv, from->desc);
    const struct attn_kv_desc *target = attn_util_kv(to->kv, to->desc);
    int32_t status = opencl_own_scales_check(target, err);

    for (uint32_t i = 0; i < opencl_sides(source) && status == ATTN_OK; i++)
        status = convert(backend, args, source, target, i == 1, stream, err);
    return status;
}
