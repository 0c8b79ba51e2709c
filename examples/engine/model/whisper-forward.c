/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The forward pass of a Whisper model: the encoder of clips, and the decoder over tokens of a step. */
#include "ops.h"
#include "whisper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct whisper_forward {
    const struct whisper *model;
    uint32_t max_seqs;
    uint32_t max_batch_tokens;
    uint32_t max_encoder;
    struct encoding_part *places;
    float *memory;
    float *encoded; /* [encoder tokens, width] */
    float *x;       /* [rows, width], as are the next six; of encoder tokens or decoder tokens */
    float *normed;
    float *q;
    float *k;
    float *v;
    float *mixed;
    float *added;
    float *hidden; /* [rows, hidden] */
    float *wide;   /* [frames of one clip, width] */
    float *taps;   /* rows of a convolution of one clip */
};

int whisper_forward_create(const struct whisper *model, uint32_t max_seqs, uint32_t max_batch_tokens,
                           uint32_t max_encoder, struct whisper_forward **out, struct failure *err)
{
    const struct whisper_shape *s = &model->shape;
    uint64_t encoder_rows = (uint64_t)max_seqs * max_encoder;
    uint64_t rows = encoder_rows > max_batch_tokens ? encoder_rows : max_batch_tokens;
    uint64_t inner = s->bands > s->width ? s->bands : s->width;
    struct whisper_forward *f = calloc(1, sizeof *f);
    if (!f)
        return failure_set(err, "no memory for the forward pass");
    const struct {
        float **at;
        uint64_t floats;
    } list[] = {{&f->encoded, rows * s->width},
                {&f->x, rows * s->width},
                {&f->normed, rows * s->width},
                {&f->q, rows * s->width},
                {&f->k, rows * s->width},
                {&f->v, rows * s->width},
                {&f->mixed, rows * s->width},
                {&f->added, rows * s->width},
                {&f->hidden, rows * s->hidden},
                {&f->wide, 2 * (uint64_t)max_encoder * s->width},
                {&f->taps, 2 * (uint64_t)max_encoder * 3 * inner}};
    uint64_t floats = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        floats += list[i].floats;
    f->memory = calloc((size_t)floats, sizeof *f->memory);
    f->places = calloc(max_seqs, sizeof *f->places);
    if (!f->memory || !f->places) {
        whisper_forward_destroy(f);
        return failure_set(err, "no memory for %" PRIu64 " tokens of a step", rows);
    }
    float *at = f->memory;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        *list[i].at = at;
        at += list[i].floats;
    }
    f->model = model;
    f->max_seqs = max_seqs;
    f->max_batch_tokens = max_batch_tokens;
    f->max_encoder = max_encoder;
    *out = f;
    return 0;
}

void whisper_forward_destroy(struct whisper_forward *f)
{
    if (!f)
        return;
    free(f->places);
    free(f->memory);
    free(f);
}

const float *whisper_forward_encoded(const struct whisper_forward *f)
{
    return f->encoded;
}

static int check_parts(struct whisper_forward *f, const struct whisper_part *parts, uint32_t count,
                       struct failure *err)
{
    const struct whisper_shape *s = &f->model->shape;
    uint64_t rows = 0;
    if (count == 0 || count > f->max_seqs)
        return failure_set(err, "a step of %" PRIu32 " sequences; accepted are 1 to %" PRIu32, count,
                           f->max_seqs);
    for (uint32_t i = 0; i < count; i++) {
        const struct encoding_part *p = &parts[i].place;
        if (p->count == 0 || p->count > s->context || p->past > s->context - p->count || p->encoder == 0 ||
            p->encoder > f->max_encoder || (p->past == 0) != (parts[i].mel != NULL))
            return failure_set(err,
                               "part %" PRIu32 ": %" PRIu32 " tokens behind %" PRIu32 ", %" PRIu32
                               " encoder tokens; accepted are %" PRIu32 " tokens, %" PRIu32
                               " encoder tokens, and a spectrum with prompts alone",
                               i, p->count, p->past, p->encoder, s->context, f->max_encoder);
        for (uint32_t k = 0; k < p->count; k++)
            if (parts[i].tokens[k] < 0 || (uint32_t)parts[i].tokens[k] >= s->vocab)
                return failure_set(
                    err, "part %" PRIu32 ": token %" PRIu32 " is %" PRId32 "; accepted are 0 to %" PRIu32, i,
                    k, parts[i].tokens[k], s->vocab - 1);
        f->places[i] = *p;
        rows += p->count;
    }
    if (rows > f->max_batch_tokens)
        return failure_set(err, "a step of %" PRIu64 " tokens; accepted are 1 to %" PRIu32, rows,
                           f->max_batch_tokens);
    return 0;
}

/* A convolution over three neighbours as a product: "out" gets a row for every step-th of the rows. */
static void convolve(struct whisper_forward *f, const struct dense *d, const float *in, uint32_t rows,
                     uint32_t step, float *out)
{
    uint32_t width = d->inputs / 3;
    uint32_t made = rows / step;
    for (uint32_t r = 0; r < made; r++)
        for (uint32_t tap = 0; tap < 3; tap++) {
            int64_t from = (int64_t)r * step + tap - 1;
            bool inside = from >= 0 && from < rows;
            for (uint32_t c = 0; c < width; c++)
                f->taps[(size_t)r * d->inputs + (size_t)c * 3 + tap] =
                    inside ? in[(size_t)from * width + c] : 0;
        }
    dense_run(d, f->taps, made, out);
    gelu_run(out, (uint64_t)made * d->outputs);
}

static void feed_forward(struct whisper_forward *f, const struct whisper_layer *l, uint32_t rows)
{
    const struct whisper_shape *s = &f->model->shape;
    norm_run(&l->norm, f->x, rows, s->width, s->epsilon, f->normed);
    dense_run(&l->up, f->normed, rows, f->hidden);
    gelu_run(f->hidden, (uint64_t)rows * s->hidden);
    dense_run(&l->down, f->hidden, rows, f->added);
    ops_add(f->x, f->added, (uint64_t)rows * s->width);
}

/* Attention over what is new or cached; keys of cross-attention come from the encoder, if it ran. */
static int attend(struct whisper_forward *f, struct encoding *attention, enum encoding_class class,
                  uint32_t index, const struct whisper_attention *a, uint32_t rows, uint32_t encoder_rows,
                  struct failure *err)
{
    const struct whisper_shape *s = &f->model->shape;
    bool cross = class == ENCODING_CROSS;
    bool new_kv = !cross || encoder_rows > 0;
    norm_run(&a->norm, f->x, rows, s->width, s->epsilon, f->normed);
    dense_run(&a->q, f->normed, rows, f->q);
    if (new_kv) {
        dense_run(&a->k, cross ? f->encoded : f->normed, cross ? encoder_rows : rows, f->k);
        dense_run(&a->v, cross ? f->encoded : f->normed, cross ? encoder_rows : rows, f->v);
    }
    if (encoding_run(attention, class, index, f->q, new_kv ? f->k : NULL, new_kv ? f->v : NULL, f->mixed,
                     err) < 0)
        return -1;
    dense_run(&a->o, f->mixed, rows, f->added);
    ops_add(f->x, f->added, (uint64_t)rows * s->width);
    return 0;
}

static int encode(struct whisper_forward *f, struct encoding *attention, const struct whisper_part *parts,
                  uint32_t count, uint32_t rows, struct failure *err)
{
    const struct whisper *w = f->model;
    const struct whisper_shape *s = &w->shape;
    float *x = f->x;
    for (uint32_t i = 0; i < count && parts[i].mel; i++) {
        uint32_t own = parts[i].place.encoder;
        convolve(f, &w->conv[0], parts[i].mel, 2 * own, 1, f->wide);
        convolve(f, &w->conv[1], f->wide, 2 * own, 2, x);
        ops_add(x, w->encoder_positions, (uint64_t)own * s->width);
        x += (size_t)own * s->width;
    }
    for (uint32_t i = 0; i < s->encoder_layers; i++) {
        if (attend(f, attention, ENCODING_ENCODER, i, &w->encoder[i].self, rows, 0, err) < 0)
            return -1;
        feed_forward(f, &w->encoder[i], rows);
    }
    norm_run(&w->encoder_norm, f->x, rows, s->width, s->epsilon, f->encoded);
    return 0;
}

static void embed(struct whisper_forward *f, const struct whisper_part *parts, uint32_t count)
{
    const struct whisper *w = f->model;
    uint32_t width = w->shape.width;
    float *x = f->x;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < parts[i].place.count; k++, x += width) {
            memcpy(x, w->tokens + (size_t)parts[i].tokens[k] * width, width * sizeof *x);
            ops_add(x, w->positions + (size_t)(parts[i].place.past + k) * width, width);
        }
}

/* The last token of each part, as scores of all tokens. */
static void score(struct whisper_forward *f, const struct whisper_part *parts, uint32_t count, float *logits)
{
    const struct whisper *w = f->model;
    uint32_t width = w->shape.width;
    const float *x = f->x;
    for (uint32_t i = 0; i < count; i++) {
        x += (size_t)parts[i].place.count * width;
        memcpy(f->added + (size_t)i * width, x - width, width * sizeof *x);
    }
    norm_run(&w->decoder_norm, f->added, count, width, w->shape.epsilon, f->normed);
    matmul(f->normed, w->tokens, count, width, w->shape.vocab, logits);
}

int whisper_forward_run(struct whisper_forward *f, struct encoding *attention,
                        const struct whisper_part *parts, uint32_t count, float *logits, struct failure *err)
{
    const struct whisper *w = f->model;
    uint32_t encoder_rows = 0;
    uint32_t rows = 0;
    if (check_parts(f, parts, count, err) < 0 || encoding_begin(attention, f->places, count, err) < 0)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        encoder_rows += parts[i].mel ? parts[i].place.encoder : 0;
        rows += parts[i].place.count;
    }
    if (encoder_rows && encode(f, attention, parts, count, encoder_rows, err) < 0)
        return -1;
    embed(f, parts, count);
    for (uint32_t i = 0; i < w->shape.decoder_layers; i++) {
        const struct whisper_layer *l = &w->decoder[i];
        if (attend(f, attention, ENCODING_SELF, i, &l->self, rows, 0, err) < 0 ||
            attend(f, attention, ENCODING_CROSS, i, &l->cross, rows, encoder_rows, err) < 0)
            return -1;
        feed_forward(f, l, rows);
    }
    score(f, parts, count, logits);
    return 0;
}
