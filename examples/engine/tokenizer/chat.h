/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Wraps a question into the turns that a chat model expects. */
#ifndef ENGINE_CHAT_H
#define ENGINE_CHAT_H

#include "failure.h"
#include "gguf/gguf.h"

/*
 * The text to be tokenized for one question of a user, in memory that the caller frees. Without a template in
 * the file it is the question itself; a template that is not ChatML is refused.
 */
int chat_render(const struct gguf *file, const char *question, char **out, struct failure *err);

#endif
