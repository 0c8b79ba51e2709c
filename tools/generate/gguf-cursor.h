/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A bounds-checked position in a GGUF file, used while the file is being opened. */
#ifndef GENERATE_GGUF_CURSOR_H
#define GENERATE_GGUF_CURSOR_H

#include "gguf.h"

struct gguf_cursor {
    const char *path;
    const uint8_t *data;
    uint64_t size;
    uint64_t at;
    struct failure *err;
};

/* Each takes the name of what is read for the message and advances only when all bytes are there. */
int gguf_cursor_u32(struct gguf_cursor *c, const char *what, uint32_t *out);
int gguf_cursor_u64(struct gguf_cursor *c, const char *what, uint64_t *out);
int gguf_cursor_string(struct gguf_cursor *c, const char *what, struct gguf_string *out);
int gguf_cursor_skip(struct gguf_cursor *c, const char *what, uint64_t count, uint64_t item_bytes);

/* Reads a value of the given type, which key names in messages. */
int gguf_cursor_value(struct gguf_cursor *c, struct gguf_string key, uint32_t type, struct gguf_value *out);

/* Reads all tensor descriptions and the place of their data; file->tensors has room for tensor_count. */
int gguf_cursor_tensors(struct gguf_cursor *c, struct gguf *file);

/* Bytes of one item of a fixed-size type, 0 for strings, arrays and unknown types. */
uint64_t gguf_type_bytes(uint32_t type);

#endif
