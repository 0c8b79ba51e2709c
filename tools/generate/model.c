/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds the tensors of a Llama model, checks their shapes, and converts them to floats in one block of
 * memory. */
#include "model.h"

#include "quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One pass over the tensors counts and checks, a second one converts: the same list serves both. */
struct loader {
    const struct gguf *file;
    struct failure *err;
    float *memory; /* NULL while counting */
    uint64_t floats;
    size_t tensors;
};

static int load_tensor(struct loader *l, const char *name, uint64_t inputs, uint64_t outputs, float **out)
{
    const struct gguf_tensor *t = gguf_find_tensor(l->file, name);
    if (!t)
        return failure_set(l->err, "%s: tensor %s is missing", l->file->path, name);
    if (t->shape[0] != inputs || t->shape[1] != outputs || t->shape[2] != 1 || t->shape[3] != 1)
        return failure_set(l->err,
                           "%s: tensor %s has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                           "]; accepted is [%" PRIu64 ", %" PRIu64 ", 1, 1]",
                           l->file->path, name, t->shape[0], t->shape[1], t->shape[2], t->shape[3], inputs,
                           outputs);
    const struct quant_type *type = quant_type_find(t->type);
    if (!type || !type->to_float)
        return failure_set(l->err, "%s: tensor %s has type %s; accepted are %s", l->file->path, name,
                           type ? type->name : "unknown", quant_supported);
    if (l->memory) {
        *out = l->memory + l->floats;
        type->to_float(t->data, t->elements / type->elements, *out);
    }
    l->tensors++;
    if (__builtin_add_overflow(l->floats, t->elements, &l->floats) || l->floats > SIZE_MAX / sizeof(float))
        return failure_set(l->err, "%s: the tensors have more elements than memory can hold", l->file->path);
    return 0;
}

static int load_layer(struct loader *l, const struct model_shape *s, uint32_t index,
                      struct model_layer *layer)
{
    uint64_t q_width = (uint64_t)s->heads * s->head_dim;
    uint64_t kv_width = (uint64_t)s->kv_heads * s->head_dim;
    const struct {
        const char *name;
        uint64_t inputs;
        uint64_t outputs;
        float **out;
    } list[] = {
        {"attn_norm", s->width, 1, &layer->attn_norm},   {"attn_q", s->width, q_width, &layer->q},
        {"attn_k", s->width, kv_width, &layer->k},       {"attn_v", s->width, kv_width, &layer->v},
        {"attn_output", q_width, s->width, &layer->o},   {"ffn_norm", s->width, 1, &layer->ffn_norm},
        {"ffn_gate", s->width, s->hidden, &layer->gate}, {"ffn_up", s->width, s->hidden, &layer->up},
        {"ffn_down", s->hidden, s->width, &layer->down},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", index, list[i].name);
        if (load_tensor(l, name, list[i].inputs, list[i].outputs, list[i].out) < 0)
            return -1;
    }
    return 0;
}

static int load_all(struct loader *l, struct model *m)
{
    const struct model_shape *s = &m->shape;
    l->floats = 0;
    l->tensors = 0;
    if (load_tensor(l, "token_embd.weight", s->width, s->vocab, &m->embedding) < 0 ||
        load_tensor(l, "output_norm.weight", s->width, 1, &m->final_norm) < 0)
        return -1;
    m->output = m->embedding;
    if (gguf_find_tensor(l->file, "output.weight") &&
        load_tensor(l, "output.weight", s->width, s->vocab, &m->output) < 0)
        return -1;
    for (uint32_t i = 0; i < s->layers; i++)
        if (load_layer(l, s, i, &m->layers[i]) < 0)
            return -1;
    return 0;
}

/* A tensor that was not asked for (a bias, say) would change the result: better to refuse than to ignore it.
 */
static int check_leftovers(const struct loader *l, const struct model_shape *s)
{
    static const char *const parts[] = {"attn_norm.weight", "attn_q.weight",      "attn_k.weight",
                                        "attn_v.weight",    "attn_output.weight", "ffn_norm.weight",
                                        "ffn_gate.weight",  "ffn_up.weight",      "ffn_down.weight"};
    for (size_t i = 0; l->tensors != l->file->tensor_count && i < l->file->tensor_count; i++) {
        struct gguf_string name = l->file->tensors[i].name;
        bool known = gguf_string_equals(name, "token_embd.weight") ||
                     gguf_string_equals(name, "output_norm.weight") ||
                     gguf_string_equals(name, "output.weight");
        for (uint32_t layer = 0; layer < s->layers && !known; layer++)
            for (size_t p = 0; p < sizeof parts / sizeof parts[0] && !known; p++) {
                char text[64];
                snprintf(text, sizeof text, "blk.%" PRIu32 ".%s", layer, parts[p]);
                known = gguf_string_equals(name, text);
            }
        if (!known)
            return failure_set(l->err, "%s: tensor %.*s is no part of a plain Llama model", l->file->path,
                               gguf_width(name), name.data);
    }
    return 0;
}

static int read_vocab(const struct gguf *file, struct model_shape *s, struct failure *err)
{
    const struct gguf_tensor *embedding = gguf_find_tensor(file, "token_embd.weight");
    if (!embedding)
        return failure_set(err, "%s: tensor token_embd.weight is missing", file->path);
    if (embedding->shape[1] > INT32_MAX)
        return failure_set(err, "%s: tensor token_embd.weight has %" PRIu64 " rows; accepted are up to %d",
                           file->path, embedding->shape[1], INT32_MAX);
    s->vocab = (uint32_t)embedding->shape[1];
    return gguf_get_u64(file, "llama.vocab_size", false, s->vocab, s->vocab, &(uint64_t){0}, err);
}

static int load(struct loader *l, struct model *m)
{
    m->layers = calloc(m->shape.layers, sizeof *m->layers);
    if (!m->layers)
        return failure_set(l->err, "%s: no memory for %" PRIu32 " layers", l->file->path, m->shape.layers);
    if (load_all(l, m) < 0 || check_leftovers(l, &m->shape) < 0)
        return -1;
    l->memory = m->memory = malloc((size_t)l->floats * sizeof(float));
    if (!m->memory)
        return failure_set(l->err, "%s: no memory for %" PRIu64 " weights", l->file->path, l->floats);
    return load_all(l, m);
}

int model_load(const struct gguf *file, struct model *out, struct failure *err)
{
    struct loader l = {.file = file, .err = err};
    *out = (struct model){0};
    if (model_read_shape(file, &out->shape, err) < 0 || read_vocab(file, &out->shape, err) < 0)
        return -1;
    if (load(&l, out) == 0)
        return 0;
    model_finish(out);
    return -1;
}

void model_finish(struct model *m)
{
    free(m->layers);
    free(m->memory);
    *m = (struct model){0};
}
