/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TOOL --complete -- WORD...: how the last word of a command line may go on, for completion in shells. */
#ifndef COMPLETE_H
#define COMPLETE_H

#include <argp.h>
#include <stdbool.h>

/* A command line as far as it was typed. */
struct command_line {
    const char *typed;  /* the last word; behind --option=, the value */
    const char *option; /* long name of the option whose value is typed, or NULL */
    const char **words; /* those before it that are neither options nor values of options */
    unsigned count;
};

/* Prints `lead`, `text` and `end` in one line if the text begins with what was typed. */
void complete_offer(const struct command_line *line, const char *lead, const char *text, const char *end);

/*
 * For --complete as the first argument: prints candidates, a line each, and ends the program; else does
 * nothing. Options are the parser's, values like "on|off" those that it names. `offer` prints words that are
 * no options, and values of options behind `lead`; NULL if the tool has none.
 */
void complete(const struct argp *argp, int argc, char **argv,
              void (*offer)(const struct command_line *line, const char *lead));

/* Whether one of `words` from `first` on gives the key. */
bool complete_is_given(const struct command_line *line, unsigned first, const char *key);

/* The keys of the problem string, but for those that `words` from `first` on give; behind KEY= its values. */
void complete_problem(const struct command_line *line, unsigned first);

struct attn_context;

/* Vendors and backends, from the notes of plugin files: nothing is loaded for a completion. */
void complete_backends(const struct command_line *line, const char *lead, struct attn_context *context);

#endif
