/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The commands of attn-generate for models other than language models. */
#ifndef ENGINE_COMMANDS_H
#define ENGINE_COMMANDS_H

#include <stdint.h>

#include "args.h"
#include "failure.h"
#include "serve/prompts.h"

/* Prints an embedding of each prompt, with an encoder of the architecture bert. */
int embed_prompts(const struct arguments *a, const struct prompts *prompts, uint32_t threads,
                  struct failure *err);

/* Prints the text of each WAV file, with a model of the architecture whisper; the prompts are paths. */
int speech_clips(const struct arguments *a, struct prompts *files, uint32_t threads, struct failure *err);

#endif
