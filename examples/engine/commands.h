/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The command of attn-generate for speech models. */
#ifndef ENGINE_COMMANDS_H
#define ENGINE_COMMANDS_H

#include <stdint.h>

#include "args.h"
#include "failure.h"
#include "serve/prompts.h"

/* Prints the text of each WAV file, with a model of the architecture whisper; the prompts are paths. */
int speech_clips(const struct arguments *a, struct prompts *files, uint32_t threads, struct failure *err);

#endif
