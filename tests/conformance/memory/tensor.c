/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where vectors of tensors and strided caches lie, and tensors with strides of every legal kind. */
#include "conform.h"

struct attn_buffer buffer_at(void *address, struct rng *rng)
{
    struct attn_buffer buffer = {address, 0};

    if (rng_chance(rng, 30)) {
        buffer.byte_offset = 8 * (uint64_t)rng_below(rng, 100);
        buffer.data = (unsigned char *)address - buffer.byte_offset;
    }
    return buffer;
}

unsigned char *tensor_at(const struct attn_tensor *tensor, uint32_t token, uint32_t head)
{
    return (unsigned char *)tensor->buffer.data + tensor->buffer.byte_offset +
           (int64_t)token * tensor->token_stride + (int64_t)head * tensor->head_stride;
}

unsigned char *key_at(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head)
{
    return (unsigned char *)kv->k.data + kv->k.byte_offset + page * kv->k_page_stride +
           token * kv->k_token_stride + (int64_t)head * kv->k_head_stride;
}

unsigned char *value_at(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head)
{
    return (unsigned char *)kv->v.data + kv->v.byte_offset + page * kv->v_page_stride +
           token * kv->v_token_stride + (int64_t)head * kv->v_head_stride;
}

/* Size of a dimension in bytes: at least `least`, a multiple of what the target and the type ask for. */
int64_t stride_padded(uint64_t least, uint32_t element, const struct layout *layout, struct rng *rng)
{
    uint64_t unit = element > layout->stride_multiple ? element : layout->stride_multiple;
    uint64_t size = (least + unit - 1) / unit * unit;

    if (rng_chance(rng, 50))
        size += unit * rng_below(rng, 4);
    return (int64_t)size;
}

struct guarded *tensor_init(struct attn_tensor *tensor, struct arena *arena, const char *name,
                            const uint32_t shape[3], uint32_t element, const struct layout *layout,
                            struct rng *rng, uint8_t fill)
{
    uint32_t tokens = shape[0], heads = shape[1];
    uint64_t inner = (uint64_t)shape[2] * element, size = 0;

    memset(tensor, 0, sizeof *tensor);
    if (rng_chance(rng, 70)) {
        tensor->head_stride = stride_padded(inner, element, layout, rng);
        tensor->token_stride = stride_padded((uint64_t)tensor->head_stride * heads, element, layout, rng);
    } else {
        tensor->token_stride = stride_padded(inner, element, layout, rng);
        tensor->head_stride = stride_padded((uint64_t)tensor->token_stride * tokens, element, layout, rng);
    }
    if (tokens > 0)
        size = (uint64_t)tensor->token_stride * (tokens - 1) + (uint64_t)tensor->head_stride * (heads - 1) +
               inner;
    uint32_t alignment = element > layout->alignment ? element : layout->alignment;
    struct guarded *memory = arena_add(arena, name, size, alignment, fill);
    tensor->buffer = buffer_at(memory->data, rng);
    return memory;
}
