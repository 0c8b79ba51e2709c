/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An allocator that fails once, at a chosen allocation. Sanitizers have one of their own. */
#ifndef FAILING_H
#define FAILING_H

#include <stdbool.h>
#include <stdint.h>

/* False where allocations cannot fail on demand. */
bool failing_works(void);
/* The next `allocations` of this thread succeed, and the one after them fails. */
void failing_begin(uint32_t allocations);
/* Ends that; true if one failed. *out_count (optional): how many were asked for. */
bool failing_end(uint32_t *out_count);
/* From now on allocations of more bytes fail, by any thread; 0 ends that. */
void failing_above(uint64_t bytes);
/* Blocks that were allocated and not freed, by any thread. */
int64_t failing_blocks(void);

#endif
