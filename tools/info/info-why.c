/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info why: everything known about one plugin file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "info.h"

static void print_line(const char *name, const char *value)
{
    if (text_or_null(value) == NULL)
        return;
    int column = fprintf(output_stream(), "  %-14s", name);
    output_wrap((unsigned)column, (unsigned)column, value);
}

static void print_note(const struct attn_file_record *file)
{
    char *abi = need_format("%u.%u (this library: %d.%d)", file->abi_major, file->abi_minor, ATTN_ABI_MAJOR,
                            ATTN_ABI_MINOR);

    print_line("name:", file->name);
    print_line("maker:", file->vendor);
    print_line("version:", file->version);
    print_line("interface:", abi);
    print_line("backends:", file->backends);
    print_line("device class:", class_name(file->device_class));
    print_line("CPU level:", cpu_level_name(file->cpu_level));
    free(abi);
}

static void print_text(const struct info *info, const struct attn_report *report)
{
    const struct attn_file_record *file;

    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++) {
        bool usable = file->stage == ATTN_STAGE_READY;
        fprintf(output_stream(), "%s\n", output_shown(file->path));
        print_line("result:", usable ? "usable" : "not usable");
        print_line("stage:", attn_stage_name(file->stage));
        print_line("reason:", reason_or_null(file->reason));
        print_line("text:", stable_text(info, file->text));
        print_line("advice:", file->advice);
        print_line("linker:", file->linker);
        print_line("library:", file->library);
        if (file->signal != 0)
            print_line("signal:", strsignal((int)file->signal));
        if (!info->stable) {
            char *time = need_format("%" PRIu64 " us", file->microseconds);
            print_line("time:", time);
            free(time);
        }
        if (text_or_null(file->name) != NULL)
            print_note(file);
    }
    if (attn_report_get_backend(report, 0) != NULL) {
        fputc('\n', output_stream());
        print_backend_table(report);
    }
}

static int print_json(const struct info *info, const struct attn_report *report, int code)
{
    struct jsonout *json = jsonout_create("why");
    const struct attn_file_record *file;
    const struct attn_backend_record *backend;

    jsonout_array(json, "files");
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        json_file(info, json, file);
    jsonout_close(json);
    jsonout_array(json, "backends");
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++)
        json_backend(info, json, backend);
    jsonout_close(json);
    return json_end(json, code);
}

int why_command(const struct info *info)
{
    struct attn_report *report = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_inspect(info->context, info->args[0], &report, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    const struct attn_file_record *file = attn_report_get_file(report, 0);
    int code = file != NULL && file->stage == ATTN_STAGE_READY ? EXIT_YES : EXIT_NO;
    if (info->common.json)
        code = print_json(info, report, code);
    else
        print_text(info, report);
    attn_report_destroy(report);
    return code;
}
