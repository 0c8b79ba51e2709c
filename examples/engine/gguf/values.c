/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Typed access to the metadata of an open GGUF file. */
#include "gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool gguf_string_equals(struct gguf_string string, const char *text)
{
    return string.size == strlen(text) && memcmp(string.data, text, string.size) == 0;
}

bool gguf_is_integer(uint32_t type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

/* The value of a key that must be a scalar; NULL with *bad clear when it is absent and may be. */
static const struct gguf_value *scalar(const struct gguf *file, const char *key, bool required, bool *bad,
                                       struct failure *err)
{
    const struct gguf_value *value = gguf_find(file, key);
    *bad = true;
    if (!value && required)
        failure_set(err, "%s: metadata key %s is missing", file->path, key);
    else if (value && value->array)
        failure_set(err, "%s: metadata key %s is an array; accepted is a single value", file->path, key);
    else
        *bad = false;
    return *bad ? NULL : value;
}

static int wrong_type(const struct gguf *file, const char *key, uint32_t type, const char *accepted,
                      struct failure *err)
{
    return failure_set(err, "%s: metadata key %s has type %s; accepted: %s", file->path, key,
                       gguf_type_name(type), accepted);
}

static int64_t signed_item(const uint8_t *at, uint32_t type)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (type) {
    case GGUF_I8:
        return memcpy(&i8, at, 1), i8;
    case GGUF_I16:
        return memcpy(&i16, at, 2), i16;
    case GGUF_I32:
        return memcpy(&i32, at, 4), i32;
    default:
        return memcpy(&i64, at, 8), i64;
    }
}

static uint64_t unsigned_item(const uint8_t *at, uint32_t type)
{
    uint64_t value = 0; /* the file is little-endian and so is every supported host */
    memcpy(&value, at, type == GGUF_U8 ? 1 : type == GGUF_U16 ? 2 : type == GGUF_U32 ? 4 : 8);
    return value;
}

static bool is_signed(uint32_t type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

int gguf_get_u64(const struct gguf *file, const char *key, bool required, uint64_t least, uint64_t most,
                 uint64_t *out, struct failure *err)
{
    bool bad;
    const struct gguf_value *value = scalar(file, key, required, &bad, err);
    if (!value)
        return bad ? -1 : 0;
    if (!gguf_is_integer(value->type))
        return wrong_type(file, key, value->type, "integers", err);
    if (is_signed(value->type)) {
        int64_t number = signed_item(value->data, value->type);
        if (number < 0)
            return failure_set(err, "%s: %s is %" PRId64 "; accepted are %" PRIu64 " to %" PRIu64, file->path,
                               key, number, least, most);
    }
    uint64_t number = is_signed(value->type) ? (uint64_t)signed_item(value->data, value->type)
                                             : unsigned_item(value->data, value->type);
    if (number < least || number > most)
        return failure_set(err, "%s: %s is %" PRIu64 "; accepted are %" PRIu64 " to %" PRIu64, file->path,
                           key, number, least, most);
    *out = number;
    return 0;
}

int gguf_get_f64(const struct gguf *file, const char *key, bool required, double *out, struct failure *err)
{
    bool bad;
    const struct gguf_value *value = scalar(file, key, required, &bad, err);
    if (!value)
        return bad ? -1 : 0;
    double number;
    if (value->type == GGUF_F32) {
        float narrow;
        memcpy(&narrow, value->data, sizeof narrow);
        number = (double)narrow;
    } else if (value->type == GGUF_F64) {
        memcpy(&number, value->data, sizeof number);
    } else {
        return wrong_type(file, key, value->type, "f32 and f64", err);
    }
    if (!isfinite(number))
        return failure_set(err, "%s: %s is %g; accepted are finite numbers", file->path, key, number);
    *out = number;
    return 0;
}

int gguf_get_bool(const struct gguf *file, const char *key, bool *out, struct failure *err)
{
    bool bad;
    const struct gguf_value *value = scalar(file, key, false, &bad, err);
    if (!value)
        return bad ? -1 : 0;
    if (value->type != GGUF_BOOL)
        return wrong_type(file, key, value->type, "bool", err);
    *out = value->data[0] != 0;
    return 0;
}

int gguf_get_string(const struct gguf *file, const char *key, bool required, struct gguf_string *out,
                    struct failure *err)
{
    bool bad;
    const struct gguf_value *value = scalar(file, key, required, &bad, err);
    if (!value)
        return bad ? -1 : 0;
    if (value->type != GGUF_STRING)
        return wrong_type(file, key, value->type, "string", err);
    const uint8_t *at = value->data;
    *out = gguf_next_string(&at);
    return 0;
}

struct gguf_string gguf_next_string(const uint8_t **at)
{
    uint64_t size;
    memcpy(&size, *at, sizeof size);
    struct gguf_string string = {(const char *)*at + sizeof size, (size_t)size};
    *at += sizeof size + size;
    return string;
}

int64_t gguf_integer_item(const struct gguf_value *value, uint64_t index)
{
    uint64_t bytes = value->type <= GGUF_I8    ? 1
                     : value->type <= GGUF_I16 ? 2
                     : value->type <= GGUF_I32 ? 4
                                               : 8;
    const uint8_t *at = value->data + index * bytes;
    return is_signed(value->type) ? signed_item(at, value->type) : (int64_t)unsigned_item(at, value->type);
}
