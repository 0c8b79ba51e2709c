/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the tensor descriptions of a GGUF file and checks that their data lies inside of it. */
#include "gguf-cursor.h"

#include "quant.h"

#include <inttypes.h>

enum { DEFAULT_ALIGNMENT = 32, MOST_ALIGNMENT = 65536, LONGEST_NAME = 127 };

static int fail(struct gguf_cursor *c, const struct gguf_tensor *t, const char *what, uint64_t value,
                const char *accepted)
{
    return failure_set(c->err, "%s: tensor %.*s: %s is %" PRIu64 "; accepted: %s", c->path,
                       gguf_width(t->name), t->name.data, what, value, accepted);
}

static int read_shape(struct gguf_cursor *c, struct gguf_tensor *t)
{
    if (gguf_cursor_u32(c, "number of dimensions", &t->dims) < 0)
        return -1;
    if (t->dims < 1 || t->dims > GGUF_MAX_DIMS)
        return fail(c, t, "number of dimensions", t->dims, "1 to 4");
    t->elements = 1;
    for (uint32_t i = 0; i < GGUF_MAX_DIMS; i++) {
        t->shape[i] = 1;
        if (i >= t->dims)
            continue;
        if (gguf_cursor_u64(c, "dimension", &t->shape[i]) < 0)
            return -1;
        if (t->shape[i] == 0)
            return fail(c, t, "a dimension", 0, "1 and more");
        if (__builtin_mul_overflow(t->elements, t->shape[i], &t->elements))
            return fail(c, t, "a dimension", t->shape[i], "a product that fits 64 bits");
    }
    return 0;
}

static int read_tensor(struct gguf_cursor *c, struct gguf_tensor *t, uint64_t *out_offset)
{
    if (gguf_cursor_string(c, "tensor name", &t->name) < 0)
        return -1;
    if (t->name.size == 0 || t->name.size > LONGEST_NAME)
        return failure_set(c->err,
                           "%s: a tensor name before byte %" PRIu64 " has %zu bytes; accepted are 1 to %d",
                           c->path, c->at, t->name.size, LONGEST_NAME);
    if (read_shape(c, t) < 0 || gguf_cursor_u32(c, "tensor type", &t->type) < 0 ||
        gguf_cursor_u64(c, "tensor offset", out_offset) < 0)
        return -1;
    const struct quant_type *type = quant_type_find(t->type);
    if (!type)
        return fail(c, t, "type number", t->type, "those of GGML that this program knows the size of");
    if (t->shape[0] % type->elements != 0)
        return failure_set(
            c->err, "%s: tensor %.*s: first dimension is %" PRIu64 "; %s wants a multiple of %u", c->path,
            gguf_width(t->name), t->name.data, t->shape[0], type->name, type->elements);
    if (__builtin_mul_overflow(t->elements / type->elements, type->bytes, &t->bytes))
        return fail(c, t, "number of elements", t->elements, "a size that fits 64 bits");
    return 0;
}

static int read_alignment(struct gguf_cursor *c, const struct gguf *file, uint64_t *out)
{
    *out = DEFAULT_ALIGNMENT;
    if (gguf_get_u64(file, "general.alignment", false, 1, MOST_ALIGNMENT, out, c->err) < 0)
        return -1;
    if (*out & (*out - 1))
        return failure_set(c->err,
                           "%s: general.alignment is %" PRIu64 "; accepted are powers of two up to %d",
                           c->path, *out, MOST_ALIGNMENT);
    return 0;
}

static int place(struct gguf_cursor *c, struct gguf_tensor *t, uint64_t start, uint64_t alignment,
                 uint64_t offset)
{
    uint64_t room = c->size - start;
    if (offset % alignment != 0)
        return failure_set(c->err,
                           "%s: tensor %.*s: offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                           c->path, gguf_width(t->name), t->name.data, offset, alignment);
    if (offset > room || t->bytes > room - offset)
        return failure_set(c->err,
                           "%s: tensor %.*s: offset %" PRIu64 " and size %" PRIu64
                           " reach beyond the %" PRIu64 " bytes of data in the file",
                           c->path, gguf_width(t->name), t->name.data, offset, t->bytes, room);
    t->data = c->data + start + offset;
    return 0;
}

int gguf_cursor_tensors(struct gguf_cursor *c, struct gguf *file)
{
    uint64_t alignment;
    uint64_t first = c->at;
    if (read_alignment(c, file, &alignment) < 0)
        return -1;
    for (size_t i = 0; i < file->tensor_count; i++) {
        uint64_t offset;
        if (read_tensor(c, &file->tensors[i], &offset) < 0)
            return -1;
    }
    uint64_t start = (c->at + alignment - 1) & ~(alignment - 1);
    if (start > c->size)
        start = c->size;
    /* Where the data begins is known only behind the last description, so they are walked once more. */
    c->at = first;
    for (size_t i = 0; i < file->tensor_count; i++) {
        uint64_t offset;
        if (read_tensor(c, &file->tensors[i], &offset) < 0 ||
            place(c, &file->tensors[i], start, alignment, offset) < 0)
            return -1;
    }
    return 0;
}
