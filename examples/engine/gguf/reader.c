/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens GGUF files: header, metadata table and the search in it, and tensors whose data must lie inside. */
#include "cursor.h"
#include "gguf.h"
#include "model/quant.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- tensors */

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

/* All tensor descriptions and the place of their data; file->tensors has room for tensor_count. */
static int read_tensors(struct gguf_cursor *c, struct gguf *file)
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

/* ---------------------------------------------------------------- file */

/* Least bytes of one metadata entry (length, type, one value) and of one tensor description. */
enum { LEAST_PAIR = 13, LEAST_TENSOR = 32 };

static int compare(struct gguf_string a, struct gguf_string b)
{
    size_t n = a.size < b.size ? a.size : b.size;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* Both entry types begin with their name, so one order serves for both. */
static int compare_entries(const void *a, const void *b)
{
    return compare(*(const struct gguf_string *)a, *(const struct gguf_string *)b);
}

static int sort_unique(const struct gguf *file, const char *kind, void *entries, size_t count, size_t bytes,
                       struct failure *err)
{
    qsort(entries, count, bytes, compare_entries);
    for (size_t i = 1; i < count; i++) {
        const struct gguf_string *name = (const void *)((const char *)entries + i * bytes);
        if (compare_entries((const char *)name - bytes, name) == 0)
            return failure_set(err, "%s: %s %.*s occurs twice", file->path, kind, gguf_width(*name),
                               name->data);
    }
    return 0;
}

static int read_count(struct gguf_cursor *c, const char *what, uint64_t least_bytes, size_t *out)
{
    uint64_t count;
    if (gguf_cursor_u64(c, what, &count) < 0)
        return -1;
    uint64_t most = (c->size - c->at) / least_bytes;
    if (most > GGUF_MAX_ENTRIES)
        most = GGUF_MAX_ENTRIES;
    if (count > most)
        return failure_set(c->err, "%s: %s is %" PRIu64 "; at most %" PRIu64 " fit this file", c->path, what,
                           count, most);
    *out = (size_t)count;
    return 0;
}

static int read_header(struct gguf_cursor *c, struct gguf *file)
{
    if (c->size < 24)
        return failure_set(c->err, "%s: file has %" PRIu64 " bytes; a GGUF header has 24", c->path, c->size);
    if (memcmp(c->data, "GGUF", 4) != 0)
        return failure_set(c->err, "%s: does not begin with GGUF, so it is no GGUF file", c->path);
    c->at = 4;
    if (gguf_cursor_u32(c, "version", &file->version) < 0)
        return -1;
    if (file->version != 2 && file->version != 3)
        return failure_set(c->err, "%s: version is %" PRIu32 "; accepted are 2 and 3, little-endian", c->path,
                           file->version);
    if (read_count(c, "number of tensors", LEAST_TENSOR, &file->tensor_count) < 0)
        return -1;
    return read_count(c, "number of metadata entries", LEAST_PAIR, &file->pair_count);
}

static int read_pairs(struct gguf_cursor *c, struct gguf *file)
{
    for (size_t i = 0; i < file->pair_count; i++) {
        struct gguf_pair *pair = &file->pairs[i];
        uint32_t type;
        if (gguf_cursor_string(c, "metadata key", &pair->key) < 0)
            return -1;
        if (pair->key.size == 0 || pair->key.size > 65535)
            return failure_set(c->err, "%s: metadata key %zu has %zu bytes; accepted are 1 to 65535", c->path,
                               i, pair->key.size);
        if (gguf_cursor_u32(c, "metadata type", &type) < 0 ||
            gguf_cursor_value(c, pair->key, type, &pair->value) < 0)
            return -1;
    }
    return sort_unique(file, "metadata key", file->pairs, file->pair_count, sizeof *file->pairs, c->err);
}

static int parse(struct gguf *file, struct failure *err)
{
    struct gguf_cursor c = {.path = file->path, .data = file->data, .size = file->size, .err = err};
    if (read_header(&c, file) < 0)
        return -1;
    file->pairs = calloc(file->pair_count + 1, sizeof *file->pairs);
    file->tensors = calloc(file->tensor_count + 1, sizeof *file->tensors);
    if (!file->pairs || !file->tensors)
        return failure_set(err, "%s: no memory for %zu metadata entries and %zu tensors", file->path,
                           file->pair_count, file->tensor_count);
    if (read_pairs(&c, file) < 0 || read_tensors(&c, file) < 0)
        return -1;
    return sort_unique(file, "tensor", file->tensors, file->tensor_count, sizeof *file->tensors, err);
}

int gguf_open_memory(const char *name, const void *data, size_t size, struct gguf *file, struct failure *err)
{
    *file = (struct gguf){.path = strdup(name), .data = data, .size = size};
    if (!file->path)
        return failure_set(err, "%s: no memory", name);
    if (parse(file, err) == 0)
        return 0;
    gguf_close(file);
    return -1;
}

static int map(int fd, const char *path, void **out_data, size_t *out_size, struct failure *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return failure_set(err, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return failure_set(err, "%s: is not a regular file", path);
    if (st.st_size < 24)
        return failure_set(err, "%s: file has %lld bytes; a GGUF header has 24", path, (long long)st.st_size);
    *out_size = (size_t)st.st_size;
    *out_data = mmap(NULL, *out_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (*out_data == MAP_FAILED)
        return failure_set(err, "%s: cannot map %zu bytes: %s", path, *out_size, strerror(errno));
    return 0;
}

int gguf_open(const char *path, struct gguf *file, struct failure *err)
{
    void *data = NULL;
    size_t size = 0;
    *file = (struct gguf){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        file->missing = errno == ENOENT || errno == ENOTDIR;
        return failure_set(err, "%s: %s; a GGUF file is needed, and tools/fetch-model fetches one", path,
                           strerror(errno));
    }
    int bad = map(fd, path, &data, &size, err);
    close(fd);
    if (bad < 0)
        return -1;
    if (gguf_open_memory(path, data, size, file, err) < 0) {
        munmap(data, size);
        return -1;
    }
    file->mapped = true;
    return 0;
}

void gguf_close(struct gguf *file)
{
    if (file->mapped)
        munmap((void *)(uintptr_t)file->data, file->size);
    free(file->path);
    free(file->pairs);
    free(file->tensors);
    *file = (struct gguf){0};
}

static const void *find(const void *entries, size_t count, size_t bytes, const char *name)
{
    struct gguf_string key = {name, strlen(name)};
    return bsearch(&key, entries, count, bytes, compare_entries);
}

const struct gguf_value *gguf_find(const struct gguf *file, const char *key)
{
    const struct gguf_pair *pair = find(file->pairs, file->pair_count, sizeof *file->pairs, key);
    return pair ? &pair->value : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *file, const char *name)
{
    return find(file->tensors, file->tensor_count, sizeof *file->tensors, name);
}
