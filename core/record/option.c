/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The value of ATTN_RECORD. */
#include <stdio.h>

#include "record/recorder.h"

enum { CALLS = 100 };
#define BYTES (UINT64_C(1) << 30)

static bool refuse(char *problem, size_t size, const char *option, size_t length, const char *accepted)
{
    snprintf(problem, size, "\"%.*s\": %s is accepted", (int)(length < 64 ? length : 64), option, accepted);
    return false;
}

/* A number above 0, with K, M or G for as many bytes. */
static bool parse_number(const char *text, size_t length, bool units, uint64_t least, uint64_t *out)
{
    uint64_t number = 0;
    uint32_t shift = 0;

    if (units && length > 1) {
        const char *unit = strchr("KMG", text[length - 1]);
        if (unit != NULL && *unit != '\0') {
            shift = 10 * (uint32_t)(1 + (*unit == 'M') + 2 * (*unit == 'G'));
            length--;
        }
    }
    if (length == 0 || length > 12)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    *out = number << shift;
    return number >= least && *out >> shift == number;
}

/* Whether an option has this name; *value and *length are then what follows. */
static bool is_option(const char *option, size_t size, const char *name, const char **value, size_t *length)
{
    const size_t name_length = strlen(name);

    if (size < name_length || memcmp(option, name, name_length) != 0)
        return false;
    *value = option + name_length;
    *length = size - name_length;
    return true;
}

static bool parse_option(const char *option, size_t size, struct attn__record_option *out, char *problem,
                         size_t problem_size)
{
    const char *value;
    size_t length;

    if (is_option(option, size, "calls=", &value, &length))
        return parse_number(value, length, false, 1, &out->calls) ||
               refuse(problem, problem_size, option, size, "calls= with a number from 1");
    if (is_option(option, size, "skip=", &value, &length))
        return parse_number(value, length, false, 0, &out->skip) ||
               refuse(problem, problem_size, option, size, "skip= with a number");
    if (is_option(option, size, "bytes=", &value, &length))
        return parse_number(value, length, true, 1, &out->bytes) ||
               refuse(problem, problem_size, option, size,
                      "bytes= with a number from 1, which K, M or G may follow");
    if (is_option(option, size, "tensors=", &value, &length)) {
        out->hash = length == 4 && memcmp(value, "hash", 4) == 0;
        return out->hash || (length == 4 && memcmp(value, "full", 4) == 0) ||
               refuse(problem, problem_size, option, size, "tensors=full or tensors=hash");
    }
    return refuse(problem, problem_size, option, size, "calls=, skip=, bytes= or tensors=");
}

bool attn__record_parse(const char *value, struct attn__record_option *out, char *problem, size_t size)
{
    *out = (struct attn__record_option){.directory = strcspn(value, ","), .calls = CALLS, .bytes = BYTES};
    if (value[0] != '/')
        return refuse(problem, size, value, out->directory, "an absolute path");
    for (const char *p = value + out->directory; *p == ',';) {
        const size_t length = strcspn(p + 1, ",");
        if (!parse_option(p + 1, length, out, problem, size))
            return false;
        p += 1 + length;
    }
    return true;
}
