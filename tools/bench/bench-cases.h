/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which cases an attention mode measures. */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "bench.h"
#include "workload.h"

/*
 * The case number `index` of the mode: the one that the keys describe, or the default ones. *out_more is
 * false behind the last. An enum exit_code, with a message; free out->sequence in any case.
 */
int cases_next(const struct bench *bench, unsigned index, struct bench_case *out, bool *out_more);

#endif
