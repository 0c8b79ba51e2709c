/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A generated model for machines without a model file: it runs the whole program; its texts are random. */
#ifndef ENGINE_TOY_H
#define ENGINE_TOY_H

#include <stddef.h>
#include <stdint.h>

#include "failure.h"

/* A GGUF file in memory that the caller frees: general.name toy, one token per byte, weights from the seed.
 */
int toy_build(uint64_t seed, uint8_t **out, size_t *out_size, struct failure *err);

/* The same with more layers, of which every second sees all tokens and the others a window of them. */
int toy_build_windowed(uint64_t seed, uint32_t window, uint8_t **out, size_t *out_size, struct failure *err);

#endif
