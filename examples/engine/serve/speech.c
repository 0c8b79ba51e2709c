/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An encoder-decoder model of speech, its attention, and the transcription of several clips at once. */
#include "speech.h"
#include "architecture.h"
#include "model/llama.h"
#include "model/ops.h"

#include <inttypes.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- model and tokens */

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
    if (architecture_expect(&s->file, ARCHITECTURE_WHISPER, err) < 0 ||
        whisper_load(&s->file, &s->model, err) < 0)
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
    own.max_batch_tokens = PROMPT * own.max_seqs;
    matmul_set_threads(own.threads);
    if (own.max_encoder == 0 || own.max_encoder > m->encoder_rows)
        return failure_set(err,
                           "the longest clip has %" PRIu32 " encoder tokens; the model accepts 1 to %" PRIu32,
                           own.max_encoder, m->encoder_rows);
    if (whisper_forward_create(&s->model, own.max_seqs, own.max_batch_tokens, own.max_encoder, &s->forward,
                               err) < 0)
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

/* ---------------------------------------------------------------- several clips */

enum { PROMPT = 2 };

struct run {
    struct speech *speech;
    struct clip *clips;
    uint32_t count;
    uint32_t started; /* clips 0 to started - 1 have had a batch slot */
    uint32_t batch_slots;
    bool *taken;
    uint32_t *of; /* clip of each part of the step */
    struct whisper_part *parts;
    float *logits;
};

static int check_clips(const struct speech *s, const struct clip *clips, uint32_t count, struct failure *err)
{
    const struct whisper_shape *m = &s->model.shape;
    for (uint32_t i = 0; i < count; i++)
        if (clips[i].rows == 0 || clips[i].rows > m->encoder_rows || clips[i].most == 0 || !clips[i].mel)
            return failure_set(err,
                               "clip %" PRIu32 ": %" PRIu32 " encoder tokens, %" PRIu32
                               " tokens; accepted are 1 to %" PRIu32 " encoder tokens, 1 and more tokens",
                               i, clips[i].rows, clips[i].most, m->encoder_rows);
    return 0;
}

static void add_part(struct run *r, uint32_t *count, uint32_t clip, const int32_t *prompt)
{
    struct clip *c = &r->clips[clip];
    r->of[*count] = clip;
    r->parts[(*count)++] = (struct whisper_part){
        .place = {.batch_slot = c->batch_slot,
                  .past = c->past,
                  .count = prompt ? PROMPT : 1,
                  .encoder = c->rows},
        .tokens = prompt ? prompt : &c->next,
        .mel = prompt ? c->mel : NULL,
    };
}

/* Prompts for free batch slots, then a token of every clip that has one. */
static uint32_t gather(struct run *r, const int32_t *prompt)
{
    uint32_t before = r->started;
    uint32_t count = 0;
    for (uint32_t batch_slot = 0; batch_slot < r->batch_slots && r->started < r->count; batch_slot++) {
        if (r->taken[batch_slot])
            continue;
        r->taken[batch_slot] = true;
        r->clips[r->started].batch_slot = batch_slot;
        add_part(r, &count, r->started++, prompt);
    }
    for (uint32_t i = 0; i < before; i++)
        if (!r->clips[i].done)
            add_part(r, &count, i, NULL);
    return count;
}

static int32_t largest(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

static int take(struct run *r, const struct whisper_part *part, struct clip *c, const float *logits,
                struct failure *err)
{
    const struct whisper_shape *m = &r->speech->model.shape;
    c->past += part->place.count;
    c->next = largest(logits, m->vocab);
    c->ended = c->next == m->end;
    if (!c->ended && tokens_add(&c->made, c->next, err) < 0)
        return -1;
    c->done = c->ended || c->made.count >= c->most || c->past >= m->context;
    if (c->done)
        r->taken[c->batch_slot] = false;
    return 0;
}

static int loop(struct run *r, speech_step_fn on_step, void *user, struct failure *err)
{
    const struct whisper_shape *m = &r->speech->model.shape;
    const int32_t prompt[PROMPT] = {m->begin, m->plain};
    for (;;) {
        uint32_t count = gather(r, prompt);
        if (count == 0)
            return 0;
        if (whisper_forward_run(r->speech->forward, r->speech->attention, r->parts, count, r->logits, err) <
            0)
            return -1;
        for (uint32_t i = 0; i < count; i++) {
            const float *logits = r->logits + (size_t)i * m->vocab;
            if (on_step)
                on_step(user, r->of[i], logits);
            if (take(r, &r->parts[i], &r->clips[r->of[i]], logits, err) < 0)
                return -1;
        }
    }
}

int speech_run(struct speech *s, struct clip *clips, uint32_t count, speech_step_fn on_step, void *user,
               struct failure *err)
{
    struct run r = {.speech = s, .clips = clips, .count = count, .batch_slots = encoding_slots(s->attention)};
    int status;
    if (check_clips(s, clips, count, err) < 0)
        return -1;
    r.taken = calloc(r.batch_slots, sizeof *r.taken);
    r.of = calloc(r.batch_slots, sizeof *r.of);
    r.parts = calloc(r.batch_slots, sizeof *r.parts);
    r.logits = calloc((size_t)r.batch_slots * s->model.shape.vocab, sizeof *r.logits);
    if (r.taken && r.of && r.parts && r.logits)
        status = loop(&r, on_step, user, err);
    else
        status = failure_set(err, "no memory for %" PRIu32 " clips at once", r.batch_slots);
    free(r.taken);
    free(r.of);
    free(r.parts);
    free(r.logits);
    return status;
}
