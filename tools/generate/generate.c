/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Puts the parts together in the order in which they need each other. */
#include "generate.h"

#include "matmul.h"
#include "toy.h"

#include <sha2.h>
#include <stdlib.h>

static int open_file(struct engine *e, const char *path, uint64_t seed, struct failure *err)
{
    size_t size;
    if (path)
        return gguf_open(path, &e->file, err);
    if (toy_build(seed, &e->toy, &size, err) < 0)
        return -1;
    return gguf_open_memory("toy", e->toy, size, &e->file, err);
}

int engine_load(struct engine *e, const char *path, uint64_t seed, struct failure *err)
{
    if (open_file(e, path, seed, err) < 0 || tokenizer_create(&e->file, &e->tokenizer, err) < 0 ||
        model_load(&e->file, &e->model, err) < 0)
        return -1;
    if (tokenizer_size(e->tokenizer) != e->model.shape.vocab)
        return failure_set(err, "%s: the vocabulary has %u tokens; token_embd.weight has %u rows",
                           e->file.path, tokenizer_size(e->tokenizer), e->model.shape.vocab);
    model_name(&e->file, e->name, sizeof e->name);
    SHA256Data(e->file.data, e->file.size, e->hash);
    return 0;
}

int engine_start(struct engine *e, const struct attention_options *options, struct failure *err)
{
    const struct model_shape *s = &e->model.shape;
    struct attention_shape shape = {s->layers, s->heads, s->kv_heads, s->head_dim};
    matmul_set_threads(options->threads);
    if (forward_create(&e->model, options->max_rows ? options->max_rows : options->max_chunk, &e->forward,
                       err) < 0)
        return -1;
    return attention_create(&shape, options, &e->attention, err);
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
