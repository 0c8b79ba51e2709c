/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the file of a record under another name, and renames it when it is whole. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/quiet.h"
#include "record/recorder.h"

/* What stands before the parts. */
struct front {
    struct attn__record_head head;
    struct attn__record_entry entries[ATTN__PARTS];
    char text[ATTN__RECORD_TEXT];
};

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ATTN__RECORD_ALIGN - 1) / ATTN__RECORD_ALIGN * ATTN__RECORD_ALIGN;
}

static struct attn__record_entry entry_of(uint32_t kind, const struct attn__part *part, uint64_t offset)
{
    struct attn__record_entry entry = {.kind = kind,
                                       .form = part->form,
                                       .place = part->place,
                                       .align = part->align,
                                       .offset = offset,
                                       .row = part->row,
                                       .hash = part->hash};

    memcpy(entry.count, part->count, sizeof entry.count);
    memcpy(entry.stride, part->stride, sizeof entry.stride);
    return entry;
}

/* Places the parts behind head, table and fields. */
static void fill(struct front *front, const struct attn__call *call)
{
    struct attn__record_head *head = &front->head;
    uint64_t bytes, end = sizeof *head;

    memcpy(head->magic, ATTN__RECORD_MAGIC, sizeof head->magic);
    head->version = ATTN__RECORD_VERSION;
    head->text_bytes = attn__fields_write(call, front->text);
    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++)
        head->parts += call->parts[kind].form != ATTN__PART_ABSENT;
    end += head->parts * sizeof(struct attn__record_entry) + head->text_bytes;
    uint32_t number = 0;
    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++) {
        const struct attn__part *part = &call->parts[kind];
        if (part->form == ATTN__PART_ABSENT)
            continue;
        const bool there = part->form == ATTN__PART_BYTES;
        front->entries[number++] = entry_of(kind, part, there ? aligned(end) : 0);
        if (there && attn__part_bytes(part, &bytes))
            end = aligned(end) + bytes;
    }
    head->file_bytes = end;
    head->hash = attn__hash(ATTN__HASH_START, head, offsetof(struct attn__record_head, hash));
    head->hash = attn__hash(head->hash, front->entries, head->parts * sizeof front->entries[0]);
    head->hash = attn__hash(head->hash, front->text, head->text_bytes);
}

static bool put(FILE *file, const void *bytes, uint64_t size)
{
    return size == 0 || fwrite(bytes, 1, size, file) == size;
}

static bool write_all(FILE *file, const struct front *front, const struct attn__call *call)
{
    static const unsigned char zeros[ATTN__RECORD_ALIGN];
    const struct attn__record_head *head = &front->head;
    uint64_t bytes, end = sizeof *head + head->parts * sizeof front->entries[0] + head->text_bytes;
    bool good = put(file, head, sizeof *head) &&
                put(file, front->entries, head->parts * sizeof front->entries[0]) &&
                put(file, front->text, head->text_bytes);

    for (uint32_t kind = 0; kind < ATTN__PARTS && good; kind++) {
        const struct attn__part *part = &call->parts[kind];
        if (part->form != ATTN__PART_BYTES)
            continue;
        good = attn__part_bytes(part, &bytes) && put(file, zeros, aligned(end) - end) &&
               put(file, part->bytes, bytes);
        end = aligned(end) + bytes;
    }
    return good;
}

int32_t attn__record_too_large(const char *name, uint64_t bytes, uint64_t left, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_SIZE, 0, "bytes",
                      "%s has %llu bytes, but bytes= of ATTN_RECORD leaves %llu; say more, or tensors=hash",
                      name, (unsigned long long)bytes, (unsigned long long)left);
}

static int32_t failed(const char *path, int number, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_IO, 0, "ATTN_RECORD", "%s: %s", path, strerror(number));
}

/* errno is of the first step that failed. */
static bool write_file(int fd, const struct front *front, const struct attn__call *call)
{
    struct attn__quiet quiet;
    FILE *file = fdopen(fd, "w");

    if (file == NULL) {
        const int number = errno;
        close(fd);
        errno = number;
        return false;
    }
    attn__quiet_begin(&quiet);
    bool good = write_all(file, front, call) && fflush(file) == 0;
    const int number = errno;
    good = fclose(file) == 0 && good;
    attn__quiet_end(&quiet);
    errno = number;
    return good;
}

int32_t attn__record_write(const struct attn__call *call, const char *path, uint64_t most,
                           uint64_t *out_bytes, struct attn_error *err)
{
    char temporary[PATH_MAX];
    struct front *front = calloc(1, sizeof *front);

    *out_bytes = 0;
    if (front == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "ATTN_RECORD", "no memory for the head of a record");
    fill(front, call);
    const uint64_t bytes = front->head.file_bytes;
    const int length = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int32_t status = ATTN_OK;
    if (bytes > most)
        status = attn__record_too_large("the file", bytes, most, err);
    else if (length < 0 || (size_t)length >= sizeof temporary)
        status = failed(path, ENAMETOOLONG, err);
    if (status == ATTN_OK) {
        const int fd = mkostemp(temporary, O_CLOEXEC);
        if (fd < 0) {
            status = failed(path, errno, err);
        } else if (!write_file(fd, front, call) || rename(temporary, path) != 0) {
            status = failed(path, errno, err);
            (void)unlink(temporary);
        }
    }
    if (status == ATTN_OK)
        *out_bytes = bytes;
    free(front);
    return status;
}
