/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fuzz target for everything in attn-generate that reads a model file: the reader, the vocabulary, the chat
 * template and the loading of the tensors.
 */
#include "model/llama.h"
#include "model/whisper.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_tokenizer(const struct tokenizer *t)
{
    static const char text[] = "The 12 hens  said:\n<|im_start|>\xc3\xa9\xe2\x82\xac!<|im_end|> ";
    struct tokens ids = {0};
    struct failure err;
    char bytes[64];
    tokenizer_encode(t, text, sizeof text - 1, &ids, &err);
    for (size_t i = 0; i < ids.count; i++)
        if (ids.ids[i] < 0 || (uint32_t)ids.ids[i] >= tokenizer_size(t))
            abort();
    tokens_finish(&ids);
    for (uint32_t i = 0; i < tokenizer_size(t) && i < 1000; i++)
        tokenizer_decode(t, (int32_t)i, bytes, sizeof bytes);
}

/* Every byte that the reader vouches for must be readable. */
static void touch_tensors(const struct gguf *file)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct gguf_tensor *t = &file->tensors[i];
        sum = (uint8_t)(sum + t->data[0] + t->data[t->bytes - 1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct failure err;
    struct gguf file;
    struct model model;
    struct whisper whisper;
    struct tokenizer *t;
    char *text;
    char name[300];
    if (gguf_open_memory("input", data, size, &file, &err) < 0)
        return 0;
    touch_tensors(&file);
    model_name(&file, name, sizeof name);
    if (tokenizer_create(&file, &t, &err) == 0) {
        use_tokenizer(t);
        tokenizer_destroy(t);
    }
    if (chat_render(&file, "hello", &text, &err) == 0)
        free(text);
    if (model_load(&file, &model, &err) == 0)
        model_finish(&model);
    if (whisper_load(&file, &whisper, &err) == 0)
        whisper_finish(&whisper);
    gguf_close(&file);
    return 0;
}

#ifdef ATTN_FUZZ_REPLAY
#include "replay.h"
#endif
