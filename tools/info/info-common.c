/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports, names and parts of JSON that several commands of attn-info need. */
#include "info.h"

#include <stdlib.h>
#include <string.h>

#include "core.h"

int report_everything(const struct info *info, struct attn_report **out)
{
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_load_all(info->context, &err) != ATTN_OK ||
        attn_context_get_report(info->context, out, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    return EXIT_YES;
}

int usable_or_missing(const struct attn_report *report)
{
    const struct attn_file_record *file;
    uint32_t count = 0;

    for (; (file = attn_report_get_file(report, count)) != NULL; count++) {
        bool untried = file->reason == ATTN_REASON_NOT_REQUESTED ||
                       file->reason == ATTN_REASON_DISABLED_BY_USER || file->reason == ATTN_REASON_NOT_ASKED;
        if (file->stage == ATTN_STAGE_READY || untried)
            return EXIT_YES;
    }
    if (count == 0)
        complain("no plugin was found; attn-info path shows where they are looked for");
    else
        complain("%u plugin file%s tried, none is usable", count, count == 1 ? " was" : "s were");
    return EXIT_MISSING;
}

const char *reason_or_null(uint32_t reason)
{
    return reason != 0 ? attn_reason_name(reason) : NULL;
}

const char *stable_text(const struct info *info, const char *text)
{
    static const char pattern[] = "0000-00-00 00:00:00", word[] = "(time)";
    static char kept[1024];
    size_t length = sizeof pattern - 1, used = 0;

    if (!info->stable || text == NULL)
        return text;
    while (*text != '\0' && used + sizeof word < sizeof kept) {
        size_t same = 0;
        while (same < length &&
               (pattern[same] == '0' ? text[same] >= '0' && text[same] <= '9' : text[same] == pattern[same]))
            same++;
        if (same == length) {
            memcpy(kept + used, word, sizeof word - 1);
            used += sizeof word - 1;
            text += length;
        } else {
            kept[used++] = *text++;
        }
    }
    kept[used] = '\0';
    return kept;
}

const char *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

const char *class_name(uint32_t device_class)
{
    switch (device_class) {
    case ATTN_CLASS_ACCELERATOR:
        return "accelerator";
    case ATTN_CLASS_PORTABLE_ACCELERATOR:
        return "portable-accelerator";
    case ATTN_CLASS_CPU:
        return "cpu";
    case ATTN_CLASS_PORTABLE_CPU:
        return "portable-cpu";
    default:
        return NULL;
    }
}

const char *speed_name(uint32_t speed)
{
    return speed == ATTN_SPEED_OPTIMISED ? "optimised" : speed == ATTN_SPEED_GENERIC ? "generic" : NULL;
}

const char *graph_level_name(uint32_t graph_level)
{
    switch (graph_level) {
    case ATTN_GRAPH_NEVER:
        return "never";
    case ATTN_GRAPH_SINGLE:
        return "single";
    case ATTN_GRAPH_UNIFORM:
        return "uniform";
    case ATTN_GRAPH_ALWAYS:
        return "always";
    default:
        return NULL;
    }
}

const char *cpu_level_name(uint32_t cpu_level)
{
    switch (cpu_level) {
    case ATTN_CPU_BASELINE:
        return "baseline";
    case ATTN_CPU_X86_64_V2:
        return "x86-64-v2";
    case ATTN_CPU_X86_64_V3:
        return "x86-64-v3";
    case ATTN_CPU_X86_64_V4:
        return "x86-64-v4";
    default:
        return NULL;
    }
}

char *vendor_of(const char *name)
{
    return need_format("%.*s", (int)strcspn(name, "/"), name);
}

bool backend_matches(const char *wanted, const char *name)
{
    const char *slash = strchr(name, '/');
    char *vendor = vendor_of(name);
    bool same = attn__same_name(wanted, name) || attn__same_name(wanted, vendor) ||
                (slash != NULL && attn__same_name(wanted, slash + 1));

    free(vendor);
    return same;
}

bool backend_can_be_asked(const struct attn_report *report, uint32_t index)
{
    const struct attn_backend_record *backend = attn_report_get_backend(report, index);

    if (backend->state != ATTN_BACKEND_READY && backend->state != ATTN_BACKEND_NO_DEVICE)
        return false;
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(attn_report_get_backend(report, i)->name, backend->name) == 0)
            return false;
    return true;
}

int json_end(struct jsonout *json, int code)
{
    return jsonout_finish(json, output_stream()) ? code : EXIT_NO;
}

void json_reason(struct jsonout *json, uint32_t reason, const char *text, const char *advice)
{
    jsonout_string(json, "reason", reason_or_null(reason));
    jsonout_string(json, "text", reason != 0 ? text_or_null(text) : NULL);
    jsonout_string(json, "advice", reason != 0 ? text_or_null(advice) : NULL);
}

static void json_note(struct jsonout *json, const struct attn_file_record *file)
{
    char *abi = need_format("%u.%u", file->abi_major, file->abi_minor);

    jsonout_object(json, "note");
    jsonout_string(json, "name", file->name);
    jsonout_string(json, "maker", file->vendor);
    jsonout_string(json, "version", file->version);
    jsonout_string(json, "abi", abi);
    jsonout_strings(json, "backends", file->backends, ',');
    jsonout_string(json, "device_class", class_name(file->device_class));
    jsonout_string(json, "cpu_level", cpu_level_name(file->cpu_level));
    jsonout_close(json);
    free(abi);
}

void json_file(const struct info *info, struct jsonout *json, const struct attn_file_record *file)
{
    jsonout_object(json, NULL);
    jsonout_string(json, "path", file->path);
    jsonout_string(json, "stage", attn_stage_name(file->stage));
    json_reason(json, file->reason, stable_text(info, file->text), file->advice);
    if (text_or_null(file->linker) != NULL)
        jsonout_string(json, "linker", file->linker);
    if (text_or_null(file->library) != NULL)
        jsonout_string(json, "library", file->library);
    if (file->signal != 0)
        jsonout_integer(json, "signal", file->signal);
    if (!info->stable)
        jsonout_integer(json, "microseconds", (int64_t)file->microseconds);
    if (text_or_null(file->name) != NULL)
        json_note(json, file);
    jsonout_close(json);
}

void json_backend(const struct info *info, struct jsonout *json, const struct attn_backend_record *backend)
{
    char *vendor = vendor_of(backend->name);

    jsonout_object(json, NULL);
    jsonout_string(json, "name", backend->name);
    jsonout_string(json, "vendor", vendor);
    jsonout_string(json, "flavour", backend->flavour);
    jsonout_string(json, "maker", text_or_null(backend->vendor));
    jsonout_string(json, "state", attn_backend_state_name(backend->state));
    jsonout_string(json, "device", backend->has_device ? backend->device_name : NULL);
    jsonout_string(json, "device_class", class_name(backend->device_class));
    jsonout_string(json, "file", backend->file);
    json_reason(json, backend->reason, stable_text(info, backend->text), backend->advice);
    jsonout_close(json);
    free(vendor);
}
