/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The commands of attn-info with their help, and attn-info help. */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "info.h"

const struct command commands[] = {
    {"list", 0, 0, list_command, "", "plugin files and their backends (the default)",
     "Each file with its backends, their device and state, and for what is not in use the reason and what to "
     "do."},
    {"devices", 0, 0, devices_command, "", "devices of all backends", ""},
    {"caps", 0, 1, caps_command, "[NAME]", "what each backend serves",
     "The answers come from the backends: each key of the problem string is varied by itself around a "
     "problem "
     "that is served. Backends that answer alike share a block."},
    {"matrix", 0, 0, matrix_command, "", "each backend's answer to each value of each key",
     "With --markdown it is the page docs/matrix.md."},
    {"explain", 1, 1000, explain_command, "KEY=VALUE...", "who serves a problem, and why others do not",
     "heads and head_dim must be given; without q the question is asked with q=bf16. --all asks the backends "
     "behind the winner too. Example: attn-info explain heads=32 kv_heads=8 head_dim=128 q=bf16"},
    {"why", 1, 1, why_command, "FILE", "everything known about one plugin file",
     "The file may lie anywhere. It goes through the same checks as one of the search path."},
    {"env", 0, 1, env_command, "[VARIABLE]", "environment variables: value, origin, help", ""},
    {"path", 0, 0, path_command, "", "the search path, and whether it is trusted", ""},
    {"doctor", 0, 0, doctor_command, "", "what should be mended, each with its remedy",
     "Checks the search path, plugin files, devices, the helper attn-probe, the cache directory, variables, "
     "and which backend and kernels serve a plain problem. Exits 0 if all is well and 1 if something should "
     "be "
     "mended."},
    {"rescan", 0, 0, rescan_command, "", "ends every quarantine, then as list",
     "Files that crashed, hung or ended their process when they were probed are probed again."},
    {"exists", 1, 1, exists_command, "NAME", "exits 0 if NAME is ready, else 1", "Nothing is printed."},
    {"version", 0, 0, version_command, "", "versions of libattn and of the plugins", ""},
    {"help", 0, 1, help_command, "[COMMAND]", "this help, or that of one command", ""},
    {NULL, 0, 0, NULL, NULL, NULL, NULL},
};
enum { COMMANDS = sizeof commands / sizeof *commands - 1 };

char *commands_text(void)
{
    char *text = need_copy("");

    for (const struct command *command = commands; command->name != NULL; command++) {
        char *words = need_format("%s %s", command->name, command->arguments);
        char *longer = need_format("%s  %-21s  %s\n", text, words, command->summary);
        free(words);
        free(text);
        text = longer;
    }
    return text;
}

const struct command *command_find(const char *name)
{
    const char *names[COMMANDS];
    char *list = need_copy("");

    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(names[i], name) == 0) {
            free(list);
            return &commands[i];
        }
        char *longer = need_format("%s%s%s", list, i == 0 ? "" : i + 1 < COMMANDS ? ", " : " and ", names[i]);
        free(list);
        list = longer;
    }
    const char *nearest = attn__nearest(name, names, COMMANDS);
    complain("unknown command \"%s\"%s%s%s; accepted are %s", name,
             nearest != NULL ? ", did you mean \"" : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "\"?" : "", list);
    free(list);
    return NULL;
}

/* Of one command, or of all. */
static int print_json(const struct command *wanted)
{
    struct jsonout *json = jsonout_create("help");

    jsonout_array(json, "commands");
    for (const struct command *command = commands; command->name != NULL; command++) {
        if (wanted != NULL && wanted != command)
            continue;
        jsonout_object(json, NULL);
        jsonout_string(json, "name", command->name);
        jsonout_string(json, "arguments", command->arguments);
        jsonout_string(json, "summary", command->summary);
        jsonout_string(json, "more", text_or_null(command->more));
        jsonout_close(json);
    }
    jsonout_close(json);
    return json_end(json, EXIT_YES);
}

int help_command(const struct info *info)
{
    const struct command *command = info->arg_count > 0 ? command_find(info->args[0]) : NULL;

    if (info->arg_count > 0 && command == NULL)
        return EXIT_USAGE;
    if (info->common.json)
        return print_json(command);
    if (command == NULL) {
        argp_help(&info_argp, output_stream(), ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK,
                  (char *)(uintptr_t)output_program());
        return EXIT_YES;
    }
    fprintf(output_stream(), "attn-info %s %s\n", command->name, command->arguments);
    fputs("  ", output_stream());
    output_wrap(2, 2, command->summary);
    if (command->more[0] != '\0') {
        fputs("  ", output_stream());
        output_wrap(2, 2, command->more);
    }
    return EXIT_YES;
}
