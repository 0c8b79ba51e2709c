/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Model, speed, backend and the comparison of caches, as lines or as one JSON object. */
#include "report.h"
#include "attention/device.h"
#include "output.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- lines */

static void print_speed(const char *what, uint32_t tokens, double seconds)
{
    fprintf(stderr, "%s: %u tokens, %.1f tokens/s\n", what, tokens, seconds > 0 ? tokens / seconds : 0.0);
}

static void print_comparison(const struct report *r)
{
    const struct comparison *c = &r->result->comparison;
    fprintf(stderr,
            "compare-kv: %s to f32: largest difference of logits %.4g (sequence %u, position %u, token %d); "
            "another arg-max at %u of %u positions\n",
            r->arguments->kv, c->largest, c->sequence + 1, c->position, c->token, c->others, c->positions);
}

/* Prints nothing if no block was shared or given up. */
static void print_cache(const struct scheduler_counts *c)
{
    if (c->hit_tokens)
        fprintf(stderr, "reused: %llu of %llu prompt tokens\n", (unsigned long long)c->hit_tokens,
                (unsigned long long)c->asked_tokens);
    if (c->copied)
        fprintf(stderr, "copied: %llu blocks that were shared\n", (unsigned long long)c->copied);
    if (c->recomputed || c->swapped)
        fprintf(stderr, "gave up their blocks: %llu times, %llu of them to the host\n",
                (unsigned long long)(c->recomputed + c->swapped), (unsigned long long)c->swapped);
}

/* File and line of a prompt, for messages; "" for a prompt of the command line. */
static void name_prompt(const struct report *r, uint32_t index, char *out, size_t size)
{
    if (r->prompts->list[index].line)
        snprintf(out, size, "--batch %.200s: line %u: ", r->arguments->batch, r->prompts->list[index].line);
    else
        out[0] = 0;
}

int report_refusals(const struct report *r, struct failure *err)
{
    uint32_t left = r->result->refused;
    bool all = left == r->prompts->count;
    for (uint32_t i = 0; i < r->prompts->count; i++) {
        char name[256];
        if (r->sequences[i].end != END_REFUSED)
            continue;
        name_prompt(r, i, name, sizeof name);
        if (all && --left == 0)
            return failure_set(err, "%s%.700s", name, r->sequences[i].refusal.text);
        /* Further samples of a prompt have the same refusal. */
        if (!r->sequences[i].sample)
            complain("%s%s", name, r->sequences[i].refusal.text);
    }
    return 0;
}

static void print_steps(const struct report *r)
{
    struct attention_info info;
    attention_get_info(r->engine->attention, &info);
    if (info.graphs)
        fprintf(stderr, "graphs: %u sizes; %llu of %llu steps replayed them\n", info.graphs,
                (unsigned long long)info.replayed, (unsigned long long)r->result->steps);
    if (info.advanced)
        fprintf(stderr, "advanced: %llu of %llu steps followed one without scheduler and builder\n",
                (unsigned long long)info.advanced, (unsigned long long)r->result->steps);
}

/* What the time of all steps, which the speeds are computed from, was spent on. */
static void print_times(const struct report *r)
{
    double all = r->result->prompt_seconds + r->result->made_seconds;
    struct forward_times t;
    forward_get_times(r->engine->forward, &t);
    const struct {
        const char *name;
        double seconds;
    } list[] = {{"matrix products", t.products},
                {"attention with builder and state", t.attention},
                {"norms, rotation, activation", t.rest},
                {"choosing tokens", r->result->sample_seconds}};
    double rest = all;
    fprintf(stderr, "time: %.3f s in %llu steps", all, (unsigned long long)r->result->steps);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        fprintf(stderr, "; %s %.1f %%", list[i].name, all > 0 ? 100 * list[i].seconds / all : 0.0);
        rest -= list[i].seconds;
    }
    fprintf(stderr, "; scheduler and others %.1f %%\n", all > 0 ? 100 * rest / all : 0.0);
}

void report_print(const struct report *r)
{
    const struct engine *e = r->engine;
    struct attention_info info;
    attention_get_info(e->attention, &info);
    for (uint32_t i = 0; i < r->prompts->count; i++)
        if (r->sequences[i].end == END_CONTEXT)
            complain("sequence %u: the context of %u tokens is full, its text ends there", i + 1,
                     e->model.shape.context);
    if (r->arguments->toy)
        fprintf(stderr, "model: %s (reason: %s)\n", e->name, r->arguments->toy);
    else
        fprintf(stderr, "model: %s (sha256 %s)\n", e->name, e->hash);
    if (r->prompts->count > 1)
        fprintf(stderr, "sequences: %u, up to %u at once\n", r->prompts->count, r->result->most_at_once);
    print_cache(&r->result->counts);
    print_speed("prompt", r->result->prompt_tokens, r->result->prompt_seconds);
    print_speed("generated", r->result->made_tokens, r->result->made_seconds);
    print_steps(r);
    if (r->arguments->stats)
        print_times(r);
    device_print(info.backend, info.device_name, info.kernels, info.generic);
    fprintf(stderr, "threads: %u\n", r->threads);
    if (info.ranks > 1)
        fprintf(stderr, "ranks: %u\n", info.ranks);
    if (r->arguments->compare_kv)
        print_comparison(r);
}

/* ---------------------------------------------------------------- JSON */

#ifdef ATTN_HAVE_JANSSON

#include "jsonout.h"
#include "printer.h"

#include <stdlib.h>

static void add_sequence(const struct report *r, struct jsonout *json, uint32_t index)
{
    static const char *const ends[] = {[END_NONE] = "none",           [END_TEXT] = "end",
                                       [END_LENGTH] = "length",       [END_CONTEXT] = "context",
                                       [END_CANCELLED] = "cancelled", [END_REFUSED] = "refused"};
    const struct sequence *s = &r->sequences[index];
    const struct prompt *prompt = &r->prompts->list[index];
    char *text = sequence_text(r->engine, s);
    jsonout_object(json, NULL);
    jsonout_integer(json, "number", (int64_t)index + 1);
    if (prompt->line)
        jsonout_integer(json, "line", prompt->line);
    else
        jsonout_string(json, "line", NULL);
    jsonout_string(json, "prompt", prompt->text);
    jsonout_string(json, "text", text);
    jsonout_string(json, "end", ends[s->end]);
    jsonout_string(json, "refusal", s->end == END_REFUSED ? s->refusal.text : NULL);
    jsonout_integer(json, "prompt_tokens", (int64_t)s->prompt.count);
    jsonout_integer(json, "tokens", (int64_t)s->made.count);
    jsonout_close(json);
    free(text);
}

static void add_speed(struct jsonout *json, const char *key, uint32_t tokens, double seconds)
{
    jsonout_object(json, key);
    jsonout_integer(json, "tokens", tokens);
    jsonout_real(json, "seconds", seconds);
    jsonout_close(json);
}

static void add_cache(const struct scheduler_counts *c, struct jsonout *json)
{
    jsonout_object(json, "cache");
    jsonout_integer(json, "asked_tokens", (int64_t)c->asked_tokens);
    jsonout_integer(json, "reused_tokens", (int64_t)c->hit_tokens);
    jsonout_integer(json, "copied_blocks", (int64_t)c->copied);
    jsonout_integer(json, "recomputed", (int64_t)c->recomputed);
    jsonout_integer(json, "swapped", (int64_t)c->swapped);
    jsonout_close(json);
}

static void add_steps(const struct report *r, const struct attention_info *info, struct jsonout *json)
{
    jsonout_object(json, "steps");
    jsonout_integer(json, "all", (int64_t)r->result->steps);
    jsonout_integer(json, "graphs", info->graphs);
    jsonout_integer(json, "replayed", (int64_t)info->replayed);
    jsonout_integer(json, "advanced", (int64_t)info->advanced);
    jsonout_close(json);
}

static void add_comparison(const struct report *r, struct jsonout *json)
{
    const struct comparison *c = &r->result->comparison;
    jsonout_object(json, "compare_kv");
    jsonout_real(json, "max_difference", c->largest);
    jsonout_integer(json, "sequence", (int64_t)c->sequence + 1);
    jsonout_integer(json, "position", c->position);
    jsonout_integer(json, "token", c->token);
    jsonout_integer(json, "positions", c->positions);
    jsonout_integer(json, "other_argmax", c->others);
    jsonout_close(json);
}

bool report_json(const struct report *r)
{
    const struct engine *e = r->engine;
    struct jsonout *json = jsonout_create("generate");
    struct attention_info info;
    attention_get_info(e->attention, &info);
    jsonout_string(json, "model", e->name);
    jsonout_string(json, "sha256", e->hash);
    jsonout_string(json, "toy", r->arguments->toy);
    jsonout_string(json, "backend", info.backend);
    jsonout_string(json, "device", info.device);
    jsonout_string(json, "device_name", info.device_name);
    jsonout_strings(json, "kernels", info.kernels, ',');
    jsonout_string(json, "kv", r->arguments->kv);
    jsonout_string(json, "q", r->arguments->q);
    jsonout_integer(json, "threads", r->threads);
    jsonout_integer(json, "parallel", r->result->most_at_once);
    jsonout_array(json, "sequences");
    for (uint32_t i = 0; i < r->prompts->count; i++)
        add_sequence(r, json, i);
    jsonout_close(json);
    add_speed(json, "prompt", r->result->prompt_tokens, r->result->prompt_seconds);
    add_speed(json, "generated", r->result->made_tokens, r->result->made_seconds);
    add_cache(&r->result->counts, json);
    add_steps(r, &info, json);
    if (r->arguments->compare_kv)
        add_comparison(r, json);
    else
        jsonout_string(json, "compare_kv", NULL);
    return jsonout_finish(json, output_stream());
}

#else

bool report_json(const struct report *r)
{
    (void)r;
    complain("--json needs a build with jansson");
    return false;
}

#endif
