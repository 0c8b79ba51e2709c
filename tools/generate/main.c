/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-generate: answers prompts with a language model whose attention layers run on libattn. */
#define _GNU_SOURCE /* sched_getaffinity */

#include "args.h"
#include "batch.h"
#include "chat.h"
#include "other-models.h"
#include "output.h"
#include "printer.h"
#include "prompts.h"
#include "report.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

/* "" for a prompt of the command line, else where it stands. */
static void name_prompt(const struct arguments *a, const struct prompt *prompt, char *out, size_t size)
{
    if (prompt->line)
        snprintf(out, size, "--batch %.200s: line %u: ", a->batch, prompt->line);
    else
        out[0] = 0;
}

static int encode_prompt(const struct engine *e, const struct arguments *a, const struct prompt *prompt,
                         struct tokens *out, struct failure *err)
{
    char *text = NULL;
    char name[256];
    if (a->raw)
        text = need_copy(prompt->text);
    else if (chat_render(&e->file, prompt->text, &text, err) < 0)
        return -1;
    int status = tokenizer_encode(e->tokenizer, text, strlen(text), out, err);
    free(text);
    name_prompt(a, prompt, name, sizeof name);
    if (status == 0 && out->count == 0)
        return failure_set(err, "%sthe prompt has no tokens; accepted are 1 to %u", name,
                           e->model.shape.context - 1);
    if (status == 0 && out->count >= e->model.shape.context)
        return failure_set(err, "%sthe prompt has %zu tokens; the model accepts up to %u", name, out->count,
                           e->model.shape.context - 1);
    return status;
}

/* One sequence per prompt, each drawing with a seed of its own. */
static int make_sequences(const struct engine *e, const struct arguments *a, const struct prompts *prompts,
                          struct sequence *sequences, struct failure *err)
{
    for (uint32_t i = 0; i < prompts->count; i++) {
        sequences[i].most = a->tokens;
        sequences[i].sampler = (struct sampler){a->temperature, a->seed + i};
        sequences[i].sample = !a->batch && i > 0;
        if (encode_prompt(e, a, &prompts->list[i], &sequences[i].prompt, err) < 0)
            return -1;
    }
    return 0;
}

static void on_step(void *user)
{
    printer_continue(user);
}

static int answer(struct engine *e, const struct arguments *a, const struct prompts *prompts,
                  struct sequence *sequences, struct failure *err)
{
    struct printer printer = {.engine = e,
                              .sequences = sequences,
                              .count = prompts->count,
                              .numbered = a->batch || prompts->count > 1};
    struct batch_result result;
    struct batch_options options = {
        .parallel = a->parallel,
        .chunk = a->chunk,
        .reuse = a->reuse,
        .attention = {.block = a->block,
                      .blocks = {a->blocks, a->blocks},
                      .host_blocks = a->host_blocks,
                      .threads = a->threads ? a->threads : default_threads(),
                      .kv = a->kv,
                      .seed = a->seed},
        .compare = a->compare_kv,
        .on_step = a->common.json ? NULL : on_step,
        .user = &printer,
    };
    if (make_sequences(e, a, prompts, sequences, err) < 0)
        return -1;
    if (batch_run(e, sequences, prompts->count, &options, &result, err) < 0) {
        if (printer.begun) /* the message begins on a line of its own */
            fputc('\n', output_stream());
        return -1;
    }
    const struct report report = {e, a, prompts, sequences, &result, options.attention.threads};
    report_print(&report);
    return a->common.json && !report_json(&report) ? failure_set(err, "there is no JSON document") : 0;
}

static int run(const struct arguments *a, struct engine *e, struct prompts *prompts, struct failure *err)
{
    int status = a->batch ? prompts_read(a->batch, prompts, err)
                          : prompts_repeat(a->prompt, a->parallel, prompts, err);
    if (status == 0 && a->model && model_is(a->model, "bert"))
        return embed_prompts(a, prompts, a->threads ? a->threads : default_threads(), err);
    if (status < 0 || engine_load(e, a->model, a->seed, err) < 0)
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
