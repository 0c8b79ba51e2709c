/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reader of GGUF version 2 and 3 files: everything is checked while opening, so that later reads need no
 * checks. */
#ifndef ENGINE_GGUF_H
#define ENGINE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"

enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

enum { GGUF_MAX_DIMS = 4, GGUF_MAX_ENTRIES = 65536, GGUF_MAX_NESTING = 4 };

/* Text inside the file: not terminated, may contain any byte. */
struct gguf_string {
    const char *data;
    size_t size;
};

/* A value as it lies in the file; for arrays type is that of the items and data points to the first one. */
struct gguf_value {
    uint32_t type;
    bool array;
    uint64_t count;
    const uint8_t *data;
};

struct gguf_pair {
    struct gguf_string key;
    struct gguf_value value;
};

struct gguf_tensor {
    struct gguf_string name;
    uint32_t type;
    uint32_t dims;
    uint64_t shape[GGUF_MAX_DIMS]; /* innermost first, 1 beyond dims */
    uint64_t elements;
    uint64_t bytes;
    const uint8_t *data;
};

/* An open file. Pairs and tensors are sorted by name. */
struct gguf {
    char *path;
    const uint8_t *data;
    size_t size;
    bool mapped;
    bool missing; /* the file could not be found: told apart from a bad one */
    uint32_t version;
    struct gguf_pair *pairs;
    size_t pair_count;
    struct gguf_tensor *tensors;
    size_t tensor_count;
};

/* Maps and checks a file. On failure nothing stays open; file->missing says whether it was absent. */
int gguf_open(const char *path, struct gguf *file, struct failure *err);

/* The same from memory, which must outlive the file; name stands for the path in messages. */
int gguf_open_memory(const char *name, const void *data, size_t size, struct gguf *file, struct failure *err);

void gguf_close(struct gguf *file);

/* NULL when there is none. */
const struct gguf_value *gguf_find(const struct gguf *file, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *file, const char *name);

/* Typed access. A missing key leaves *out as it is and is a failure only where "required" is set. */
int gguf_get_u64(const struct gguf *file, const char *key, bool required, uint64_t least, uint64_t most,
                 uint64_t *out, struct failure *err);
int gguf_get_f64(const struct gguf *file, const char *key, bool required, double *out, struct failure *err);
int gguf_get_bool(const struct gguf *file, const char *key, bool *out, struct failure *err);
int gguf_get_string(const struct gguf *file, const char *key, bool required, struct gguf_string *out,
                    struct failure *err);

/* The items of an array of strings, in order: start with the value's data, each call steps over one. */
struct gguf_string gguf_next_string(const uint8_t **at);

/* Item of an array of integers of any width, as int64. */
int64_t gguf_integer_item(const struct gguf_value *value, uint64_t index);

bool gguf_is_integer(uint32_t type);
const char *gguf_type_name(uint32_t type);
/* How much of a text goes into a message, as the precision of "%.*s". */
static inline int gguf_width(struct gguf_string string)
{
    return string.size < 127 ? (int)string.size : 127;
}

bool gguf_string_equals(struct gguf_string string, const char *text);

#endif
