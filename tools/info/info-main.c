/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info: what plugins, backends and devices there are, what they can do, and why one is chosen. */
#include "info.h"

#include <signal.h>
#include <stdlib.h>

#include "complete.h"

static const struct argp_option options[] = {
    {"all", 'a', NULL, 0, "explain: ask every candidate, also those behind the winner", 0},
    {"markdown", 'm', NULL, 0, "matrix: print a page of documentation", 0},
    {"stable", 's', NULL, 0, "leave out times and addresses, which differ from run to run", 0},
    {0},
};

static const char doc[] =
    "Shows what attention backends there are, what they can do, and why one is chosen.\v"
    "NAME is vendor/flavour, vendor or flavour. KEY=VALUE is a part of a problem string, for example "
    "heads=32 kv_heads=8 head_dim=128 q=bf16.\n"
    "\n"
    "Exit codes: 0 yes; 1 no, or failed; 2 wrong usage; 3 every file was tried and none became usable, or a "
    "demanded thing is missing. See attn-info(1).";

/* Puts the list of commands before the rest of the help. */
static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)(uintptr_t)text;
    char *list = commands_text();
    char *all = need_format("Commands:\n%s\n%s", list, text);
    free(list);
    return all;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct info *info = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &info->common;
        return 0;
    case 'a':
        info->all = true;
        return 0;
    case 'm':
        info->markdown = true;
        return 0;
    case 's':
        info->stable = true;
        return 0;
    case ARGP_KEY_ARG:
        if (info->command == NULL)
            info->command = arg;
        else
            info->args[info->arg_count++] = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
const struct argp info_argp = {options,     parse_option, "[COMMAND [ARGUMENT...]]", doc, children,
                               filter_help, NULL};

static const struct command *command_check(const struct info *info)
{
    const struct command *command = command_find(info->command);

    if (command == NULL)
        return NULL;
    if (info->arg_count < command->least || info->arg_count > command->most) {
        complain("command %s takes %s%u argument%s, not %u; see %s --help", command->name,
                 command->most > command->least ? (command->least == 0 ? "at most " : "at least ") : "",
                 command->least == 0 ? command->most : command->least,
                 (command->least == 0 ? command->most : command->least) == 1 ? "" : "s", info->arg_count,
                 output_program());
        return NULL;
    }
    if (info->all && command->run != explain_command) {
        complain("option --all belongs to the command explain, not to %s", command->name);
        return NULL;
    }
    if (info->markdown && command->run != matrix_command) {
        complain("option --markdown belongs to the command matrix, not to %s", command->name);
        return NULL;
    }
    if (info->markdown && info->common.json) {
        complain("options --json and --markdown exclude each other; give one of them");
        return NULL;
    }
    return command;
}

static int run(struct info *info)
{
    const struct command *command = command_check(info);
    struct attn_error err;

    if (command == NULL)
        return EXIT_USAGE;
    if (command->run == help_command)
        return command->run(info);
    ATTN_INIT(&err);
    if (attn_context_create(NULL, &info->context, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    int code = command->run(info);
    attn_context_destroy(info->context);
    return code;
}

int main(int argc, char **argv)
{
    output_init("attn-info");
    struct info info = {.common.more_version = version_print,
                        .args = need_memory(NULL, (size_t)argc, sizeof(char *))};

    signal(SIGPIPE, SIG_IGN); /* so that "attn-info list | head -1" has the exit code of the command */
    complete(&info_argp, argc, argv, info_offer);
    common_parse(&info_argp, argc, argv, &info);
    if (info.command == NULL)
        info.command = "list";
    int code = run(&info);
    free(info.args);
    return output_finish(code);
}
