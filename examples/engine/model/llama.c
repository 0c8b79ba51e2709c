/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hyper-parameters and tensors of a Llama model: each checked, then converted to floats in one block. */
#include "llama.h"
#include "architecture.h"
#include "quant.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------- hyper-parameters */

static int get_u32(const struct gguf *file, const char *key, uint64_t most, uint32_t *out,
                   struct failure *err)
{
    uint64_t value = 0;
    if (gguf_get_u64(file, key, true, 1, most, &value, err) < 0)
        return -1;
    *out = (uint32_t)value;
    return 0;
}

/* Variants that compute something else under the same architecture name. */
static int check_variants(const struct gguf *file, struct failure *err)
{
    struct gguf_string scaling = {"none", 4};
    uint64_t experts = 0;
    if (gguf_get_u64(file, "llama.expert_count", false, 0, 0, &experts, err) < 0 ||
        gguf_get_string(file, "llama.rope.scaling.type", false, &scaling, err) < 0)
        return -1;
    if (!gguf_string_equals(scaling, "none"))
        return failure_set(err, "%s: llama.rope.scaling.type is %.*s; accepted is none", file->path,
                           gguf_width(scaling), scaling.data);
    static const char *const unknown[] = {"llama.rope.scale_linear", "llama.attention.clamp_kqv",
                                          "llama.attention.max_alibi_bias", "llama.logit_scale",
                                          "llama.attention.scale"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        if (gguf_find(file, unknown[i]))
            return failure_set(err, "%s: metadata key %s is not supported; accepted are plain Llama models",
                               file->path, unknown[i]);
    return 0;
}

static int read_heads(const struct gguf *file, struct model_shape *s, struct failure *err)
{
    uint64_t kv_heads = s->heads;
    if (gguf_get_u64(file, "llama.attention.head_count_kv", false, 1, s->heads, &kv_heads, err) < 0)
        return -1;
    s->kv_heads = (uint32_t)kv_heads;
    if (s->heads % s->kv_heads != 0)
        return failure_set(err,
                           "%s: llama.attention.head_count_kv is %u; accepted are divisors of the %u heads",
                           file->path, s->kv_heads, s->heads);
    uint64_t dim = s->width / s->heads;
    if (!gguf_find(file, "llama.attention.key_length") && s->width % s->heads != 0)
        return failure_set(err, "%s: llama.embedding_length is %u; accepted are multiples of the %u heads",
                           file->path, s->width, s->heads);
    if (gguf_get_u64(file, "llama.attention.key_length", false, 1, 1024, &dim, err) < 0 ||
        gguf_get_u64(file, "llama.attention.value_length", false, dim, dim, &(uint64_t){0}, err) < 0 ||
        gguf_get_u64(file, "llama.rope.dimension_count", false, dim, dim, &(uint64_t){0}, err) < 0)
        return -1;
    if (dim == 0 || dim % 2 != 0 || dim > 1024)
        return failure_set(err, "%s: the dimension of a head is %u; accepted are even numbers from 2 to 1024",
                           file->path, (unsigned)dim);
    s->head_dim = (uint32_t)dim;
    return 0;
}

/* As in the files of Gemma: a window, and a pattern n, by which every n-th layer has none. */
static int read_window(const struct gguf *file, struct model_shape *s, struct failure *err)
{
    uint64_t window = 0;
    uint64_t pattern = 0;
    if (gguf_get_u64(file, "llama.attention.sliding_window", false, 0, INT32_MAX, &window, err) < 0 ||
        gguf_get_u64(file, "llama.attention.sliding_window_pattern", false, 0, MODEL_MOST_LAYERS, &pattern,
                     err) < 0)
        return -1;
    s->window = (uint32_t)window;
    s->pattern = (uint32_t)pattern;
    return 0;
}

bool model_is_windowed(const struct model_shape *shape, uint32_t layer)
{
    return shape->window > 0 && (shape->pattern == 0 || (layer + 1) % shape->pattern != 0);
}

static int read_numbers(const struct gguf *file, struct model_shape *s, struct failure *err)
{
    double epsilon = 0;
    s->rope_base = 10000;
    if (gguf_get_f64(file, "llama.attention.layer_norm_rms_epsilon", true, &epsilon, err) < 0 ||
        gguf_get_f64(file, "llama.rope.freq_base", false, &s->rope_base, err) < 0)
        return -1;
    if (!(epsilon > 0 && epsilon < 1))
        return failure_set(err,
                           "%s: llama.attention.layer_norm_rms_epsilon is %g; accepted is between 0 and 1",
                           file->path, epsilon);
    if (!(s->rope_base > 1 && s->rope_base < 1e12))
        return failure_set(err, "%s: llama.rope.freq_base is %g; accepted is between 1 and 1e12", file->path,
                           s->rope_base);
    s->norm_epsilon = (float)epsilon;
    return 0;
}

int model_read_shape(const struct gguf *file, struct model_shape *out, struct failure *err)
{
    *out = (struct model_shape){0};
    if (architecture_expect(file, ARCHITECTURE_LLAMA, err) < 0 || check_variants(file, err) < 0 ||
        get_u32(file, "llama.block_count", MODEL_MOST_LAYERS, &out->layers, err) < 0 ||
        get_u32(file, "llama.context_length", 1u << 24, &out->context, err) < 0 ||
        get_u32(file, "llama.embedding_length", 1u << 20, &out->width, err) < 0 ||
        get_u32(file, "llama.feed_forward_length", 1u << 22, &out->hidden, err) < 0 ||
        get_u32(file, "llama.attention.head_count", 1024, &out->heads, err) < 0)
        return -1;
    if (read_heads(file, out, err) < 0 || read_window(file, out, err) < 0)
        return -1;
    return read_numbers(file, out, err);
}

/* "SmolLM2-135M-Instruct.Q4_1.gguf" without its end: the suffix, and before it the name of an encoding. */
static size_t stem_length(const char *name)
{
    size_t size = strlen(name);
    if (size > 5 && strcasecmp(name + size - 5, ".gguf") == 0)
        size -= 5;
    for (size_t at = size; at > 0; at--) {
        if (name[at - 1] != '.' && name[at - 1] != '-')
            continue;
        const char *tail = name + at;
        bool quant = (tail[0] == 'Q' || tail[0] == 'q') && isdigit((unsigned char)tail[1]);
        bool plain = strncasecmp(tail, "f32", 3) == 0 || strncasecmp(tail, "f16", 3) == 0 ||
                     strncasecmp(tail, "bf16", 4) == 0;
        return quant || plain ? at - 1 : size;
    }
    return size;
}

static bool begins(const char *name, size_t size, const char *prefix)
{
    size_t length = strlen(prefix);
    return size >= length && strncasecmp(name, prefix, length) == 0;
}

void model_name(const struct gguf *file, char *out, size_t size)
{
    struct gguf_string name = {"unnamed", 7};
    struct gguf_string base = {0};
    struct gguf_string label = {0};
    gguf_get_string(file, "general.name", false, &name, NULL);
    gguf_get_string(file, "general.basename", false, &base, NULL);
    gguf_get_string(file, "general.size_label", false, &label, NULL);
    snprintf(out, size, "%.*s", gguf_width(name), name.data);
    const char *slash = strrchr(file->path, '/');
    const char *own = slash ? slash + 1 : file->path;
    char prefix[300];
    if (base.size && label.size) {
        snprintf(prefix, sizeof prefix, "%.*s-%.*s", gguf_width(base), base.data, gguf_width(label),
                 label.data);
        if (begins(own, stem_length(own), prefix))
            snprintf(out, size, "%.*s", (int)stem_length(own), own);
    }
    /* A name is one printable word in the report. */
    for (char *at = out; *at; at++)
        if (!isgraph((unsigned char)*at))
            *at = '-';
}

/* ---------------------------------------------------------------- tensors */

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
            return failure_set(l->err, "%s: tensor %.*s does not belong to a Llama model", l->file->path,
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
