/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The tensors of a layer. A step is mostly a few rows, and then each copy costs more by being one than by its
 * bytes: so what goes up lies together.
 */
#include "device.h"

#include <string.h>

/* Where a tensor may begin: kernels load pieces of this size at most. */
enum { ALIGNMENT = 64 };

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int device_tensors_make(const struct device *d, uint64_t q_bytes, uint64_t kv_bytes,
                        struct device_tensors *out, struct failure *err)
{
    const uint64_t up = align(q_bytes) + 2 * align(kv_bytes);
    *out = (struct device_tensors){.q_bytes = q_bytes, .kv_bytes = kv_bytes};
    if (device_host_alloc(d, "queries, keys and values on the host", up, &out->up, err) < 0 ||
        device_host_alloc(d, "output on the host", q_bytes, &out->down, err) < 0 ||
        device_alloc(d, "queries, keys and values", up, &out->d_up, err) < 0)
        return -1;
    return device_alloc(d, "output", q_bytes, &out->d_down, err);
}

void device_tensors_free(const struct device *d, struct device_tensors *t)
{
    device_host_free(d, &t->up);
    device_host_free(d, &t->down);
    device_free(d, &t->d_up);
    device_free(d, &t->d_down);
}

void device_tensors_place(struct device_tensors *t, uint64_t q_bytes, uint64_t kv_bytes)
{
    t->k = align(q_bytes);
    t->v = t->k + align(kv_bytes);
    t->up_size = kv_bytes ? t->v + kv_bytes : q_bytes;
    t->down_size = q_bytes;
}

void device_tensors_fill(struct device_tensors *t, const void *q, uint64_t q_bytes, const void *k,
                         const void *v, uint64_t kv_bytes)
{
    unsigned char *up = t->up.memory;
    memcpy(up, q, q_bytes);
    if (kv_bytes == 0)
        return;
    memcpy(up + t->k, k, kv_bytes);
    memcpy(up + t->v, v, kv_bytes);
}

int device_tensors_upload(const struct device *d, const struct device_tensors *t, struct failure *err)
{
    return device_put(d, &t->d_up, t->up.memory, t->up_size, err);
}

int device_tensors_download(const struct device *d, const struct device_tensors *t, struct failure *err)
{
    return device_get(d, t->down.memory, &t->d_down, t->down_size, err);
}

struct attn_tensor device_view(struct attn_buffer buffer, uint64_t offset, uint32_t heads, uint32_t dim)
{
    int64_t head_stride = (int64_t)(dim * sizeof(float));
    buffer.byte_offset += offset;
    return (struct attn_tensor){
        .buffer = buffer, .token_stride = heads * head_stride, .head_stride = head_stride};
}
