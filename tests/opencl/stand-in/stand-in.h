/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * An OpenCL loader that stands before the one of this machine: it counts calls, lets one of them fail, and
 * knows what is not released. STAND_IN_LOADER names the file of the other one. STAND_IN_POSE has words of
 * what is missing: no-platform, no-device, no-compiler, narrow (32 bits), hangs, crashes.
 */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <stdint.h>

struct stand_in {
    /* The call of this number from now on, counted from 1, fails with a result; 0 = none. Counted are
     * functions whose name has `part`, which lasts. */
    void (*fail)(const char *part, uint64_t call, int32_t result);
    /* The function that was made to fail, or "". */
    const char *(*failed)(void);
    /* References that are not given back; the functions that gave them are written to `text`. */
    uint32_t (*leaks)(char *text, uint32_t size);
    /* The first release of something that is not there, or "". */
    const char *(*offence)(void);
    /* Calls of one function until now. */
    uint64_t (*calls_of)(const char *name);
};

/* Exported as stand_in_get. */
typedef const struct stand_in *(*stand_in_get_fn)(void);

#endif
