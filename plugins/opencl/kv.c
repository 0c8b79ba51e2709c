/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches: their shape, their handles, the writing of new rows, the mapping of rows to slots, and the table.
 */
#include "opencl.h"

/* In layout paged-x a page's vectors are mixed; MLA has keys alone: [pages, block, head_dim]. */
static void shape_other(const struct attn_problem *p, struct attn_kv_shape *out)
{
    struct attn_kv_desc *desc = &out->desc;

    if (p->layout == ATTN_PAGED_X) {
        out->rank = 3;
        out->dims[2] = (uint64_t)p->block * p->kv_heads * p->head_dim;
        out->dims[3] = out->dims[4] = 0;
        desc->layout = ATTN_PAGED_X;
        desc->k_head_stride *= (int64_t)p->block;
        desc->v_head_stride *= (int64_t)p->block;
        desc->k_token_stride = desc->v_token_stride = 0;
    }
    if (p->mla != 0) {
        for (uint32_t i = 1; i < out->rank; i++)
            out->dims[i - 1] = out->dims[i];
        out->dims[--out->rank] = 0;
        if (p->layout != ATTN_PAGED_X) {
            out->dims[2] = out->dims[3];
            out->dims[--out->rank] = 0;
        }
        out->bytes = out->v_offset;
        out->v_offset = 0;
        desc->v_page_stride = desc->k_page_stride;
        desc->v_token_stride = desc->k_token_stride;
        desc->v_head_stride = desc->k_head_stride;
    }
}

/* The keys of a page, then its values. */
static void shape_in_pairs(struct attn_kv_shape *out)
{
    struct attn_kv_desc *desc = &out->desc;

    out->v_offset = (uint64_t)desc->k_page_stride;
    desc->k_page_stride += desc->v_page_stride;
    desc->v_page_stride = desc->k_page_stride;
    out->dims[0] = desc->pages;
    out->dims[1] = 2;
}

static int32_t shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                     struct attn_kv_shape *out, struct attn_error *err)
{
    struct attn_problem own = *problem;

    if (own.addressing == ATTN_DENSE && own.max_kv != 0)
        own.block = own.max_kv; /* a page is a sequence */
    const int32_t status = attn_util_shape(&own, pages, out, err);
    if (status != ATTN_OK)
        return status;
    shape_other(&own, out);
    if (backend->in_pairs && own.mla == 0)
        shape_in_pairs(out);
    if (own.k_scale == ATTN_SCALES_TOKEN_HEAD || own.v_scale == ATTN_SCALES_TOKEN_HEAD)
        out->scale_bytes = sizeof(float) * (uint64_t)pages * own.block * own.kv_heads;
    return ATTN_OK;
}

static int32_t create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                      struct attn_kv_impl **out, struct attn_error *err)
{
    struct opencl_launch launch = {.buffers = {NULL}};
    int32_t status = attn_util_kv_create(backend, desc, out, err);

    if (status != ATTN_OK)
        return status;
    status = opencl_resolve_cache(backend, &launch, desc, err);
    opencl_launch_release(backend, &launch);
    if (status != ATTN_OK) {
        attn_util_kv_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---------------------------------------------------------------- sides */

struct opencl_side opencl_side_of(const struct attn_kv_desc *desc, bool values)
{
    const uint32_t vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    struct opencl_side side = {.at = (opencl_i64)(values ? &desc->v : &desc->k)->byte_offset,
                               .scale_at = -1,
                               .scale = {.value = 1},
                               .dtype = (opencl_i32)(values ? desc->v_dtype : desc->k_dtype),
                               .dim = (opencl_i32)(values ? vo : desc->head_dim),
                               .pages = (opencl_i32)desc->pages};

    if (values)
        side.strides =
            (struct opencl_strides){desc->v_page_stride, desc->v_token_stride, desc->v_head_stride};
    else
        side.strides =
            (struct opencl_strides){desc->k_page_stride, desc->k_token_stride, desc->k_head_stride};
    if (desc->layout == ATTN_PAGED_X) {
        side.x = values ? (opencl_i32)opencl_size((uint32_t)side.dtype) : 16;
        side.x_stride = (opencl_i32)desc->block * side.x;
        side.strides.token = side.x;
    }
    return side;
}

bool opencl_has_own_scales(const struct attn_scale *scale, uint32_t dtype)
{
    return opencl_size(dtype) == 1 && scale->granularity == ATTN_SCALES_TOKEN_HEAD &&
           scale->kind != ATTN_SCALE_UNIT;
}

static int32_t check_own(const struct attn_scale *scale, uint32_t dtype, const char *name,
                         struct attn_error *err)
{
    if (!opencl_has_own_scales(scale, dtype) || scale->kind == ATTN_SCALE_DEVICE)
        return ATTN_OK;
    return opencl_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, name,
                       "%s is token-head and in host memory; in device memory it is served", name);
}

int32_t opencl_own_scales_check(const struct attn_kv_desc *desc, struct attn_error *err)
{
    const int32_t status = check_own(&desc->k_scale, desc->k_dtype, "k_scale", err);

    return status == ATTN_OK && opencl_sides(desc) == 2
               ? check_own(&desc->v_scale, desc->v_dtype, "v_scale", err)
               : status;
}

/* ---------------------------------------------------------------- writes */

static bool is_mla(const struct attn_kv_desc *d)
{
    return opencl_sides(d) == 1;
}

static int32_t check(const struct attn_kv_write_args *args, const struct attn_kv_desc *d,
                     struct attn_error *err)
{
    if (!opencl_is_served(args->k_dtype) || !opencl_is_served(d->k_dtype))
        return opencl_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_DTYPE_K, "k_dtype", "k_dtype is not served");
    if (!is_mla(d) && (!opencl_is_served(args->v_dtype) || !opencl_is_served(d->v_dtype)))
        return opencl_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_DTYPE_V, "v_dtype", "v_dtype is not served");
    return opencl_own_scales_check(d, err);
}

static int32_t resolve(struct attn_backend_impl *backend, struct opencl_launch *launch,
                       const struct attn_kv_write_args *args, const struct attn_kv_desc *d,
                       struct attn_error *err)
{
    static const struct attn_buffer none;
    const struct opencl_place places[] = {
        {OPENCL_BUFFER_slots, &args->slot_mapping, 8, "slot_mapping"},
        {OPENCL_BUFFER_k_new, &args->k_new.buffer, opencl_size(args->k_dtype), "k_new"},
        {OPENCL_BUFFER_q_rope, &args->k_rope.buffer, opencl_size(args->k_dtype), "k_rope"},
        {OPENCL_BUFFER_v_new, is_mla(d) ? &none : &args->v_new.buffer, opencl_size(args->v_dtype), "v_new"},
    };
    struct opencl_arguments *a = &launch->arguments;

    *launch = (struct opencl_launch){.buffers = {NULL}};
    a->heads = (opencl_i32)d->kv_heads;
    a->head_dim = (opencl_i32)d->head_dim;
    a->head_dim_vo = (opencl_i32)(d->head_dim_vo != 0 ? d->head_dim_vo : d->head_dim);
    a->block = (opencl_i32)d->block;
    a->pages = (opencl_i32)d->pages;
    a->split = is_mla(d) && args->k_rope.buffer.data != NULL ? a->head_dim_vo : a->head_dim;
    a->k_new = opencl_rows_of(&args->k_new);
    a->q_rope = opencl_rows_of(&args->k_rope);
    a->v_new = opencl_rows_of(&args->v_new);
    a->k_from = (opencl_i32)args->k_dtype;
    a->v_from = (opencl_i32)args->v_dtype;
    a->k_to = (opencl_i32)d->k_dtype;
    a->v_to = (opencl_i32)d->v_dtype;
    a->k_own = opencl_has_own_scales(&d->k_scale, d->k_dtype);
    a->v_own = opencl_has_own_scales(&d->v_scale, d->v_dtype);
    int32_t status = opencl_resolve_places(launch, places, sizeof places / sizeof places[0], err);
    if (status == ATTN_OK && args->slot_mapping.data == NULL)
        status = opencl_resolve_batch(launch, args->batch, args->addressing, args->index_dtype, err);
    return status == ATTN_OK ? opencl_resolve_cache(backend, launch, d, err) : status;
}

static int32_t write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                     const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                     struct attn_error *err)
{
    const struct attn_kv_desc *d = attn_util_kv(kv, desc);
    struct opencl_launch launch = {.buffers = {NULL}};
    const struct opencl_grid grid = {{(size_t)args->num_tokens * d->kv_heads, is_mla(d) ? 1 : 2, 1},
                                     OPENCL_ITEMS};
    int32_t status = check(args, d, err);

    if (status == ATTN_OK)
        status = resolve(backend, &launch, args, d, err);
    if (status == ATTN_OK)
        status = opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_write], &launch, &grid, stream,
                                       err);
    opencl_launch_release(backend, &launch);
    return status;
}

static int32_t map_slots(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                         void *stream, struct attn_error *err)
{
    struct opencl_launch launch = {.buffers = {NULL}};
    int32_t status = opencl_launch_add(&launch, OPENCL_BUFFER_slots, &args->slots, 8, "slots", err);

    launch.arguments.block = (opencl_i32)args->block;
    if (status == ATTN_OK)
        status = opencl_resolve_batch(&launch, args->batch, args->addressing, args->index_dtype, err);
    if (status != ATTN_OK)
        return status;
    const struct opencl_grid grid = {
        {((size_t)args->batch->num_tokens + OPENCL_ITEMS - 1) / OPENCL_ITEMS, 1, 1}, OPENCL_ITEMS};
    return opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_slots], &launch, &grid, stream, err);
}

const struct attn_kv_table opencl_kv_table = {
    .struct_size = sizeof opencl_kv_table,
    .shape = shape,
    .create = create,
    .destroy = attn_util_kv_destroy,
    .write = write,
    .slot_mapping = map_slots,
    .copy_slots = opencl_kv_copy_slots,
    .copy_blocks = opencl_kv_copy_blocks,
    .swap_blocks = opencl_kv_swap_blocks,
    .gather = opencl_kv_gather,
    .convert = opencl_kv_convert,
    .advance_step = opencl_kv_advance_step,
};
