/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A CUDA driver for tests, in host memory: what a test says to it beside the driver's own interface. Kernels
 * run on fibers, streams do everything at once, captures keep it. Every use of something that was released,
 * every address outside of allocations and every call without a context is an offence.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define FAKE_API __attribute__((visibility("default")))

/* What the machine is like. */
struct fake_machine {
    int devices;
    int major, minor; /* of all devices */
    int version;      /* of the driver */
    gpu_result init;  /* of cuInit */
    bool no_lookup;   /* no cuGetProcAddress */
    uint64_t memory;  /* bytes of all devices together, 0 = 2^30 */
    int units;        /* multiprocessors of a device, 0 = 4 */
};

/* Functions of the fake, found with dlsym. */
struct fake {
    /* Forgets everything: objects, counts, offences, failures. */
    void (*reset)(const struct fake_machine *machine);
    /* The call of this number, counted from 1, fails with a result; 0 = none. */
    void (*fail)(uint64_t call, gpu_result result);
    uint64_t (*calls)(void);
    /* Calls of one function. */
    uint64_t (*calls_of)(const char *name);
    /* The function that was made to fail, or "". */
    const char *(*failed)(void);
    /* The first thing that was done wrong, or "". */
    const char *(*offence)(void);
    /* Objects that are not released; their kinds are written to `text`. */
    uint32_t (*leaks)(char *text, size_t size);
    /* What this thread has on top of its stack of contexts, and how many. */
    gpu_handle (*current)(uint32_t *depth);
    /* A context of its own, as a caller of the plugin has, made current. */
    gpu_handle (*context_push)(int ordinal);
    void (*context_pop)(void);
};

/* Exported as fake_get. */
typedef const struct fake *(*fake_get_fn)(void);

#endif
