/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tokenizer on a small vocabulary built here, and on the real one if ATTN_MODEL names the model file. */
#include "small.h"
#include "tokenizer/tokenizer-impl.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void open_small(struct gguf *file, struct tokenizer **t)
{
    struct gguf_writer w = {0};
    struct failure err;
    small_metadata(&w, NULL);
    small_vocab(&w);
    small_open(&w, file);
    cr_assert_eq(tokenizer_create(file, t, &err), 0, "%s", err.text);
}

static void check_ids(const struct tokenizer *t, const char *text, const int32_t *ids, size_t count)
{
    struct tokens got = {0};
    struct failure err;
    cr_assert_eq(tokenizer_encode(t, text, strlen(text), &got, &err), 0, "%s", err.text);
    cr_assert_eq(got.count, count, "'%s' has %zu tokens, not %zu", text, got.count, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(got.ids[i], ids[i], "'%s' token %zu is %d, not %d", text, i, got.ids[i], ids[i]);
    tokens_finish(&got);
}

static void check_text(const struct tokenizer *t, const char *text)
{
    struct tokens ids = {0};
    char back[4096];
    size_t size = 0;
    cr_assert_eq(tokenizer_encode(t, text, strlen(text), &ids, NULL), 0);
    for (size_t i = 0; i < ids.count; i++)
        size += tokenizer_decode(t, ids.ids[i], back + size, sizeof back - size);
    cr_assert(size == strlen(text) && memcmp(back, text, size) == 0, "'%s' came back as '%.*s'", text,
              (int)size, back);
    tokens_finish(&ids);
}

Test(tokenizer, merges_by_rank_and_never_across_pieces)
{
    struct gguf file;
    struct tokenizer *t;
    open_small(&file, &t);
    check_ids(t, "hello", (int32_t[]){257, 'l', 'o'}, 3);
    check_ids(t, "hehe", (int32_t[]){256, 256}, 2);
    check_ids(t, "elel", (int32_t[]){258, 258}, 2);
    check_ids(t, "h e", (int32_t[]){'h', ' ', 'e'}, 3);
    check_ids(t, "he5l", (int32_t[]){256, '5', 'l'}, 3);
    check_ids(t, "", NULL, 0);
    tokenizer_destroy(t);
    small_close(&file);
}

Test(tokenizer, recognises_special_tokens_in_text)
{
    struct gguf file;
    struct tokenizer *t;
    char none[8];
    open_small(&file, &t);
    check_ids(t, "<|im_start|>he<|im_end|>", (int32_t[]){259, 256, 260}, 3);
    check_ids(t, "<|im_end|", (int32_t[]){'<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|'}, 9);
    cr_assert_eq(tokenizer_decode(t, 259, none, sizeof none), 0);
    cr_assert(tokenizer_ends(t, 260));
    cr_assert_not(tokenizer_ends(t, 259));
    cr_assert_eq(tokenizer_find(t, "hel"), 257);
    tokenizer_destroy(t);
    small_close(&file);
}

Test(tokenizer, gives_every_byte_back)
{
    struct gguf file;
    struct tokenizer *t;
    char text[8];
    open_small(&file, &t);
    check_text(t, "tabs\t and  lines\r\n\n end  ");
    check_text(t, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xd0\x96 \xe0\xa5\xa7\xe0\xa5\xa8");
    for (int32_t id = 0; id < 256; id++) {
        cr_assert_eq(tokenizer_decode(t, id, text, sizeof text), 1);
        cr_assert_eq((unsigned char)text[0], id);
    }
    tokenizer_destroy(t);
    small_close(&file);
}

Test(tokenizer, refuses_text_that_is_not_utf8)
{
    struct gguf file;
    struct tokenizer *t;
    struct tokens ids = {0};
    struct failure err;
    open_small(&file, &t);
    cr_assert_lt(tokenizer_encode(t, "ab\xff", 3, &ids, &err), 0);
    cr_assert(strstr(err.text, "byte 2"), "%s", err.text);
    tokens_finish(&ids);
    tokenizer_destroy(t);
    small_close(&file);
}

static int collect(void *arg, const char *piece, size_t size, struct failure *err)
{
    char *text = arg;
    (void)err;
    strncat(text, piece, size);
    strcat(text, "|");
    return 0;
}

Test(tokenizer, splits_as_digits_then_gpt2)
{
    static const struct {
        const char *text;
        const char *pieces;
    } cases[] = {
        {"I'm 42 years", "I|'m| |4|2| years|"},
        {"a   b", "a|  | b|"},
        {"a  5", "a|  |5|"},
        {"x\n\ny", "x|\n|\n|y|"},
        {"end  \n", "end|  \n|"},
        {"wow!!! (no)", "wow|!!!| (|no|)|"},
        {"\xc3\xa9t\xc3\xa9 \xd9\xa3", "\xc3\xa9t\xc3\xa9| |\xd9\xa3|"},
    };
    struct pretoken *pre;
    cr_assert_eq(pretoken_create((struct gguf_string){"smollm", 6}, &pre, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char pieces[256] = "";
        cr_assert_eq(pretoken_split(pre, cases[i].text, strlen(cases[i].text), collect, pieces, NULL), 0);
        cr_assert_str_eq(pieces, cases[i].pieces);
    }
    pretoken_destroy(pre);
}

static const char *refusal(const char *key, const char *value)
{
    static struct failure err;
    struct gguf_writer w = {0};
    struct gguf file;
    struct tokenizer *t;
    small_metadata(&w, key);
    gguf_write_string(&w, key, value);
    small_vocab(&w);
    small_open(&w, &file);
    cr_assert_lt(tokenizer_create(&file, &t, &err), 0);
    small_close(&file);
    return err.text;
}

#define ELSEWHERE "the clients for ggml, transformers, vLLM and SGLang run other models"

Test(tokenizer, refuses_other_kinds_by_name)
{
    cr_assert_str_eq(refusal("tokenizer.ggml.model", "llama"),
                     "small: tokenizer.ggml.model is 'llama'; accepted is gpt2 (byte-level BPE); " ELSEWHERE);
    cr_assert_str_eq(refusal("tokenizer.ggml.pre", "qwen2"),
                     "small: tokenizer.ggml.pre is 'qwen2'; accepted is smollm; " ELSEWHERE);
}

/* Files of tokenizers of other kinds have no pre-tokenizer, which must not be what the message is about. */
Test(tokenizer, looks_at_the_kind_before_the_pre_tokenizer)
{
    static struct failure err;
    struct gguf_writer w = {0};
    struct gguf file;
    struct tokenizer *t;
    gguf_write_string(&w, "tokenizer.ggml.model", "llama");
    small_open(&w, &file);
    cr_assert_lt(tokenizer_create(&file, &t, &err), 0);
    cr_assert(strstr(err.text, "tokenizer.ggml.model is 'llama'; accepted is gpt2"), "%s", err.text);
    small_close(&file);
}

static void stream(const char *bytes, size_t size, const char *want)
{
    struct utf8_stream s = {0};
    char all[256];
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += utf8_stream_push(&s, bytes[i], all + count);
    count += utf8_stream_end(&s, all + count);
    all[count] = 0;
    cr_assert_str_eq(all, want);
}

Test(tokenizer, prints_only_whole_characters)
{
    struct utf8_stream s = {0};
    char out[8];
    cr_assert_eq(utf8_stream_push(&s, '\xe2', out), 0);
    cr_assert_eq(utf8_stream_push(&s, '\x82', out), 0);
    cr_assert_eq(utf8_stream_push(&s, '\xac', out), 3);
    cr_assert(memcmp(out, "\xe2\x82\xac", 3) == 0);
    stream("a\xe2\x82z", 4, "a\xef\xbf\xbdz");
    stream("\xe2\xff", 2, "\xef\xbf\xbd\xef\xbf\xbd");
    stream("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    stream("\xf0\x9f\x98", 3, "\xef\xbf\xbd");
    stream("\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80");
}

Test(tokenizer, reads_the_real_vocabulary)
{
    const char *path = getenv("ATTN_MODEL");
    if (!path || !path[0])
        cr_skip_test("ATTN_MODEL is not set: no model file");
    struct gguf file;
    struct tokenizer *t;
    struct failure err;
    cr_assert_eq(gguf_open(path, &file, &err), 0, "%s", err.text);
    cr_assert_eq(tokenizer_create(&file, &t, &err), 0, "%s", err.text);
    cr_assert_gt(tokenizer_size(t), 256);
    check_text(t,
               "The quick brown fox, 1234 times;  tabs\tand \xc3\xbcml\xc3\xa4ute \xf0\x9f\x98\x80\n\n end ");
    tokenizer_destroy(t);
    gguf_close(&file);
}
