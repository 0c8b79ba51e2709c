/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A stack of open objects and arrays over jansson. */
#include "jsonout.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "output.h"

enum { DEPTH = 12, SCHEMA_VERSION = 1 };

struct jsonout {
    json_t *open[DEPTH]; /* borrowed from their parents, but for the first */
    unsigned depth;
    bool failed;
};

struct jsonout *jsonout_create(const char *command)
{
    struct jsonout *json = need_memory(NULL, 1, sizeof *json);

    *json = (struct jsonout){.depth = 1};
    json->open[0] = json_object();
    json->failed = json->open[0] == NULL;
    jsonout_integer(json, "schema_version", SCHEMA_VERSION);
    jsonout_string(json, "libattn", attn_version());
    jsonout_string(json, "command", command);
    return json;
}

/* Takes the reference. */
static void add(struct jsonout *json, const char *key, json_t *value)
{
    json_t *parent = json->open[json->depth - 1];
    int status = key != NULL ? json_object_set_new(parent, key, value) : json_array_append_new(parent, value);

    if (status != 0)
        json->failed = true;
}

static void push(struct jsonout *json, const char *key, json_t *value)
{
    add(json, key, value);
    if (json->depth == DEPTH || json->failed) {
        complain("internal error: JSON nested too deeply, or out of memory");
        exit(EXIT_NO);
    }
    json->open[json->depth++] = value;
}

void jsonout_object(struct jsonout *json, const char *key)
{
    push(json, key, json_object());
}

void jsonout_array(struct jsonout *json, const char *key)
{
    push(json, key, json_array());
}

void jsonout_close(struct jsonout *json)
{
    json->depth--;
}

/* Bytes of the well-formed character at `text`, found by asking jansson, which is strict; 0 if there is none.
 */
static size_t character(const char *text, size_t left)
{
    for (size_t size = 1; size <= 4 && size <= left; size++) {
        json_t *value = json_stringn(text, size);
        if (value != NULL) {
            json_decref(value);
            return size;
        }
    }
    return 0;
}

static json_t *mended_string(const char *text)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t left = strlen(text), used = 0;
    char *mended = need_memory(NULL, left + 1, sizeof replacement);

    while (left > 0) {
        size_t size = character(text, left);
        memcpy(mended + used, size != 0 ? text : replacement, size != 0 ? size : sizeof replacement - 1);
        used += size != 0 ? size : sizeof replacement - 1;
        text += size != 0 ? size : 1;
        left -= size != 0 ? size : 1;
    }
    json_t *value = json_stringn(mended, used);
    free(mended);
    return value;
}

void jsonout_string(struct jsonout *json, const char *key, const char *value)
{
    json_t *string = value != NULL ? json_string(value) : json_null();

    add(json, key, string != NULL ? string : mended_string(value));
}

void jsonout_strings(struct jsonout *json, const char *key, const char *list, char separator)
{
    const char any[2] = {separator, '\0'};

    jsonout_array(json, key);
    while (*list != '\0') {
        size_t size = strcspn(list, any);
        char *piece = need_format("%.*s", (int)size, list);
        jsonout_string(json, NULL, piece);
        free(piece);
        list += size + (list[size] != '\0');
    }
    jsonout_close(json);
}

void jsonout_integer(struct jsonout *json, const char *key, int64_t value)
{
    add(json, key, json_integer(value));
}

void jsonout_real(struct jsonout *json, const char *key, double value)
{
    add(json, key, isfinite(value) ? json_real(value) : json_null());
}

void jsonout_bool(struct jsonout *json, const char *key, bool value)
{
    add(json, key, json_boolean(value));
}

bool jsonout_finish(struct jsonout *json, FILE *stream)
{
    bool good = !json->failed;

    if (good && stream != NULL) {
        good = json_dumpf(json->open[0], stream, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 ||
               ferror(stream) != 0; /* told by output_finish */
        fputc('\n', stream);
    }
    json_decref(json->open[0]);
    free(json);
    if (!good)
        complain("the JSON document could not be written");
    return good;
}
