/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reference kernels as host code. */
#include "reference/kernel.h"

#include "fiber-kernels.h"

REFERENCE_INSTANCES(REFERENCE_KERNEL)

#define CALL(name, dim, type)                                                                                \
    static void call_##name(const void *run)                                                                 \
    {                                                                                                        \
        name(*(const struct gpu_run *)run);                                                                  \
    }
REFERENCE_INSTANCES(CALL)

static const struct {
    fiber_kernel_fn call;
    uint32_t dim, type;
} kernels[] = {
#define ROW(name, dim, type) {call_##name, dim, type},
    REFERENCE_INSTANCES(ROW)};

void fiber_run_reference(const struct gpu_run *run, uint32_t rows, uint32_t order)
{
    const struct fiber_grid grid = {rows * run->problem.heads, 0, 0, REFERENCE_THREADS, 0, order};
    uint32_t i = 0;

    while (!reference_fits(&run->problem, kernels[i].dim, kernels[i].type))
        i++;
    fiber_launch(kernels[i].call, run, &grid);
}
