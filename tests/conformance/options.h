/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command line of attn-check. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "common-options.h"
#include "conform.h"

struct arguments {
    struct common_options common;
    struct run_options run;
    const char *file; /* the plugin, as it was said */
    const char *backend;
    const char *level;
    bool stable;
    bool device_memory; /* all memory through the memory table, even a CPU's */
    bool fail_fast;
};

/* Wrong arguments end the program with EXIT_USAGE, --help and --version with EXIT_YES. */
void options_parse(struct arguments *arguments, int argc, char **argv);

struct command_line;
/* What --complete offers as a value of --kind; see complete.h. In main.c, which has the kinds. */
void kinds_offer(const struct command_line *line, const char *lead);

#endif
