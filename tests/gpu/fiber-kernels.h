/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The attention kernels that run on fibers, each over a whole run. All addresses are host memory. */
#ifndef FIBER_KERNELS_H
#define FIBER_KERNELS_H

#include "fiber.h"
#include "run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `rows`: of the grid, those beyond q_offsets[seqs] included. head_dim is at most 576. */
void fiber_run_reference(const struct gpu_run *run, uint32_t rows, uint32_t order);

#ifdef __cplusplus
}
#endif

#endif
