/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info env: every variable with its value, where that comes from, and what it is for. */
#include <stdlib.h>

#include "info.h"

static void print_text(const struct info *info)
{
    const struct attn_variable_record *variable;
    FILE *out = output_stream();

    for (uint32_t i = 0; (variable = attn_context_get_variable(info->context, i)) != NULL; i++) {
        int column = fprintf(out, "%s = ", output_shown(variable->name));
        char *rest =
            need_format("%s (%s)", text_or_null(variable->value) != NULL ? variable->value : "(empty)",
                        variable->origin != NULL ? variable->origin : "environment");
        output_wrap((unsigned)column, 4, rest);
        free(rest);
        if (text_or_null(variable->problem) != NULL) {
            fputs("    problem: ", out);
            output_wrap(13, 6, variable->problem);
        }
        if (text_or_null(variable->help) != NULL) {
            fputs("    ", out);
            output_wrap(4, 4, variable->help);
        }
    }
}

int env_command(const struct info *info)
{
    const struct attn_variable_record *variable;

    if (!info->common.json) {
        print_text(info);
        return EXIT_YES;
    }
    struct jsonout *json = jsonout_create("env");
    jsonout_array(json, "variables");
    for (uint32_t i = 0; (variable = attn_context_get_variable(info->context, i)) != NULL; i++) {
        jsonout_object(json, NULL);
        jsonout_string(json, "name", variable->name);
        jsonout_string(json, "value", variable->value);
        jsonout_string(json, "origin", variable->origin);
        jsonout_string(json, "type", variable->type);
        jsonout_string(json, "default", variable->fallback);
        jsonout_string(json, "help", variable->help);
        jsonout_string(json, "problem", text_or_null(variable->problem));
        jsonout_close(json);
    }
    jsonout_close(json);
    return json_end(json, EXIT_YES);
}
