/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Scales: a value in the argument block, or a buffer. An array in host memory is read during the call: OpenCL
 * copies it into a buffer, which lives until the kernel that reads it is done.
 */
#include "opencl.h"

/* Strides of an array without gaps, and how many values it has, or UINT64_MAX if those are too many; a
 * dimension that is not counted stays without a stride. */
static uint64_t pack(struct opencl_scale *to, const struct attn_scale *from, const uint64_t counts[3])
{
    const uint64_t heads = from->head_stride != 0 ? counts[2] : 1;
    const uint64_t tokens = from->token_stride != 0 ? counts[1] : 1;
    const uint64_t outers = from->outer_stride != 0 ? counts[0] : 1;
    uint64_t total;

    to->head = from->head_stride != 0 ? (opencl_i64)sizeof(float) : 0;
    to->token = from->token_stride != 0 ? (opencl_i64)(heads * sizeof(float)) : 0;
    to->outer = from->outer_stride != 0 ? (opencl_i64)(heads * tokens * sizeof(float)) : 0;
    if (__builtin_mul_overflow(heads * tokens, outers, &total) || total > INT32_MAX)
        return UINT64_MAX;
    return total;
}

static float *gather(const struct attn_scale *from, const uint64_t counts[3], uint64_t total)
{
    float *values = malloc(total * sizeof *values), *at = values;
    const char *base = attn_util_at(&from->buffer);

    for (uint64_t outer = 0; values != NULL && outer < (from->outer_stride != 0 ? counts[0] : 1); outer++)
        for (uint64_t token = 0; token < (from->token_stride != 0 ? counts[1] : 1); token++)
            for (uint64_t head = 0; head < (from->head_stride != 0 ? counts[2] : 1); head++)
                memcpy(at++,
                       base + (int64_t)outer * from->outer_stride + (int64_t)token * from->token_stride +
                           (int64_t)head * from->head_stride,
                       sizeof *at);
    return values;
}

static int32_t copy_array(struct attn_backend_impl *backend, const struct attn_scale *from,
                          const uint64_t counts[3], const char *name, struct opencl_scale_source *out,
                          struct attn_error *err)
{
    const uint64_t total = pack(&out->scale, from, counts);

    if (total == 0)
        return ATTN_OK; /* a step without new rows reads none */
    if (total == UINT64_MAX)
        return opencl_fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, name,
                           "%s has more than 2147483647 values in host memory; put it into device memory",
                           name);
    float *values = gather(from, counts, total);
    if (values == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, name, "no memory for a copy of %s", name);
    const int32_t status = opencl_copy_of(backend, values, total * sizeof *values, name, &out->owned, err);
    out->buffer = out->owned;
    free(values);
    return status;
}

int32_t opencl_scale_resolve(struct attn_backend_impl *backend, const struct attn_scale *from,
                             const uint64_t counts[3], const char *name, struct opencl_scale_source *out,
                             struct attn_error *err)
{
    *out = (struct opencl_scale_source){.scale = {.value = 1}};
    if ((from->kind != ATTN_SCALE_HOST && from->kind != ATTN_SCALE_DEVICE) || from->buffer.data == NULL)
        return ATTN_OK;
    if (from->kind == ATTN_SCALE_DEVICE) {
        if (from->buffer.byte_offset % sizeof(float) != 0)
            return opencl_fail(err, ATTN_E_INVALID, 0, name, "the offset of %s is no multiple of 4", name);
        out->scale = (struct opencl_scale){from->outer_stride, from->token_stride, from->head_stride, 1, 0};
        out->buffer = (cl_mem)from->buffer.data;
        out->at = (opencl_i64)from->buffer.byte_offset;
        return ATTN_OK;
    }
    if (from->outer_stride != 0 || from->token_stride != 0 || from->head_stride != 0)
        return copy_array(backend, from, counts, name, out, err);
    memcpy(&out->scale.value, attn_util_at(&from->buffer), sizeof out->scale.value);
    return ATTN_OK;
}

int32_t opencl_scale_add(struct attn_backend_impl *backend, struct opencl_launch *launch,
                         enum opencl_buffer which, const struct attn_scale *from, const uint64_t counts[3],
                         const char *name, struct attn_error *err)
{
    const uint32_t i = which - OPENCL_BUFFER_q_scale;
    struct opencl_scale_source source;
    const int32_t status = opencl_scale_resolve(backend, from, counts, name, &source, err);

    launch->arguments.scales[i] = source.scale;
    launch->owned[i] = source.owned;
    if (status != ATTN_OK || source.buffer == NULL)
        return status;
    launch->buffers[which] = source.buffer;
    launch->arguments.at[which] = source.at;
    launch->arguments.given |= 1 << which;
    return ATTN_OK;
}

void opencl_launch_release(struct attn_backend_impl *backend, struct opencl_launch *launch)
{
    for (uint32_t i = 0; i < OPENCL_SCALES; i++)
        if (launch->owned[i] != NULL)
            backend->cl->clReleaseMemObject(launch->owned[i]);
}
