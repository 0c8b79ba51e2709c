/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info path: directories in search order, where each comes from, and whether it is trusted. */
#include <stdlib.h>

#include "info.h"

static const char *trust_text(const struct attn_directory_record *directory)
{
    if (directory->reason != 0)
        return "not used";
    return directory->group_writable ? "trusted, writable by its group" : "trusted";
}

static void print_text(const struct attn_report *report)
{
    const struct attn_directory_record *directory;

    for (uint32_t i = 0; (directory = attn_report_get_directory(report, i)) != NULL; i++) {
        fprintf(output_stream(), "%s\n", output_shown(directory->path));
        print_field("from", directory->origin);
        print_field("trust", trust_text(directory));
        if (directory->reason != 0) {
            print_reason("  ", directory->reason, directory->text);
            print_advice(attn_reason_advice(directory->reason));
        } else {
            print_field("remark", directory->text);
        }
    }
}

int path_command(const struct info *info)
{
    struct attn_report *report;
    const struct attn_directory_record *directory;
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_get_report(info->context, &report, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    int code = EXIT_YES;
    if (!info->common.json) {
        print_text(report);
    } else {
        struct jsonout *json = jsonout_create("path");
        jsonout_array(json, "directories");
        for (uint32_t i = 0; (directory = attn_report_get_directory(report, i)) != NULL; i++) {
            jsonout_object(json, NULL);
            jsonout_string(json, "path", directory->path);
            jsonout_string(json, "origin", directory->origin);
            jsonout_bool(json, "trusted", directory->reason == 0);
            jsonout_bool(json, "group_writable", directory->group_writable != 0);
            jsonout_string(json, "reason", reason_or_null(directory->reason));
            jsonout_string(json, "text", text_or_null(directory->text));
            jsonout_close(json);
        }
        jsonout_close(json);
        code = json_end(json, code);
    }
    attn_report_destroy(report);
    return code;
}
