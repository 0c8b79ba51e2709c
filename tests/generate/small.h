/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Small GGUF files for the tests of attn-generate. */
#ifndef TESTS_GENERATE_SMALL_H
#define TESTS_GENERATE_SMALL_H

#include "gguf/gguf.h"
#include "gguf/writer.h"

enum { SMALL_WIDTH = 8, SMALL_HIDDEN = 6, SMALL_HEADS = 2, SMALL_VOCAB = 261 };

/* Metadata of a tiny Llama model; keys named in "without" (may be NULL) are left out. */
void small_metadata(struct gguf_writer *w, const char *without);

/*
 * Tokens: 256 bytes in order, then "he" (256), "hel" (257), "el" (258), <|im_start|> (259) and <|im_end|>
 * (260), with the merges "h e", "he l" and "e l".
 */
void small_vocab(struct gguf_writer *w);

/* All tensors of the model as F32 with zeros, without the one named (may be NULL). */
void small_tensors(struct gguf_writer *w, const char *without);

/* Joins and opens; on failure the test fails. The memory lives until small_close. */
void small_open(struct gguf_writer *w, struct gguf *file);

/* Joins and opens a file that must be refused; returns the message. */
const char *small_refusal(struct gguf_writer *w);

void small_close(struct gguf *file);

#endif
