/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Prints how likely a model of llama.cpp finds a text, token by token behind prompts of several lengths.
 * Tokens that it would choose itself say less: of two that are nearly alike, the last bit decides. likelihood
 * MODEL.gguf TYPE-OF-CACHE
 */
#include <ggml-backend.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 24, LONGEST = 900, CONTEXT = 1024, TEXT_TOKENS = LONGEST + STEPS + 1, THREADS = 2 };

static const char TEXT[] =
    "The river rose in the night, and by morning the lower fields lay under water. Nobody had "
    "moved the sheep. From the road one saw them on a strip of grass behind the mill, as "
    "still as stones, and a boy in a boat that was much too small for what he meant to do. ";

static void fail(const char *what)
{
    fprintf(stderr, "likelihood: %s\n", what);
    exit(1);
}

static enum ggml_type type_of(const char *name)
{
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        const char *known = ggml_type_name((enum ggml_type)type);
        if (known != NULL && strcmp(known, name) == 0)
            return (enum ggml_type)type;
    }
    fail("the type of the cache is unknown");
    return GGML_TYPE_COUNT;
}

static void log_errors(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

/* Where the text goes on with `token`. */
static void report(int32_t at, const float *logits, int32_t count, llama_token token)
{
    llama_token best = 0;
    double sum = 0;
    for (llama_token i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    for (llama_token i = 0; i < count; i++)
        sum += exp(logits[i] - logits[best]);
    printf("%d %.6f %d\n", at, logits[token] - logits[best] - log(sum), best);
}

/* The prompt in one call, then the text's own tokens one by one. */
static void judge(struct llama_model *model, enum ggml_type cache, llama_token *text, int32_t length)
{
    struct llama_context_params params = llama_context_default_params();
    const int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    params.n_ctx = CONTEXT;
    params.n_threads = params.n_threads_batch = THREADS;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = cache;
    struct llama_context *context = llama_init_from_model(model, params);
    if (context == NULL)
        fail("no context");
    for (int32_t at = 0; at < length + STEPS;) {
        const int32_t count = at == 0 ? length : 1;
        if (llama_decode(context, llama_batch_get_one(text + at, count)) != 0)
            fail("llama_decode fails");
        at += count;
        report(at, llama_get_logits_ith(context, -1), vocabulary, text[at]);
    }
    llama_free(context);
}

static void read_text(const struct llama_model *model, llama_token *text)
{
    const struct llama_vocab *vocabulary = llama_model_get_vocab(model);
    llama_token sentence[256];
    const int32_t count =
        llama_tokenize(vocabulary, TEXT, (int32_t)strlen(TEXT), sentence, 256, false, false);
    if (count <= 0)
        fail("the text has no tokens");
    for (int32_t i = 0; i < TEXT_TOKENS; i++)
        text[i] = sentence[i % count];
}

int main(int argc, char **argv)
{
    static const int32_t lengths[] = {5, 60, 300, LONGEST};
    static llama_token text[TEXT_TOKENS];
    if (argc != 3) {
        fprintf(stderr, "usage: likelihood MODEL.gguf TYPE-OF-CACHE\n");
        return 2;
    }
    llama_log_set(log_errors, NULL);
    ggml_backend_load_all();
    struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == NULL)
        fail("the model cannot be loaded");
    read_text(model, text);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        judge(model, type_of(argv[2]), text, lengths[i]);
    llama_model_free(model);
    return 0;
}
