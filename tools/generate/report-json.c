/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The same report as one JSON object, where jansson is there. */
#include "report.h"

#include "output.h"

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
