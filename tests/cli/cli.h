/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs a tool, keeps what it says, and checks it; results as TAP. */
#ifndef CLI_H
#define CLI_H

#include <jansson.h>
#include <stdbool.h>

/* Where things are; the arguments of every test program, in this order. */
struct places {
    const char *attn_info;
    const char *attn_bench;
    const char *plugins;       /* directory of the CPU plugin */
    const char *noop;          /* the no-op plugin */
    const char *noisy;         /* directory of the plugin that prints */
    const char *man;           /* sources of the manual pages */
    const char *attn_generate; /* NULL: not given */
    const char *small_models;  /* writes models into a directory; NULL: not given */
};
extern struct places places;

/* What a tool left behind. */
struct result {
    int code; /* exit code, or 128 + signal */
    char *out;
    char *err;
    json_t *json; /* parsed standard output, NULL if it is no JSON */
};

/*
 * Runs `program` with arguments separated by spaces. `variables` are NAME=VALUE separated by spaces; no other
 * ATTN_ variable gets through but ATTN_PLUGIN_PATH, which is the CPU plugin's directory if it is not given.
 */
void run(struct result *result, const char *variables, const char *program, const char *arguments);
void result_finish(struct result *result);

/* Reads the arguments of main. */
void cli_init(int argc, char **argv);
/* One line of TAP; tells what was printed if it failed. */
void check(bool good, const struct result *result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The plan; the exit code of the program. */
int cli_finish(void);

/* A private directory, kept until cli_finish; a file in it. */
const char *directory_make(void);
void file_write(const char *directory, const char *name, const char *contents);
void file_copy(const char *directory, const char *name, const char *from);

/* A member by path, "backends.0.name"; NULL if there is none. */
json_t *at(const struct result *result, const char *path);
/* True if it is that string. */
bool is_text(const struct result *result, const char *path, const char *text);
/* True if the array at `path` has an object whose `key` is `text`; its index in *out_index (may be NULL). */
bool has_item(const struct result *result, const char *path, const char *key, const char *text,
              size_t *out_index);
/* How often `part` stands in `text`. */
unsigned occurrences(const char *text, const char *part);
/* True if no line that has a choice is longer than 80 columns. */
bool fits_terminal(const char *text);

#endif
