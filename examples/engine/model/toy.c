/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the toy model as a GGUF file, so that it takes the same way through the program as any other. */
#include "toy.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "quant.h"
#include "rng.h"
#include "tokenizer/tokenizer-impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYERS = 2,
    WINDOWED_LAYERS = 4,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 64,
    WIDTH = HEADS * HEAD_DIM,
    HIDDEN = 512,
    VOCAB = 257
};

static void write_metadata(struct gguf_writer *w, uint32_t layers, uint32_t window)
{
    gguf_write_string(w, "general.architecture", "llama");
    gguf_write_string(w, "general.name", "toy");
    gguf_write_u32(w, "llama.block_count", layers);
    gguf_write_u32(w, "llama.context_length", 4096);
    gguf_write_u32(w, "llama.embedding_length", WIDTH);
    gguf_write_u32(w, "llama.feed_forward_length", HIDDEN);
    gguf_write_u32(w, "llama.attention.head_count", HEADS);
    gguf_write_u32(w, "llama.attention.head_count_kv", KV_HEADS);
    gguf_write_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_write_f32(w, "llama.rope.freq_base", 10000.0f);
    if (window) {
        gguf_write_u32(w, "llama.attention.sliding_window", window);
        gguf_write_u32(w, "llama.attention.sliding_window_pattern", 2);
    }
    gguf_write_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_string(w, "tokenizer.ggml.pre", "smollm");
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", VOCAB - 1);
}

static void write_vocab(struct gguf_writer *w)
{
    struct tokenizer t;
    tokenizer_init_bytes(&t);
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
    for (int i = 0; i < 256; i++)
        gguf_put_string(&w->pairs, t.bytes[i].text, t.bytes[i].size);
    gguf_put_string(&w->pairs, "<|endoftext|>", strlen("<|endoftext|>"));
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_U32, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        gguf_put_u32(&w->pairs, i < 256 ? TOKEN_NORMAL : TOKEN_CONTROL);
    gguf_write_array(w, "tokenizer.ggml.merges", GGUF_STRING, 0);
}

/* Uniform numbers of the given standard deviation. */
static void fill(float *at, uint64_t count, double deviation, uint64_t *state)
{
    for (uint64_t i = 0; at && i < count; i++)
        at[i] = (float)((rng_unit(state) - 0.5) * sqrt(12.0) * deviation);
}

static void write_matrix(struct gguf_writer *w, const char *name, uint64_t inputs, uint64_t outputs,
                         uint64_t *state)
{
    float *at = gguf_write_tensor(w, name, QUANT_F32, inputs, outputs, inputs * outputs * sizeof(float));
    fill(at, inputs * outputs, 1.0 / sqrt((double)inputs), state);
}

static void write_ones(struct gguf_writer *w, const char *name)
{
    float *at = gguf_write_tensor(w, name, QUANT_F32, WIDTH, 0, WIDTH * sizeof(float));
    for (int i = 0; at && i < WIDTH; i++)
        at[i] = 1.0f;
}

/* Bytes that do not print get a zero row, hence the logit 0, so that greedy output is text of a kind. */
static void write_embedding(struct gguf_writer *w, const char *name, uint64_t *state)
{
    float *at = gguf_write_tensor(w, name, QUANT_F32, WIDTH, VOCAB, (size_t)WIDTH * VOCAB * sizeof(float));
    for (int i = ' '; at && i <= '~'; i++)
        fill(at + (size_t)i * WIDTH, WIDTH, 1.0 / sqrt(WIDTH), state);
}

static void write_layer(struct gguf_writer *w, uint32_t index, uint64_t *state)
{
    static const struct {
        const char *name;
        uint64_t inputs;
        uint64_t outputs;
    } matrices[] = {
        {"attn_q", WIDTH, HEADS * HEAD_DIM},
        {"attn_k", WIDTH, KV_HEADS * HEAD_DIM},
        {"attn_v", WIDTH, KV_HEADS * HEAD_DIM},
        {"attn_output", HEADS * HEAD_DIM, WIDTH},
        {"ffn_gate", WIDTH, HIDDEN},
        {"ffn_up", WIDTH, HIDDEN},
        {"ffn_down", HIDDEN, WIDTH},
    };
    char name[64];
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", index, matrices[i].name);
        write_matrix(w, name, matrices[i].inputs, matrices[i].outputs, state);
    }
    snprintf(name, sizeof name, "blk.%" PRIu32 ".attn_norm.weight", index);
    write_ones(w, name);
    snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_norm.weight", index);
    write_ones(w, name);
}

static int build(uint64_t seed, uint32_t layers, uint32_t window, uint8_t **out, size_t *out_size,
                 struct failure *err)
{
    struct gguf_writer w = {0};
    uint64_t state = seed;
    write_metadata(&w, layers, window);
    write_vocab(&w);
    write_embedding(&w, "token_embd.weight", &state);
    write_embedding(&w, "output.weight", &state);
    write_ones(&w, "output_norm.weight");
    for (uint32_t i = 0; i < layers; i++)
        write_layer(&w, i, &state);
    *out = gguf_write_finish(&w, out_size);
    return *out ? 0 : failure_set(err, "no memory for the toy model");
}

int toy_build(uint64_t seed, uint8_t **out, size_t *out_size, struct failure *err)
{
    return build(seed, LAYERS, 0, out, out_size, err);
}

int toy_build_windowed(uint64_t seed, uint32_t window, uint8_t **out, size_t *out_size, struct failure *err)
{
    return build(seed, WINDOWED_LAYERS, window, out, out_size, err);
}
