/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The mma kernels of one row of instances.def, INSTANCE, for the driver of tests. */
#include "fiber-names.h"

#include "../../backends/cuda/mma.cu"

#define DECLARE(name, ...)   DRIVER_KERNEL(name, gpu_run)
#define LINE(name, ...)      DRIVER_LINE_OF(name, gpu_run, (__VA_ARGS__::CTA_THREADS)),
#define FOR_EACH(macro, ...) MMA_KERNELS(macro, __VA_ARGS__)
#define TABLE(...)           TABLE_OF(__VA_ARGS__)
#define TABLE_OF(name, ...)  driver_##name##_kernels

FOR_EACH(DECLARE, INSTANCE)

const struct driver_kernel TABLE(INSTANCE)[] = {FOR_EACH(LINE, INSTANCE){NULL, NULL, 0, 0}};
