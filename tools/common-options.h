/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Options that every tool has: --json, --help, --usage, --version, --complete. */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include <argp.h>
#include <stdbool.h>

struct common_options {
    bool json;
    void (*more_version)(void); /* prints what --version says beyond the first line; NULL: nothing */
};

/* A child parser; its input is a struct common_options. */
extern const struct argp common_argp;

enum { COMMON_OPTIONS_MOST = 64 };
/* The options of a parser and of its children; at most COMMON_OPTIONS_MOST. */
unsigned common_options_list(const struct argp *argp, const struct argp_option **list);

/* The option of a word such as "--name" or "-n" if its value is the next word, else NULL. */
const struct argp_option *common_option_waits(const char *word, const struct argp_option *const *list,
                                              unsigned count);

/*
 * Parses options that may stand anywhere between the arguments. Wrong ones end the program with EXIT_USAGE;
 * --help, --usage and --version print on the kept output and end it with EXIT_YES.
 */
void common_parse(const struct argp *argp, int argc, char **argv, void *input);

#endif
