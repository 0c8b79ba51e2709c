/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-generate does with a model that is no language model. */
#ifndef GENERATE_OTHER_MODELS_H
#define GENERATE_OTHER_MODELS_H

#include <stdbool.h>

#include "args.h"
#include "failure.h"
#include "prompts.h"

/* Does what such a model is for. *out_handled stays false, with success, for language models. */
int other_models_run(const struct arguments *a, struct prompts *prompts, uint32_t threads, bool *out_handled,
                     struct failure *err);

/* Prints an embedding of each prompt, with an encoder of the architecture bert. */
int embed_prompts(const struct arguments *a, const struct prompts *prompts, uint32_t threads,
                  struct failure *err);

/* Prints the text of each WAV file, with a model of the architecture whisper; the prompts are paths. */
int speech_clips(const struct arguments *a, struct prompts *files, uint32_t threads, struct failure *err);

#endif
