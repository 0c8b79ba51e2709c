/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Token by token: keys and values of all tokens lie in one array per layer. */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct plain {
    const struct model *model;
    uint32_t room; /* tokens */
    bool windows;
    double *keys; /* [layers, room, kv_heads * head_dim] */
    double *values;
    double *memory; /* the activations below */
    double *x, *norm, *q, *mixed, *gate, *up, *scores, *logits;
};

static void product(const double *in, const float *weights, uint32_t inputs, uint32_t outputs, double *out)
{
    for (uint32_t o = 0; o < outputs; o++) {
        double sum = 0;
        for (uint32_t i = 0; i < inputs; i++)
            sum += in[i] * (double)weights[(size_t)o * inputs + i];
        out[o] = sum;
    }
}

static void normalise(const struct plain *p, const double *in, const float *weight, double *out)
{
    uint32_t width = p->model->shape.width;
    double squares = 0;
    for (uint32_t i = 0; i < width; i++)
        squares += in[i] * in[i];
    for (uint32_t i = 0; i < width; i++)
        out[i] = in[i] / sqrt(squares / width + (double)p->model->shape.norm_epsilon) * (double)weight[i];
}

static void rotate(const struct plain *p, double *x, uint32_t heads, uint32_t position)
{
    uint32_t dim = p->model->shape.head_dim;
    for (uint32_t h = 0; h < heads; h++, x += dim)
        for (uint32_t i = 0; i < dim; i += 2) {
            double angle = position * pow(p->model->shape.rope_base, -(double)i / dim);
            double a = x[i];
            double b = x[i + 1];
            x[i] = a * cos(angle) - b * sin(angle);
            x[i + 1] = a * sin(angle) + b * cos(angle);
        }
}

/* A token sees itself and those before it; in a windowed layer no more than the window. */
static void attend_head(struct plain *p, uint32_t layer, uint32_t head, uint32_t position)
{
    const struct model_shape *s = &p->model->shape;
    uint32_t width = s->kv_heads * s->head_dim;
    uint32_t kv = head / (s->heads / s->kv_heads) * s->head_dim;
    const double *q = p->q + (size_t)head * s->head_dim;
    double *out = p->mixed + (size_t)head * s->head_dim;
    bool windowed = p->windows && model_is_windowed(s, layer) && position + 1 > s->window;
    uint32_t first = windowed ? position + 1 - s->window : 0;
    double most = -INFINITY;
    double sum = 0;
    for (uint32_t t = first; t <= position; t++) {
        const double *k = p->keys + ((size_t)layer * p->room + t) * width + kv;
        double score = 0;
        for (uint32_t i = 0; i < s->head_dim; i++)
            score += q[i] * k[i];
        p->scores[t] = score / sqrt((double)s->head_dim);
        most = fmax(most, p->scores[t]);
    }
    memset(out, 0, s->head_dim * sizeof *out);
    for (uint32_t t = first; t <= position; t++) {
        const double *v = p->values + ((size_t)layer * p->room + t) * width + kv;
        double weight = exp(p->scores[t] - most);
        sum += weight;
        for (uint32_t i = 0; i < s->head_dim; i++)
            out[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < s->head_dim; i++)
        out[i] /= sum;
}

static void run_layer(struct plain *p, uint32_t index, uint32_t position)
{
    const struct model_shape *s = &p->model->shape;
    const struct model_layer *l = &p->model->layers[index];
    uint32_t width = s->kv_heads * s->head_dim;
    double *k = p->keys + ((size_t)index * p->room + position) * width;
    double *v = p->values + ((size_t)index * p->room + position) * width;
    normalise(p, p->x, l->attn_norm, p->norm);
    product(p->norm, l->q, s->width, s->heads * s->head_dim, p->q);
    product(p->norm, l->k, s->width, width, k);
    product(p->norm, l->v, s->width, width, v);
    rotate(p, p->q, s->heads, position);
    rotate(p, k, s->kv_heads, position);
    for (uint32_t h = 0; h < s->heads; h++)
        attend_head(p, index, h, position);
    product(p->mixed, l->o, s->heads * s->head_dim, s->width, p->norm);
    for (uint32_t i = 0; i < s->width; i++)
        p->x[i] += p->norm[i];
    normalise(p, p->x, l->ffn_norm, p->norm);
    product(p->norm, l->gate, s->width, s->hidden, p->gate);
    product(p->norm, l->up, s->width, s->hidden, p->up);
    for (uint32_t i = 0; i < s->hidden; i++)
        p->gate[i] = p->gate[i] / (1 + exp(-p->gate[i])) * p->up[i];
    product(p->gate, l->down, s->hidden, s->width, p->norm);
    for (uint32_t i = 0; i < s->width; i++)
        p->x[i] += p->norm[i];
}

static void run_token(struct plain *p, int32_t token, uint32_t position)
{
    const struct model_shape *s = &p->model->shape;
    for (uint32_t i = 0; i < s->width; i++)
        p->x[i] = (double)p->model->embedding[(size_t)token * s->width + i];
    for (uint32_t i = 0; i < s->layers; i++)
        run_layer(p, i, position);
}

static void choose(struct plain *p, int32_t *out_id, double *out_margin)
{
    const struct model_shape *s = &p->model->shape;
    uint32_t best = 0;
    double second = -INFINITY;
    normalise(p, p->x, p->model->final_norm, p->norm);
    product(p->norm, p->model->output, s->width, s->vocab, p->logits);
    for (uint32_t i = 1; i < s->vocab; i++) {
        if (p->logits[i] > p->logits[best]) {
            second = p->logits[best];
            best = i;
        } else if (p->logits[i] > second) {
            second = p->logits[i];
        }
    }
    *out_id = (int32_t)best;
    *out_margin = p->logits[best] - second;
}

static int make(struct plain *p)
{
    const struct model_shape *s = &p->model->shape;
    size_t q_width = (size_t)s->heads * s->head_dim;
    size_t cache = (size_t)s->layers * p->room * s->kv_heads * s->head_dim;
    size_t floats = 2 * (size_t)s->width + 2 * q_width + 2 * (size_t)s->hidden + p->room + s->vocab;
    p->keys = calloc(cache, sizeof *p->keys);
    p->values = calloc(cache, sizeof *p->values);
    p->memory = calloc(floats, sizeof *p->memory);
    if (!p->keys || !p->values || !p->memory)
        return -1;
    p->x = p->memory;
    p->norm = p->x + s->width;
    p->q = p->norm + s->width;
    p->mixed = p->q + q_width;
    p->gate = p->mixed + q_width;
    p->up = p->gate + s->hidden;
    p->scores = p->up + s->hidden;
    p->logits = p->scores + p->room;
    return 0;
}

int plain_run(const struct model *model, const int32_t *prompt, uint32_t count, bool windows,
              struct plain_result *out, struct failure *err)
{
    struct plain p = {.model = model, .room = count + PLAIN_TOKENS, .windows = windows};
    int status = make(&p) == 0 ? 0 : failure_set(err, "no memory for the plain model");
    for (uint32_t i = 0; status == 0 && i < count; i++)
        run_token(&p, prompt[i], i);
    for (uint32_t i = 0; status == 0 && i < PLAIN_TOKENS; i++) {
        choose(&p, &out->ids[i], &out->margins[i]);
        run_token(&p, out->ids[i], count + i);
    }
    free(p.keys);
    free(p.values);
    free(p.memory);
    return status;
}
