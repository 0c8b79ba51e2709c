/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prompts in, embeddings out: the command line of encoder models. */
#include "attention/device.h"
#include "commands.h"
#include "output.h"
#include "serve/embed.h"

#ifdef ATTN_HAVE_JANSSON
#include "jsonout.h"
#endif

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct embedding_job {
    const struct arguments *arguments;
    const struct prompts *prompts;
    struct embedder embedder;
    struct tokens *texts;
    float *out; /* an embedding per prompt */
    uint32_t threads;
    uint32_t at_once;
    uint64_t tokens;
    double seconds;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Tokens of all texts, before anything runs. */
static int encode(struct embedding_job *job, struct failure *err)
{
    for (uint32_t i = 0; i < job->prompts->count; i++) {
        const struct prompt *prompt = &job->prompts->list[i];
        struct failure own = {0};
        if (embedder_encode(&job->embedder, prompt->text, &job->texts[i], &own) == 0) {
            job->tokens += job->texts[i].count;
            continue;
        }
        if (!prompt->line)
            return failure_set(err, "%.900s", own.text);
        return failure_set(err, "--batch %.200s: line %u: %.700s", job->arguments->batch, prompt->line,
                           own.text);
    }
    return 0;
}

/* The most tokens of a batch, which has the texts of at_once prompts. */
static uint32_t most_tokens(const struct embedding_job *job)
{
    size_t most = 0;
    for (uint32_t i = 0; i < job->prompts->count; i += job->at_once) {
        size_t tokens = 0;
        for (uint32_t k = i; k < job->prompts->count && k < i + job->at_once; k++)
            tokens += job->texts[k].count;
        most = tokens > most ? tokens : most;
    }
    return (uint32_t)most;
}

static int run(struct embedding_job *job, struct failure *err)
{
    const struct arguments *a = job->arguments;
    uint32_t count = job->prompts->count;
    if (embedder_load(&job->embedder, a->model, err) < 0 || encode(job, err) < 0)
        return -1;
    job->at_once = a->parallel < count ? a->parallel : count;
    const struct encoding_options options = {.block = a->block,
                                             .backend = a->backend,
                                             .max_seqs = job->at_once,
                                             .max_batch_tokens = most_tokens(job),
                                             .threads = job->threads,
                                             .seed = a->seed};
    if (embedder_start(&job->embedder, &options, err) < 0)
        return -1;
    uint32_t width = job->embedder.model.shape.width;
    job->out = need_memory(NULL, (size_t)count * width, sizeof *job->out);
    double began = now();
    for (uint32_t i = 0; i < count; i += job->at_once) {
        uint32_t texts = count - i < job->at_once ? count - i : job->at_once;
        if (embedder_run(&job->embedder, job->texts + i, texts, job->out + (size_t)i * width, err) < 0)
            return -1;
    }
    job->seconds = now() - began;
    return 0;
}

/* A line of numbers for each text. */
static void print(const struct embedding_job *job)
{
    uint32_t width = job->embedder.model.shape.width;
    for (uint32_t i = 0; i < job->prompts->count; i++)
        for (uint32_t k = 0; k < width; k++)
            fprintf(output_stream(), "%.7g%c", (double)job->out[(size_t)i * width + k],
                    k + 1 < width ? ' ' : '\n');
}

static void report(const struct embedding_job *job)
{
    const struct embedder *e = &job->embedder;
    struct encoding_info info;
    encoding_get_info(e->attention, &info);
    fprintf(stderr, "model: %s (sha256 %s)\n", e->name, e->hash);
    if (job->prompts->count > 1)
        fprintf(stderr, "sequences: %u, up to %u at once\n", job->prompts->count, job->at_once);
    fprintf(stderr, "embedding: %u numbers from %llu tokens, %.1f tokens/s\n", e->model.shape.width,
            (unsigned long long)job->tokens, job->seconds > 0 ? (double)job->tokens / job->seconds : 0.0);
    device_print(info.backend, info.device_name, info.kernels, info.generic);
    fprintf(stderr, "threads: %u\n", job->threads);
}

#ifdef ATTN_HAVE_JANSSON

static void add_sequence(const struct embedding_job *job, struct jsonout *json, uint32_t index)
{
    const struct prompt *prompt = &job->prompts->list[index];
    uint32_t width = job->embedder.model.shape.width;
    jsonout_object(json, NULL);
    jsonout_integer(json, "number", (int64_t)index + 1);
    if (prompt->line)
        jsonout_integer(json, "line", prompt->line);
    else
        jsonout_string(json, "line", NULL);
    jsonout_string(json, "prompt", prompt->text);
    jsonout_integer(json, "prompt_tokens", (int64_t)job->texts[index].count);
    jsonout_array(json, "embedding");
    for (uint32_t k = 0; k < width; k++)
        jsonout_real(json, NULL, (double)job->out[(size_t)index * width + k]);
    jsonout_close(json);
    jsonout_close(json);
}

static bool print_json(const struct embedding_job *job)
{
    const struct embedder *e = &job->embedder;
    struct jsonout *json = jsonout_create("embed");
    struct encoding_info info;
    encoding_get_info(e->attention, &info);
    jsonout_string(json, "model", e->name);
    jsonout_string(json, "sha256", e->hash);
    jsonout_string(json, "backend", info.backend);
    jsonout_string(json, "device", info.device);
    jsonout_string(json, "device_name", info.device_name);
    jsonout_strings(json, "kernels", info.kernels, ',');
    jsonout_integer(json, "threads", job->threads);
    jsonout_integer(json, "parallel", job->at_once);
    jsonout_array(json, "sequences");
    for (uint32_t i = 0; i < job->prompts->count; i++)
        add_sequence(job, json, i);
    jsonout_close(json);
    jsonout_object(json, "prompt");
    jsonout_integer(json, "tokens", (int64_t)job->tokens);
    jsonout_real(json, "seconds", job->seconds);
    jsonout_close(json);
    return jsonout_finish(json, output_stream());
}

#else

static bool print_json(const struct embedding_job *job)
{
    (void)job;
    complain("--json needs a build with jansson");
    return false;
}

#endif

int embed_prompts(const struct arguments *a, const struct prompts *prompts, uint32_t threads,
                  struct failure *err)
{
    struct embedding_job job = {.arguments = a, .prompts = prompts, .threads = threads};
    job.texts = need_memory(NULL, prompts->count, sizeof *job.texts);
    memset(job.texts, 0, prompts->count * sizeof *job.texts);
    int status = run(&job, err);
    if (status == 0) {
        report(&job);
        if (!a->common.json)
            print(&job);
        else if (!print_json(&job))
            status = failure_set(err, "there is no JSON document");
    }
    for (uint32_t i = 0; i < prompts->count; i++)
        tokens_finish(&job.texts[i]);
    embedder_finish(&job.embedder);
    free(job.texts);
    free(job.out);
    return status;
}
