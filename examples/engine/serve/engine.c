/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates the parts of an engine, each after those that it needs. */
#include "engine.h"
#include "architecture.h"
#include "model/ops.h"
#include "model/toy.h"

#include <sha2.h>
#include <stdlib.h>

/* Layers that see all tokens have one cache group, those that see a window another. */
static void describe_layers(struct engine *e)
{
    const struct model_shape *s = &e->model.shape;
    uint32_t windowed = 0;
    for (uint32_t i = 0; i < s->layers; i++)
        windowed += model_is_windowed(s, i);
    e->shape = (struct attention_shape){
        .layers = s->layers, .heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim};
    e->shape.groups = windowed > 0 && windowed < s->layers ? 2 : 1;
    e->shape.group = e->groups;
    for (uint32_t i = 0; i < s->layers; i++)
        e->groups[i] = e->shape.groups == 2 && model_is_windowed(s, i) ? 1 : 0;
    if (windowed > 0)
        e->shape.window[e->shape.groups - 1] = s->window;
}

static int load(struct engine *e, struct failure *err)
{
    if (architecture_expect(&e->file, ARCHITECTURE_LLAMA, err) < 0 ||
        tokenizer_create(&e->file, &e->tokenizer, err) < 0 || model_load(&e->file, &e->model, err) < 0)
        return -1;
    if (tokenizer_size(e->tokenizer) != e->model.shape.vocab)
        return failure_set(err, "%s: the vocabulary has %u tokens; token_embd.weight has %u rows",
                           e->file.path, tokenizer_size(e->tokenizer), e->model.shape.vocab);
    describe_layers(e);
    model_name(&e->file, e->name, sizeof e->name);
    SHA256Data(e->file.data, e->file.size, e->hash);
    return 0;
}

int engine_load(struct engine *e, const char *path, uint64_t seed, struct failure *err)
{
    size_t size;
    if (path)
        return gguf_open(path, &e->file, err) < 0 ? -1 : load(e, err);
    if (toy_build(seed, &e->toy, &size, err) < 0 || gguf_open_memory("toy", e->toy, size, &e->file, err) < 0)
        return -1;
    return load(e, err);
}

int engine_load_windowed(struct engine *e, uint32_t window, uint64_t seed, struct failure *err)
{
    size_t size;
    if (toy_build_windowed(seed, window, &e->toy, &size, err) < 0 ||
        gguf_open_memory("toy", e->toy, size, &e->file, err) < 0)
        return -1;
    return load(e, err);
}

int engine_start(struct engine *e, const struct attention_options *options, struct failure *err)
{
    matmul_set_threads(options->threads);
    uint32_t num_tokens = options->max_batch_tokens ? options->max_batch_tokens : options->max_chunk;
    if (forward_create(&e->model, num_tokens, &e->forward, err) < 0)
        return -1;
    return attention_create(&e->shape, options, &e->attention, err);
}

void engine_stop(struct engine *e)
{
    attention_destroy(e->attention);
    forward_destroy(e->forward);
    e->attention = NULL;
    e->forward = NULL;
}

void engine_finish(struct engine *e)
{
    engine_stop(e);
    model_finish(&e->model);
    tokenizer_destroy(e->tokenizer);
    gguf_close(&e->file);
    free(e->toy);
    *e = (struct engine){0};
}
