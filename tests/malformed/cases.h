/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The malformed: one row per kind of file, with what must be said about it. */
#ifndef ATTN_TEST_CASES_H
#define ATTN_TEST_CASES_H

#include "place.h"

/* The file that a case is about; it is listed before the sane one. */
#define CASE_FILE "libattn-a.so"

enum {
    CASE_SLOW = 1,  /* costs a deadline each time it is probed */
    CASE_ROOT = 2,  /* only root can make it */
    CASE_DATA = 8,  /* needs the limit of memory, which a sanitizer cannot have */
    CASE_ALONE = 4, /* its probe takes the machine's time: not under threads */
    CASE_VFORK = 16 /* waits for a vfork, which no signal ends */
};

struct malformed_case {
    const char *name;
    /* Makes CASE_FILE in the malformed. */
    void (*make)(const struct malformed *malformed, const char *kind);
    const char *kind;
    uint32_t reason; /* 0: it is a good one */
    uint32_t stage;
    const char *word; /* stands in the text */
    unsigned flags;
};

/* Plugins as compilers make them, each with one fault. */
extern const struct malformed_case mock_cases[];
/* Directory entries that are no plugin files, or may not be read. */
extern const struct malformed_case file_cases[];
/* A note that was damaged. */
extern const struct malformed_case note_cases[];
/* An ELF structure that was damaged, or is something else. */
extern const struct malformed_case elf_cases[];
/* Each list ends with a row without a name. */

#endif
