/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Recorded writes and runs as calls of the original's kernels. */
#ifndef GOLDEN_TRACE_CALLS_H
#define GOLDEN_TRACE_CALLS_H

#include <stdlib.h>

#include "golden.h"
#include "recorder.h"

/* `prompts`: the step has some, and their run is the first. */
json_t *trace_calls(const struct recorded_call *calls, uint32_t count, bool infer, bool prompts);

#endif
