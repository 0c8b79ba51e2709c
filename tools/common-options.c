/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The common options. argp's own --help would print through descriptor 1, which is stderr here, so the tools
 * bring their own.
 */
#include "common-options.h"

#include <stdlib.h>

#include "attn/attn.h"
#include "output.h"

enum { OPTION_USAGE = 256 };

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "print one JSON object", 0},
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
    case '?':
        argp_state_help(state, output_stream(), ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK);
        exit(output_finish(EXIT_YES));
    case OPTION_USAGE:
        argp_state_help(state, output_stream(), ARGP_HELP_USAGE);
        exit(output_finish(EXIT_YES));
    case 'V':
        fprintf(output_stream(), "%s (libattn) %s\n", output_program(), attn_version());
        exit(output_finish(EXIT_YES));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp common_argp = {options, parse_option, NULL, NULL, NULL, NULL, NULL};

void common_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(argp, argc, argv, ARGP_NO_HELP, NULL, input) != 0)
        exit(EXIT_USAGE);
}
