/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Options of attn-generate, read with argp; numbers out of range name the option, the value and what is
 * accepted. */
#include "args.h"
#include "attention/attention.h"
#include "complete.h"
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_BLOCK = 256,
    KEY_CHUNK,
    KEY_THREADS,
    KEY_KV,
    KEY_TEMP,
    KEY_SEED,
    KEY_RAW,
    KEY_TOY,
    KEY_BATCH,
    KEY_PARALLEL,
    KEY_COMPARE,
    KEY_BLOCKS,
    KEY_HOST_BLOCKS,
    KEY_NO_REUSE,
    KEY_GRAPH,
    KEY_STEPS,
    KEY_IDS,
    KEY_STATS,
    KEY_TOY_WINDOW,
    KEY_AUDIO,
    KEY_BACKEND,
    KEY_Q,
    KEY_RANKS
};

#define ACTIVATION_TYPES "f32, f16, bf16"

static const struct argp_option options[] = {
    {"model", 'm', "FILE", 0, "model in GGUF format: architecture llama or whisper", 0},
    {"prompt", 'p', "TEXT", 0, "what to ask or to continue", 0},
    {"audio", KEY_AUDIO, "FILE", 0, "what a speech model is to listen to: a sound file", 0},
    {"batch", KEY_BATCH, "FILE", 0, "a prompt on each line, in place of -p", 0},
    {"tokens", 'n', "N", 0, "generate at most N tokens (128)", 0},
    {"block", KEY_BLOCK, "N", 0, "tokens of a cache page (16)", 1},
    {"chunk", KEY_CHUNK, "N", 0, "prompt tokens of a step (256)", 1},
    {"threads", KEY_THREADS, "N", 0, "threads of attention and matrix products (one per CPU)", 1},
    {"parallel", KEY_PARALLEL, "N", 0,
     "sequences at once (8 with --batch); with -p so many texts of the one prompt (1)", 1},
    {"blocks", KEY_BLOCKS, "N", 0, "pages of the cache; with fewer than the texts want some wait (as many)",
     1},
    {"host-blocks", KEY_HOST_BLOCKS, "N", 0,
     "pages on the host for texts that have to wait; without them they are computed again (0)", 1},
    {"no-reuse", KEY_NO_REUSE, NULL, 0, "compute what prompts have in common for each of them", 1},
    {"graph", KEY_GRAPH, "on|off", 0, "replay captured graphs where all texts generate (off)", 1},
    {"steps", KEY_STEPS, "N", 0, "generate up to N tokens of each text before prompts are looked at (1)", 1},
    {"ranks", KEY_RANKS, "N", 0,
     "spread the keys of each text over N ranks, which are threads; --block is of each (1)", 1},
    {"kv", KEY_KV, "TYPE", 0, "cache type: " ATTENTION_CACHE_TYPES " (f16)", 1},
    {"backend", KEY_BACKEND, "LIST", 0,
     "backends that are wanted, the first that serves wins (as ATTN_BACKEND says)", 1},
    {"q", KEY_Q, "TYPE", 0, "type of queries, new keys and values and the output: " ACTIVATION_TYPES " (f32)",
     1},
    {"compare-kv", KEY_COMPARE, NULL, 0, "how far the logits are from those of an f32 cache", 1},
    {"temp", KEY_TEMP, "T", 0, "draw at temperature T; 0 takes the likeliest token (0)", 2},
    {"seed", KEY_SEED, "N", 0, "seed of the draw, of the page order and of the toy model (1)", 2},
    {"raw", KEY_RAW, NULL, 0, "give the prompt as it is, without the model's chat turns", 2},
    {"ids", KEY_IDS, NULL, 0, "prompts are numbers of tokens, with blanks or commas between them", 2},
    {"stats", KEY_STATS, NULL, 0, "say where the time went", 2},
    {"toy", KEY_TOY, "REASON", OPTION_ARG_OPTIONAL,
     "use a small generated model; REASON appears in the report", 3},
    {"toy-window", KEY_TOY_WINDOW, "N", 0,
     "the small model with layers that see N tokens and layers that see all", 3},
    {0},
};

static void usage_error(const char *option, const char *value, const char *accepted)
{
    complain("--%s is '%s'; accepted: %s", option, value, accepted);
    exit(EXIT_USAGE);
}

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most)
{
    char accepted[64];
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < least || value > most) {
        snprintf(accepted, sizeof accepted, "%llu to %llu", (unsigned long long)least,
                 (unsigned long long)most);
        usage_error(option, text, accepted);
    }
    return value;
}

static double temperature(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > 100)
        usage_error("temp", text, "0 to 100");
    return value;
}

static const char *cache_type(const char *text)
{
    if (!attention_cache_type(text))
        usage_error("kv", text, ATTENTION_CACHE_TYPES);
    return text;
}

static const char *activation_type(const char *text)
{
    if (strcmp(text, "f32") != 0 && strcmp(text, "f16") != 0 && strcmp(text, "bf16") != 0)
        usage_error("q", text, ACTIVATION_TYPES);
    return text;
}

static bool on_or_off(const char *option, const char *text)
{
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        usage_error(option, text, "on, off");
    return strcmp(text, "on") == 0;
}

static void check(struct arguments *a)
{
    const char *wrong = NULL;
    if (!a->model && !a->toy)
        wrong = "no model: give -m FILE.gguf, or --toy";
    else if (a->model && a->toy)
        wrong = "-m and --toy exclude each other";
    else if (a->audio && (a->prompt || a->batch))
        wrong = "--audio excludes -p and --batch";
    else if (!a->prompt && !a->batch && !a->audio)
        wrong = "no prompt: give -p TEXT, or --batch FILE";
    else if (a->prompt && a->batch)
        wrong = "-p and --batch exclude each other";
    else if (a->prompt && !a->prompt[0])
        wrong = "-p is empty; accepted are texts of at least one byte";
    if (wrong) {
        complain("%s", wrong);
        exit(EXIT_USAGE);
    }
    if (a->audio)
        a->prompt = a->audio;
    if (!a->parallel)
        a->parallel = a->batch ? DEFAULT_PARALLEL : 1;
}

static error_t parse_tuning(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case KEY_BLOCK:
        a->block = (uint32_t)number("block", text, 1, 65536);
        return 0;
    case KEY_CHUNK:
        a->chunk = (uint32_t)number("chunk", text, 1, 65536);
        return 0;
    case KEY_THREADS:
        a->threads = (uint32_t)number("threads", text, 1, MOST_THREADS);
        return 0;
    case KEY_PARALLEL:
        a->parallel = (uint32_t)number("parallel", text, 1, MOST_PARALLEL);
        return 0;
    case KEY_BLOCKS:
        a->blocks = (uint32_t)number("blocks", text, 1, MOST_BLOCKS);
        return 0;
    case KEY_HOST_BLOCKS:
        a->host_blocks = (uint32_t)number("host-blocks", text, 0, MOST_BLOCKS);
        return 0;
    case KEY_STEPS:
        a->steps = (uint32_t)number("steps", text, 1, MOST_STEPS);
        return 0;
    case KEY_RANKS:
        a->ranks = (uint32_t)number("ranks", text, 1, MOST_RANKS);
        return 0;
    case KEY_GRAPH:
        a->graph = on_or_off("graph", text);
        return 0;
    case KEY_NO_REUSE:
        a->reuse = false;
        return 0;
    case KEY_COMPARE:
        a->compare_kv = true;
        return 0;
    case KEY_Q:
        a->q = activation_type(text);
        return 0;
    case KEY_BACKEND:
        a->backend = text;
        return 0;
    case KEY_KV:
        a->kv = cache_type(text);
        return 0;
    case KEY_TEMP:
        a->temperature = temperature(text);
        return 0;
    case KEY_SEED:
        a->seed = number("seed", text, 0, UINT64_MAX);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->common;
        return 0;
    case 'm':
        a->model = text;
        return 0;
    case 'p':
        a->prompt = text;
        return 0;
    case KEY_BATCH:
        a->batch = text;
        return 0;
    case KEY_AUDIO:
        a->audio = text;
        return 0;
    case 'n':
        a->tokens = (uint32_t)number("tokens", text, 1, 1u << 20);
        return 0;
    case KEY_RAW:
        a->raw = true;
        return 0;
    case KEY_TOY:
        a->toy = text ? text : "asked for";
        return 0;
    case KEY_IDS:
        a->ids = true;
        return 0;
    case KEY_STATS:
        a->stats = true;
        return 0;
    case KEY_TOY_WINDOW:
        a->toy_window = (uint32_t)number("toy-window", text, 1, INT32_MAX);
        a->toy = a->toy ? a->toy : "asked for";
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "argument '%s' is not expected; a prompt of several words needs quotes", text);
        return 0;
    case ARGP_KEY_END:
        check(a);
        return 0;
    default:
        return parse_tuning(key, text, state);
    }
}

/* Types, for --complete. */
static void offer_types(const struct command_line *line, const char *lead)
{
    const char *list = "";

    if (line->option != NULL && strcmp(line->option, "kv") == 0)
        list = ATTENTION_CACHE_TYPES;
    if (line->option != NULL && strcmp(line->option, "q") == 0)
        list = ACTIVATION_TYPES;
    for (list += strspn(list, ", "); *list != '\0'; list += strspn(list, ", ")) {
        size_t size = strcspn(list, ", ");
        char *type = need_format("%.*s", (int)size, list);
        complete_offer(line, lead, type, "");
        free(type);
        list += size;
    }
}

void arguments_parse(int argc, char **argv, struct arguments *out)
{
    static const struct argp_child children[] = {{&common_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .doc =
            "Runs a language model with every attention layer on libattn. The text goes to standard output, "
            "speed, backend and kernels to standard error.\v"
            "A sample of an engine. It loads files of two architectures: llama, with the tokenizer of SmolLM "
            "and SmolLM2, and whisper, for speech. For other models there are the clients for ggml "
            "(llama.cpp) and vLLM.",
        .children = children,
    };
    *out = (struct arguments){.tokens = 128,
                              .block = 16,
                              .chunk = 256,
                              .steps = 1,
                              .ranks = 1,
                              .kv = "f16",
                              .q = "f32",
                              .seed = 1,
                              .reuse = true};
    complete(&argp, argc, argv, offer_types);
    common_parse(&argp, argc, argv, out);
}
