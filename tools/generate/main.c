/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-generate: answers a prompt with a language model whose attention layers run on libattn. */
#define _GNU_SOURCE /* sched_getaffinity */

#include "args.h"
#include "chat.h"
#include "generate.h"
#include "sample.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct speed {
    uint32_t tokens;
    double seconds;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* What libattn would take too: ATTN_THREADS, else one thread per CPU that this process may use. */
static uint32_t default_threads(void)
{
    const char *text = getenv("ATTN_THREADS");
    unsigned long given = text ? strtoul(text, NULL, 10) : 0;
    cpu_set_t set;
    if (given >= 1 && given <= MOST_THREADS)
        return (uint32_t)given;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static int encode_prompt(const struct engine *e, const struct arguments *a, struct tokens *out,
                         struct failure *err)
{
    char *text = NULL;
    if (a->raw)
        text = strdup(a->prompt);
    else if (chat_render(&e->file, a->prompt, &text, err) < 0)
        return -1;
    if (!text)
        return failure_set(err, "no memory for the prompt");
    int status = tokenizer_encode(e->tokenizer, text, strlen(text), out, err);
    free(text);
    if (status == 0 && out->count >= e->model.shape.context)
        return failure_set(err, "the prompt has %zu tokens; the model accepts up to %u", out->count,
                           e->model.shape.context - 1);
    return status;
}

static void print_token(const struct engine *e, struct utf8_stream *stream, int32_t id)
{
    static char bytes[TOKENIZER_MOST_BYTES];
    size_t size = tokenizer_decode(e->tokenizer, id, bytes, sizeof bytes);
    for (size_t i = 0; i < size; i++) {
        char out[8];
        fwrite(out, 1, utf8_stream_push(stream, bytes[i], out), stdout);
    }
    fflush(stdout);
}

/* Decodes token by token until the model ends its text, the count is reached or the context is full. */
static int decode(struct engine *e, const struct arguments *a, uint32_t past, float *logits,
                  struct speed *speed, struct failure *err)
{
    const struct model_shape *s = &e->model.shape;
    struct sampler sampler = {a->temperature, a->seed};
    struct utf8_stream stream = {0};
    char rest[8];
    bool full = false;
    int status = 0;
    double begin = now();
    while (status == 0) {
        int32_t id;
        status = sampler_next(&sampler, logits, s->vocab, &id, err);
        if (status < 0 || tokenizer_ends(e->tokenizer, id))
            break;
        print_token(e, &stream, id);
        full = ++speed->tokens < a->tokens && past == s->context;
        if (full || speed->tokens == a->tokens)
            break;
        status = forward_step(e->forward, e->attention, &id, past++, 1, 0, logits, err);
    }
    if (full)
        fprintf(stderr, "attn-generate: the context of %u tokens is full\n", s->context);
    fwrite(rest, 1, utf8_stream_end(&stream, rest), stdout);
    putchar('\n');
    speed->seconds = now() - begin;
    if (fflush(stdout) != 0 && status == 0)
        status = failure_set(err, "standard output cannot be written");
    return status;
}

static void print_speed(const char *what, const struct speed *speed)
{
    fprintf(stderr, "%s: %u tokens, %.1f tokens/s\n", what, speed->tokens,
            speed->seconds > 0 ? speed->tokens / speed->seconds : 0.0);
}

static void report(const struct engine *e, const struct arguments *a, uint32_t threads,
                   const struct speed *prompt, const struct speed *generated)
{
    struct attention_info info;
    attention_get_info(e->attention, &info);
    if (a->toy)
        fprintf(stderr, "model: %s (reason: %s)\n", e->name, a->toy);
    else
        fprintf(stderr, "model: %s (sha256 %s)\n", e->name, e->hash);
    print_speed("prompt", prompt);
    print_speed("generated", generated);
    fprintf(stderr, "backend: %s (%s)\n", info.backend, info.device);
    fprintf(stderr, "kernels: %s\n", info.kernels);
    fprintf(stderr, "threads: %u\n", threads);
}

static int answer(struct engine *e, const struct arguments *a, const struct tokens *prompt,
                  struct failure *err)
{
    uint32_t count = (uint32_t)prompt->count;
    uint32_t most = e->model.shape.context;
    uint32_t chunk = a->chunk < count ? a->chunk : count;
    struct attention_options options = {
        .block = a->block,
        .max_tokens = most - count > a->tokens ? count + a->tokens : most,
        .max_chunk = chunk,
        .threads = a->threads ? a->threads : default_threads(),
        .kv = a->kv,
        .seed = a->seed,
    };
    struct speed speeds[2] = {{.tokens = count}, {0}};
    float *logits = malloc(e->model.shape.vocab * sizeof *logits);
    if (!logits)
        return failure_set(err, "no memory for %u logits", e->model.shape.vocab);
    int status = engine_start(e, &options, err);
    if (status == 0) {
        double begin = now();
        status = forward_prompt(e->forward, e->attention, prompt->ids, count, chunk, logits, err);
        speeds[0].seconds = now() - begin;
    }
    if (status == 0)
        status = decode(e, a, count, logits, &speeds[1], err);
    if (status == 0)
        report(e, a, options.threads, &speeds[0], &speeds[1]);
    free(logits);
    return status;
}

int main(int argc, char **argv)
{
    struct arguments a;
    struct engine e = {0};
    struct tokens prompt = {0};
    struct failure err = {0};
    arguments_parse(argc, argv, &a);
    int status = engine_load(&e, a.model, a.seed, &err);
    int code = e.file.missing ? EXIT_MISSING : EXIT_FAILED;
    if (status == 0)
        status = encode_prompt(&e, &a, &prompt, &err);
    if (status == 0)
        status = answer(&e, &a, &prompt, &err);
    if (status < 0)
        fprintf(stderr, "attn-generate: %s\n", err.text);
    tokens_finish(&prompt);
    engine_finish(&e);
    return status < 0 ? code : EXIT_SUCCESS;
}
