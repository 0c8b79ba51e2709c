/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cuts text into the pieces that byte-pair merging never crosses. */
#ifndef ENGINE_PRETOKEN_H
#define ENGINE_PRETOKEN_H

#include <stddef.h>

#include "failure.h"
#include "gguf/gguf.h"

struct pretoken;

/* name is tokenizer.ggml.pre; one that is not known is refused by name. */
int pretoken_create(struct gguf_string name, struct pretoken **out, struct failure *err);
void pretoken_destroy(struct pretoken *pre);

typedef int (*pretoken_piece_fn)(void *arg, const char *piece, size_t size, struct failure *err);

/* Calls piece for each one in order; together they are the text. Stops when piece returns less than 0. */
int pretoken_split(const struct pretoken *pre, const char *text, size_t size, pretoken_piece_fn piece,
                   void *arg, struct failure *err);

#endif
