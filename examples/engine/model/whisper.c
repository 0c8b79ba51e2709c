/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hyper-parameters and tensors of a Whisper model. */
#include "whisper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int read_token(const struct gguf *file, const char *key, uint32_t vocab, int32_t *out,
                      struct failure *err)
{
    uint64_t value = 0;
    if (gguf_get_u64(file, key, true, 0, vocab - 1, &value, err) < 0)
        return -1;
    *out = (int32_t)value;
    return 0;
}

static int read_tokens(const struct gguf *file, struct whisper_shape *s, struct failure *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(file, "token_embd.weight");
    const struct gguf_value *texts = gguf_find(file, "tokenizer.ggml.tokens");
    if (!t)
        return failure_set(err, "%s: tensor token_embd.weight is missing", file->path);
    if (t->shape[1] > INT32_MAX)
        return failure_set(err, "%s: tensor token_embd.weight has %" PRIu64 " rows; accepted are up to %d",
                           file->path, t->shape[1], INT32_MAX);
    s->vocab = (uint32_t)t->shape[1];
    if (!texts || !texts->array || texts->type != GGUF_STRING || texts->count != s->vocab)
        return failure_set(err,
                           "%s: tokenizer.ggml.tokens is %s; accepted is an array of %" PRIu32 " strings",
                           file->path, texts ? "something else" : "missing", s->vocab);
    if (read_token(file, "tokenizer.ggml.bos_token_id", s->vocab, &s->begin, err) < 0 ||
        read_token(file, "tokenizer.ggml.eos_token_id", s->vocab, &s->end, err) < 0)
        return -1;
    return read_token(file, "whisper.no_timestamps_token_id", s->vocab, &s->plain, err);
}

static int read_shape(const struct gguf *file, struct whisper_shape *s, struct failure *err)
{
    const struct {
        const char *key;
        uint64_t most;
        uint32_t *out;
    } list[] = {{"whisper.encoder.block_count", 1024, &s->encoder_layers},
                {"whisper.decoder.block_count", 1024, &s->decoder_layers},
                {"whisper.context_length", 1u << 20, &s->context},
                {"whisper.encoder.context_length", 1u << 20, &s->encoder_rows},
                {"whisper.mel_bands", 1024, &s->bands},
                {"whisper.embedding_length", 1u << 20, &s->width},
                {"whisper.feed_forward_length", 1u << 22, &s->hidden},
                {"whisper.attention.head_count", 1024, &s->heads}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (weights_get_u32(file, list[i].key, list[i].most, list[i].out, err) < 0)
            return -1;
    if (weights_get_epsilon(file, "whisper.attention.layer_norm_epsilon", &s->epsilon, err) < 0)
        return -1;
    if (s->width % s->heads != 0 || s->width / s->heads > 1024)
        return failure_set(err,
                           "%s: whisper.embedding_length is %u; accepted are multiples of the %u heads, up "
                           "to 1024 times as much",
                           file->path, s->width, s->heads);
    s->head_dim = s->width / s->heads;
    return read_tokens(file, s, err);
}

static int load_attention(struct whisper *w, const char *prefix, const char *kind,
                          struct whisper_attention *out, struct failure *err)
{
    uint32_t width = w->shape.width;
    static const char *const parts[] = {"q", "k", "v", "o"};
    struct dense *const dense[] = {&out->q, &out->k, &out->v, &out->o};
    char name[32];
    snprintf(name, sizeof name, "%s_norm", kind);
    if (weights_take_norm(&w->weights, prefix, name, width, &out->norm, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++) {
        snprintf(name, sizeof name, "%s_%s", kind, parts[i]);
        if (weights_take_dense(&w->weights, prefix, name, width, width, dense[i], err) < 0)
            return -1;
    }
    return 0;
}

static int load_layers(struct whisper *w, const char *side, uint32_t count, bool cross,
                       struct whisper_layer **out, struct failure *err)
{
    const struct whisper_shape *s = &w->shape;
    struct whisper_layer *layers = calloc(count, sizeof *layers);
    *out = layers;
    if (!layers)
        return failure_set(err, "no memory for %" PRIu32 " layers", count);
    for (uint32_t i = 0; i < count; i++) {
        struct whisper_layer *l = &layers[i];
        char prefix[32];
        snprintf(prefix, sizeof prefix, "%s.blk.%" PRIu32, side, i);
        if (load_attention(w, prefix, "attn", &l->self, err) < 0 ||
            (cross && load_attention(w, prefix, "cross_attn", &l->cross, err) < 0) ||
            weights_take_norm(&w->weights, prefix, "ffn_norm", s->width, &l->norm, err) < 0 ||
            weights_take_dense(&w->weights, prefix, "ffn_up", s->width, s->hidden, &l->up, err) < 0 ||
            weights_take_dense(&w->weights, prefix, "ffn_down", s->hidden, s->width, &l->down, err) < 0)
            return -1;
    }
    return 0;
}

static int load(const struct gguf *file, struct whisper *w, struct failure *err)
{
    struct whisper_shape *s = &w->shape;
    struct weights *t = &w->weights;
    if (read_shape(file, s, err) < 0 || weights_init(t, file, err) < 0)
        return -1;
    if (weights_take(t, "token_embd.weight", s->width, s->vocab, 1, &w->tokens, err) < 0 ||
        weights_take(t, "position_embd.weight", s->width, s->context, 1, &w->positions, err) < 0 ||
        weights_take(t, "enc.position_embd.weight", s->width, s->encoder_rows, 1, &w->encoder_positions,
                     err) < 0 ||
        weights_take_dense(t, "enc", "conv1", 3 * s->bands, s->width, &w->conv[0], err) < 0 ||
        weights_take_dense(t, "enc", "conv2", 3 * s->width, s->width, &w->conv[1], err) < 0 ||
        weights_take_norm(t, "enc", "output_norm", s->width, &w->encoder_norm, err) < 0 ||
        weights_take_norm(t, "dec", "output_norm", s->width, &w->decoder_norm, err) < 0 ||
        load_layers(w, "enc", s->encoder_layers, false, &w->encoder, err) < 0 ||
        load_layers(w, "dec", s->decoder_layers, true, &w->decoder, err) < 0)
        return -1;
    return weights_check_all(t, "Whisper", err);
}

int whisper_load(const struct gguf *file, struct whisper *out, struct failure *err)
{
    *out = (struct whisper){0};
    if (load(file, out, err) == 0)
        return 0;
    whisper_finish(out);
    return -1;
}

void whisper_finish(struct whisper *w)
{
    weights_finish(&w->weights);
    free(w->encoder);
    free(w->decoder);
    *w = (struct whisper){0};
}
