/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the measurements need to know of this machine. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

struct jsonout;

/* Monotonic seconds. */
double machine_now(void);
/* Bytes of the last-level cache; 0 if the kernel does not say. */
uint64_t machine_cache(void);
/* Bytes that can be had without swapping; 0 if the kernel does not say. */
uint64_t machine_memory(void);
/* CPUs that this process may use, at least 1. */
uint32_t machine_cpus(void);

/* Adds the object "machine": what was measured on, and nothing that names one machine among its like. */
void machine_describe(struct jsonout *json);

/*
 * A set of memory that no cache holds: the larger of 256 MiB and 4 times the last-level cache, but at most a
 * quarter of the memory that is there; says once on stderr if that was too little.
 */
uint64_t machine_cold_set(void);
/* From now on this many bytes; 0 = as above. */
void machine_set_cold_set(uint64_t bytes);

/* Sorts and returns the middle; NaN of nothing. */
double median(double *values, uint32_t count);

#endif
