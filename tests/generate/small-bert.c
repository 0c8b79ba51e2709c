/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the small BERT encoder with seeded weights. */
#include "small-bert.h"

#include "gguf/gguf.h"
#include "model/quant.h"
#include "rng.h"

#include <stdio.h>
#include <string.h>

enum { HIDDEN = 96, TOKENS = 4 + 1 + 26 + 2 + 1 + 26 };

static int is(const char *name, const char *wanted)
{
    return wanted && strcmp(name, wanted) == 0;
}

static void put_u32(struct gguf_writer *w, const struct small_bert *v, const char *key, uint32_t value)
{
    if (!is(key, v->without))
        gguf_write_u32(w, key, value);
}

static void put_vocabulary(struct gguf_writer *w, const struct small_bert *v)
{
    static const char *const first[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\xe2\x96\x81un"};
    char text[8];
    gguf_write_string(w, "tokenizer.ggml.model", "bert");
    gguf_write_array(w, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        gguf_put_string(&w->pairs, first[i], strlen(first[i]));
    for (char c = 'a'; c <= 'z'; c++) {
        snprintf(text, sizeof text, "\xe2\x96\x81%c", c);
        gguf_put_string(&w->pairs, text, 4);
    }
    gguf_put_string(&w->pairs, "\xe2\x96\x81.", 4);
    gguf_put_string(&w->pairs, "\xe2\x96\x81\xe6\x97\xa5", 6);
    gguf_put_string(&w->pairs, "able", 4);
    for (char c = 'a'; c <= 'z'; c++)
        gguf_put_string(&w->pairs, &c, 1);
    put_u32(w, v, "tokenizer.ggml.cls_token_id", 2);
    put_u32(w, v, "tokenizer.ggml.seperator_token_id", 3);
    put_u32(w, v, "tokenizer.ggml.unknown_token_id", 1);
}

static void put_tensor(struct gguf_writer *w, const struct small_bert *v, const char *name, uint32_t inputs,
                       uint32_t outputs, uint64_t *seed)
{
    uint32_t rows = (outputs ? outputs : 1) + (is(name, v->reshaped) ? 1u : 0u);
    float middle = strstr(name, "norm.weight") ? 1.0f : 0.0f;
    if (is(name, v->without))
        return;
    size_t count = (size_t)inputs * rows;
    float *data = gguf_write_tensor(w, name, QUANT_F32, inputs, rows == 1 ? 0 : rows, count * sizeof *data);
    for (size_t i = 0; data && i < count; i++)
        data[i] = middle + ((float)(rng_next(seed) >> 40) * 0x1p-24f - 0.5f) * 0.3f;
}

static void put_pair(struct gguf_writer *w, const struct small_bert *v, const char *name, uint32_t inputs,
                     uint32_t outputs, uint64_t *seed)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    put_tensor(w, v, text, inputs, outputs, seed);
    snprintf(text, sizeof text, "%s.bias", name);
    put_tensor(w, v, text, outputs ? outputs : inputs, 0, seed);
}

static void put_layer(struct gguf_writer *w, const struct small_bert *v, uint32_t index, uint64_t *seed)
{
    enum { W = SMALL_BERT_WIDTH };
    static const struct {
        const char *name;
        uint32_t inputs, outputs;
    } list[] = {{"attn_q", W, W},        {"attn_k", W, W},           {"attn_v", W, W},
                {"attn_output", W, W},   {"attn_output_norm", W, 0}, {"ffn_up", W, HIDDEN},
                {"ffn_down", HIDDEN, W}, {"layer_output_norm", W, 0}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.%s", index, list[i].name);
        put_pair(w, v, name, list[i].inputs, list[i].outputs, seed);
    }
}

uint8_t *small_bert_build(const struct small_bert *v, size_t *out_size)
{
    struct gguf_writer w = {0};
    uint64_t seed = 7;
    gguf_write_string(&w, "general.architecture", "bert");
    gguf_write_string(&w, "general.name", "small-bert");
    put_u32(&w, v, "bert.block_count", SMALL_BERT_LAYERS);
    put_u32(&w, v, "bert.context_length", SMALL_BERT_CONTEXT);
    put_u32(&w, v, "bert.embedding_length", SMALL_BERT_WIDTH);
    put_u32(&w, v, "bert.feed_forward_length", HIDDEN);
    put_u32(&w, v, "bert.attention.head_count", v->heads ? v->heads : 2);
    put_u32(&w, v, "bert.pooling_type", v->pooling ? v->pooling : 1);
    if (!is("bert.attention.layer_norm_epsilon", v->without))
        gguf_write_f32(&w, "bert.attention.layer_norm_epsilon", 1e-12f);
    if (v->causal) {
        gguf_put_string(&w.pairs, "bert.attention.causal", 21);
        gguf_put_u32(&w.pairs, GGUF_BOOL);
        gguf_put(&w.pairs, &(uint8_t){1}, 1);
        w.pair_count++;
    }
    put_vocabulary(&w, v);
    put_tensor(&w, v, "token_embd.weight", SMALL_BERT_WIDTH, TOKENS, &seed);
    put_tensor(&w, v, "position_embd.weight", SMALL_BERT_WIDTH, SMALL_BERT_CONTEXT, &seed);
    put_tensor(&w, v, "token_types.weight", SMALL_BERT_WIDTH, 2, &seed);
    put_pair(&w, v, "token_embd_norm", SMALL_BERT_WIDTH, 0, &seed);
    for (uint32_t i = 0; i < SMALL_BERT_LAYERS; i++)
        put_layer(&w, v, i, &seed);
    if (v->extra)
        put_tensor(&w, v, v->extra, SMALL_BERT_WIDTH, 0, &seed);
    return gguf_write_finish(&w, out_size);
}
