/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of the tokenizer share. */
#ifndef ENGINE_TOKENIZER_IMPL_H
#define ENGINE_TOKENIZER_IMPL_H

#include "bpe.h"
#include "pretoken.h"
#include "tokenizer.h"

/* Token kinds of tokenizer.ggml.token_type that matter here. */
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4 };

/* Byte-level vocabularies write bytes as characters below U+0144. */
enum { UNMAP_CODES = 324 };

struct byte_text {
    char text[2];
    uint8_t size;
};

struct special {
    struct gguf_string text;
    int32_t id;
};

struct tokenizer {
    uint32_t count;
    struct gguf_string *texts;
    uint8_t *kinds;
    struct strmap ids;
    struct strmap ranks;
    struct pretoken *pre;
    struct special *specials;
    size_t special_count;
    bool special_lead[256]; /* whether any special begins with this byte */
    bool add_bos;
    int32_t bos;
    int32_t eos;
    int32_t eot;
    int32_t end_of_text;
    int32_t end_of_turn;
    struct byte_text bytes[256];
    int16_t unmap[UNMAP_CODES];
};

/* The writing of bytes as printable characters that byte-level vocabularies use. */
void tokenizer_init_bytes(struct tokenizer *t);

#endif
