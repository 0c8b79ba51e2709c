/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info caps: what each backend serves, computed from its own answers. */
#include <stdlib.h>
#include <string.h>

#include "capability.h"
#include "info.h"

/* Lines of the text and keys of the JSON object. */
enum { HEAD_DIMS, DTYPES, KV_DTYPES, OUT_DTYPES, BLOCK_SIZES, ATTN_TYPES, FEATURES, LISTS };
static const struct {
    const char *json;
    const char *text;
    const char *key; /* NULL: all other keys */
} lists[LISTS] = {
    [HEAD_DIMS] = {"head_dims", "head dims", "head_dim"},
    [DTYPES] = {"dtypes", "q types", "q"},
    [KV_DTYPES] = {"kv_dtypes", "kv types", "kv"},
    [OUT_DTYPES] = {"out_dtypes", "out types", "out"},
    [BLOCK_SIZES] = {"block_sizes", "block sizes", "block"},
    [ATTN_TYPES] = {"attn_types", "attn types", "type"},
    [FEATURES] = {"features", "features", NULL},
};

struct caps {
    const struct attn_backend_record *backend;
    struct words lists[LISTS];
    struct words generic; /* of all lists: what generic kernels serve */
    struct answer base;
    char problem[sizeof((struct attn_error *)NULL)->message]; /* why nothing could be found out, or "" */
};

static void caps_init(struct caps *caps, struct attn_context *context,
                      const struct attn_backend_record *backend)
{
    struct subject subject;
    struct attn_error err;

    *caps = (struct caps){.backend = backend};
    ATTN_INIT(&err);
    if (!subject_init(&subject, context, backend->name, backend->has_device ? &backend->device : NULL,
                      &err)) {
        snprintf(caps->problem, sizeof caps->problem, "%s",
                 err.message[0] != '\0' ? err.message : "it serves none of the usual problems");
        return;
    }
    subject_serves(&subject, "", &caps->base);
    for (unsigned i = 0; i < LISTS; i++)
        if (lists[i].key != NULL)
            subject_values(&subject, lists[i].key, &caps->lists[i], &caps->generic);
        else
            subject_features(&subject, &caps->lists[i], &caps->generic);
}

static void caps_finish(struct caps *caps)
{
    for (unsigned i = 0; i < LISTS; i++)
        words_finish(&caps->lists[i]);
    words_finish(&caps->generic);
}

static void print_words(const char *title, const struct words *words)
{
    char *text = words_join(words);

    print_field(title, text[0] != '\0' ? text : "-");
    free(text);
}

static bool same_words(const struct words *a, const struct words *b)
{
    bool same = a->count == b->count;

    for (unsigned i = 0; i < a->count && same; i++)
        same = strcmp(a->items[i], b->items[i]) == 0;
    return same;
}

/* True if both answered alike to every question. */
static bool same_caps(const struct caps *a, const struct caps *b)
{
    bool same = a->base.graph_level == b->base.graph_level && a->base.speed == b->base.speed &&
                strcmp(a->problem, b->problem) == 0 && same_words(&a->generic, &b->generic);

    for (unsigned i = 0; i < LISTS && same; i++)
        same = same_words(&a->lists[i], &b->lists[i]);
    return same;
}

static void print_lists(const struct caps *caps)
{
    if (caps->problem[0] != '\0') {
        fputs("  ", output_stream());
        output_wrap(2, 4, caps->problem);
        return;
    }
    for (unsigned i = 0; i < LISTS; i++)
        print_words(lists[i].text, &caps->lists[i]);
    const char *level = graph_level_name(caps->base.graph_level), *speed = speed_name(caps->base.speed);
    print_field("graph level", level != NULL ? level : "-");
    print_field("speed", speed != NULL ? speed : "-");
    print_words("generic", &caps->generic);
}

/* One block for all that are alike. */
static void print_text(const struct caps *caps, unsigned count)
{
    struct place *places = need_memory(NULL, count, sizeof *places);

    for (unsigned i = 0, printed = 0; i < count; i++) {
        unsigned alike = 0;
        bool told = false;
        for (unsigned j = 0; j < count && !told; j++) {
            const struct attn_backend_record *backend = caps[j].backend;
            if (!same_caps(&caps[i], &caps[j]))
                continue;
            told = j < i;
            places[alike++] =
                (struct place){backend->name, backend->has_device ? backend->device_name : NULL};
        }
        if (told)
            continue;
        char *names = places_text(places, alike);
        char *title = need_format("%s%s", names, places[0].device == NULL ? ", without a device" : "");
        fputs(printed++ > 0 ? "\n" : "", output_stream());
        output_wrap(0, 2, title);
        print_lists(&caps[i]);
        free(title);
        free(names);
    }
    free(places);
}

static void print_json(struct jsonout *json, const struct caps *caps)
{
    const struct attn_backend_record *backend = caps->backend;

    jsonout_object(json, NULL);
    jsonout_string(json, "name", backend->name);
    jsonout_string(json, "device", backend->has_device ? backend->device_name : NULL);
    for (unsigned i = 0; i < LISTS; i++) {
        jsonout_array(json, lists[i].json);
        for (unsigned j = 0; j < caps->lists[i].count; j++)
            jsonout_string(json, NULL, caps->lists[i].items[j]);
        jsonout_close(json);
    }
    jsonout_string(json, "graph_level", graph_level_name(caps->base.graph_level));
    jsonout_string(json, "speed", speed_name(caps->base.speed));
    jsonout_array(json, "generic");
    for (unsigned i = 0; i < caps->generic.count; i++)
        jsonout_string(json, NULL, caps->generic.items[i]);
    jsonout_close(json);
    jsonout_string(json, "problem", text_or_null(caps->problem));
    jsonout_close(json);
}

/* Asks every backend that is wanted; the caller finishes and frees *out. */
static unsigned ask_all(const struct info *info, const struct attn_report *report, struct caps **out)
{
    const struct attn_backend_record *backend;
    unsigned count = 0;

    *out = NULL;
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (!backend_can_be_asked(report, i) ||
            (info->arg_count > 0 && !backend_matches(info->args[0], backend->name)))
            continue;
        *out = need_memory(*out, (size_t)count + 1, sizeof **out);
        caps_init(&(*out)[count++], info->context, backend);
    }
    return count;
}

static int print_document(const struct caps *caps, unsigned count, int code)
{
    struct jsonout *json = jsonout_create("caps");

    jsonout_array(json, "backends");
    for (unsigned i = 0; i < count; i++)
        print_json(json, &caps[i]);
    jsonout_close(json);
    return json_end(json, code);
}

int caps_command(const struct info *info)
{
    struct attn_report *report;
    struct caps *caps;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    code = usable_or_missing(report);
    unsigned count = ask_all(info, report, &caps);
    if (count == 0 && info->arg_count > 0 && code == EXIT_YES) {
        complain("no backend called \"%s\" can be asked; attn-info list shows the names there are",
                 info->args[0]);
        code = EXIT_MISSING;
    }
    if (info->common.json)
        code = print_document(caps, count, code);
    else
        print_text(caps, count);
    for (unsigned i = 0; i < count; i++)
        caps_finish(&caps[i]);
    free(caps);
    attn_report_destroy(report);
    return code;
}
