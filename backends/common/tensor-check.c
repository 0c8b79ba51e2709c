/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of addresses and strides, so that no kernel has to ask. */
#include "check.h"

int32_t attn__span_check(const struct attn_span *span, uint64_t size, uint32_t alignment, const char *name,
                         struct attn_error *err)
{
    if (span == NULL || attn__address(&span->buffer) == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; %llu bytes are needed", name,
                          (unsigned long long)size);
    if (span->size < size)
        return attn__fail(err, ATTN_E_SIZE, 0, name, "%s has %llu bytes; %llu are needed", name,
                          (unsigned long long)span->size, (unsigned long long)size);
    if ((uintptr_t)attn__address(&span->buffer) % alignment != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "the address of %s is no multiple of %u", name,
                          alignment);
    return ATTN_OK;
}

int32_t attn__scale_check(const struct attn_scale *scale, uint32_t dtype, const char *name,
                          struct attn_error *err)
{
    uint64_t bits = (uint64_t)(uintptr_t)attn__address(&scale->buffer) | (uint64_t)scale->outer_stride |
                    (uint64_t)scale->token_stride | (uint64_t)scale->head_stride;

    if (attn__dtype_size(dtype) != 1)
        return scale->kind == 0 ? ATTN_OK
                                : attn__fail(err, ATTN_E_INVALID, 0, name,
                                             "%s is given, but %s has no scale; leave its kind 0", name,
                                             attn__dtype_name(dtype));
    if (scale->kind == ATTN_SCALE_UNIT)
        return ATTN_OK;
    if ((scale->kind != ATTN_SCALE_HOST && scale->kind != ATTN_SCALE_DEVICE) ||
        attn__address(&scale->buffer) == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given, but %s needs it", name,
                          attn__dtype_name(dtype));
    if (bits % sizeof(float) != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "address and strides of %s must be multiples of 4",
                          name);
    return ATTN_OK;
}

bool attn__strides_fit(const int64_t *strides, const uint64_t *counts, uint32_t n)
{
    uint64_t sum = 0, part;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t size = strides[i] < 0 ? 0 - (uint64_t)strides[i] : (uint64_t)strides[i];
        if (counts[i] < 2)
            continue;
        if (__builtin_mul_overflow(size, counts[i] - 1, &part) || __builtin_add_overflow(sum, part, &sum))
            return false;
    }
    return sum <= INT64_MAX / 2;
}

/* Elements that are written lie apart if the smaller stride steps over a row and the larger over all of them.
 */
static bool apart(const struct attn_tensor *tensor, uint64_t rows, uint64_t heads, uint64_t bytes)
{
    uint64_t token = (uint64_t)tensor->token_stride, head = (uint64_t)tensor->head_stride;

    if ((rows > 1 && tensor->token_stride <= 0) || (heads > 1 && tensor->head_stride <= 0))
        return false;
    if (rows < 2)
        return heads < 2 || head >= bytes;
    if (heads < 2)
        return token >= bytes;
    if (head <= token)
        return head >= bytes && token >= (heads - 1) * head + bytes;
    return token >= bytes && head >= (rows - 1) * token + bytes;
}

int32_t attn__tensor_check(const struct attn_tensor *tensor, uint64_t rows, uint64_t heads, uint32_t dim,
                           uint32_t size, uint32_t written, const char *name, struct attn_error *err)
{
    const int64_t strides[] = {tensor->token_stride, tensor->head_stride};
    const uint64_t counts[] = {rows, heads};
    uintptr_t bits = (uintptr_t)attn__address(&tensor->buffer);

    if (rows == 0)
        return ATTN_OK;
    if (bits == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; the plan needs it", name);
    bits |= rows > 1 ? (uintptr_t)tensor->token_stride : 0;
    bits |= heads > 1 ? (uintptr_t)tensor->head_stride : 0;
    if ((bits & (size - 1)) != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "address and strides of %s (token %lld, head %lld bytes) must be multiples of its "
                          "element size %u",
                          name, (long long)tensor->token_stride, (long long)tensor->head_stride, size);
    if (!attn__strides_fit(strides, counts, 2))
        return attn__fail(
            err, ATTN_E_INVALID, 0, name,
            "strides of %s (token %lld, head %lld bytes) reach beyond 64-bit addresses; smaller "
            "ones are accepted",
            name, (long long)tensor->token_stride, (long long)tensor->head_stride);
    if (written != 0 && !apart(tensor, rows, heads, (uint64_t)dim * size))
        return attn__fail(
            err, ATTN_E_INVALID, 0, name,
            "strides of %s (token %lld, head %lld bytes) let rows of %llu bytes overlap; a tensor "
            "that is written needs positive strides that keep them apart",
            name, (long long)tensor->token_stride, (long long)tensor->head_stride,
            (unsigned long long)dim * size);
    return ATTN_OK;
}
