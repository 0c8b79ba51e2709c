/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The architectures of models that this sample engine has a forward pass for. */
#ifndef ENGINE_ARCHITECTURE_H
#define ENGINE_ARCHITECTURE_H

#include "failure.h"
#include "gguf/gguf.h"

enum architecture { ARCHITECTURE_LLAMA, ARCHITECTURE_WHISPER, ARCHITECTURES };

/* Where a model that is refused can go; the end of such messages. */
#define ARCHITECTURE_ELSEWHERE "the clients for ggml, transformers, vLLM and SGLang run other models"

/* general.architecture of a file; one that is not known is refused by name. */
int architecture_read(const struct gguf *file, enum architecture *out, struct failure *err);

/* Refuses a file of any other architecture. */
int architecture_expect(const struct gguf *file, enum architecture wanted, struct failure *err);

#endif
