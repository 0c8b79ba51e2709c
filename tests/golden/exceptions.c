/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Recorded exceptions against statuses and texts. */
#include <stdio.h>
#include <string.h>

#include "device.h"

const json_t *golden_exception(const json_t *value)
{
    const json_t *inside = json_object_get(value, "exception");

    if (json_is_object(inside))
        return inside;
    return json_is_string(json_object_get(value, "error")) ? value : NULL;
}

static int32_t status_of(const char *error)
{
    static const char *const invalid[] = {"ValueError", "AssertionError", "IndexError",  "KeyError",
                                          "TypeError",  "AttributeError", "RuntimeError"};

    if (strcmp(error, "NotImplementedError") == 0)
        return ATTN_E_UNSUPPORTED;
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        if (strcmp(error, invalid[i]) == 0)
            return ATTN_E_INVALID;
    return ATTN_OK;
}

/* Texts of the language and its libraries, not of the original. */
static bool is_foreign(const char *error, const char *text)
{
    static const char *const classes[] = {"TypeError", "RuntimeError", "IndexError", "KeyError"};
    static const char *const starts[] = {"max() iterable", "max() arg", "could not broadcast"};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strcmp(error, classes[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(text, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

/* Several arguments of one exception are one sentence. */
static void join(const json_t *args, char *out, size_t size)
{
    size_t used = 0;
    size_t i;
    json_t *part;

    out[0] = '\0';
    json_array_foreach(args, i, part)
    {
        const char *text = json_string_value(part);
        if (text != NULL && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", i == 0 ? "" : " ", text);
    }
}

void golden_check_exception(struct golden *g, const json_t *exception, int32_t status,
                            const struct attn_error *err)
{
    const char *error = golden_text(exception, "error", "");
    int32_t wanted = status_of(error);
    char text[sizeof err->message];

    if (wanted == ATTN_OK) {
        golden_differ(g, "the recorded exception %s is not known", error);
        return;
    }
    if (status != wanted) {
        golden_differ(g, "the status is %s, recorded is %s", attn_status_name(status), error);
        return;
    }
    join(json_object_get(exception, "args"), text, sizeof text);
    if (err->status != status || err->message[0] == '\0')
        golden_differ(g, "%s came without a text", attn_status_name(status));
    else if (!is_foreign(error, text) && strncmp(golden_message(err), text, strlen(text)) != 0)
        golden_differ(g, "the text is \"%s\", recorded is \"%s\"", err->message, text);
}

bool golden_ok(struct golden *g, const char *what, int32_t status, const struct attn_error *err)
{
    if (status != ATTN_OK)
        golden_differ(g, "%s: %s: %s", what, attn_status_name(status), err->message);
    return status == ATTN_OK;
}
