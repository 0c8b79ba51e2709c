/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Puts an encoder-decoder model and its attention together, and writes tokens as text. */
#include "speech.h"

#include "matmul.h"
#include "model.h"

#include <inttypes.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are no printable characters are written as characters from U+0100 on, in order. */
static void init_bytes(struct speech *s)
{
    int16_t next = 256;
    for (size_t i = 0; i < sizeof s->byte_of / sizeof s->byte_of[0]; i++)
        s->byte_of[i] = -1;
    for (int16_t byte = 0; byte < 256; byte++) {
        bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        s->byte_of[plain ? byte : next++] = byte;
    }
}

static int load(struct speech *s, struct failure *err)
{
    struct gguf_string name = {0};
    if (gguf_get_string(&s->file, "general.architecture", true, &name, err) < 0)
        return -1;
    if (!gguf_string_equals(name, "whisper"))
        return failure_set(err, "%s: general.architecture is %.*s; accepted is whisper", s->file.path,
                           gguf_width(name), name.data);
    if (whisper_load(&s->file, &s->model, err) < 0)
        return -1;
    s->texts = calloc(s->model.shape.vocab, sizeof *s->texts);
    if (!s->texts)
        return failure_set(err, "%s: no memory for %" PRIu32 " tokens", s->file.path, s->model.shape.vocab);
    const uint8_t *at = gguf_find(&s->file, "tokenizer.ggml.tokens")->data;
    for (uint32_t i = 0; i < s->model.shape.vocab; i++)
        s->texts[i] = gguf_next_string(&at);
    init_bytes(s);
    model_name(&s->file, s->name, sizeof s->name);
    SHA256Data(s->file.data, s->file.size, s->hash);
    return 0;
}

int speech_load(struct speech *s, const char *path, struct failure *err)
{
    *s = (struct speech){0};
    return gguf_open(path, &s->file, err) < 0 ? -1 : load(s, err);
}

int speech_load_memory(struct speech *s, const char *name, const void *data, size_t size, struct failure *err)
{
    *s = (struct speech){0};
    return gguf_open_memory(name, data, size, &s->file, err) < 0 ? -1 : load(s, err);
}

int speech_start(struct speech *s, const struct encoding_options *options, struct failure *err)
{
    enum { PROMPT = 2 };
    const struct whisper_shape *m = &s->model.shape;
    struct encoding_shape shape = {.heads = m->heads, .head_dim = m->head_dim};
    struct encoding_options own = *options;
    shape.layers[ENCODING_ENCODER] = m->encoder_layers;
    shape.layers[ENCODING_SELF] = m->decoder_layers;
    shape.layers[ENCODING_CROSS] = m->decoder_layers;
    own.max_tokens = m->context;
    own.max_rows = PROMPT * own.max_seqs;
    matmul_set_threads(own.threads);
    if (own.max_encoder == 0 || own.max_encoder > m->encoder_rows)
        return failure_set(err, "the longest clip has %" PRIu32 " rows; the model accepts 1 to %" PRIu32,
                           own.max_encoder, m->encoder_rows);
    if (whisper_forward_create(&s->model, own.max_seqs, own.max_rows, own.max_encoder, &s->forward, err) < 0)
        return -1;
    return encoding_create(&shape, &own, &s->attention, err);
}

void speech_stop(struct speech *s)
{
    encoding_destroy(s->attention);
    whisper_forward_destroy(s->forward);
    s->attention = NULL;
    s->forward = NULL;
}

void speech_finish(struct speech *s)
{
    speech_stop(s);
    whisper_finish(&s->model);
    gguf_close(&s->file);
    free(s->texts);
    *s = (struct speech){0};
}

/* Appends the bytes that a token's characters stand for; others are left out. */
static size_t put_token(const struct speech *s, struct gguf_string text, char *out)
{
    size_t size = 0;
    for (size_t i = 0; i < text.size; i++) {
        uint32_t code = (uint8_t)text.data[i];
        if (code >= 0xc0 && i + 1 < text.size)
            code = (code & 0x1f) << 6 | ((uint8_t)text.data[++i] & 0x3f);
        if (code < sizeof s->byte_of / sizeof s->byte_of[0] && s->byte_of[code] > 0)
            out[size++] = (char)s->byte_of[code];
    }
    return size;
}

char *speech_text(const struct speech *s, const struct tokens *tokens)
{
    size_t size = 1;
    for (size_t i = 0; i < tokens->count; i++)
        size += s->texts[tokens->ids[i]].size;
    char *text = malloc(size);
    if (!text)
        return NULL;
    size = 0;
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->ids[i] < s->model.shape.end) /* what follows are names of languages, tasks and times */
            size += put_token(s, s->texts[tokens->ids[i]], text + size);
    text[size] = 0;
    return text;
}
