/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info version: versions of the library, of the plugin interface and of the plugins that are loaded. */
#include "info.h"

void version_print(void)
{
    fprintf(output_stream(), "plugin interface %d.%d\nplugin directory %s\n", ATTN_ABI_MAJOR, ATTN_ABI_MINOR,
            ATTN_PLUGIN_DIR);
}

static int print_json(const struct attn_report *report)
{
    struct jsonout *json = jsonout_create("version");
    const struct attn_file_record *file;
    char interface[24];

    snprintf(interface, sizeof interface, "%d.%d", ATTN_ABI_MAJOR, ATTN_ABI_MINOR);
    jsonout_string(json, "interface", interface);
    jsonout_string(json, "plugin_directory", ATTN_PLUGIN_DIR);
    jsonout_array(json, "plugins");
    for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++) {
        if (file->stage != ATTN_STAGE_READY)
            continue;
        jsonout_object(json, NULL);
        jsonout_string(json, "name", file->name);
        jsonout_string(json, "version", file->version);
        jsonout_string(json, "maker", text_or_null(file->vendor));
        jsonout_string(json, "path", file->path);
        jsonout_close(json);
    }
    jsonout_close(json);
    return json_end(json, EXIT_YES);
}

int version_command(const struct info *info)
{
    struct attn_report *report;
    const struct attn_file_record *file;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    if (info->common.json) {
        code = print_json(report);
    } else {
        fprintf(output_stream(), "%s (libattn) %s\n", output_program(), attn_version());
        version_print();
        for (uint32_t i = 0; (file = attn_report_get_file(report, i)) != NULL; i++)
            if (file->stage == ATTN_STAGE_READY)
                fprintf(output_stream(), "plugin %s %s (%s)\n", output_shown(file->name),
                        output_shown(file->version), output_shown(file->path));
    }
    attn_report_destroy(report);
    return code;
}
