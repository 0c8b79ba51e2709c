/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builds the small files of the tests. */
#include "small.h"

#include "model/quant.h"
#include "tokenizer/tokenizer-impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wanted(const char *key, const char *without)
{
    return !without || strcmp(key, without) != 0;
}

void small_metadata(struct gguf_writer *w, const char *without)
{
    static const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"llama.block_count", 1},
        {"llama.context_length", 64},
        {"llama.embedding_length", SMALL_WIDTH},
        {"llama.feed_forward_length", SMALL_HIDDEN},
        {"llama.attention.head_count", SMALL_HEADS},
        {"llama.attention.head_count_kv", 1},
    };
    if (wanted("general.architecture", without))
        gguf_write_string(w, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (wanted(numbers[i].key, without))
            gguf_write_u32(w, numbers[i].key, numbers[i].value);
    if (wanted("llama.attention.layer_norm_rms_epsilon", without))
        gguf_write_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (wanted("tokenizer.ggml.model", without))
        gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    if (wanted("tokenizer.ggml.pre", without))
        gguf_write_string(w, "tokenizer.ggml.pre", "smollm");
}

void small_vocab(struct gguf_writer *w)
{
    static const char *const more[] = {"he", "hel", "el", "<|im_start|>", "<|im_end|>"};
    static const char *const merges[] = {"h e", "he l", "e l"};
    struct tokenizer bytes;
    tokenizer_init_bytes(&bytes);
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, SMALL_VOCAB);
    for (int i = 0; i < 256; i++)
        gguf_put_string(&w->pairs, bytes.bytes[i].text, bytes.bytes[i].size);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        gguf_put_string(&w->pairs, more[i], strlen(more[i]));
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_I32, SMALL_VOCAB);
    for (uint32_t i = 0; i < SMALL_VOCAB; i++)
        gguf_put_u32(&w->pairs, i < 259 ? TOKEN_NORMAL : TOKEN_CONTROL);
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, sizeof merges / sizeof merges[0]);
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++)
        gguf_put_string(&w->pairs, merges[i], strlen(merges[i]));
}

void small_tensors(struct gguf_writer *w, const char *without)
{
    static const struct {
        const char *name;
        uint64_t inputs;
        uint64_t outputs;
    } list[] = {
        {"token_embd.weight", SMALL_WIDTH, SMALL_VOCAB},
        {"output_norm.weight", SMALL_WIDTH, 0},
        {"blk.0.attn_norm.weight", SMALL_WIDTH, 0},
        {"blk.0.attn_q.weight", SMALL_WIDTH, SMALL_WIDTH},
        {"blk.0.attn_k.weight", SMALL_WIDTH, 4},
        {"blk.0.attn_v.weight", SMALL_WIDTH, 4},
        {"blk.0.attn_output.weight", SMALL_WIDTH, SMALL_WIDTH},
        {"blk.0.ffn_norm.weight", SMALL_WIDTH, 0},
        {"blk.0.ffn_gate.weight", SMALL_WIDTH, SMALL_HIDDEN},
        {"blk.0.ffn_up.weight", SMALL_WIDTH, SMALL_HIDDEN},
        {"blk.0.ffn_down.weight", SMALL_HIDDEN, SMALL_WIDTH},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        uint64_t elements = list[i].inputs * (list[i].outputs ? list[i].outputs : 1);
        if (wanted(list[i].name, without))
            gguf_write_tensor(w, list[i].name, QUANT_F32, list[i].inputs, list[i].outputs,
                              elements * sizeof(float));
    }
}

void small_open(struct gguf_writer *w, struct gguf *file)
{
    struct failure err = {0};
    size_t size = 0;
    uint8_t *data = gguf_write_finish(w, &size);
    if (!data || gguf_open_memory("small", data, size, file, &err) < 0) {
        fprintf(stderr, "small file: %s\n", err.text);
        abort();
    }
}

const char *small_refusal(struct gguf_writer *w)
{
    static struct failure err;
    struct gguf file;
    size_t size = 0;
    uint8_t *data = gguf_write_finish(w, &size);
    failure_set(&err, "was accepted");
    if (data && gguf_open_memory("small", data, size, &file, &err) == 0)
        gguf_close(&file);
    free(data);
    return err.text;
}

void small_close(struct gguf *file)
{
    void *data = (void *)(uintptr_t)file->data;
    gguf_close(file);
    free(data);
}
