/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info list: backends, then the files that are not in use. */
#include <stdlib.h>
#include <string.h>

#include "info.h"

/* True if the reason is the file's, which is told with the files. */
static bool is_told_of_file(const struct attn_report *report, const struct attn_backend_record *backend)
{
    const struct attn_file_record *file;

    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        if (strcmp(file->path, backend->file) == 0 && file->reason == backend->reason)
            return true;
    return false;
}

static bool same_reason(const struct attn_backend_record *a, const struct attn_backend_record *b)
{
    return b != NULL && a->reason == b->reason && strcmp(a->file, b->file) == 0 &&
           strcmp(a->text, b->text) == 0;
}

/* Backends of a file that lack the same thing are told together. */
static void print_absent_backends(const struct attn_report *report)
{
    const struct attn_backend_record *backend, *next;
    bool begun = false;

    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++) {
        if (backend->state == ATTN_BACKEND_READY || backend->reason == 0 || is_told_of_file(report, backend))
            continue;
        next = attn_report_get_backend(report, i + 1);
        fprintf(output_stream(), "%s%s", begun ? ", " : "\n", backend->name);
        begun = same_reason(backend, next);
        if (begun)
            continue;
        fputc('\n', output_stream());
        print_reason("  ", backend->reason, backend->text);
        fputs("  advice: ", output_stream());
        output_wrap(10, 4, backend->advice);
    }
}

/* Files whose backends did not get into the table, and files that loaded with a remark. */
static void print_files(const struct info *info, const struct attn_report *report)
{
    const struct attn_file_record *file;

    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++) {
        if (file->reason == 0)
            continue;
        fprintf(output_stream(), "\n%s (%s)\n", output_shown(file->path),
                file->stage == ATTN_STAGE_READY             ? "usable, with a remark"
                : attn_reason_is_absence(file->reason) != 0 ? "not in use"
                                                            : "refused");
        print_reason("  ", file->reason, stable_text(info, file->text));
        if (text_or_null(file->linker) != NULL) {
            fputs("  linker: ", output_stream());
            output_wrap(10, 4, file->linker);
        }
        if (text_or_null(file->advice) != NULL) {
            fputs("  advice: ", output_stream());
            output_wrap(10, 4, file->advice);
        }
    }
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
    if (info->common.json) {
        code = print_json(info, report, code);
    } else {
        print_backend_table(report);
        print_absent_backends(report);
        print_files(info, report);
    }
    attn_report_destroy(report);
    return code;
}
