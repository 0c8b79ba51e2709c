/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The tensors of a layer. A step is mostly a few rows, and then each copy costs more by being one than by its
 * bytes: so what goes up lies together.
 */
#include "device.h"

#include "round.h"

/* Where a tensor may begin: kernels load pieces of this size at most. */
enum { ALIGNMENT = 64 };

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int device_tensors_make(const struct device *d, uint32_t dtype, uint64_t q, uint64_t kv,
                        struct device_tensors *out, struct failure *err)
{
    const uint32_t size = attn_dtype_size(dtype);
    const uint64_t up = align(q * size) + 2 * align(kv * size);
    *out = (struct device_tensors){.dtype = dtype};
    if (device_host_alloc(d, "queries, keys and values on the host", up, &out->up, err) < 0 ||
        device_host_alloc(d, "output on the host", q * size, &out->down, err) < 0 ||
        device_alloc(d, "queries, keys and values", up, &out->d_up, err) < 0)
        return -1;
    return device_alloc(d, "output", q * size, &out->d_down, err);
}

void device_tensors_free(const struct device *d, struct device_tensors *t)
{
    device_host_free(d, &t->up);
    device_host_free(d, &t->down);
    device_free(d, &t->d_up);
    device_free(d, &t->d_down);
}

void device_tensors_place(struct device_tensors *t, uint64_t q, uint64_t kv)
{
    const uint32_t size = attn_dtype_size(t->dtype);
    t->k = align(q * size);
    t->v = t->k + align(kv * size);
    t->up_size = kv ? t->v + kv * size : q * size;
    t->down_size = q * size;
}

void device_tensors_fill(struct device_tensors *t, const float *q, uint64_t q_count, const float *k,
                         const float *v, uint64_t kv_count)
{
    unsigned char *up = t->up.memory;
    round_from_float(t->dtype, q, q_count, up);
    if (kv_count == 0)
        return;
    round_from_float(t->dtype, k, kv_count, up + t->k);
    round_from_float(t->dtype, v, kv_count, up + t->v);
}

void device_tensors_take(const struct device_tensors *t, float *out, uint64_t count)
{
    round_to_float(t->dtype, t->down.memory, count, out);
}

int device_tensors_upload(const struct device *d, const struct device_tensors *t, struct failure *err)
{
    return device_put(d, &t->d_up, t->up.memory, t->up_size, err);
}

int device_tensors_download(const struct device *d, const struct device_tensors *t, struct failure *err)
{
    return device_get(d, t->down.memory, &t->d_down, t->down_size, err);
}

struct attn_tensor device_view(const struct device_tensors *t, struct attn_buffer buffer, uint64_t offset,
                               uint32_t heads, uint32_t dim)
{
    const int64_t head_stride = (int64_t)dim * attn_dtype_size(t->dtype);
    buffer.byte_offset += offset;
    return (struct attn_tensor){
        .buffer = buffer, .token_stride = heads * head_stride, .head_stride = head_stride};
}
