/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Numbers for the tensors of a measurement. */
#ifndef FILL_H
#define FILL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Fills `count` elements with finite numbers of both signs between 1/8 and 2 (int8: -3 to 3), the same for
 * the same seed. False for a type that it does not know.
 */
bool fill_random(uint32_t dtype, void *to, uint64_t count, uint64_t seed);

#endif
