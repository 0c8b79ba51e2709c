/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for text on its way into and out of attn-generate: a file of prompts, each turned into tokens
 * of a small vocabulary and back, byte by byte through the printer of incomplete characters.
 */
#define _GNU_SOURCE
#include "fuzz.h"
#include "gguf/writer.h"
#include "serve/prompts.h"
#include "tokenizer/tokenizer-impl.h"

#include <sys/mman.h>
#include <unistd.h>

static struct gguf vocabulary;
static struct tokenizer *tokenizer;
static int prompt_file = -1;
static char prompt_path[64];

/* All bytes, a few merges, and two special tokens. */
static void write_vocabulary(struct gguf_writer *w)
{
    static const char *const more[] = {"he", "hel", "el", "\xc4\xa0h", "<|im_start|>", "<|im_end|>"};
    static const char *const merges[] = {"h e", "he l", "e l", "\xc4\xa0 h"};
    enum { MORE = sizeof more / sizeof more[0], MERGES = sizeof merges / sizeof merges[0] };
    struct tokenizer bytes;
    tokenizer_init_bytes(&bytes);
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", "smollm");
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, 256 + MORE);
    for (int i = 0; i < 256; i++)
        gguf_put_string(&w->pairs, bytes.bytes[i].text, bytes.bytes[i].size);
    for (int i = 0; i < MORE; i++)
        gguf_put_string(&w->pairs, more[i], strlen(more[i]));
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, 256 + MORE);
    for (int i = 0; i < 256 + MORE; i++)
        gguf_put_u32(&w->pairs, i < 256 + MORE - 2 ? TOKEN_NORMAL : TOKEN_CONTROL);
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, MERGES);
    for (int i = 0; i < MERGES; i++)
        gguf_put_string(&w->pairs, merges[i], strlen(merges[i]));
}

static void prepare(void)
{
    struct gguf_writer w = {0};
    size_t size;
    if (tokenizer != NULL)
        return;
    write_vocabulary(&w);
    uint8_t *bytes = gguf_write_finish(&w, &size); /* lives as long as the program */
    FUZZ_CHECK(bytes != NULL && gguf_open_memory("small", bytes, size, &vocabulary, NULL) == 0);
    FUZZ_CHECK(tokenizer_create(&vocabulary, &tokenizer, NULL) == 0);
    prompt_file = memfd_create("prompts", MFD_CLOEXEC);
    FUZZ_CHECK(prompt_file >= 0);
    snprintf(prompt_path, sizeof prompt_path, "/proc/self/fd/%d", prompt_file);
}

/* Bytes that come out of the printer are whole characters; what was one goes through unchanged. */
static void check_stream(const char *text, size_t size, int whole)
{
    struct utf8_stream stream = {.count = 0};
    char *printed = malloc(3 * size + 16);
    size_t used = 0;
    FUZZ_CHECK(printed != NULL);
    for (size_t i = 0; i < size; i++) {
        char out[8];
        size_t count = utf8_stream_push(&stream, text[i], out);
        FUZZ_CHECK(count <= sizeof out && used + count <= 3 * size + 8);
        memcpy(printed + used, out, count);
        used += count;
    }
    used += utf8_stream_end(&stream, printed + used);
    if (whole)
        FUZZ_CHECK(used == size && memcmp(printed, text, size) == 0);
    struct tokens ids = {0};
    FUZZ_CHECK(tokenizer_encode(tokenizer, printed, used, &ids, NULL) == 0);
    tokens_finish(&ids);
    free(printed);
}

/* Tokens give the text back, but for special ones, which have none. */
static void check_text(const char *text, size_t size)
{
    struct tokens ids = {0};
    struct failure err = {""};
    int status = tokenizer_encode(tokenizer, text, size, &ids, &err);
    FUZZ_CHECK(status == 0 || err.text[0] != '\0');
    size_t at = 0;
    for (size_t i = 0; i < ids.count && status == 0; i++) {
        char bytes[16];
        FUZZ_CHECK(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < tokenizer_size(tokenizer));
        const struct gguf_string *name = &tokenizer->texts[ids.ids[i]];
        size_t count = tokenizer_decode(tokenizer, ids.ids[i], bytes, sizeof bytes);
        const char *want = count > 0 ? bytes : name->data;
        count = count > 0 ? count : name->size;
        FUZZ_CHECK(count <= size - at && memcmp(text + at, want, count) == 0);
        at += count;
    }
    FUZZ_CHECK(status != 0 || at == size);
    check_stream(text, size, status == 0);
    tokens_finish(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct prompts prompts;
    struct failure err = {""};
    prepare();
    char *text = fuzz_text(data, size);
    check_text(text, size);
    free(text);
    FUZZ_CHECK(ftruncate(prompt_file, 0) == 0 && pwrite(prompt_file, data, size, 0) == (ssize_t)size);
    int status = prompts_read(prompt_path, &prompts, &err);
    FUZZ_CHECK((status == 0) == (err.text[0] == '\0'));
    for (uint32_t i = 0; status == 0 && i < prompts.count; i++) {
        struct tokens ids = {0};
        FUZZ_CHECK(prompts.list[i].text[0] != '\0' && prompts.list[i].line > 0);
        FUZZ_CHECK(
            tokenizer_encode(tokenizer, prompts.list[i].text, strlen(prompts.list[i].text), &ids, &err) == 0);
        tokens_finish(&ids);
    }
    if (status == 0)
        prompts_finish(&prompts);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
