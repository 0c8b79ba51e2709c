/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tells models apart by the architecture that their file names. */
#include "other-models.h"

#include "gguf.h"

enum kind { KIND_OTHER, KIND_ENCODER, KIND_SPEECH };

/* KIND_OTHER also for files that cannot be read, which whoever opens them for good reports. */
static enum kind kind_of(const char *path)
{
    struct gguf file = {0};
    struct gguf_string name = {0};
    enum kind kind = KIND_OTHER;
    if (!path || gguf_open(path, &file, NULL) < 0)
        return kind;
    if (gguf_get_string(&file, "general.architecture", true, &name, NULL) == 0)
        kind = gguf_string_equals(name, "bert")      ? KIND_ENCODER
               : gguf_string_equals(name, "whisper") ? KIND_SPEECH
                                                     : KIND_OTHER;
    gguf_close(&file);
    return kind;
}

int other_models_run(const struct arguments *a, struct prompts *prompts, uint32_t threads, bool *out_handled,
                     struct failure *err)
{
    enum kind kind = kind_of(a->model);
    bool speech = kind == KIND_SPEECH;
    bool encoder = kind == KIND_ENCODER;
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
