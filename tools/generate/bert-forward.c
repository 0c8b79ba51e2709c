/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The forward pass of a BERT encoder over a batch of texts. */
#include "bert.h"

#include "dense.h"
#include "ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bert_forward {
    const struct bert *model;
    uint32_t max_texts;
    uint32_t max_rows;
    struct encoding_part *parts;
    float *memory;
    float *x; /* [rows, width], as are the next five */
    float *q;
    float *k;
    float *v;
    float *mixed;
    float *added;
    float *hidden; /* [rows, hidden] */
};

int bert_forward_create(const struct bert *model, uint32_t max_texts, uint32_t max_rows,
                        struct bert_forward **out, struct failure *err)
{
    const struct bert_shape *s = &model->shape;
    uint64_t wide = (uint64_t)max_rows * s->width;
    uint64_t floats = 6 * wide + (uint64_t)max_rows * s->hidden;
    struct bert_forward *f = calloc(1, sizeof *f);
    if (f) {
        f->parts = calloc(max_texts, sizeof *f->parts);
        f->memory = calloc((size_t)floats, sizeof *f->memory);
    }
    if (!f || !f->parts || !f->memory) {
        bert_forward_destroy(f);
        return failure_set(err, "no memory for %" PRIu32 " tokens of a batch", max_rows);
    }
    f->model = model;
    f->max_texts = max_texts;
    f->max_rows = max_rows;
    float **const list[] = {&f->x, &f->q, &f->k, &f->v, &f->mixed, &f->added};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        *list[i] = f->memory + i * wide;
    f->hidden = f->memory + 6 * wide;
    *out = f;
    return 0;
}

void bert_forward_destroy(struct bert_forward *f)
{
    if (!f)
        return;
    free(f->parts);
    free(f->memory);
    free(f);
}

static int check_texts(struct bert_forward *f, const struct bert_text *texts, uint32_t count,
                       struct failure *err)
{
    const struct bert_shape *s = &f->model->shape;
    uint64_t rows = 0;
    if (count == 0 || count > f->max_texts)
        return failure_set(err, "a batch of %" PRIu32 " texts; accepted are 1 to %" PRIu32, count,
                           f->max_texts);
    for (uint32_t i = 0; i < count; i++) {
        const struct bert_text *t = &texts[i];
        if (t->count == 0 || t->count > s->context)
            return failure_set(err, "text %" PRIu32 " has %" PRIu32 " tokens; accepted are 1 to %" PRIu32, i,
                               t->count, s->context);
        for (uint32_t k = 0; k < t->count; k++)
            if (t->tokens[k] < 0 || (uint32_t)t->tokens[k] >= s->vocab)
                return failure_set(
                    err, "text %" PRIu32 ": token %" PRIu32 " is %" PRId32 "; accepted are 0 to %" PRIu32, i,
                    k, t->tokens[k], s->vocab - 1);
        f->parts[i] = (struct encoding_part){.count = t->count};
        rows += t->count;
    }
    if (rows > f->max_rows)
        return failure_set(err, "a batch of %" PRIu64 " tokens; accepted are 1 to %" PRIu32, rows,
                           f->max_rows);
    return 0;
}

static void embed(struct bert_forward *f, const struct bert_text *texts, uint32_t count)
{
    const struct bert *b = f->model;
    uint32_t width = b->shape.width;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < texts[i].count; k++, rows++) {
            const float *token = b->tokens + (size_t)texts[i].tokens[k] * width;
            const float *position = b->positions + (size_t)k * width;
            float *x = f->x + (size_t)rows * width;
            for (uint32_t j = 0; j < width; j++)
                x[j] = token[j] + b->types[j] + position[j];
        }
    norm_run(&b->norm, f->x, rows, width, b->shape.epsilon, f->x);
}

/* A product of the rows of each text alone: its shape, and so its rounding, is a matter of that text. */
static void product(const struct dense *d, const struct bert_text *texts, uint32_t count, const float *in,
                    float *out)
{
    for (uint32_t i = 0; i < count; i++) {
        dense_run(d, in, texts[i].count, out);
        in += (size_t)texts[i].count * d->inputs;
        out += (size_t)texts[i].count * d->outputs;
    }
}

static int run_layer(struct bert_forward *f, struct encoding *attention, uint32_t index,
                     const struct bert_text *texts, uint32_t count, uint32_t rows, struct failure *err)
{
    const struct bert_shape *s = &f->model->shape;
    const struct bert_layer *l = &f->model->layers[index];
    product(&l->q, texts, count, f->x, f->q);
    product(&l->k, texts, count, f->x, f->k);
    product(&l->v, texts, count, f->x, f->v);
    if (encoding_run(attention, ENCODING_ONLY, index, f->q, f->k, f->v, f->mixed, err) < 0)
        return -1;
    product(&l->o, texts, count, f->mixed, f->added);
    ops_add(f->x, f->added, (uint64_t)rows * s->width);
    norm_run(&l->attn_norm, f->x, rows, s->width, s->epsilon, f->x);
    product(&l->up, texts, count, f->x, f->hidden);
    gelu_run(f->hidden, (uint64_t)rows * s->hidden);
    product(&l->down, texts, count, f->hidden, f->added);
    ops_add(f->x, f->added, (uint64_t)rows * s->width);
    norm_run(&l->norm, f->x, rows, s->width, s->epsilon, f->x);
    return 0;
}

/* The mean of a text's rows, or its first one, at length 1. */
static void pool(const struct bert_shape *s, const float *x, uint32_t rows, float *out)
{
    uint32_t used = s->pooling == BERT_POOLING_MEAN ? rows : 1;
    double squares = 0;
    for (uint32_t j = 0; j < s->width; j++) {
        double sum = 0;
        for (uint32_t r = 0; r < used; r++)
            sum += (double)x[(size_t)r * s->width + j];
        out[j] = (float)(sum / used);
        squares += (double)out[j] * (double)out[j];
    }
    for (uint32_t j = 0; j < s->width && squares > 0; j++)
        out[j] = (float)((double)out[j] / sqrt(squares));
}

int bert_forward_run(struct bert_forward *f, struct encoding *attention, const struct bert_text *texts,
                     uint32_t count, float *out, struct failure *err)
{
    const struct bert_shape *s = &f->model->shape;
    uint32_t rows = 0;
    if (check_texts(f, texts, count, err) < 0 || encoding_begin(attention, f->parts, count, err) < 0)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        rows += texts[i].count;
    embed(f, texts, count);
    for (uint32_t i = 0; i < s->layers; i++)
        if (run_layer(f, attention, i, texts, count, rows, err) < 0)
            return -1;
    const float *x = f->x;
    for (uint32_t i = 0; i < count; i++) {
        pool(s, x, texts[i].count, out + (size_t)i * s->width);
        x += (size_t)texts[i].count * s->width;
    }
    return 0;
}
