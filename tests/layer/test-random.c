/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Random steps of a small engine: sequences come, are computed in chunks or at once, decode, share blocks of
 * others and leave; rows of the block tables change hands. Every layer of every step is judged.
 *
 * Arguments: steps of each model, and a seed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "expect.h"

enum { LIVE = 10 };

static uint32_t count, failed;

/* A sequence on its way. */
struct running {
    struct sequence_state state;
    uint32_t prompt; /* tokens of it */
    uint32_t goal;   /* tokens at which it leaves */
    bool done;       /* with the prompt: it decodes */
};

struct engine {
    struct model model;
    struct running live[LIVE];
    uint32_t alive;
    uint64_t next_id;
    bool apart;   /* prompts are computed at once, or as chunks */
    bool several; /* decodes may have more than one token */
};

static void join(struct engine *engine)
{
    struct model *model = &engine->model;
    struct running *running = &engine->live[engine->alive];

    memset(running, 0, sizeof *running);
    running->state.id = ++engine->next_id;
    running->prompt = 1 + rng_below(&model->rng, 40);
    running->goal = running->prompt + rng_below(&model->rng, MOST_LEN - running->prompt);
    if (model->def->cross == 1)
        running->state.encoder_len = 1 + rng_below(&model->rng, 8);
    engine->alive++;
}

/* Blocks of a sequence whose first tokens are the same. */
static uint32_t share(struct engine *engine, struct running *running)
{
    struct model *model = &engine->model;

    for (uint32_t i = 0; i < engine->alive; i++) {
        const struct sequence_state *from = &engine->live[i].state;
        const uint32_t most = (running->prompt - 1) / BLOCK;
        uint32_t blocks = from->len / BLOCK < most ? from->len / BLOCK : most;
        if (from == &running->state || blocks == 0 || from->shared > 0)
            continue;
        running->state.parent = from->id;
        running->state.shared = running->state.len = blocks * BLOCK;
        for (uint32_t g = 0; g < GROUPS; g++) {
            running->state.counts[g] = blocks;
            memcpy(running->state.blocks[g], from->blocks[g], blocks * sizeof from->blocks[g][0]);
            for (uint32_t k = 0; k < blocks; k++)
                model->used[g][from->blocks[g][k]]++;
        }
        return blocks;
    }
    return 0;
}

static void leave(struct engine *engine, uint32_t n)
{
    sequence_free(&engine->model, &engine->live[n].state);
    engine->live[n] = engine->live[--engine->alive];
}

/* Prompts of the step, as far as there is room. A prompt that begins may hit a prefix. */
static void add_prompts(struct engine *engine, struct step_def *step, uint32_t *rows)
{
    struct rng *rng = &engine->model.rng;

    for (uint32_t n = 0; n < engine->alive; n++) {
        struct running *running = &engine->live[n];
        if (running->done || rng_chance(rng, 30))
            continue;
        struct entry *entry = &step->entries[step->count];
        *entry = (struct entry){.sequence = &running->state, .prompt = 1};
        if (running->state.len == 0 && !engine->apart && engine->model.def->cross == 0 && rng_chance(rng, 40))
            entry->hit = share(engine, running);
        const uint32_t left = running->prompt - running->state.len;
        entry->q_len = engine->apart ? left : 1 + rng_below(rng, left < 24 ? left : 24);
        if (*rows + entry->q_len > MOST_ROWS - LIVE * 3)
            continue;
        *rows += entry->q_len;
        step->count++;
    }
}

static void add_decodes(struct engine *engine, struct step_def *step)
{
    struct rng *rng = &engine->model.rng;

    for (uint32_t n = 0; n < engine->alive; n++) {
        struct running *running = &engine->live[n];
        if (!running->done || rng_chance(rng, 15))
            continue;
        struct entry *entry = &step->entries[step->count++];
        const uint32_t most = engine->several && MOST_LEN - running->state.len >= 3 ? 3 : 1;
        *entry = (struct entry){.sequence = &running->state, .q_len = 1 + rng_below(rng, most)};
    }
}

/* Order of lives does not matter to a step; mixing it deals the rows of the tables anew. */
static void shuffle(struct engine *engine)
{
    for (uint32_t n = engine->alive; n > 1 && rng_chance(&engine->model.rng, 20); n--) {
        const uint32_t other = rng_below(&engine->model.rng, n);
        const struct running swap = engine->live[n - 1];
        engine->live[n - 1] = engine->live[other];
        engine->live[other] = swap;
    }
}

static bool run_step(struct engine *engine)
{
    struct model *model = &engine->model;
    struct step_def step = {.count = 0};
    uint32_t rows = 0;

    while (engine->alive < 5 || (engine->alive < LIVE && rng_chance(&model->rng, 20)))
        join(engine);
    shuffle(engine);
    add_prompts(engine, &step, &rows);
    add_decodes(engine, &step);
    if (step.count == 0)
        return true;
    step.row = rng_chance(&model->rng, 50) ? UINT32_MAX : rng_below(&model->rng, ENTRIES - step.count + 1);
    if (!model_step(model, &step))
        return false;
    for (uint32_t n = engine->alive; n-- > 0;) {
        struct running *running = &engine->live[n];
        running->done = running->state.len >= running->prompt;
        if (running->state.len >= running->goal || running->state.len == MOST_LEN)
            leave(engine, n);
    }
    return true;
}

/* Nothing of a cache is used by nobody when all have left. */
static bool empty(struct engine *engine)
{
    while (engine->alive > 0)
        leave(engine, engine->alive - 1);
    for (uint32_t g = 0; g <= GROUPS; g++)
        for (uint32_t page = 1; page < PAGES; page++)
            if (engine->model.used[g][page] != 0)
                return false;
    return true;
}

static void run_model(struct attn_context *context, struct attn_backend *backend, const struct model_def *def,
                      uint32_t steps, uint64_t seed)
{
    static struct engine engine;
    uint32_t done = 0;

    memset(&engine, 0, sizeof engine);
    bool good = model_init(&engine.model, def, context, backend, seed);
    engine.apart = def->chunked == 0;
    engine.several = engine.model.flavour == ATTN_FLASH_ATTN && def->cross == 0;
    for (; done < steps && good; done++)
        good = run_step(&engine);
    good = good && empty(&engine);
    printf("%s %u - %s: %s: %u steps, seed %llu\n", good ? "ok" : "not ok", ++count,
           attn_backend_get_name(backend), def->name, done, (unsigned long long)seed);
    if (!good)
        printf("# %s\n", engine.model.why);
    failed += !good;
    model_finish(&engine.model);
}

static const struct model_def defs[] = {
    {.name = "windowed and full layers, chunks",
     .chunked = 1,
     .classes = {{.problem = HEADS "q=f32 window=11"},
                 {.problem = HEADS "q=f32 kv=e4m3 scales=token-head", .group = 1},
                 {.problem = HEADS "q=f32 kv=f16 alibi=key", .group = 1}}},
    {.name = "windowed and full layers, prompts at once",
     .classes = {{.problem = HEADS "q=f32 window=11 sinks=1"},
                 {.problem = HEADS "q=bf16 kv=int8 scales=head", .group = 1},
                 {.problem = HEADS "q=f16 kv=bf16 softcap=4 lse=1", .group = 1, .new_dtype = ATTN_F32}}},
    {.name = "cache and new keys, chunks",
     .chunked = 1,
     .classes = {{.problem = HEADS "q=f32 kv_source=cache+new mask=bits span=full"},
                 {.problem = "q=f32 mla=1 heads=4 kv_heads=1 head_dim=48/32", .group = 1}}},
    {.name = "encoder and decoder",
     .cross = 1,
     .classes = {{.problem = HEADS "type=encoder q=f32"},
                 {.problem = HEADS "q=f32 kv=e5m2 scales=tensor"},
                 {.problem = HEADS "type=encoder_decoder q=f32 kv=f16"}}},
};

int main(int argc, char **argv)
{
    static const char *const names[] = {"cpu/flash-attn", "cpu/flashinfer", "cpu/rocm-flash"};
    const uint32_t steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 40;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

    for (uint32_t i = 0; i < 3; i++) {
        struct attn_context *context = NULL;
        struct attn_backend *backend = NULL;
        if (!fixture_open(names[i], &context, &backend))
            return 1;
        for (uint32_t d = 0; d < sizeof defs / sizeof defs[0]; d++)
            if (defs[d].cross == 0 || i == 0)
                run_model(context, backend, &defs[d], steps, seed + d);
        attn_backend_destroy(backend);
        attn_context_destroy(context);
    }
    printf("1..%u\n", count);
    return failed != 0;
}
