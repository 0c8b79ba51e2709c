/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* WordPiece tokenizer of uncased BERT models, built from the metadata of a GGUF file. */
#ifndef ENGINE_WORDPIECE_H
#define ENGINE_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "failure.h"
#include "gguf/gguf.h"
#include "tokenizer.h"

struct wordpiece;

/* The file must stay open while the tokenizer is in use: texts are not copied. */
int wordpiece_create(const struct gguf *file, struct wordpiece **out, struct failure *err);
void wordpiece_destroy(struct wordpiece *w);

uint32_t wordpiece_size(const struct wordpiece *w);

/* Appends [CLS], the ids of a UTF-8 text, and [SEP]. Names of special tokens in it are text. */
int wordpiece_encode(const struct wordpiece *w, const char *text, size_t size, struct tokens *out,
                     struct failure *err);

/* What becomes of a character: writes at most three and returns how many, for tests. */
uint32_t wordpiece_fold(uint32_t code, uint32_t *out);

#endif
