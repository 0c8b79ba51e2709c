/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads numbers, strings and metadata values of a GGUF file without ever leaving its bytes. */
#include "cursor.h"

#include <inttypes.h>
#include <string.h>

static int need(struct gguf_cursor *c, const char *what, uint64_t bytes)
{
    uint64_t left = c->size - c->at;
    if (bytes <= left)
        return 0;
    return failure_set(c->err, "%s: %s at byte %" PRIu64 " needs %" PRIu64 " bytes, %" PRIu64 " are left",
                       c->path, what, c->at, bytes, left);
}

int gguf_cursor_u32(struct gguf_cursor *c, const char *what, uint32_t *out)
{
    if (need(c, what, sizeof *out) < 0)
        return -1;
    memcpy(out, c->data + c->at, sizeof *out);
    c->at += sizeof *out;
    return 0;
}

int gguf_cursor_u64(struct gguf_cursor *c, const char *what, uint64_t *out)
{
    if (need(c, what, sizeof *out) < 0)
        return -1;
    memcpy(out, c->data + c->at, sizeof *out);
    c->at += sizeof *out;
    return 0;
}

int gguf_cursor_string(struct gguf_cursor *c, const char *what, struct gguf_string *out)
{
    uint64_t size;
    if (gguf_cursor_u64(c, what, &size) < 0 || need(c, what, size) < 0)
        return -1;
    *out = (struct gguf_string){(const char *)c->data + c->at, (size_t)size};
    c->at += size;
    return 0;
}

static int skip(struct gguf_cursor *c, const char *what, uint64_t count, uint64_t item_bytes)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes))
        return failure_set(c->err,
                           "%s: %s at byte %" PRIu64 " has %" PRIu64 " items of %" PRIu64
                           " bytes, more than 64 bits can count",
                           c->path, what, c->at, count, item_bytes);
    if (need(c, what, bytes) < 0)
        return -1;
    c->at += bytes;
    return 0;
}

/* Bytes of one item of a fixed-size type, 0 for strings, arrays and unknown types. */
static uint64_t type_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

const char *gguf_type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof names[0] ? names[type] : "unknown type";
}

static int skip_items(struct gguf_cursor *c, struct gguf_string key, uint32_t type, uint64_t count,
                      int depth);

/* An array inside an array: its own header, then its items. */
static int skip_array(struct gguf_cursor *c, struct gguf_string key, int depth)
{
    uint32_t type;
    uint64_t count;
    if (depth > GGUF_MAX_NESTING)
        return failure_set(c->err, "%s: %.*s nests arrays deeper than %d levels", c->path, gguf_width(key),
                           key.data, GGUF_MAX_NESTING);
    if (gguf_cursor_u32(c, "type of array items", &type) < 0 ||
        gguf_cursor_u64(c, "array length", &count) < 0)
        return -1;
    return skip_items(c, key, type, count, depth);
}

static int skip_items(struct gguf_cursor *c, struct gguf_string key, uint32_t type, uint64_t count, int depth)
{
    if (type_bytes(type))
        return skip(c, "array", count, type_bytes(type));
    if (type != GGUF_STRING && type != GGUF_ARRAY)
        return failure_set(c->err, "%s: %.*s has items of type %" PRIu32 "; accepted are 0 to 12", c->path,
                           gguf_width(key), key.data, type);
    /* Each item takes bytes, so a length that the file cannot hold ends this loop early. */
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_string ignored;
        int bad = type == GGUF_STRING ? gguf_cursor_string(c, "string of an array", &ignored)
                                      : skip_array(c, key, depth + 1);
        if (bad < 0)
            return -1;
    }
    return 0;
}

static int check_bools(struct gguf_cursor *c, struct gguf_string key, const struct gguf_value *value)
{
    for (uint64_t i = 0; i < value->count; i++)
        if (value->data[i] > 1)
            return failure_set(c->err, "%s: %.*s is a bool of value %d; accepted are 0 and 1", c->path,
                               gguf_width(key), key.data, value->data[i]);
    return 0;
}

int gguf_cursor_value(struct gguf_cursor *c, struct gguf_string key, uint32_t type, struct gguf_value *out)
{
    *out = (struct gguf_value){.type = type, .count = 1};
    if (type == GGUF_ARRAY) {
        out->array = true;
        if (gguf_cursor_u32(c, "type of array items", &out->type) < 0 ||
            gguf_cursor_u64(c, "array length", &out->count) < 0)
            return -1;
    }
    out->data = c->data + c->at;
    if (skip_items(c, key, out->type, out->count, 1) < 0)
        return -1;
    return out->type == GGUF_BOOL ? check_bools(c, key, out) : 0;
}
