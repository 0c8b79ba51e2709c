/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A directory of its own for a fuzz target that reads and writes files; it goes with the program. */
#ifndef TESTS_FUZZ_DIRECTORY_H
#define TESTS_FUZZ_DIRECTORY_H

#include "fuzz.h"

#include <unistd.h>

static char fuzz_directory_path[64];

/* The keys of results of which a target may leave files. */
static const char fuzz_own_key[] = "0123456789abcdef0123456789abcdef";
static const char fuzz_other_key[] = "fedcba9876543210fedcba9876543210";

/* Fails if anything but their files is left: a temporary file must not stay. */
static void fuzz_directory_remove(void)
{
    char name[100];
    snprintf(name, sizeof name, "%s/%.16s", fuzz_directory_path, fuzz_own_key);
    (void)unlink(name);
    snprintf(name, sizeof name, "%s/%.16s", fuzz_directory_path, fuzz_other_key);
    (void)unlink(name);
    if (rmdir(fuzz_directory_path) != 0) {
        perror(fuzz_directory_path);
        _exit(1);
    }
}

static const char *fuzz_directory(void)
{
    if (fuzz_directory_path[0] == '\0') {
        snprintf(fuzz_directory_path, sizeof fuzz_directory_path, "/tmp/attn-fuzz-XXXXXX");
        FUZZ_CHECK(mkdtemp(fuzz_directory_path) != NULL && atexit(fuzz_directory_remove) == 0);
    }
    return fuzz_directory_path;
}

#endif
