/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Model, speed, backend and the comparison of caches, as lines. */
#include "report.h"

#include "output.h"

#include <stdlib.h>

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

/* Nothing where every text had its own blocks all the time. */
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
    fprintf(stderr, "backend: %s (%s)\n", info.backend, info.device);
    fprintf(stderr, "kernels: %s\n", info.kernels);
    fprintf(stderr, "threads: %u\n", r->threads);
    if (r->arguments->compare_kv)
        print_comparison(r);
}
