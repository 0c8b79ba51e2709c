/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The fields of a record as lines of text, "name=value" in the order of field.def. */
#include "record/record.h"

#include <inttypes.h>
#include <stdio.h>

#include "fail.h"
#include "show.h"

static const struct field {
    const char *name;
    size_t offset;
    size_t size; /* of a text; 0 = a number */
    uint64_t least, most;
} fields[] = {
#define ATTN_RECORD_TEXT(name, size)     {#name, offsetof(struct attn__call, name), size, 0, 0},
#define ATTN_RECORD_NUMBER(name, lo, hi) {#name, offsetof(struct attn__call, name), 0, lo, hi},
#include "record/field.def"
};

size_t attn__fields_write(const struct attn__call *call, char *text)
{
    size_t used = 0;

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *at = (const char *)call + fields[i].offset;
        uint64_t number = 0;
        if (fields[i].size == 0)
            memcpy(&number, at, sizeof number);
        used += (size_t)(fields[i].size != 0
                             ? snprintf(text + used, ATTN__RECORD_TEXT - used, "%s=%s\n", fields[i].name, at)
                             : snprintf(text + used, ATTN__RECORD_TEXT - used, "%s=%" PRIu64 "\n",
                                        fields[i].name, number));
    }
    return used;
}

static int32_t bad_line(const struct field *field, const char *line, size_t size, struct attn_error *err)
{
    char shown[96], copy[64];

    snprintf(copy, sizeof copy, "%.*s", (int)(size < sizeof copy ? size : sizeof copy - 1), line);
    attn__show(copy, shown, sizeof shown);
    if (field->size != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, field->name,
                          "the record's field %s is in the line \"%s\"; accepted: %s=TEXT of less than %zu "
                          "printable bytes",
                          field->name, shown, field->name, field->size);
    return attn__fail(err, ATTN_E_INVALID, 0, field->name,
                      "the record's field %s is in the line \"%s\"; accepted: %s=NUMBER from %" PRIu64
                      " to %" PRIu64,
                      field->name, shown, field->name, field->least, field->most);
}

/* A decimal number without signs, spaces and leading zeros. */
static bool read_number(const char *text, size_t size, const struct field *field, uint64_t *out)
{
    uint64_t number = 0;

    if (size == 0 || (size > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < size; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    *out = number;
    return number >= field->least && number <= field->most;
}

static bool read_field(const struct field *field, const char *line, size_t size, struct attn__call *call)
{
    const size_t name = strlen(field->name);
    char *to = (char *)call + field->offset;
    uint64_t number;

    if (size <= name || memcmp(line, field->name, name) != 0 || line[name] != '=')
        return false;
    const char *value = line + name + 1;
    const size_t length = size - name - 1;
    if (field->size == 0) {
        if (!read_number(value, length, field, &number))
            return false;
        memcpy(to, &number, sizeof number);
        return true;
    }
    if (length >= field->size || memchr(value, '\0', length) != NULL)
        return false;
    memcpy(to, value, length);
    to[length] = '\0';
    return attn__is_printable(to);
}

int32_t attn__fields_read(const char *text, size_t size, struct attn__call *call, struct attn_error *err)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *end = memchr(text, '\n', size);
        const size_t line = end != NULL ? (size_t)(end - text) : size;
        if (end == NULL || !read_field(&fields[i], text, line, call))
            return bad_line(&fields[i], text, line, err);
        text += line + 1;
        size -= line + 1;
    }
    return size == 0 ? ATTN_OK
                     : attn__fail(err, ATTN_E_INVALID, 0, "text_bytes",
                                  "%zu bytes follow the record's last field; accepted: none", size);
}
