/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A driver library that stands between the plugin and another one, a real one or the fake: it counts calls,
 * makes one of them fail, knows what is not released, and holds every handle against its context. It answers
 * to struct fake (fake.h), whose reset takes no machine here and releases what was left, and to this.
 *
 * An error that is sticky loses the context that is current: the driver behind is not called for it again,
 * and each call is an offence, for the plugin knows.
 */
#ifndef SHIM_H
#define SHIM_H

#include "fake.h"

struct shim {
    /* The library behind, NULL = the driver of the machine. How many devices it has, 0 without it. */
    int (*use)(const char *library);
    /* Keeps a device's primary context, so that opening it takes no time. */
    void (*hold)(int ordinal);
    /* How many things live in a context; those of NULL are of no context. */
    uint32_t (*living)(gpu_handle context);
    /* The primary context that was retained last. */
    gpu_handle (*primary)(void);
    bool (*real)(void); /* it is a device's driver */
};

/* Exported as shim_get. */
typedef const struct shim *(*shim_get_fn)(void);

#endif
