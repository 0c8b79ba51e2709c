/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds tensors by name, checks their shapes, and converts them to floats; reads keys that models share. */
#include "weights.h"
#include "quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int weights_init(struct weights *w, const struct gguf *file, struct failure *err)
{
    w->file = file;
    w->blocks = calloc(file->tensor_count + 1, sizeof *w->blocks);
    return w->blocks ? 0 : failure_set(err, "%s: no memory for the list of tensors", file->path);
}

void weights_finish(struct weights *w)
{
    for (size_t i = 0; w->blocks && i < w->file->tensor_count; i++)
        free(w->blocks[i]);
    free(w->blocks);
    *w = (struct weights){0};
}

int weights_take(struct weights *w, const char *name, uint64_t inner, uint64_t middle, uint64_t outer,
                 const float **out, struct failure *err)
{
    const struct gguf_tensor *t = gguf_find_tensor(w->file, name);
    if (!t)
        return failure_set(err, "%s: tensor %s is missing", w->file->path, name);
    if (t->shape[0] != inner || t->shape[1] != middle || t->shape[2] != outer || t->shape[3] != 1)
        return failure_set(err,
                           "%s: tensor %s has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                           "]; accepted is [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", 1]",
                           w->file->path, name, t->shape[0], t->shape[1], t->shape[2], t->shape[3], inner,
                           middle, outer);
    const struct quant_type *type = quant_type_find(t->type);
    if (!type || !type->to_float)
        return failure_set(err, "%s: tensor %s has type %s; accepted are %s", w->file->path, name,
                           type ? type->name : "unknown", quant_supported);
    float **block = &w->blocks[t - w->file->tensors];
    uint64_t bytes;
    if (__builtin_mul_overflow(t->elements, sizeof(float), &bytes) || bytes > SIZE_MAX / 2)
        return failure_set(err,
                           "%s: tensor %s has %" PRIu64 " elements; accepted are those that memory holds",
                           w->file->path, name, t->elements);
    if (!*block && !(*block = malloc((size_t)bytes)))
        return failure_set(err, "%s: no memory for the %" PRIu64 " elements of tensor %s", w->file->path,
                           t->elements, name);
    type->to_float(t->data, t->elements / type->elements, *block);
    *out = *block;
    return 0;
}

static int take_pair(struct weights *w, const char *prefix, const char *name, uint64_t inner, uint64_t outer,
                     uint64_t bias_size, const float **weight, const float **bias, struct failure *err)
{
    char text[128];
    snprintf(text, sizeof text, "%s.%s.weight", prefix, name);
    if (weights_take(w, text, inner, outer, 1, weight, err) < 0)
        return -1;
    snprintf(text, sizeof text, "%s.%s.bias", prefix, name);
    return weights_take(w, text, bias_size, 1, 1, bias, err);
}

int weights_take_dense(struct weights *w, const char *prefix, const char *name, uint32_t inputs,
                       uint32_t outputs, struct dense *out, struct failure *err)
{
    out->inputs = inputs;
    out->outputs = outputs;
    return take_pair(w, prefix, name, inputs, outputs, outputs, &out->matrix, &out->bias, err);
}

int weights_take_norm(struct weights *w, const char *prefix, const char *name, uint32_t width,
                      struct norm *out, struct failure *err)
{
    return take_pair(w, prefix, name, width, 1, width, &out->scale, &out->shift, err);
}

int weights_check_all(const struct weights *w, const char *model, struct failure *err)
{
    for (size_t i = 0; i < w->file->tensor_count; i++) {
        struct gguf_string name = w->file->tensors[i].name;
        if (!w->blocks[i])
            return failure_set(err, "%s: tensor %.*s does not belong to a model of architecture %s",
                               w->file->path, gguf_width(name), name.data, model);
    }
    return 0;
}

int weights_get_u32(const struct gguf *file, const char *key, uint64_t most, uint32_t *out,
                    struct failure *err)
{
    uint64_t value = 0;
    if (gguf_get_u64(file, key, true, 1, most, &value, err) < 0)
        return -1;
    *out = (uint32_t)value;
    return 0;
}

int weights_get_epsilon(const struct gguf *file, const char *key, float *out, struct failure *err)
{
    double value = 0;
    if (gguf_get_f64(file, key, true, &value, err) < 0)
        return -1;
    if (!(value > 0 && value < 1))
        return failure_set(err, "%s: %s is %g; accepted is between 0 and 1", file->path, key, value);
    *out = (float)value;
    return 0;
}
