/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Byte-level BPE tokenizer built from the metadata of a GGUF file. */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"
#include "gguf/gguf.h"

struct tokenizer;

/* The longest text of a token that is accepted. */
enum { TOKENIZER_MOST_BYTES = 65535 };

/* A growing list of token ids. */
struct tokens {
    int32_t *ids;
    size_t count;
    size_t room;
};

int tokens_add(struct tokens *tokens, int32_t id, struct failure *err);
void tokens_finish(struct tokens *tokens);

/* The file must stay open while the tokenizer is in use: texts are not copied. */
int tokenizer_create(const struct gguf *file, struct tokenizer **out, struct failure *err);
void tokenizer_destroy(struct tokenizer *t);

uint32_t tokenizer_size(const struct tokenizer *t);

/* The id of the token that has this text in the file, -1 when there is none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text);

/* Appends the ids of a UTF-8 text, in which names of special tokens are recognised. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t size, struct tokens *out,
                     struct failure *err);

/*
 * The bytes of a token, which need not end at a character. Special tokens have none. Writes at most size
 * bytes and returns how many the token has.
 */
size_t tokenizer_decode(const struct tokenizer *t, int32_t id, char *out, size_t size);

/* Whether the token ends a text: the model's own end, or a control token known as one. */
bool tokenizer_ends(const struct tokenizer *t, int32_t id);

/* Bytes of a stream that are not yet a whole character. */
struct utf8_stream {
    char bytes[4];
    uint32_t count;
};

/*
 * Takes one byte and returns how many bytes are to be printed from out (room for 8): none while a character
 * is incomplete, or replacement characters for what cannot become one.
 */
size_t utf8_stream_push(struct utf8_stream *stream, char byte, char *out);

/* What is to be printed when no more bytes come. */
size_t utf8_stream_end(struct utf8_stream *stream, char *out);

#endif
