/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A BERT encoder: its hyper-parameters and tensors, and its forward pass over a batch of texts. */
#include "bert.h"
#include "ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- loading */

/* Variants that compute something else under the same architecture name. */
static int check_variants(const struct gguf *file, struct failure *err)
{
    bool causal = false;
    if (gguf_get_bool(file, "bert.attention.causal", &causal, err) < 0)
        return -1;
    return causal ? failure_set(err, "%s: bert.attention.causal is true; accepted is false", file->path) : 0;
}

static int read_pooling(const struct gguf *file, struct bert_shape *s, struct failure *err)
{
    uint64_t pooling = BERT_POOLING_MEAN;
    if (gguf_get_u64(file, "bert.pooling_type", false, 0, UINT32_MAX, &pooling, err) < 0)
        return -1;
    if (pooling != BERT_POOLING_MEAN && pooling != BERT_POOLING_FIRST)
        return failure_set(err, "%s: bert.pooling_type is %" PRIu64 "; accepted are 1 (mean) and 2 (first)",
                           file->path, pooling);
    s->pooling = (uint32_t)pooling;
    return 0;
}

/* Rows of a table that a key need not name. */
static int read_rows(const struct gguf *file, const char *name, uint32_t *out, struct failure *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(file, name);
    if (!t)
        return failure_set(err, "%s: tensor %s is missing", file->path, name);
    if (t->shape[1] > INT32_MAX)
        return failure_set(err, "%s: tensor %s has %" PRIu64 " rows; accepted are up to %d", file->path, name,
                           t->shape[1], INT32_MAX);
    *out = (uint32_t)t->shape[1];
    return 0;
}

static int read_shape(const struct gguf *file, struct bert_shape *s, struct failure *err)
{
    *s = (struct bert_shape){0};
    if (check_variants(file, err) < 0 || read_pooling(file, s, err) < 0 ||
        weights_get_u32(file, "bert.block_count", 1024, &s->layers, err) < 0 ||
        weights_get_u32(file, "bert.context_length", 1u << 20, &s->context, err) < 0 ||
        weights_get_u32(file, "bert.embedding_length", 1u << 20, &s->width, err) < 0 ||
        weights_get_u32(file, "bert.feed_forward_length", 1u << 22, &s->hidden, err) < 0 ||
        weights_get_u32(file, "bert.attention.head_count", 1024, &s->heads, err) < 0 ||
        weights_get_epsilon(file, "bert.attention.layer_norm_epsilon", &s->epsilon, err) < 0 ||
        read_rows(file, "token_embd.weight", &s->vocab, err) < 0 ||
        read_rows(file, "token_types.weight", &s->types, err) < 0)
        return -1;
    if (s->width % s->heads != 0 || s->width / s->heads > 1024)
        return failure_set(err,
                           "%s: bert.embedding_length is %u; accepted are multiples of the %u heads, up to "
                           "1024 times as much",
                           file->path, s->width, s->heads);
    s->head_dim = s->width / s->heads;
    return 0;
}

static int load_layer(struct bert *b, uint32_t index, struct failure *err)
{
    const struct bert_shape *s = &b->shape;
    struct bert_layer *l = &b->layers[index];
    struct weights *w = &b->weights;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blk.%" PRIu32, index);
    const struct {
        const char *name;
        uint32_t inputs;
        uint32_t outputs;
        struct dense *out;
    } list[] = {{"attn_q", s->width, s->width, &l->q},   {"attn_k", s->width, s->width, &l->k},
                {"attn_v", s->width, s->width, &l->v},   {"attn_output", s->width, s->width, &l->o},
                {"ffn_up", s->width, s->hidden, &l->up}, {"ffn_down", s->hidden, s->width, &l->down}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (weights_take_dense(w, prefix, list[i].name, list[i].inputs, list[i].outputs, list[i].out, err) <
            0)
            return -1;
    if (weights_take_norm(w, prefix, "attn_output_norm", s->width, &l->attn_norm, err) < 0)
        return -1;
    return weights_take_norm(w, prefix, "layer_output_norm", s->width, &l->norm, err);
}

static int load(const struct gguf *file, struct bert *b, struct failure *err)
{
    struct bert_shape *s = &b->shape;
    struct weights *w = &b->weights;
    if (read_shape(file, s, err) < 0 || weights_init(w, file, err) < 0)
        return -1;
    b->layers = calloc(s->layers, sizeof *b->layers);
    if (!b->layers)
        return failure_set(err, "%s: no memory for %" PRIu32 " layers", file->path, s->layers);
    if (weights_take(w, "token_embd.weight", s->width, s->vocab, 1, &b->tokens, err) < 0 ||
        weights_take(w, "position_embd.weight", s->width, s->context, 1, &b->positions, err) < 0 ||
        weights_take(w, "token_types.weight", s->width, s->types, 1, &b->types, err) < 0 ||
        weights_take_norm(w, "", "token_embd_norm", s->width, &b->norm, err) < 0)
        return -1;
    for (uint32_t i = 0; i < s->layers; i++)
        if (load_layer(b, i, err) < 0)
            return -1;
    return weights_check_all(w, "BERT", err);
}

int bert_load(const struct gguf *file, struct bert *out, struct failure *err)
{
    *out = (struct bert){0};
    if (load(file, out, err) == 0)
        return 0;
    bert_finish(out);
    return -1;
}

void bert_finish(struct bert *b)
{
    weights_finish(&b->weights);
    free(b->layers);
    *b = (struct bert){0};
}

/* ---------------------------------------------------------------- forward pass */

struct bert_forward {
    const struct bert *model;
    uint32_t max_texts;
    uint32_t max_batch_tokens;
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

int bert_forward_create(const struct bert *model, uint32_t max_texts, uint32_t max_batch_tokens,
                        struct bert_forward **out, struct failure *err)
{
    const struct bert_shape *s = &model->shape;
    uint64_t wide = (uint64_t)max_batch_tokens * s->width;
    uint64_t floats = 6 * wide + (uint64_t)max_batch_tokens * s->hidden;
    struct bert_forward *f = calloc(1, sizeof *f);
    if (f) {
        f->parts = calloc(max_texts, sizeof *f->parts);
        f->memory = calloc((size_t)floats, sizeof *f->memory);
    }
    if (!f || !f->parts || !f->memory) {
        bert_forward_destroy(f);
        return failure_set(err, "no memory for %" PRIu32 " tokens of a batch", max_batch_tokens);
    }
    f->model = model;
    f->max_texts = max_texts;
    f->max_batch_tokens = max_batch_tokens;
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
    if (rows > f->max_batch_tokens)
        return failure_set(err, "a batch of %" PRIu64 " tokens; accepted are 1 to %" PRIu32, rows,
                           f->max_batch_tokens);
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

/* One product for each text: the rounding depends on the product's shape, which the other texts must not
 * change. */
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

/* The mean over a text's tokens, or its first one, at length 1. */
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
