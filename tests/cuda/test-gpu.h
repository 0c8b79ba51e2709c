/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of test-gpu. */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "shim.h"
#include "world.h"

/* gpu-lost.c */
void test_exhausted(struct world *world, const struct shim *shim);
void test_failures(struct world *world);
void test_lost(struct world *world, const struct shim *shim, int devices);
/* A kernel that reads nowhere: last, for the device is lost to this process. */
void test_faulty(struct world *world);

#endif
