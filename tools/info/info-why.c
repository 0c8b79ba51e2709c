/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info why: everything known about one plugin file. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "info.h"

/* "a,b" as "a, b", which can be broken; free it. */
static char *spaced_list(const char *list)
{
    char *text = need_memory(NULL, 2 * strlen(list) + 1, 1), *to = text;

    for (; *list != '\0'; list++) {
        *to++ = *list;
        if (*list == ',')
            *to++ = ' ';
    }
    *to = '\0';
    return text;
}

static void print_note(const struct attn_file_record *file)
{
    char *abi = need_format("%u.%u (this library: %d.%d)", file->abi_major, file->abi_minor, ATTN_ABI_MAJOR,
                            ATTN_ABI_MINOR);
    char *backends = spaced_list(file->backends);

    print_field("name", file->name);
    print_field("maker", file->vendor);
    print_field("version", file->version);
    print_field("interface", abi);
    print_field("backends", backends);
    print_field("device class", class_name(file->device_class));
    print_field("CPU level", cpu_level_name(file->cpu_level));
    free(backends);
    free(abi);
}

static void print_text(const struct info *info, const struct attn_report *report)
{
    const struct attn_file_record *file;
    struct widths widths;

    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++) {
        bool usable = file->stage == ATTN_STAGE_READY;
        fprintf(output_stream(), "%s\n", output_shown(file->path));
        print_field("result", usable ? "usable" : "not usable");
        print_field("stage", attn_stage_name(file->stage));
        print_field("reason", reason_or_null(file->reason));
        print_field("text", stable_text(info, file->text));
        print_field("advice", file->advice);
        print_field("linker", file->linker);
        print_field("library", file->library);
        if (file->signal != 0)
            print_field("signal", strsignal((int)file->signal));
        if (!info->stable) {
            char *time = need_format("%" PRIu64 " us", file->microseconds);
            print_field("time", time);
            free(time);
        }
        if (text_or_null(file->name) != NULL)
            print_note(file);
    }
    if (attn_report_get_backend(report, 0) == NULL)
        return;
    backend_widths(report, &widths);
    fputc('\n', output_stream());
    print_backend_titles(&widths);
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
        print_backends_of(report, file->path, &widths);
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
