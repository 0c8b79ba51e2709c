/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hyper-parameters and tensors of a BERT encoder. */
#include "bert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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
