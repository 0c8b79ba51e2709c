/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts the allocations of this program and all that it loads. Sanitizers have an allocator of their own. */
#ifndef TEST_ALLOCATIONS_H
#define TEST_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* False where they cannot be counted. */
bool allocations_counted(void);
/* Since the program began, by any thread. */
uint64_t allocations_made(void);

#endif
