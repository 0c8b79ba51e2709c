/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Runs a kernel of backends/gpu on the host: every thread of a CTA is a fiber that runs until it meets the
 * others, at a barrier or in an operation of its warp. CTAs run one after the other.
 *
 * What is undefined on a GPU ends the program with a message: threads that wait for each other forever, lanes
 * of a warp in different operations, a lane that has returned. Shared memory holds NaN at the start of a CTA,
 * and asynchronous copies and products of warp groups are done as late as is allowed.
 */
#ifndef FIBER_H
#define FIBER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*fiber_kernel_fn)(const void *argument);

/* Most threads of a CTA. */
#define FIBER_THREADS 1024u

struct fiber_grid {
    uint32_t x, y, z; /* CTAs; y and z: 0 = 1 */
    uint32_t threads;
    size_t shared;  /* dynamic shared memory, bytes */
    uint32_t order; /* seed of the order in which threads run between barriers */
};

/* A tensor map (cuTensorMapEncodeTiled) as the fake driver makes it: strides in bytes, of all dimensions but
 * the first. */
struct fiber_map {
    uint64_t base;
    uint32_t dims[4], box[4];
    uint64_t strides[3];
};

/* Calls kernel(argument) on every thread of the grid. One launch is done at a time. */
void fiber_launch(fiber_kernel_fn kernel, const void *argument, const struct fiber_grid *grid);

#ifdef __cplusplus
}
#endif

#endif
