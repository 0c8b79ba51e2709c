/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What of a process is looked at: each trait is rendered as lines of text, and texts are compared. */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When a trait must be as before. */
enum trait_time {
    TRAIT_STAGE = 1,  /* after every call */
    TRAIT_WITHIN = 2, /* also while a call lasts: it belongs to the whole process */
    TRAIT_END = 3     /* after finish */
};

struct trait {
    const char *name;
    enum trait_time time;
    void (*read)(char *text, size_t size);
};

extern const struct trait process_traits[];
extern const uint32_t process_trait_count;

/* trace-files.c */
void read_output(char *text, size_t size);
void read_errors(char *text, size_t size);
void read_input(char *text, size_t size);
void read_descriptors(char *text, size_t size);
void read_threads(char *text, size_t size);
/* From now on these two tell only of what has come since. */
void files_restart(void);
/* Puts files of the checker in place of standard input, output and error. */
void files_begin(void);

/* Appends a line; what does not fit is cut. */
void add_line(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
