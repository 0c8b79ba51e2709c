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
    [HEAD_DIMS] = {"head_dims", "head dims:", "head_dim"},
    [DTYPES] = {"dtypes", "q types:", "q"},
    [KV_DTYPES] = {"kv_dtypes", "kv types:", "kv"},
    [OUT_DTYPES] = {"out_dtypes", "out types:", "out"},
    [BLOCK_SIZES] = {"block_sizes", "blocks:", "block"},
    [ATTN_TYPES] = {"attn_types", "attn types:", "type"},
    [FEATURES] = {"features", "features:", NULL},
};

struct caps {
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

    *caps = (struct caps){0};
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

    fprintf(output_stream(), "  %-13s", title);
    output_wrap(15, 15, text[0] != '\0' ? text : "-");
    free(text);
}

static void print_text(const struct caps *caps, const struct attn_backend_record *backend)
{
    FILE *out = output_stream();

    fprintf(out, "%s%s%s\n", backend->name, backend->has_device ? " on " : ", without a device",
            backend->has_device ? backend->device_name : "");
    if (caps->problem[0] != '\0') {
        fputs("  ", out);
        output_wrap(2, 4, caps->problem);
        return;
    }
    for (unsigned i = 0; i < LISTS; i++)
        print_words(lists[i].text, &caps->lists[i]);
    const char *level = graph_level_name(caps->base.graph_level), *speed = speed_name(caps->base.speed);
    fprintf(out, "  %-13s%s\n", "graph level:", level != NULL ? level : "-");
    fprintf(out, "  %-13s%s\n", "speed:", speed != NULL ? speed : "-");
    print_words("generic:", &caps->generic);
}

static void print_json(struct jsonout *json, const struct caps *caps,
                       const struct attn_backend_record *backend)
{
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

static unsigned print_all(const struct info *info, const struct attn_report *report, struct jsonout *json)
{
    const struct attn_backend_record *backend;
    unsigned printed = 0;

    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        struct caps caps;
        if (!backend_can_be_asked(report, i) ||
            (info->arg_count > 0 && !backend_matches(info->args[0], backend->name)))
            continue;
        caps_init(&caps, info->context, backend);
        if (json != NULL) {
            print_json(json, &caps, backend);
        } else {
            fputs(printed > 0 ? "\n" : "", output_stream());
            print_text(&caps, backend);
        }
        caps_finish(&caps);
        printed++;
    }
    return printed;
}

int caps_command(const struct info *info)
{
    struct attn_report *report;
    struct jsonout *json = NULL;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    code = usable_or_missing(report);
    if (info->common.json) {
        json = jsonout_create("caps");
        jsonout_array(json, "backends");
    }
    unsigned printed = print_all(info, report, json);
    if (printed == 0 && info->arg_count > 0 && code == EXIT_YES) {
        complain("no backend called \"%s\" can be asked; attn-info list shows the names there are",
                 info->args[0]);
        code = EXIT_MISSING;
    }
    if (json != NULL) {
        jsonout_close(json);
        code = json_end(json, code);
    }
    attn_report_destroy(report);
    return code;
}
