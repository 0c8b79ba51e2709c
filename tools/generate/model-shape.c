/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Hyper-parameters of the Llama architecture, each checked, and the name of the model. */
#include "model.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int get_u32(const struct gguf *file, const char *key, uint64_t most, uint32_t *out,
                   struct failure *err)
{
    uint64_t value = 0;
    if (gguf_get_u64(file, key, true, 1, most, &value, err) < 0)
        return -1;
    *out = (uint32_t)value;
    return 0;
}

static int check_architecture(const struct gguf *file, struct failure *err)
{
    struct gguf_string name;
    if (gguf_get_string(file, "general.architecture", true, &name, err) < 0)
        return -1;
    if (!gguf_string_equals(name, "llama"))
        return failure_set(err, "%s: general.architecture is %.*s; accepted is llama", file->path,
                           gguf_width(name), name.data);
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

/* As the files of Gemma have it: a window, and every so many-th layer without. */
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
    if (check_architecture(file, err) < 0 || check_variants(file, err) < 0 ||
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
