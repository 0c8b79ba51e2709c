/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Kernels by name, run as fibers (fiber.h): what the fake driver of tests/cuda has in place of modules, so
 * that attn-check judges plugin and kernels without a GPU.
 */
#ifndef FIBER_NAMES_H
#define FIBER_NAMES_H

#include "fiber.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kernel by the name that a module knows. */
struct driver_kernel {
    const char *name;
    fiber_kernel_fn call;
    size_t size;      /* of the argument */
    uint32_t threads; /* that it is compiled for; 0: not told */
};

/* Declares how a kernel is called with the address of its argument. */
#define DRIVER_KERNEL(name, type)                                                                            \
    static void call_##name(const void *argument)                                                            \
    {                                                                                                        \
        name(*(const struct type *)argument);                                                                \
    }
/* Its line of a table. */
#define DRIVER_LINE(name, type) DRIVER_LINE_OF(name, type, 0)
#define DRIVER_LINE_OF(name, type, threads)                                                                  \
    {                                                                                                        \
#name, call_##name, sizeof(struct type), threads                                                     \
    }

/* Tables end with a name of NULL. */
extern const struct driver_kernel driver_kv_kernels[], driver_plan_kernels[], driver_reference_kernels[];
#define MMA(name, dk, dv, kv_size, rows) extern const struct driver_kernel driver_##name##_kernels[];
#define MLA(name, rows, kv_size)         extern const struct driver_kernel driver_##name##_kernels[];
#include "../../backends/cuda/instances.def"
#define TILE(name, dk, dv, kv_size) extern const struct driver_kernel driver_##name##_kernels[];
#include "../../backends/hip/instances.def"

/* The kernel of that name in a table, or in any; NULL if there is none. */
const struct driver_kernel *driver_named(const struct driver_kernel *table, const char *name);
const struct driver_kernel *driver_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
