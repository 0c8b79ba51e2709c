/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Standard output of a tool, kept clean, and text laid out for the width of the terminal.
 *
 * Plugins may print to file descriptor 1. output_init keeps a private copy of it and points the descriptor at
 * stderr, so only what goes through output_stream reaches the reader.
 */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "style.h"

/* What a tool tells its shell. */
enum exit_code { EXIT_YES = 0, EXIT_NO = 1, EXIT_USAGE = 2, EXIT_MISSING = 3 };

/* First call of main. Ends the program with EXIT_NO if descriptors cannot be had. */
void output_init(const char *program);
FILE *output_stream(void);
/* Columns to lay text out for: COLUMNS, those of the terminal within sensible bounds, or 80 in files and
 * pipes. */
unsigned output_columns(void);
const char *output_program(void);
/* Flushes. Returns `code`, or EXIT_NO with a line on stderr if something could not be written. A reader that
 * went away is no failure: it has what it wanted. */
int output_finish(int code);

/* One line on stderr, after the program's name. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The text with what could steer a terminal escaped; lives until the fourth call after it. */
const char *output_shown(const char *text);
/* Prints `text` broken at spaces, every line but the first indented; `column` is where the first one begins.
 */
void output_wrap(unsigned column, unsigned indent, const char *text);

/* ---------------------------------------------------------------- tables */

enum { TABLE_COLUMNS = 16 };

/* Rows of text cells. The last column is wrapped, or begins on a line of its own where it has too little
 * room; the others are as wide as their widest cell. The cells of the first row are titles. */
struct table {
    unsigned columns;
    unsigned indent; /* spaces before each row; set it after table_init */
    size_t cells;
    size_t capacity;
    char **cell;
    enum style (*style)(unsigned column, const char *cell); /* NULL: all plain; not for the last column */
};

void table_init(struct table *table, unsigned columns, const char *const *titles);
void table_add(struct table *table, const char *const *cells);
/* Prints and frees. */
void table_finish(struct table *table);

/* ---------------------------------------------------------------- memory that is there */

/* As malloc, realloc and strdup, but end the program with a message if there is no memory. */
void *need_memory(void *memory, size_t count, size_t size);
char *need_copy(const char *text);
char *need_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
