/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the small Whisper model with seeded weights. */
#include "small-whisper.h"

#include "gguf/gguf.h"
#include "model/quant.h"
#include "rng.h"

#include <stdio.h>
#include <string.h>

const char small_clip[44 + 640] =
    "RIFF\xa4\x02\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data\x80\x02";

enum { WIDTH = 64, HIDDEN = 96, LAYERS = 2, HEADS = 2 };

struct maker {
    struct gguf_writer w;
    const struct small_whisper *variant;
    uint64_t seed;
};

static int is(const char *name, const char *wanted)
{
    return wanted && strcmp(name, wanted) == 0;
}

static void put_u32(struct maker *m, const char *key, uint32_t value)
{
    if (!is(key, m->variant->without))
        gguf_write_u32(&m->w, key, value);
}

/* Values around 1 in scales of norms, around 0 elsewhere. */
static void put_tensor(struct maker *m, const char *name, uint32_t inputs, uint32_t outputs, float spread)
{
    uint32_t rows = (outputs ? outputs : 1) + (is(name, m->variant->reshaped) ? 1u : 0u);
    float middle = strstr(name, "norm.weight") ? 1.0f : 0.0f;
    size_t count = (size_t)inputs * rows;
    if (is(name, m->variant->without))
        return;
    float *data =
        gguf_write_tensor(&m->w, name, QUANT_F32, inputs, rows == 1 ? 0 : rows, count * sizeof *data);
    for (size_t i = 0; data && i < count; i++)
        data[i] = middle + ((float)(rng_next(&m->seed) >> 40) * 0x1p-24f - 0.5f) * spread;
}

/* What cross-attention does is strong, so that texts depend on the clip. */
static void put_pair(struct maker *m, const char *prefix, const char *name, uint32_t inputs, uint32_t outputs)
{
    float spread = strncmp(name, "cross", 5) == 0 && outputs ? 1.6f : 0.4f;
    char text[96];
    snprintf(text, sizeof text, "%s.%s.weight", prefix, name);
    put_tensor(m, text, inputs, outputs, spread);
    snprintf(text, sizeof text, "%s.%s.bias", prefix, name);
    put_tensor(m, text, outputs ? outputs : inputs, 0, 0.4f);
}

static void put_attention(struct maker *m, const char *prefix, const char *kind)
{
    static const char *const parts[] = {"q", "k", "v", "o"};
    char name[32];
    snprintf(name, sizeof name, "%s_norm", kind);
    put_pair(m, prefix, name, WIDTH, 0);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(name, sizeof name, "%s_%s", kind, parts[i]);
        put_pair(m, prefix, name, WIDTH, WIDTH);
    }
}

static void put_layers(struct maker *m, const char *side, int cross)
{
    for (int i = 0; i < LAYERS; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s.blk.%d", side, i);
        put_attention(m, prefix, "attn");
        if (cross)
            put_attention(m, prefix, "cross_attn");
        put_pair(m, prefix, "ffn_norm", WIDTH, 0);
        put_pair(m, prefix, "ffn_up", WIDTH, HIDDEN);
        put_pair(m, prefix, "ffn_down", HIDDEN, WIDTH);
    }
}

/* Bytes are written as byte-level vocabularies do it: unprintable ones from U+0100 on. */
static void put_vocabulary(struct maker *m)
{
    static const char *const names[] = {"<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"};
    unsigned next = 256;
    gguf_write_string(&m->w, "tokenizer.ggml.model", "gpt2");
    gguf_write_array(&m->w, "tokenizer.ggml.tokens", GGUF_STRING, SMALL_WHISPER_VOCAB);
    for (unsigned byte = 0; byte < 256; byte++) {
        int plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        unsigned code = plain ? byte : next++;
        char text[2] = {(char)(code < 0x80 ? code : 0xc0 | code >> 6), (char)(0x80 | (code & 0x3f))};
        gguf_put_string(&m->w.pairs, text, code < 0x80 ? 1 : 2);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        gguf_put_string(&m->w.pairs, names[i], strlen(names[i]));
    put_u32(m, "tokenizer.ggml.eos_token_id", 256);
    put_u32(m, "tokenizer.ggml.bos_token_id", 257);
    put_u32(m, "whisper.no_timestamps_token_id", 258);
}

static void put_keys(struct maker *m)
{
    gguf_write_string(&m->w, "general.architecture", "whisper");
    gguf_write_string(&m->w, "general.name", "small-whisper");
    put_u32(m, "whisper.encoder.block_count", LAYERS);
    put_u32(m, "whisper.decoder.block_count", LAYERS);
    put_u32(m, "whisper.context_length", SMALL_WHISPER_CONTEXT);
    put_u32(m, "whisper.encoder.context_length", SMALL_WHISPER_ROWS);
    put_u32(m, "whisper.mel_bands", SMALL_WHISPER_BANDS);
    put_u32(m, "whisper.embedding_length", WIDTH);
    put_u32(m, "whisper.feed_forward_length", HIDDEN);
    put_u32(m, "whisper.attention.head_count", HEADS);
    gguf_write_f32(&m->w, "whisper.attention.layer_norm_epsilon", 1e-5f);
}

uint8_t *small_whisper_build(const struct small_whisper *variant, size_t *out_size)
{
    struct maker m = {.variant = variant, .seed = 11};
    put_keys(&m);
    put_vocabulary(&m);
    put_tensor(&m, "token_embd.weight", WIDTH, SMALL_WHISPER_VOCAB, 2.0f);
    put_tensor(&m, "position_embd.weight", WIDTH, SMALL_WHISPER_CONTEXT, 2.0f);
    put_tensor(&m, "enc.position_embd.weight", WIDTH, SMALL_WHISPER_ROWS, 2.0f);
    put_pair(&m, "enc", "conv1", 3 * SMALL_WHISPER_BANDS, WIDTH);
    put_pair(&m, "enc", "conv2", 3 * WIDTH, WIDTH);
    put_pair(&m, "enc", "output_norm", WIDTH, 0);
    put_pair(&m, "dec", "output_norm", WIDTH, 0);
    put_layers(&m, "enc", 0);
    put_layers(&m, "dec", 1);
    if (variant->extra)
        put_tensor(&m, variant->extra, WIDTH, 0, 1.0f);
    return gguf_write_finish(&m.w, out_size);
}
