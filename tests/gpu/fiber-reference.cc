/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reference kernels as host code: those of the driver of tests, for they take seconds to compile. */
#include "fiber-names.h"

#include "reference/kernel.h"

#include "fiber-kernels.h"

/* In the order of driver_reference_kernels, which is made of the same list. */
static const struct {
    uint32_t dim, type;
} kernels[] = {
#define ROW(name, dim, type) {dim, type},
    REFERENCE_INSTANCES(ROW)};

void fiber_run_reference(const struct gpu_run *run, uint32_t rows, uint32_t order)
{
    const struct fiber_grid grid = {rows * run->problem.heads, 0, 0, REFERENCE_THREADS, 0, order};
    uint32_t i = 0;

    while (!reference_fits(&run->problem, kernels[i].dim, kernels[i].type))
        i++;
    fiber_launch(driver_reference_kernels[i].call, run, &grid);
}
