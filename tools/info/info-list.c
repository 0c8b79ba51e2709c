/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info list: plugin files with their backends, and why a file or backend is not in use. */
#include <stdlib.h>
#include <string.h>

#include "info.h"

static const char *file_state(const struct attn_file_record *file)
{
    if (file->reason == 0)
        return "";
    return file->stage == ATTN_STAGE_READY             ? " (usable, with a remark)"
           : attn_reason_is_absence(file->reason) != 0 ? " (not in use)"
                                                       : " (refused)";
}

/* True if the backend lacks something, which is not told of its whole file. */
static bool lacks(const struct attn_backend_record *backend, const struct attn_file_record *file)
{
    return strcmp(backend->file, file->path) == 0 && backend->state != ATTN_BACKEND_READY &&
           backend->reason != 0 && backend->reason != file->reason;
}

static bool same_reason(const struct attn_backend_record *a, const struct attn_backend_record *b)
{
    return a->reason == b->reason && strcmp(a->text, b->text) == 0;
}

/* What backends of a file lack; those that lack the same thing are named once, and not at all if they are
 * all that the file has. */
static void print_missing(const struct attn_report *report, const struct attn_file_record *file)
{
    const struct attn_backend_record *backend, *other;

    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        bool told = false, all = true;
        char *names = need_copy("");
        for (uint32_t j = 0; (other = attn_report_get_backend(report, j)) != NULL; j++) {
            bool same = lacks(other, file) && same_reason(other, backend);
            told = told || (same && j < i);
            all = all && (same || strcmp(other->file, file->path) != 0);
            if (!same)
                continue;
            char *longer = need_format("%s%s%s", names, names[0] != '\0' ? ", " : "", other->name);
            free(names);
            names = longer;
        }
        if (lacks(backend, file) && !told) {
            char *lead = need_format("  %s%s", all ? "" : output_shown(names), all ? "" : ": ");
            print_reason(lead, backend->reason, backend->text);
            print_advice(backend->advice);
            free(lead);
        }
        free(names);
    }
}

static void print_file(const struct info *info, const struct attn_report *report,
                       const struct attn_file_record *file, const struct widths *widths)
{
    const char *state = file_state(file);
    int column = fprintf(output_stream(), "\n%s", output_shown(file->path)) - 1;

    if (column + (int)strlen(state) > (int)output_columns())
        fputs("\n ", output_stream());
    fprintf(output_stream(), "%s\n", state);
    print_backends_of(report, file->path, widths);
    print_missing(report, file);
    if (file->reason == 0)
        return;
    print_reason("  ", file->reason, stable_text(info, file->text));
    if (text_or_null(file->linker) != NULL) {
        fputs("  linker: ", output_stream());
        output_wrap(10, 4, file->linker);
    }
    print_advice(file->advice);
}

static void print_text(const struct info *info, const struct attn_report *report)
{
    const struct attn_file_record *file;
    struct widths widths;

    backend_widths(report, &widths);
    print_backend_titles(&widths);
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        print_file(info, report, file, &widths);
}

static int print_json(const struct info *info, const struct attn_report *report, int code)
{
    struct jsonout *json = jsonout_create(info->command);
    const struct attn_backend_record *backend;
    const struct attn_file_record *file;

    jsonout_array(json, "backends");
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++)
        json_backend(info, json, backend);
    jsonout_close(json);
    jsonout_array(json, "files");
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        json_file(info, json, file);
    jsonout_close(json);
    return json_end(json, code);
}

int list_command(const struct info *info)
{
    struct attn_report *report;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    code = usable_or_missing(report);
    if (info->common.json)
        code = print_json(info, report, code);
    else
        print_text(info, report);
    attn_report_destroy(report);
    return code;
}
