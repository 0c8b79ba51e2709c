/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A directory of its own for a fuzz target that reads and writes files; it goes with the program. */
#ifndef TESTS_FUZZ_DIRECTORY_H
#define TESTS_FUZZ_DIRECTORY_H

#include "fuzz.h"

#include <unistd.h>

static char fuzz_directory_path[64];

/* Fails if anything but the file of results is left: a temporary file must not stay. */
static void fuzz_directory_remove(void)
{
    char name[80];
    snprintf(name, sizeof name, "%s/results", fuzz_directory_path);
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
