/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-generate does with a model that is no language model. */
#ifndef GENERATE_OTHER_MODELS_H
#define GENERATE_OTHER_MODELS_H

#include <stdbool.h>

#include "args.h"
#include "failure.h"
#include "prompts.h"

/* Whether the file is of the architecture; false also for files that cannot be read, which others report. */
bool model_is(const char *path, const char *architecture);

/* Prints an embedding of each prompt, with an encoder of the architecture bert. */
int embed_prompts(const struct arguments *a, const struct prompts *prompts, uint32_t threads,
                  struct failure *err);

#endif
