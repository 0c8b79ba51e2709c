/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sound files in, texts out: the command line of speech models. */
#include "attention/device.h"
#include "commands.h"
#include "output.h"
#include "serve/speech.h"

#ifdef ATTN_HAVE_JANSSON
#include "jsonout.h"
#endif

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct speech_job {
    const struct arguments *arguments;
    struct prompts *files; /* told when one is missing */
    struct speech speech;
    struct clip *clips;
    float **mels;
    char **texts;
    uint32_t threads;
    uint32_t at_once;
    uint64_t rows;
    uint64_t tokens;
    double seconds;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The spectrum of a clip with silence up to the length that the model was made for. */
static int read_clip(struct speech_job *job, uint32_t index, struct failure *err)
{
    const struct whisper_shape *m = &job->speech.model.shape;
    const struct prompt *file = &job->files->list[index];
    uint32_t frames = 2 * m->encoder_rows;
    struct wave wave;
    struct failure own = {0};
    int status = wave_read(file->text, frames * WAVE_HOP, &wave, &own);
    if (status == 0) {
        job->mels[index] = need_memory(NULL, (size_t)frames * m->bands, sizeof(float));
        status = wave_log_mel(&wave, frames, m->bands, job->mels[index], &own);
    }
    job->files->missing |= wave.missing;
    wave_finish(&wave);
    if (status < 0 && file->line)
        return failure_set(err, "--batch %.200s: line %u: %.700s", job->arguments->batch, file->line,
                           own.text);
    if (status < 0)
        return failure_set(err, "--audio %.900s", own.text);
    job->clips[index] =
        (struct clip){.mel = job->mels[index], .rows = m->encoder_rows, .most = job->arguments->tokens};
    return 0;
}

static int run(struct speech_job *job, struct failure *err)
{
    const struct arguments *a = job->arguments;
    uint32_t count = job->files->count;
    if (speech_load(&job->speech, a->model, err) < 0)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        if (read_clip(job, i, err) < 0)
            return -1;
    job->at_once = a->parallel < count ? a->parallel : count;
    const struct encoding_options options = {.block = a->block,
                                             .backend = a->backend,
                                             .max_seqs = job->at_once,
                                             .max_encoder = job->speech.model.shape.encoder_rows,
                                             .threads = job->threads,
                                             .kv = a->kv,
                                             .seed = a->seed};
    if (speech_start(&job->speech, &options, err) < 0)
        return -1;
    double began = now();
    if (speech_run(&job->speech, job->clips, count, NULL, NULL, err) < 0)
        return -1;
    job->seconds = now() - began;
    for (uint32_t i = 0; i < count; i++) {
        job->texts[i] = speech_text(&job->speech, &job->clips[i].made);
        if (!job->texts[i])
            return failure_set(err, "no memory for a text");
        job->tokens += job->clips[i].made.count;
        job->rows += job->clips[i].rows;
    }
    return 0;
}

/* The text of a clip begins with a blank, as every word does. */
static void print(const struct speech_job *job)
{
    for (uint32_t i = 0; i < job->files->count; i++) {
        if (job->files->count > 1)
            fprintf(output_stream(), "=== %u ===\n", i + 1);
        fprintf(output_stream(), "%s\n", job->texts[i] + (job->texts[i][0] == ' '));
    }
}

static void report(const struct speech_job *job)
{
    const struct speech *s = &job->speech;
    struct encoding_info info;
    encoding_get_info(s->attention, &info);
    fprintf(stderr, "model: %s (sha256 %s)\n", s->name, s->hash);
    if (job->files->count > 1)
        fprintf(stderr, "sequences: %u, up to %u at once\n", job->files->count, job->at_once);
    fprintf(stderr, "text: %llu tokens from %llu encoder tokens, %.1f s\n", (unsigned long long)job->tokens,
            (unsigned long long)job->rows, job->seconds);
    device_print(info.backend, info.device_name, info.kernels, info.generic);
    fprintf(stderr, "threads: %u\n", job->threads);
}

#ifdef ATTN_HAVE_JANSSON

static bool print_json(const struct speech_job *job)
{
    const struct speech *s = &job->speech;
    struct jsonout *json = jsonout_create("transcribe");
    struct encoding_info info;
    encoding_get_info(s->attention, &info);
    jsonout_string(json, "model", s->name);
    jsonout_string(json, "sha256", s->hash);
    jsonout_string(json, "backend", info.backend);
    jsonout_string(json, "device", info.device);
    jsonout_string(json, "device_name", info.device_name);
    jsonout_strings(json, "kernels", info.kernels, ',');
    jsonout_string(json, "kv", job->arguments->kv);
    jsonout_integer(json, "threads", job->threads);
    jsonout_integer(json, "parallel", job->at_once);
    jsonout_array(json, "sequences");
    for (uint32_t i = 0; i < job->files->count; i++) {
        const struct clip *clip = &job->clips[i];
        jsonout_object(json, NULL);
        jsonout_integer(json, "number", (int64_t)i + 1);
        if (job->files->list[i].line)
            jsonout_integer(json, "line", job->files->list[i].line);
        else
            jsonout_string(json, "line", NULL);
        jsonout_string(json, "audio", job->files->list[i].text);
        jsonout_string(json, "text", job->texts[i]);
        jsonout_string(json, "end",
                       clip->ended                      ? "end"
                       : clip->made.count >= clip->most ? "length"
                                                        : "context");
        jsonout_integer(json, "tokens", (int64_t)clip->made.count);
        jsonout_close(json);
    }
    jsonout_close(json);
    jsonout_object(json, "generated");
    jsonout_integer(json, "tokens", (int64_t)job->tokens);
    jsonout_real(json, "seconds", job->seconds);
    jsonout_close(json);
    return jsonout_finish(json, output_stream());
}

#else

static bool print_json(const struct speech_job *job)
{
    (void)job;
    complain("--json needs a build with jansson");
    return false;
}

#endif

int speech_clips(const struct arguments *a, struct prompts *files, uint32_t threads, struct failure *err)
{
    struct speech_job job = {.arguments = a, .files = files, .threads = threads};
    job.clips = need_memory(NULL, files->count, sizeof *job.clips);
    job.mels = need_memory(NULL, files->count, sizeof *job.mels);
    job.texts = need_memory(NULL, files->count, sizeof *job.texts);
    memset(job.clips, 0, files->count * sizeof *job.clips);
    memset(job.mels, 0, files->count * sizeof *job.mels);
    memset(job.texts, 0, files->count * sizeof *job.texts);
    int status = run(&job, err);
    if (status == 0) {
        report(&job);
        if (!a->common.json)
            print(&job);
        else if (!print_json(&job))
            status = failure_set(err, "there is no JSON document");
    }
    for (uint32_t i = 0; i < files->count; i++) {
        tokens_finish(&job.clips[i].made);
        free(job.mels[i]);
        free(job.texts[i]);
    }
    speech_finish(&job.speech);
    free(job.clips);
    free(job.mels);
    free(job.texts);
    return status;
}
