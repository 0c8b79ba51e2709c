/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory of attn-probe's worker that crashes beside what belongs to a plugin file, whatever a host has there.
 */
#ifndef ATTN_PLUGIN_FENCE_H
#define ATTN_PLUGIN_FENCE_H

#include <stdint.h>

/*
 * Leaves the next file of that size a hole between two areas that nobody may touch, and what is allocated
 * with calloc until fence_end an end that nobody may cross: damaged addresses and indices of a file lead
 * there.
 */
void fence_begin(uint64_t file_size);
void fence_end(void);

#endif
