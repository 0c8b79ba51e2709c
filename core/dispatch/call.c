/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The common beginning and end of every call into a chosen backend. */
#include <stdio.h>

#include "dispatch/call.h"

int32_t attn__call_begin(const struct attn_backend *backend, const char *what, struct attn_error *err)
{
    if (backend == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "backend",
                          "%s: the handle is NULL; an open one is accepted", what);
    }
    const int32_t status = attn__check_fork(backend->born, what, err);
    if (status != ATTN_OK)
        return status;
    if (atomic_load_explicit(&backend->lost, memory_order_relaxed) != 0) {
        return attn__fail(err, ATTN_E_DEVICE_LOST, ATTN_REASON_DEVICE_LOST, "device",
                          "%s: %s on %s is lost after an earlier error; destroy it and open another device",
                          what, backend->entry->table.name, backend->device_name);
    }
    return ATTN_OK;
}

bool attn__is_status(int32_t status)
{
    return status <= 0 && strcmp(attn_status_name(status), "ATTN_E_UNKNOWN") != 0;
}

int32_t attn__call_end(struct attn_backend *backend, int32_t status, struct attn_error *own, const char *what,
                       struct attn_error *err)
{
    if (status == ATTN_OK)
        return ATTN_OK;
    attn__backend_result(backend, status);
    own->field[sizeof own->field - 1] = 0;
    own->message[sizeof own->message - 1] = 0;
    const char *name = backend->entry->table.name;
    if (!attn__is_status(status)) {
        return attn__fail(err, ATTN_E_PLUGIN, 0, own->field, "%s: %s returned %d, which is no status: %s",
                          name, what, status, own->message);
    }
    return attn__fail(err, status, own->reason, own->field, "%s: %s: %s", name, what,
                      own->message[0] != 0 ? own->message : attn_status_text(status));
}

int32_t attn__argument_copy(const void *given, void *copy, size_t size, const char *name, const void **out,
                            struct attn_error *err)
{
    *out = copy;
    return attn__take(copy, size, given, size, name, err);
}

bool attn__has_bytes(const void *bytes, size_t from, size_t size)
{
    for (size_t i = from; i < size; i++)
        if (((const unsigned char *)bytes)[i] != 0)
            return true;
    return false;
}

int32_t attn__argument_unknown(const struct attn_backend *backend, const void *argument, size_t size,
                               uint32_t plugin_size, const char *name, struct attn_error *err)
{
    if (!attn__has_bytes(argument, plugin_size, size))
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, ATTN_REASON_UNKNOWN_TO_PLUGIN, name,
        "%s has a value beyond byte %u, which is all that the plugin of %s knows; update the plugin", name,
        plugin_size, backend->entry->table.name);
}

int32_t attn__answer_begin(const void *out, size_t size, const char *name, struct attn_error *err)
{
    if (out == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is NULL; a struct made with ATTN_INIT is accepted", name);
    }
    uint32_t given;
    memcpy(&given, out, sizeof given);
    if (given < size) {
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has struct_size %u; at least %zu is accepted: set it with ATTN_INIT", name,
                          given, size);
    }
    return ATTN_OK;
}

int32_t attn__answer(void *out, const void *own, size_t size, const char *name, struct attn_error *err)
{
    const int32_t status = attn__answer_begin(out, size, name, err);
    if (status == ATTN_OK) {
        const size_t head = sizeof(uint32_t); /* struct_size stays the caller's */
        memcpy((char *)out + head, (const char *)own + head, size - head);
    }
    return status;
}

bool attn__extent_fits(const int64_t *strides, const uint64_t *counts, uint32_t n, uint64_t last)
{
    int64_t sum;
    if (__builtin_add_overflow(last, 0, &sum))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t magnitude = strides[i] < 0 ? 0 - (uint64_t)strides[i] : (uint64_t)strides[i];
        const uint64_t steps = counts[i] > 0 ? counts[i] - 1 : 0;
        int64_t reach;
        if (__builtin_mul_overflow(magnitude, steps, &reach) || __builtin_add_overflow(sum, reach, &sum))
            return false;
    }
    return true;
}

/* Whether no two elements share memory: the smaller stride covers a vector, and the larger one all of those.
 */
static bool is_disjoint(const struct attn_tensor *tensor, uint64_t tokens, uint64_t heads, uint64_t bytes)
{
    const uint64_t token = (uint64_t)tensor->token_stride, head = (uint64_t)tensor->head_stride;
    if ((tokens > 1 && tensor->token_stride <= 0) || (heads > 1 && tensor->head_stride <= 0))
        return false;
    if (tokens < 2)
        return heads < 2 || head >= bytes;
    if (heads < 2)
        return token >= bytes;
    if (head <= token)
        return head >= bytes && token >= (heads - 1) * head + bytes;
    return token >= bytes && head >= (tokens - 1) * token + bytes;
}

static int32_t refuse_dtype(uint32_t given, uint32_t wanted, const char *name, struct attn_error *err)
{
    const char *text = attn_dtype_name(given);
    char number[16];
    if (text == NULL) {
        snprintf(number, sizeof number, "0x%x", given);
        text = number;
    }
    return attn__fail(
        err, ATTN_E_INVALID, 0, name,
        "%s is a tensor of %s, but the call takes %s; give it one of %s, or say %s in the problem", name,
        text, attn_dtype_name(wanted), attn_dtype_name(wanted), text);
}

int32_t attn__tensor_check(const struct attn_tensor *tensor, uint32_t dtype, uint64_t tokens, uint64_t heads,
                           uint64_t dim, const char *name, struct attn_error *err)
{
    const int64_t size = (int64_t)attn__element_size(dtype);
    if (tokens > 0 && tensor->buffer.data == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given, but the call needs it", name);
    if (tensor->dtype != 0 && tensor->dtype != dtype)
        return refuse_dtype(tensor->dtype, dtype, name, err);
    if (((tensor->token_stride | tensor->head_stride) & (size - 1)) != 0) {
        return attn__fail(
            err, ATTN_E_INVALID, 0, name,
            "%s has strides of %lld (token) and %lld (head) bytes; multiples of its element size %lld are "
            "accepted",
            name, (long long)tensor->token_stride, (long long)tensor->head_stride, (long long)size);
    }
    const int64_t strides[] = {tensor->token_stride, tensor->head_stride};
    const uint64_t counts[] = {tokens, heads};
    if (!attn__extent_fits(strides, counts, 2, dim * (uint64_t)size)) {
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s: %llu tokens at stride %lld and %llu heads at stride %lld do not fit 63 bits; "
                          "smaller strides are accepted",
                          name, (unsigned long long)tokens, (long long)tensor->token_stride,
                          (unsigned long long)heads, (long long)tensor->head_stride);
    }
    return ATTN_OK;
}

int32_t attn__output_check(const struct attn_tensor *tensor, uint32_t dtype, uint64_t tokens, uint64_t heads,
                           uint64_t dim, const char *name, struct attn_error *err)
{
    const uint64_t bytes = dim * attn__element_size(dtype);
    const int32_t status = attn__tensor_check(tensor, dtype, tokens, heads, dim, name, err);
    if (status != ATTN_OK || tokens == 0 || is_disjoint(tensor, tokens, heads, bytes))
        return status;
    return attn__fail(
        err, ATTN_E_INVALID, 0, name,
        "strides of %s (token %lld, head %lld bytes) let rows of %llu bytes overlap; a tensor that "
        "is written needs positive strides that keep them apart",
        name, (long long)tensor->token_stride, (long long)tensor->head_stride, (unsigned long long)bytes);
}

int32_t attn__scale_check(const struct attn_scale *scale, uint32_t granularity, const char *name,
                          struct attn_error *err)
{
    if (granularity == ATTN_SCALES_NONE || granularity == 0) {
        if (scale->kind == 0)
            return ATTN_OK;
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is given, but the type or the problem has no scale; leave its kind 0", name);
    }
    if (scale->kind == 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; %s is needed", name,
                          granularity == ATTN_SCALES_UNIT ? "kind ATTN_SCALE_UNIT" : "its value");
    }
    if (scale->kind > ATTN_SCALE_DEVICE) {
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has kind %u; accepted: ATTN_SCALE_UNIT, HOST or DEVICE", name, scale->kind);
    }
    if ((scale->kind == ATTN_SCALE_UNIT) != (granularity == ATTN_SCALES_UNIT) ||
        (scale->granularity != granularity && !(scale->kind == ATTN_SCALE_UNIT && scale->granularity == 0))) {
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has kind %u and granularity %u; the problem says granularity %u", name,
                          scale->kind, scale->granularity, granularity);
    }
    if (scale->kind != ATTN_SCALE_UNIT && scale->buffer.data == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s has no buffer; an address is needed", name);
    if (((scale->outer_stride | scale->token_stride | scale->head_stride) & 3) != 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has strides of %lld, %lld and %lld bytes; multiples of 4 are accepted", name,
                          (long long)scale->outer_stride, (long long)scale->token_stride,
                          (long long)scale->head_stride);
    }
    return ATTN_OK;
}
