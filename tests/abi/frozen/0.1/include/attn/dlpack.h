/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Conversions between DLPack 1.x tensors and the plain data of libattn. Header only; needs neither libattn
 * nor dlpack.h. Include dlpack.h before this header to work on its types; otherwise the types below, of the
 * same layout, are used.
 *
 * Nothing is copied or owned: a converted view lives as long as the tensor it was made from. Functions that
 * can fail return ATTN_OK or ATTN_E_INVALID and leave *out alone when they fail.
 */
#ifndef ATTN_DLPACK_H
#define ATTN_DLPACK_H

#include "attn/types.h"

#if defined(DLPACK_VERSION) || defined(DLPACK_MAJOR_VERSION)
typedef DLDeviceType attn_dl_device_type;
typedef DLDevice attn_dl_device;
typedef DLDataType attn_dl_dtype;
typedef DLTensor attn_dl_tensor;
#else
/* kDLCPU, kDLCUDA and others. */
typedef int32_t attn_dl_device_type;
/* DLDevice. */
typedef struct {
    attn_dl_device_type device_type;
    int32_t device_id;
} attn_dl_device;
/* DLDataType. */
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} attn_dl_dtype;
/* DLTensor. */
typedef struct {
    void *data;
    attn_dl_device device;
    int32_t ndim;
    attn_dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL = compact, row by row */
    uint64_t byte_offset;
} attn_dl_tensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Element type of a DLPack `dtype`, which has the same three fields. */
static inline uint32_t attn_dtype_from_dl(attn_dl_dtype dtype)
{
    return (uint32_t)dtype.code | (uint32_t)dtype.bits << 8 | (uint32_t)dtype.lanes << 16;
}

/* DLPack's type of a `dtype` (enum attn_dtype). */
static inline attn_dl_dtype attn_dtype_to_dl(uint32_t dtype)
{
    attn_dl_dtype result;
    result.code = (uint8_t)(dtype & 0xff);
    result.bits = (uint8_t)(dtype >> 8 & 0xff);
    result.lanes = (uint16_t)(dtype >> 16);
    return result;
}

/* Device of a DLPack `device`, which has the same numbers. */
static inline struct attn_device attn_device_from_dl(attn_dl_device device)
{
    struct attn_device result;
    memset(&result, 0, sizeof result);
    result.type = (uint32_t)device.device_type;
    result.ordinal = device.device_id;
    return result;
}

/* DLPack's device of a `device`. */
static inline attn_dl_device attn_device_to_dl(struct attn_device device)
{
    attn_dl_device result;
    result.device_type = (attn_dl_device_type)device.type;
    result.device_id = device.ordinal;
    return result;
}

/* Bytes of an element, 0 if it is no whole number of bytes of one lane. */
static inline int64_t attn_dl_element_size(attn_dl_dtype dtype)
{
    return dtype.lanes == 1 && dtype.bits % 8 == 0 ? (int64_t)dtype.bits / 8 : 0;
}

/* Elements between neighbours of a `dimension`; of a compact tensor the product of those inside. */
static inline int32_t attn_dl_stride(const attn_dl_tensor *tensor, int32_t dimension, int64_t *out)
{
    int64_t stride = 1;
    int32_t i;
    if (tensor->strides != NULL) {
        *out = tensor->strides[dimension];
        return ATTN_OK;
    }
    for (i = dimension + 1; i < tensor->ndim; i++) {
        int64_t size = tensor->shape[i];
        if (size > 0 && stride > INT64_MAX / size)
            return ATTN_E_INVALID;
        stride *= size;
    }
    *out = stride;
    return ATTN_OK;
}

/* The same in bytes: of a `dimension`, in *out. */
static inline int32_t attn_dl_byte_stride(const attn_dl_tensor *tensor, int32_t dimension, int64_t *out)
{
    const int64_t size = attn_dl_element_size(tensor->dtype);
    int64_t stride;
    if (attn_dl_stride(tensor, dimension, &stride) != ATTN_OK || size == 0 || stride > INT64_MAX / size ||
        stride < INT64_MIN / size)
        return ATTN_E_INVALID;
    *out = stride * size;
    return ATTN_OK;
}

/* 1 if the members of a tensor go together and its elements are whole bytes. */
static inline int32_t attn_dl_is_sound(const attn_dl_tensor *tensor)
{
    int32_t i;
    if (tensor == NULL || tensor->ndim < 0 || (tensor->ndim > 0 && tensor->shape == NULL) ||
        attn_dl_element_size(tensor->dtype) == 0)
        return 0;
    for (i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] < 0)
            return 0;
    return 1;
}

/*
 * A view [token, head, dim], or [token, head] for a log-sum-exp. Refused: another number of dimensions, an
 * innermost dimension that is not contiguous, strides beyond 63 bits.
 */
static inline int32_t attn_tensor_from_dl(const attn_dl_tensor *tensor, struct attn_tensor *out)
{
    struct attn_tensor result;
    int64_t inner = 1;
    if (out == NULL || !attn_dl_is_sound(tensor) || tensor->ndim < 2 || tensor->ndim > 3)
        return ATTN_E_INVALID;
    memset(&result, 0, sizeof result);
    if (attn_dl_byte_stride(tensor, 0, &result.token_stride) != ATTN_OK ||
        attn_dl_byte_stride(tensor, 1, &result.head_stride) != ATTN_OK)
        return ATTN_E_INVALID;
    if (tensor->ndim == 3 &&
        (attn_dl_stride(tensor, 2, &inner) != ATTN_OK || (inner != 1 && tensor->shape[2] > 1)))
        return ATTN_E_INVALID;
    result.buffer.data = tensor->data;
    result.buffer.byte_offset = tensor->byte_offset;
    *out = result;
    return ATTN_OK;
}

/* An array without gaps, of any shape: offsets, lengths, tables, a whole cache. */
static inline int32_t attn_buffer_from_dl(const attn_dl_tensor *tensor, struct attn_buffer *out)
{
    int64_t expected = 1;
    int32_t i;
    if (out == NULL || !attn_dl_is_sound(tensor))
        return ATTN_E_INVALID;
    for (i = tensor->ndim - 1; i >= 0; i--) {
        const int64_t size = tensor->shape[i];
        if (tensor->strides != NULL && size > 1 && tensor->strides[i] != expected)
            return ATTN_E_INVALID;
        if (size > 0 && expected > INT64_MAX / size)
            return ATTN_E_INVALID;
        expected *= size > 0 ? size : 1;
    }
    out->data = tensor->data;
    out->byte_offset = tensor->byte_offset;
    return ATTN_OK;
}

/*
 * A DLPack view [token, head, dim] of a tensor whose elements are of `dtype`. `shape` and `strides` are the
 * caller's arrays of three, and live as long as the view; strides are filled. Refused: byte strides that are
 * no whole elements.
 */
static inline int32_t attn_tensor_to_dl(const struct attn_tensor *tensor, uint32_t dtype,
                                        struct attn_device device, int64_t *shape, int64_t *strides,
                                        attn_dl_tensor *out)
{
    const attn_dl_dtype type = attn_dtype_to_dl(dtype);
    const int64_t size = attn_dl_element_size(type);
    if (tensor == NULL || shape == NULL || strides == NULL || out == NULL || size == 0 ||
        tensor->token_stride % size != 0 || tensor->head_stride % size != 0)
        return ATTN_E_INVALID;
    strides[0] = tensor->token_stride / size;
    strides[1] = tensor->head_stride / size;
    strides[2] = 1;
    memset(out, 0, sizeof *out);
    out->data = tensor->buffer.data;
    out->byte_offset = tensor->buffer.byte_offset;
    out->device = attn_device_to_dl(device);
    out->ndim = 3;
    out->dtype = type;
    out->shape = shape;
    out->strides = strides;
    return ATTN_OK;
}

#ifdef __cplusplus
}
#endif
#endif
