/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A bounds-checked position in a GGUF file, used while the file is being opened. */
#ifndef ENGINE_CURSOR_H
#define ENGINE_CURSOR_H

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

/* Reads a value of the given type, which key names in messages. */
int gguf_cursor_value(struct gguf_cursor *c, struct gguf_string key, uint32_t type, struct gguf_value *out);

#endif
