/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-generate says about a run. */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include "args.h"
#include "batch.h"
#include "prompts.h"

struct report {
    const struct engine *engine;
    const struct arguments *arguments;
    const struct prompts *prompts;
    const struct sequence *sequences;
    const struct batch_result *result;
    uint32_t threads;
};

/* A line for each prompt that was refused. Fails with the last one if there was nothing else. */
int report_refusals(const struct report *r, struct failure *err);

/* Lines on standard error. */
void report_print(const struct report *r);

/* The whole run as one JSON object on standard output. False after a message, and where the program was built
 * without jansson. */
bool report_json(const struct report *r);

#endif
