/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which cases an attention mode measures. */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "bench.h"
#include "workload.h"

enum { CASES_MOST = 16 };

/*
 * The case that the keys describe, or the default ones of the mode, and how many there are. An enum
 * exit_code, with a message; free the sequence of each case in any case.
 */
int cases_make(const struct bench *bench, struct bench_case list[CASES_MOST], unsigned *out_count);

#endif
