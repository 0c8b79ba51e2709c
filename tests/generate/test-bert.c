/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Encoder models: the tokenizer on a small vocabulary, and the refusal of files that do not fit. */
#include "serve/embed.h"
#include "small-bert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loads a variant and returns the message. */
static const char *load(const struct small_bert *variant)
{
    static struct failure err;
    struct embedder e;
    size_t size;
    uint8_t *data = small_bert_build(variant, &size);
    failure_set(&err, "was accepted");
    embedder_load_memory(&e, "small", data, size, &err);
    embedder_finish(&e);
    free(data);
    return err.text;
}

static void expect(const struct small_bert *variant, const char *part)
{
    const char *text = load(variant);
    cr_assert(strstr(text, part), "wanted '%s' in '%s'", part, text);
}

Test(bert, loads)
{
    expect(&(struct small_bert){0}, "was accepted");
    expect(&(struct small_bert){.pooling = 2}, "was accepted");
    expect(&(struct small_bert){.without = "bert.pooling_type"}, "was accepted");
}

Test(bert, names_what_is_wrong_in_the_metadata)
{
    expect(&(struct small_bert){.pooling = 4}, "bert.pooling_type is 4; accepted are 1 (mean) and 2 (first)");
    expect(&(struct small_bert){.causal = 1}, "bert.attention.causal is true; accepted is false");
    expect(&(struct small_bert){.heads = 3},
           "bert.embedding_length is 64; accepted are multiples of the 3 heads");
    expect(&(struct small_bert){.without = "bert.block_count"}, "metadata key bert.block_count is missing");
    expect(&(struct small_bert){.without = "bert.attention.layer_norm_epsilon"},
           "metadata key bert.attention.layer_norm_epsilon is missing");
    expect(&(struct small_bert){.without = "tokenizer.ggml.cls_token_id"},
           "metadata key tokenizer.ggml.cls_token_id is missing");
}

Test(bert, names_what_is_wrong_with_the_tensors)
{
    expect(&(struct small_bert){.without = "blk.1.attn_k.bias"}, "tensor blk.1.attn_k.bias is missing");
    expect(&(struct small_bert){.without = "token_embd.weight"}, "tensor token_embd.weight is missing");
    expect(&(struct small_bert){.reshaped = "position_embd.weight"},
           "tensor position_embd.weight has shape [64, 81, 1, 1]; accepted is [64, 80, 1, 1]");
    expect(&(struct small_bert){.reshaped = "blk.0.ffn_down.weight"},
           "tensor blk.0.ffn_down.weight has shape [96, 65, 1, 1]; accepted is [96, 64, 1, 1]");
    expect(&(struct small_bert){.reshaped = "token_embd.weight"},
           "the vocabulary has 60 tokens; token_embd.weight has 61 rows");
    expect(&(struct small_bert){.extra = "blk.0.attn_rel_b.weight"},
           "tensor blk.0.attn_rel_b.weight does not belong to a model of architecture BERT");
}

/* Tokens of a text, joined by blanks; or the message. */
static const char *tokens(const char *text)
{
    static char out[512];
    static struct failure err;
    struct embedder e;
    struct tokens ids = {0};
    size_t size;
    uint8_t *data = small_bert_build(&(struct small_bert){0}, &size);
    cr_assert_eq(embedder_load_memory(&e, "small", data, size, &err), 0, "%s", err.text);
    out[0] = 0;
    int status = embedder_encode(&e, text, &ids, &err);
    for (size_t i = 0; i < ids.count; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), i ? " %d" : "%d", ids.ids[i]);
    tokens_finish(&ids);
    embedder_finish(&e);
    free(data);
    return status < 0 ? err.text : out;
}

Test(wordpiece, takes_the_longest_piece)
{
    enum { A = 5, DOT = 31, DAY = 32, ABLE = 33, REST = 34 };
    char wanted[64];
    cr_assert_str_eq(tokens(""), "2 3");
    snprintf(wanted, sizeof wanted, "2 4 %d 3", ABLE);
    cr_assert_str_eq(tokens("unable"), wanted);
    snprintf(wanted, sizeof wanted, "2 %d %d 4 3", A + 20, REST + 2);
    cr_assert_str_eq(tokens("UC \t\nU\xcc\x88N"), wanted, "an accent by itself vanishes");
    snprintf(wanted, sizeof wanted, "2 %d %d %d %d %d 3", A, DOT, DAY, DAY, A + 1);
    cr_assert_str_eq(tokens("\xc3\x85.\xe6\x97\xa5\xe6\x97\xa5\xe2\x80\x8b"
                            "b"),
                     wanted, "marks and ideographs are words, accents and invisible characters vanish");
    cr_assert_str_eq(tokens("a1"), "2 1 3", "a word with an unknown piece is unknown as a whole");
}

Test(wordpiece, knows_no_words_above_100_characters)
{
    char text[128];
    memset(text, 'a', sizeof text);
    text[100] = 0;
    cr_assert(strstr(tokens(text), "has 102 tokens; the model accepts up to 80"), "%s", tokens(text));
    text[100] = 'a';
    text[101] = 0;
    cr_assert_str_eq(tokens(text), "2 1 3");
}

Test(wordpiece, refuses_what_is_not_utf8)
{
    static const char *const bad[] = {
        "ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xe6\x97"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert(strstr(tokens(bad[i]), "byte 2 of the text is 0x"), "%s", tokens(bad[i]));
}

Test(wordpiece, folds_characters)
{
    static const struct {
        uint32_t code, count, out[3];
    } cases[] = {{'A', 1, {'a'}},
                 {0xe9, 1, {'e'}},
                 {0x130, 1, {'i'}},
                 {0x3a3, 1, {0x3c3}},
                 {0x301, 0, {0}},
                 {0x200b, 0, {0}},
                 {0xa0, 1, {' '}},
                 {0xfffd, 0, {0}},
                 {0x101, 1, {'a'}},
                 {0x100, 1, {'a'}},
                 {0x1e9e, 1, {0xdf}},
                 {0xf900, 1, {0x8c48}},
                 {0xac00, 2, {0x1100, 0x1161}},
                 {0xd7a3, 3, {0x1112, 0x1175, 0x11c2}},
                 {0x9cb, 2, {0x9c7, 0x9be}},
                 {0x10fffd, 0, {0}},
                 {0x65e5, 1, {0x65e5}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[3];
        uint32_t count = wordpiece_fold(cases[i].code, out);
        cr_assert_eq(count, cases[i].count, "U+%04X", cases[i].code);
        cr_assert_eq(memcmp(out, cases[i].out, count * sizeof *out), 0, "U+%04X", cases[i].code);
    }
}
