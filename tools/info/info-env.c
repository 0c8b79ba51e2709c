/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info env: every variable, or one, with its value, where that comes from, and what it is for. */
#include <stdlib.h>
#include <string.h>

#include "core.h"
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

static void print_one(const struct attn_variable_record *variable)
{
    fprintf(output_stream(), "%s\n", output_shown(variable->name));
    print_field("value", text_or_null(variable->value) != NULL ? variable->value : "(empty)");
    print_field("origin", variable->origin);
    print_field("type", variable->type);
    print_field("default", text_or_null(variable->fallback) != NULL ? variable->fallback : "(empty)");
    print_field("problem", variable->problem);
    print_field("help", variable->help);
}

/* The variable of the argument, or NULL after a message with the nearest name. */
static const struct attn_variable_record *find_wanted(const struct info *info)
{
    const struct attn_variable_record *variable;
    const char *names[256];
    size_t count = 0;

    for (uint32_t i = 0; (variable = attn_context_get_variable(info->context, i)) != NULL; i++) {
        if (strcmp(variable->name, info->args[0]) == 0)
            return variable;
        if (count < sizeof names / sizeof *names)
            names[count++] = variable->name;
    }
    const char *nearest = attn__nearest(info->args[0], names, count);
    complain("no variable is called \"%s\"%s%s%s; attn-info env lists them", info->args[0],
             nearest != NULL ? ", did you mean " : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "?" : "");
    return NULL;
}

static void json_variable(struct jsonout *json, const struct attn_variable_record *variable)
{
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

int env_command(const struct info *info)
{
    const struct attn_variable_record *variable, *wanted = NULL;

    if (info->arg_count > 0 && (wanted = find_wanted(info)) == NULL)
        return EXIT_NO;
    if (!info->common.json) {
        if (wanted != NULL)
            print_one(wanted);
        else
            print_text(info);
        return EXIT_YES;
    }
    struct jsonout *json = jsonout_create("env");
    jsonout_array(json, "variables");
    for (uint32_t i = 0; (variable = attn_context_get_variable(info->context, i)) != NULL; i++)
        if (wanted == NULL || wanted == variable)
            json_variable(json, variable);
    jsonout_close(json);
    return json_end(json, EXIT_YES);
}
