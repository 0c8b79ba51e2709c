/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builds GGUF version 3 files in memory, for the toy model and for tests. */
#ifndef ENGINE_WRITER_H
#define ENGINE_WRITER_H

#include <stddef.h>
#include <stdint.h>

/* A growing block of bytes. "failed" is set when memory ran out; everything after that is ignored. */
struct gguf_bytes {
    uint8_t *data;
    size_t size;
    size_t room;
    int failed;
};

void gguf_put(struct gguf_bytes *bytes, const void *data, size_t size);
void gguf_put_u32(struct gguf_bytes *bytes, uint32_t value);
void gguf_put_u64(struct gguf_bytes *bytes, uint64_t value);
void gguf_put_string(struct gguf_bytes *bytes, const char *text, size_t size);

/* Three parts that become a file: metadata, tensor descriptions, tensor data. */
struct gguf_writer {
    struct gguf_bytes pairs;
    struct gguf_bytes infos;
    struct gguf_bytes data;
    uint64_t pair_count;
    uint64_t tensor_count;
    uint32_t alignment; /* of tensor data; 0 = 32, anything else also needs the key general.alignment */
};

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_write_f32(struct gguf_writer *w, const char *key, float value);
void gguf_write_string(struct gguf_writer *w, const char *key, const char *text);

/* Begins an array: the caller puts "count" items of the type behind it into w->pairs. */
void gguf_write_array(struct gguf_writer *w, const char *key, uint32_t type, uint64_t count);

/* Adds a tensor of one or two dimensions (outputs 0: one). Returns its zeroed data, valid until the next
 * call. */
void *gguf_write_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint64_t inputs,
                        uint64_t outputs, size_t bytes);

/* The whole file, which the caller frees; NULL without memory. The writer is empty afterwards. */
uint8_t *gguf_write_finish(struct gguf_writer *w, size_t *out_size);

#endif
