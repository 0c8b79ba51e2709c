/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The common options. argp's own --help would print through descriptor 1, which is stderr here, so the tools
 * bring their own.
 */
#include "common-options.h"

#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "core.h"
#include "output.h"

enum { OPTION_USAGE = 256, OPTION_COMPLETE };

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "print one JSON object", 0},
    {"complete", OPTION_COMPLETE, NULL, 0, "print how the last argument may go on, for completion in shells",
     0},
    {"help", '?', NULL, 0, "print this help", -1},
    {"usage", OPTION_USAGE, NULL, 0, "print a short usage message", -1},
    {"version", 'V', NULL, 0, "print the version of libattn", -1},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct common_options *common = state->input;

    (void)arg;
    switch (key) {
    case 'j':
        common->json = true;
        return 0;
    case OPTION_COMPLETE:
        complain("option --complete stands before everything else, as in %s --complete -- --js",
                 output_program());
        exit(EXIT_USAGE);
    case '?':
        argp_state_help(state, output_stream(), ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK);
        exit(output_finish(EXIT_YES));
    case OPTION_USAGE:
        argp_state_help(state, output_stream(), ARGP_HELP_USAGE);
        exit(output_finish(EXIT_YES));
    case 'V':
        fprintf(output_stream(), "%s (libattn) %s\n", output_program(), attn_version());
        if (common->more_version != NULL)
            common->more_version();
        exit(output_finish(EXIT_YES));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp common_argp = {options, parse_option, NULL, NULL, NULL, NULL, NULL};

/* Long names of a parser and of its children from `*count` on; as many as fit. */
static void names_add(const struct argp *argp, const struct argp_option **list, unsigned *count)
{
    for (const struct argp_option *option = argp->options; option != NULL && option->name != NULL; option++)
        if (*count < COMMON_OPTIONS_MOST)
            list[(*count)++] = option;
    for (const struct argp_child *child = argp->children; child != NULL && child->argp != NULL; child++)
        names_add(child->argp, list, count);
}

unsigned common_options_list(const struct argp *argp, const struct argp_option **list)
{
    unsigned count = 0;

    names_add(argp, list, &count);
    return count;
}

/* Ends the program if a long option is none and no beginning of one; getopt would not say which is near. */
static void check_name(const char *word, const struct argp_option *const *list, unsigned count)
{
    size_t size = strcspn(word, "=");
    const char *names[COMMON_OPTIONS_MOST];

    for (unsigned i = 0; i < count; i++) {
        names[i] = list[i]->name;
        if (strncmp(names[i], word, size) == 0)
            return;
    }
    char *name = need_format("%.*s", (int)size, word);
    const char *nearest = attn__nearest(name, names, count);
    complain("unknown option --%s%s%s%s; see %s --help", name, nearest != NULL ? ", did you mean --" : "",
             nearest != NULL ? nearest : "", nearest != NULL ? "?" : "", output_program());
    free(name);
    exit(EXIT_USAGE);
}

const struct argp_option *common_option_waits(const char *word, const struct argp_option *const *list,
                                              unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (list[i]->arg == NULL || (list[i]->flags & OPTION_ARG_OPTIONAL) != 0)
            continue;
        if (word[1] == '-' ? strcmp(word + 2, list[i]->name) == 0
                           : word[1] == list[i]->key && word[2] == '\0')
            return list[i];
    }
    return NULL;
}

static void check_names(const struct argp *argp, int argc, char **argv)
{
    const struct argp_option *list[COMMON_OPTIONS_MOST];
    unsigned count = common_options_list(argp, list);

    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-' || argv[i][1] == '\0')
            continue;
        if (argv[i][1] == '-')
            check_name(argv[i] + 2, list, count);
        if (common_option_waits(argv[i], list, count) != NULL)
            i++;
    }
}

void common_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = EXIT_USAGE;
    check_names(argp, argc, argv);
    if (argp_parse(argp, argc, argv, ARGP_NO_HELP, NULL, input) != 0)
        exit(EXIT_USAGE);
}
