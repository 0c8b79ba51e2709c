/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tells models apart by the architecture that their file names. */
#include "other-models.h"

#include "gguf.h"

/* False also for files that cannot be read, which whoever opens them for good reports. */
static bool model_is(const char *path, const char *architecture)
{
    struct gguf file = {0};
    struct gguf_string name = {0};
    if (!path || gguf_open(path, &file, NULL) < 0)
        return false;
    bool same = gguf_get_string(&file, "general.architecture", true, &name, NULL) == 0 &&
                gguf_string_equals(name, architecture);
    gguf_close(&file);
    return same;
}

int other_models_run(const struct arguments *a, struct prompts *prompts, uint32_t threads, bool *out_handled,
                     struct failure *err)
{
    bool speech = model_is(a->model, "whisper");
    bool encoder = !speech && model_is(a->model, "bert");
    *out_handled = speech || encoder || a->audio;
    if (speech && !a->audio && !a->batch)
        return failure_set(err,
                           "%s is a speech model; accepted are --audio FILE.wav, and --batch FILE with a "
                           "path on each line",
                           a->model);
    if (a->audio && !speech)
        return failure_set(err, "--audio is for speech models, which %s is not",
                           a->model ? a->model : "the toy model");
    if (speech)
        return speech_clips(a, prompts, threads, err);
    return encoder ? embed_prompts(a, prompts, threads, err) : 0;
}
