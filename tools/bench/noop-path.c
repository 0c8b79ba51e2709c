/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Finds the no-op plugin from the place of the running program, so that a tree that was moved as a whole
 * keeps working. NOOP_RELATIVE is the way from the directory of the installed program to the plugin's.
 */
#define _GNU_SOURCE
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define NOOP_FILE "libattn-noop.so"

char *noop_path(void)
{
    static const char *const places[] = {".", NOOP_RELATIVE};
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);

    if (size <= 0) {
        complain("/proc/self/exe cannot be read; is /proc mounted?");
        return NULL;
    }
    program[size] = '\0';
    const char *directory = dirname(program);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = places[i][0] == '/' ? need_format("%s/%s", places[i], NOOP_FILE)
                                         : need_format("%s/%s/%s", directory, places[i], NOOP_FILE);
        char *real = realpath(path, NULL);
        free(path);
        if (real != NULL)
            return real;
    }
    complain("the no-op plugin %s was found neither in %s nor in %s/%s; install it with attn-bench",
             NOOP_FILE, directory, directory, NOOP_RELATIVE);
    return NULL;
}
