/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads a whole file, then cuts it into lines and checks each. */
#include "prompts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the well-formed character at the front of a text of so many bytes; 0: there is none. */
static size_t character(const unsigned char *text, size_t size)
{
    static const unsigned char least_second[] = {[0x00] = 0xa0, [0x10] = 0x90}; /* of E0 and F0 */
    unsigned char lead = text[0];
    size_t length = lead < 0x80   ? 1
                    : lead < 0xc2 ? 0
                    : lead < 0xe0 ? 2
                    : lead < 0xf0 ? 3
                    : lead < 0xf5 ? 4
                                  : 0;
    if (lead == 0 || length > size)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((lead == 0xe0 || lead == 0xf0) && text[1] < least_second[lead - 0xe0])
        return 0;
    if ((lead == 0xed && text[1] > 0x9f) || (lead == 0xf4 && text[1] > 0x8f))
        return 0; /* surrogates, and what lies beyond the last character */
    return length;
}

/* All bytes with a zero behind them. */
static int read_all(const char *path, struct prompts *out, size_t *out_size, struct failure *err)
{
    FILE *file = fopen(path, "rbe");
    size_t room = 0;
    size_t size = 0;
    char *bytes = NULL;
    if (!file) {
        out->missing = errno == ENOENT || errno == ENOTDIR;
        return failure_set(err, "--batch %.300s: %s", path, strerror(errno));
    }
    do {
        room = room ? 2 * room : 4096;
        char *more = realloc(bytes, room);
        if (!more) {
            free(bytes);
            fclose(file);
            return failure_set(err, "--batch %.300s: no memory for %zu bytes", path, room);
        }
        bytes = more;
        size += fread(bytes + size, 1, room - 1 - size, file);
    } while (size == room - 1 && size <= PROMPTS_MOST_BYTES);
    int error = ferror(file) ? errno : 0;
    fclose(file);
    bytes[size] = 0;
    out->memory = bytes;
    *out_size = size;
    if (error)
        return failure_set(err, "--batch %.300s: %s", path, strerror(error));
    if (size > PROMPTS_MOST_BYTES)
        return failure_set(err, "--batch %.300s: more than %d bytes of prompts; accepted are up to as many",
                           path, PROMPTS_MOST_BYTES);
    return 0;
}

static int check_line(const char *path, const struct prompt *prompt, size_t size, struct failure *err)
{
    const unsigned char *text = (const unsigned char *)prompt->text;
    for (size_t i = 0, length; i < size; i += length) {
        length = character(text + i, size - i);
        if (length == 0)
            return failure_set(err,
                               "--batch %.300s: line %" PRIu32
                               ", byte %zu is 0x%02x; accepted is text in UTF-8, one "
                               "prompt on each line",
                               path, prompt->line, i + 1, text[i]);
    }
    return 0;
}

static int add(struct prompts *p, const struct prompt *prompt, struct failure *err)
{
    if ((p->count & (p->count - 1)) == 0) { /* full: rooms are powers of two */
        size_t room = p->count ? 2 * (size_t)p->count : 1;
        struct prompt *more = realloc(p->list, room * sizeof *more);
        if (!more)
            return failure_set(err, "no memory for %zu prompts", room);
        p->list = more;
    }
    p->list[p->count++] = *prompt;
    return 0;
}

static int cut(const char *path, char *text, size_t size, struct prompts *out, struct failure *err)
{
    uint32_t line = 1;
    for (char *end; size; text = end, line++) {
        char *stop = memchr(text, '\n', size);
        struct prompt prompt = {text, line};
        size_t length = stop ? (size_t)(stop - text) : size;
        end = text + length + (stop != NULL);
        size -= length + (stop != NULL);
        if (length && text[length - 1] == '\r')
            length--;
        if (check_line(path, &prompt, length, err) < 0)
            return -1;
        text[length] = 0;
        if (text[strspn(text, " \t\r\v\f")] && add(out, &prompt, err) < 0)
            return -1;
    }
    return 0;
}

static int read_lines(const char *path, struct prompts *out, struct failure *err)
{
    size_t size = 0;
    if (read_all(path, out, &size, err) < 0)
        return -1;
    size_t mark = size >= 3 && memcmp(out->memory, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (cut(path, out->memory + mark, size - mark, out, err) < 0)
        return -1;
    if (!out->count)
        return failure_set(
            err, "--batch %.300s: there is no prompt in it; accepted is text, one prompt on each line", path);
    return 0;
}

int prompts_read(const char *path, struct prompts *out, struct failure *err)
{
    *out = (struct prompts){0};
    int status = read_lines(path, out, err);
    if (status < 0)
        prompts_finish(out);
    return status;
}

int prompts_repeat(const char *text, uint32_t count, struct prompts *out, struct failure *err)
{
    const struct prompt prompt = {text, 0};
    *out = (struct prompts){0};
    for (uint32_t i = 0; i < count; i++)
        if (add(out, &prompt, err) < 0) {
            prompts_finish(out);
            return -1;
        }
    return 0;
}

void prompts_finish(struct prompts *p)
{
    free(p->list);
    free(p->memory);
    *p = (struct prompts){.missing = p->missing};
}
