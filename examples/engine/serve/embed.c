/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Puts tokenizer, encoder and attention together. */
#include "embed.h"
#include "model/llama.h"
#include "model/ops.h"

#include <inttypes.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>

static int load(struct embedder *e, struct failure *err)
{
    struct gguf_string name = {0};
    if (gguf_get_string(&e->file, "general.architecture", true, &name, err) < 0)
        return -1;
    if (!gguf_string_equals(name, "bert"))
        return failure_set(err, "%s: general.architecture is %.*s; accepted is bert", e->file.path,
                           gguf_width(name), name.data);
    if (wordpiece_create(&e->file, &e->tokenizer, err) < 0 || bert_load(&e->file, &e->model, err) < 0)
        return -1;
    if (wordpiece_size(e->tokenizer) != e->model.shape.vocab)
        return failure_set(
            err, "%s: the vocabulary has %" PRIu32 " tokens; token_embd.weight has %" PRIu32 " rows",
            e->file.path, wordpiece_size(e->tokenizer), e->model.shape.vocab);
    model_name(&e->file, e->name, sizeof e->name);
    SHA256Data(e->file.data, e->file.size, e->hash);
    return 0;
}

int embedder_load(struct embedder *e, const char *path, struct failure *err)
{
    *e = (struct embedder){0};
    return gguf_open(path, &e->file, err) < 0 ? -1 : load(e, err);
}

int embedder_load_memory(struct embedder *e, const char *name, const void *data, size_t size,
                         struct failure *err)
{
    *e = (struct embedder){0};
    return gguf_open_memory(name, data, size, &e->file, err) < 0 ? -1 : load(e, err);
}

int embedder_start(struct embedder *e, const struct encoding_options *options, struct failure *err)
{
    const struct bert_shape *s = &e->model.shape;
    struct encoding_shape shape = {
        .layers = {[ENCODING_ONLY] = s->layers}, .heads = s->heads, .head_dim = s->head_dim};
    struct encoding_options own = *options;
    own.max_tokens = s->context < own.max_batch_tokens ? s->context : own.max_batch_tokens;
    matmul_set_threads(own.threads);
    if (bert_forward_create(&e->model, own.max_seqs, own.max_batch_tokens, &e->forward, err) < 0)
        return -1;
    return encoding_create(&shape, &own, &e->attention, err);
}

void embedder_stop(struct embedder *e)
{
    encoding_destroy(e->attention);
    bert_forward_destroy(e->forward);
    e->attention = NULL;
    e->forward = NULL;
}

int embedder_encode(const struct embedder *e, const char *text, struct tokens *out, struct failure *err)
{
    if (wordpiece_encode(e->tokenizer, text, strlen(text), out, err) < 0)
        return -1;
    if (out->count > e->model.shape.context)
        return failure_set(err, "the text has %zu tokens; the model accepts up to %" PRIu32, out->count,
                           e->model.shape.context);
    return 0;
}

int embedder_run(struct embedder *e, const struct tokens *texts, uint32_t count, float *out,
                 struct failure *err)
{
    struct bert_text *list = calloc(count ? count : 1, sizeof *list);
    if (!list)
        return failure_set(err, "no memory for %" PRIu32 " texts", count);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (struct bert_text){texts[i].ids, (uint32_t)texts[i].count};
    int status = bert_forward_run(e->forward, e->attention, list, count, out, err);
    free(list);
    return status;
}

void embedder_finish(struct embedder *e)
{
    embedder_stop(e);
    bert_finish(&e->model);
    wordpiece_destroy(e->tokenizer);
    gguf_close(&e->file);
    *e = (struct embedder){0};
}
