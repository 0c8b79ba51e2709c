/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small generated BERT encoder as a GGUF file. */
#ifndef TESTS_GENERATE_SMALL_BERT_H
#define TESTS_GENERATE_SMALL_BERT_H

#include "gguf/writer.h"

enum { SMALL_BERT_WIDTH = 64, SMALL_BERT_LAYERS = 2, SMALL_BERT_CONTEXT = 80 };

/* What differs from a file that is accepted; zeros: nothing. */
struct small_bert {
    const char *without;  /* a tensor or key that is left out */
    const char *reshaped; /* a tensor with one row too many */
    const char *extra;    /* a tensor that does not belong there */
    uint32_t pooling;     /* 0: 1, the mean */
    uint32_t heads;       /* 0: 2 */
    int causal;
};

/*
 * Tokens: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, words "un", "a" … "z", ".", U+65E5, then pieces "able", "##a" …
 * "##z" without the marks. The caller frees the file.
 */
uint8_t *small_bert_build(const struct small_bert *variant, size_t *out_size);

#endif
