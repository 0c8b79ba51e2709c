/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-generate: answers prompts with a language model whose attention layers run on libattn. */
#define _GNU_SOURCE /* sched_getaffinity */

#include "architecture.h"
#include "args.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "output.h"
#include "serve/batch.h"
#include "serve/printer.h"
#include "serve/prompts.h"
#include "serve/report.h"
#include "tokenizer/chat.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---------------------------------------------------------------- speech models */

/*
 * Runs a speech model, and refuses what is neither that nor a language model, before its tokenizer is looked
 * at. With a language model, and with a file that cannot be opened (engine_load says why), it succeeds and
 * *out_handled stays false.
 */
static int run_speech_model(const struct arguments *a, struct prompts *prompts, uint32_t threads,
                            bool *out_handled, struct failure *err)
{
    enum architecture architecture = ARCHITECTURE_LLAMA; /* of the toy model */
    struct gguf file = {0};
    if (a->model) {
        if (gguf_open(a->model, &file, NULL) < 0)
            return 0;
        int status = architecture_read(&file, &architecture, err);
        gguf_close(&file);
        if (status < 0)
            return -1;
    }
    bool speech = architecture == ARCHITECTURE_WHISPER;
    if (speech && !a->audio && !a->batch)
        return failure_set(err,
                           "%s is a speech model; accepted are --audio FILE, and --batch FILE with a path "
                           "on each line",
                           a->model);
    if (a->audio && !speech)
        return failure_set(err, "--audio is for speech models, which %s is not",
                           a->model ? a->model : "the toy model");
    if (speech && a->ranks > 1)
        return failure_set(err, "--ranks is %u; speech models run on one rank: accepted is 1", a->ranks);
    *out_handled = speech;
    return speech ? speech_clips(a, prompts, threads, err) : 0;
}

/* ---------------------------------------------------------------- language models */

/* ATTN_THREADS, else one thread per CPU that this process may use. */
static uint32_t default_threads(void)
{
    const char *text = getenv("ATTN_THREADS");
    unsigned long given = text ? strtoul(text, NULL, 10) : 0;
    cpu_set_t set;
    if (given >= 1 && given <= MOST_THREADS)
        return (uint32_t)given;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* Ctrl-C ends the texts where they are; a second one ends the program. */
static void watch_signal(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
}

/* Whole numbers with blanks or commas between them; whether the model has such tokens is asked later. */
static int read_ids(const char *text, struct tokens *out, struct failure *err)
{
    static const char blanks[] = " \t,";
    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || (*end && !strchr(blanks, *end)) || errno || id < -INT32_MAX || id > INT32_MAX)
            return failure_set(err,
                               "number %zu of the prompt is '%.*s'; accepted are numbers of tokens with "
                               "blanks or commas between them",
                               out->count + 1, (int)strcspn(text, blanks), text);
        if (tokens_add(out, (int32_t)id, err) < 0)
            return -1;
        text = end;
    }
    return 0;
}

static int encode_prompt(const struct engine *e, const struct arguments *a, const struct prompt *prompt,
                         struct tokens *out, struct failure *err)
{
    char *text = NULL;
    if (a->ids)
        return read_ids(prompt->text, out, err);
    if (a->raw)
        text = need_copy(prompt->text);
    else if (chat_render(&e->file, prompt->text, &text, err) < 0)
        return -1;
    int status = tokenizer_encode(e->tokenizer, text, strlen(text), out, err);
    free(text);
    return status;
}

/* One sequence per prompt, each drawing with a seed of its own. A prompt that cannot be read is refused
 * alone.
 */
static void make_sequences(const struct engine *e, const struct arguments *a, const struct prompts *prompts,
                           struct sequence *sequences)
{
    for (uint32_t i = 0; i < prompts->count; i++) {
        sequences[i].most = a->tokens;
        sequences[i].sampler = (struct sampler){a->temperature, a->seed + i};
        sequences[i].sample = !a->batch && i > 0;
        if (encode_prompt(e, a, &prompts->list[i], &sequences[i].prompt, &sequences[i].refusal) < 0)
            sequences[i].end = END_REFUSED;
    }
}

static void on_step(void *user, const struct batch_progress *progress)
{
    struct printer *printer = user;
    if (printer->sequences)
        printer_continue(printer);
    progress_show(progress);
}

static int answer(struct engine *e, const struct arguments *a, const struct prompts *prompts,
                  struct sequence *sequences, struct failure *err)
{
    struct printer printer = {.engine = e,
                              .sequences = a->common.json ? NULL : sequences,
                              .count = prompts->count,
                              .numbered = a->batch || prompts->count > 1,
                              .whole = a->batch && progress_begin() && isatty(fileno(output_stream()))};
    struct batch_result result;
    struct batch_options options = {
        .parallel = a->parallel,
        .chunk = a->chunk,
        .steps = a->steps,
        .reuse = a->reuse,
        .attention = {.block = a->block,
                      .blocks = {a->blocks, a->blocks},
                      .host_blocks = a->host_blocks,
                      .threads = a->threads ? a->threads : default_threads(),
                      .kv = a->kv,
                      .q = a->q,
                      .backend = a->backend,
                      .graph = a->graph,
                      .ranks = a->ranks,
                      .seed = a->seed},
        .compare = a->compare_kv,
        .stop = &interrupted,
        .on_step = on_step,
        .user = &printer,
    };
    make_sequences(e, a, prompts, sequences);
    watch_signal();
    int status = batch_run(e, sequences, prompts->count, &options, &result, err);
    progress_clear();
    if (status == 0 && !a->common.json && result.refused < prompts->count)
        printer_continue(&printer);       /* those that were interrupted or refused */
    else if (status < 0 && printer.begun) /* the message begins on a line of its own */
        fputc('\n', output_stream());
    const struct report report = {e, a, prompts, sequences, &result, options.attention.threads};
    if (status < 0 || report_refusals(&report, err) < 0)
        return -1;
    report_print(&report);
    if (a->common.json && !report_json(&report))
        return failure_set(err, "there is no JSON document");
    if (interrupted)
        return failure_set(err, "interrupted: %u of %u texts are not complete", result.cancelled,
                           prompts->count);
    return result.refused == 0
               ? 0
               : failure_set(err, "%u of %u prompts were refused", result.refused, prompts->count);
}

static int run(const struct arguments *a, struct engine *e, struct prompts *prompts, struct failure *err)
{
    int status = a->batch ? prompts_read(a->batch, prompts, err)
                          : prompts_repeat(a->prompt, a->parallel, prompts, err);
    bool handled = false;
    if (status == 0)
        status = run_speech_model(a, prompts, a->threads ? a->threads : default_threads(), &handled, err);
    if (handled)
        return status;
    if (status < 0)
        return -1;
    status = a->toy_window ? engine_load_windowed(e, a->toy_window, a->seed, err)
                           : engine_load(e, a->model, a->seed, err);
    if (status < 0)
        return -1;
    struct sequence *sequences = need_memory(NULL, prompts->count, sizeof *sequences);
    memset(sequences, 0, prompts->count * sizeof *sequences);
    status = answer(e, a, prompts, sequences, err);
    for (uint32_t i = 0; i < prompts->count; i++) {
        tokens_finish(&sequences[i].prompt);
        tokens_finish(&sequences[i].made);
    }
    free(sequences);
    return status;
}

int main(int argc, char **argv)
{
    struct arguments a;
    struct engine e = {0};
    struct prompts prompts = {0};
    struct failure err = {0};
    output_init("attn-generate");
    arguments_parse(argc, argv, &a);
    int status = run(&a, &e, &prompts, &err);
    int code = status == 0 ? EXIT_YES : e.file.missing || prompts.missing ? EXIT_MISSING : EXIT_NO;
    if (status < 0)
        complain("%s", err.text);
    prompts_finish(&prompts);
    engine_finish(&e);
    return output_finish(code);
}
