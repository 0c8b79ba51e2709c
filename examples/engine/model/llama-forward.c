/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Llama layers in order: norm, projections, rotary embedding, attention, feed-forward. */
#include "llama.h"
#include "ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct forward {
    const struct model *model;
    uint32_t max_batch_tokens;
    struct attention_part *places; /* of a step's parts; each has a token */
    int32_t *next;                 /* tokens of a step that follows another */
    float *x;                      /* the residual stream */
    float *norm;                   /* normalised input, also the output of a projection back to the stream */
    float *q;
    float *k;
    float *v;
    float *mixed; /* attention's result */
    float *gate;
    float *up;
    float *rope;
    float *memory;
    struct forward_times times;
    bool (*stop)(void *user);
    void *user;
    double since; /* the clock at the last change of work */
};

/* Adds the time since the last call to an account. */
static void book(struct forward *f, double *account)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
    *account += now - f->since;
    f->since = now;
}

int forward_create(const struct model *model, uint32_t max_batch_tokens, struct forward **out,
                   struct failure *err)
{
    const struct model_shape *s = &model->shape;
    size_t q_width = (size_t)s->heads * s->head_dim;
    size_t kv_width = (size_t)s->kv_heads * s->head_dim;
    size_t per_row = 2 * (size_t)s->width + 2 * q_width + 2 * kv_width + 2 * (size_t)s->hidden + s->head_dim;
    struct forward *f = calloc(1, sizeof *f);
    size_t floats;
    if (!f || __builtin_mul_overflow(per_row, max_batch_tokens, &floats) ||
        !(f->memory = calloc(floats, sizeof(float))) ||
        !(f->places = calloc(max_batch_tokens, sizeof *f->places)) ||
        !(f->next = calloc(max_batch_tokens, sizeof *f->next))) {
        forward_destroy(f);
        return failure_set(err, "no memory for the activations of %" PRIu32 " tokens", max_batch_tokens);
    }
    f->model = model;
    f->max_batch_tokens = max_batch_tokens;
    const struct {
        float **at;
        size_t width;
    } parts[] = {{&f->x, s->width},     {&f->norm, s->width}, {&f->q, q_width},
                 {&f->mixed, q_width},  {&f->k, kv_width},    {&f->v, kv_width},
                 {&f->gate, s->hidden}, {&f->up, s->hidden},  {&f->rope, s->head_dim}};
    float *next = f->memory;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].at = next;
        next += parts[i].width * max_batch_tokens;
    }
    *out = f;
    return 0;
}

void forward_destroy(struct forward *f)
{
    if (!f)
        return;
    free(f->places);
    free(f->next);
    free(f->memory);
    free(f);
}

static int embed(struct forward *f, const int32_t *tokens, uint32_t count, float *x, struct failure *err)
{
    const struct model_shape *s = &f->model->shape;
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->vocab)
            return failure_set(err, "token %" PRIu32 " is %" PRId32 "; accepted are 0 to %" PRIu32, i,
                               tokens[i], s->vocab - 1);
        memcpy(x + (size_t)i * s->width, f->model->embedding + (size_t)tokens[i] * s->width,
               s->width * sizeof(float));
    }
    return 0;
}

static int attend(struct forward *f, struct attention *attention, uint32_t index, uint32_t count,
                  struct failure *err)
{
    const struct model_shape *s = &f->model->shape;
    const struct model_layer *l = &f->model->layers[index];
    uint32_t q_width = s->heads * s->head_dim;
    uint32_t kv_width = s->kv_heads * s->head_dim;
    ops_norm(f->x, l->attn_norm, count, s->width, s->norm_epsilon, f->norm);
    book(f, &f->times.rest);
    matmul(f->norm, l->q, count, s->width, q_width, f->q);
    matmul(f->norm, l->k, count, s->width, kv_width, f->k);
    matmul(f->norm, l->v, count, s->width, kv_width, f->v);
    book(f, &f->times.products);
    ops_rope(f->q, f->rope, count, s->heads, s->head_dim);
    ops_rope(f->k, f->rope, count, s->kv_heads, s->head_dim);
    book(f, &f->times.rest);
    if (attention_forward(attention, index, f->q, f->k, f->v, f->mixed, err) < 0)
        return -1;
    book(f, &f->times.attention);
    matmul(f->mixed, l->o, count, q_width, s->width, f->norm);
    book(f, &f->times.products);
    ops_add(f->x, f->norm, (uint64_t)count * s->width);
    return 0;
}

static void feed_forward(struct forward *f, uint32_t index, uint32_t count)
{
    const struct model_shape *s = &f->model->shape;
    const struct model_layer *l = &f->model->layers[index];
    ops_norm(f->x, l->ffn_norm, count, s->width, s->norm_epsilon, f->norm);
    book(f, &f->times.rest);
    matmul(f->norm, l->gate, count, s->width, s->hidden, f->gate);
    matmul(f->norm, l->up, count, s->width, s->hidden, f->up);
    book(f, &f->times.products);
    ops_swiglu(f->gate, f->up, (uint64_t)count * s->hidden);
    book(f, &f->times.rest);
    matmul(f->gate, l->down, count, s->hidden, s->width, f->norm);
    book(f, &f->times.products);
    ops_add(f->x, f->norm, (uint64_t)count * s->width);
}

/* Checks the parts, then fills residual stream and rotary table. Returns the number of tokens, 0 after a
 * failure. */
static uint32_t gather(struct forward *f, const struct forward_part *parts, uint32_t count,
                       struct failure *err)
{
    const struct model_shape *s = &f->model->shape;
    uint32_t num_tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct forward_part *p = &parts[i];
        if (p->place.count == 0 || p->place.count > f->max_batch_tokens - num_tokens ||
            p->logits_from > p->place.count) {
            failure_set(err, "a step has %" PRIu32 " tokens and more; accepted are 1 to %" PRIu32,
                        num_tokens + p->place.count, f->max_batch_tokens);
            return 0;
        }
        if (embed(f, p->tokens, p->place.count, f->x + (size_t)num_tokens * s->width, err) < 0)
            return 0;
        ops_rope_table(p->place.past, p->place.count, s->head_dim, s->rope_base,
                       f->rope + (size_t)num_tokens * s->head_dim);
        f->places[i] = p->place;
        num_tokens += p->place.count;
    }
    if (!num_tokens)
        failure_set(err, "a step has no tokens; accepted are 1 to %" PRIu32, f->max_batch_tokens);
    return num_tokens;
}

/* Logits of the tokens that want them, one product for all of them. */
static void project(struct forward *f, const struct forward_part *parts, uint32_t count, float *logits)
{
    const struct model_shape *s = &f->model->shape;
    const float *x = f->x;
    uint32_t num_tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t wanted = parts[i].place.count - parts[i].logits_from;
        ops_norm(x + (size_t)parts[i].logits_from * s->width, f->model->final_norm, wanted, s->width,
                 s->norm_epsilon, f->norm + (size_t)num_tokens * s->width);
        x += (size_t)parts[i].place.count * s->width;
        num_tokens += wanted;
    }
    book(f, &f->times.rest);
    if (num_tokens)
        matmul(f->norm, f->model->output, num_tokens, s->width, s->vocab, logits);
    book(f, &f->times.products);
}

/* The caller has begun the step. */
static int run_layers(struct forward *f, struct attention *attention, const struct forward_part *parts,
                      uint32_t count, uint32_t num_tokens, float *logits, struct failure *err)
{
    book(f, &f->times.attention);
    for (uint32_t i = 0; i < f->model->shape.layers; i++) {
        if (f->stop && f->stop(f->user))
            return failure_set(err, "stopped in layer %" PRIu32 " of a step", i);
        if (attend(f, attention, i, num_tokens, err) < 0)
            return -1;
        feed_forward(f, i, num_tokens);
    }
    project(f, parts, count, logits);
    return 0;
}

int forward_run(struct forward *f, struct attention *attention, const struct forward_part *parts,
                uint32_t count, float *logits, struct failure *err)
{
    book(f, &(double){0});
    uint32_t num_tokens = gather(f, parts, count, err);
    book(f, &f->times.rest);
    if (!num_tokens || attention_begin(attention, f->places, count, err) < 0)
        return -1;
    return run_layers(f, attention, parts, count, num_tokens, logits, err);
}

int forward_advance(struct forward *f, struct attention *attention, const struct forward_part *parts,
                    uint32_t count, float *logits, struct failure *err)
{
    book(f, &(double){0});
    uint32_t num_tokens = gather(f, parts, count, err);
    if (!num_tokens)
        return -1;
    if (num_tokens != count)
        return failure_set(err,
                           "a step of %" PRIu32 " tokens for %" PRIu32
                           " sequences to advance to; one token for each is accepted",
                           num_tokens, count);
    for (uint32_t i = 0; i < count; i++)
        f->next[i] = parts[i].tokens[0];
    book(f, &f->times.rest);
    if (attention_advance(attention, f->next, err) < 0)
        return -1;
    return run_layers(f, attention, parts, count, num_tokens, logits, err);
}

void forward_set_stop(struct forward *f, bool (*stop)(void *user), void *user)
{
    f->stop = stop;
    f->user = user;
}

void forward_get_times(const struct forward *f, struct forward_times *out)
{
    *out = f->times;
}

int forward_step(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t past,
                 uint32_t count, uint32_t logits_from, float *logits, struct failure *err)
{
    struct forward_part part = {
        .place = {.past = past, .count = count}, .tokens = tokens, .logits_from = logits_from};
    return forward_run(f, attention, &part, 1, logits, err);
}

int forward_prompt(struct forward *f, struct attention *attention, const int32_t *tokens, uint32_t count,
                   uint32_t chunk, float *logits, struct failure *err)
{
    for (uint32_t past = 0; past < count;) {
        uint32_t step = count - past < chunk ? count - past : chunk;
        uint32_t logits_from = past + step == count ? step - 1 : step;
        if (forward_step(f, attention, tokens + past, past, step, logits_from, logits, err) < 0)
            return -1;
        past += step;
    }
    return 0;
}
