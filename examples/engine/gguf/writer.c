/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Appends the parts of a GGUF file and joins them. */
#include "writer.h"
#include "gguf.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ALIGNMENT = 32 };

static void *extend(struct gguf_bytes *b, size_t size)
{
    if (!b->failed && size > b->room - b->size) {
        size_t room = b->room + size + b->room / 2 + 256;
        uint8_t *data = realloc(b->data, room);
        b->failed = !data;
        if (data) {
            b->data = data;
            b->room = room;
        }
    }
    if (b->failed || !b->data)
        return NULL;
    b->size += size;
    return b->data + b->size - size;
}

void gguf_put(struct gguf_bytes *bytes, const void *data, size_t size)
{
    void *at = extend(bytes, size);
    if (at && size)
        memcpy(at, data, size);
}

void gguf_put_u32(struct gguf_bytes *bytes, uint32_t value)
{
    gguf_put(bytes, &value, sizeof value);
}

void gguf_put_u64(struct gguf_bytes *bytes, uint64_t value)
{
    gguf_put(bytes, &value, sizeof value);
}

void gguf_put_string(struct gguf_bytes *bytes, const char *text, size_t size)
{
    gguf_put_u64(bytes, size);
    gguf_put(bytes, text, size);
}

static void begin_pair(struct gguf_writer *w, const char *key, uint32_t type)
{
    gguf_put_string(&w->pairs, key, strlen(key));
    gguf_put_u32(&w->pairs, type);
    w->pair_count++;
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    begin_pair(w, key, GGUF_U32);
    gguf_put_u32(&w->pairs, value);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float value)
{
    begin_pair(w, key, GGUF_F32);
    gguf_put(&w->pairs, &value, sizeof value);
}

void gguf_write_string(struct gguf_writer *w, const char *key, const char *text)
{
    begin_pair(w, key, GGUF_STRING);
    gguf_put_string(&w->pairs, text, strlen(text));
}

void gguf_write_array(struct gguf_writer *w, const char *key, uint32_t type, uint64_t count)
{
    begin_pair(w, key, GGUF_ARRAY);
    gguf_put_u32(&w->pairs, type);
    gguf_put_u64(&w->pairs, count);
}

static void pad(const struct gguf_writer *w, struct gguf_bytes *b)
{
    size_t alignment = w->alignment ? w->alignment : DEFAULT_ALIGNMENT;
    size_t size = (alignment - b->size % alignment) % alignment;
    void *at = extend(b, size);
    if (at)
        memset(at, 0, size);
}

void *gguf_write_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint64_t inputs,
                        uint64_t outputs, size_t bytes)
{
    pad(w, &w->data);
    gguf_put_string(&w->infos, name, strlen(name));
    gguf_put_u32(&w->infos, outputs ? 2 : 1);
    gguf_put_u64(&w->infos, inputs);
    if (outputs)
        gguf_put_u64(&w->infos, outputs);
    gguf_put_u32(&w->infos, type);
    gguf_put_u64(&w->infos, w->data.size);
    w->tensor_count++;
    void *at = extend(&w->data, bytes);
    if (at)
        memset(at, 0, bytes);
    return at;
}

uint8_t *gguf_write_finish(struct gguf_writer *w, size_t *out_size)
{
    struct gguf_bytes file = {0};
    int failed = w->pairs.failed || w->infos.failed || w->data.failed;
    gguf_put(&file, "GGUF", 4);
    gguf_put_u32(&file, 3);
    gguf_put_u64(&file, w->tensor_count);
    gguf_put_u64(&file, w->pair_count);
    gguf_put(&file, w->pairs.data, w->pairs.size);
    gguf_put(&file, w->infos.data, w->infos.size);
    pad(w, &file);
    gguf_put(&file, w->data.data, w->data.size);
    free(w->pairs.data);
    free(w->infos.data);
    free(w->data.data);
    *w = (struct gguf_writer){0};
    if (failed || file.failed) {
        free(file.data);
        return NULL;
    }
    *out_size = file.size;
    return file.data;
}
