/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A backend of the OpenCL plugin, on the first device that it lists, and short calls of it that end the test
 * if they fail. */
#ifndef TEST_OPENCL_WORLD_H
#define TEST_OPENCL_WORLD_H

#include "../graph/tap.h"
#include "attn/device.h"

#define LAUNCHES 20

extern struct attn_backend *backend;

/* False where no device is listed. */
bool world_open(const char *name);
void world_close(void);
struct attn_buffer allocate(uint64_t size);
void copy(struct attn_buffer to, struct attn_buffer from, uint64_t size, uint32_t kind, void *stream);
/* Host memory as a buffer. */
struct attn_buffer at(const void *memory);

/* A step of a model by a graph against the same calls at once (graph-step.c). */
void test_step(void);

#endif
