/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A model whose prompts and decodes run on different backends of the CPU, as attn_select_parts decided, over
 * one cache memory: every step against the oracle over all that either backend wrote.
 */
#include <stdio.h>
#include <stdlib.h>

#include "expect.h"
#include "flows.h"
#include "output.h"

static uint32_t count, failed;

static void result(bool good, const char *what, const char *why)
{
    printf("%s %u - %s\n", good ? "ok" : "not ok", ++count, what);
    if (!good)
        printf("# %s\n", why);
    failed += !good;
}

static void need(int32_t status, const struct attn_error *err)
{
    if (status == ATTN_OK)
        return;
    printf("Bail out! %s: %s\n", attn_status_name(status), err->message);
    exit(1);
}

/* ---------------------------------------------------------------- decisions */

/* Two classes in two phases: who runs them, how each finds its keys, and what is shared. */
struct division {
    const char *backends[2]; /* wanted for prompts and decodes */
    const char *addr[2];
    uint32_t metadata_part; /* of the decodes of class 0 */
    uint32_t cache_part;
    const char *metadata_text;
    const char *cache_text;
};

static const struct division divisions[] = {
    {{"cpu/flash-attn", "flashinfer"},
     {"table", "csr"},
     1,
     0,
     "parts[0]: flavour: flash-attn and flashinfer, addr: table and csr",
     ""},
    {{"cpu/flashinfer", "flash-attn"},
     {"csr", "table"},
     1,
     0,
     "parts[0]: flavour: flashinfer and flash-attn, addr: csr and table",
     ""},
    {{"cpu/flash-attn", "cpu/flash-attn"}, {"table", "table"}, 0, 0, "", ""},
    {{"cpu/flash-attn", "rocm-flash"},
     {"table", "table layout=paged-x"},
     1,
     1,
     "parts[0]: flavour: flash-attn and rocm-flash",
     "parts[0]: layout: strided and paged-x"},
};

static const struct model_def def = {
    .name = "two classes",
    .chunked = 1,
    .classes = {{.problem = HEADS "q=f32"},
                {.problem = HEADS "q=f16 kv=e4m3 scales=token-head window=37", .group = 1}},
};

static struct attn_parts *decide(struct attn_context *context, const struct division *division)
{
    struct attn_model_part parts[4];
    struct attn_problem problems[4];
    struct attn_parts *out = NULL;
    struct attn_error err;
    char text[300];

    ATTN_INIT(&err);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t phase = i % 2;
        snprintf(text, sizeof text, "%s block=%d addr=%s", def.classes[i / 2].problem, BLOCK,
                 division->addr[phase]);
        need(attn_problem_parse(text, &problems[i], &err), &err);
        ATTN_INIT(&parts[i]);
        parts[i].layer_class = i / 2;
        parts[i].phase = phase == 0 ? ATTN_PHASE_PREFILL : ATTN_PHASE_DECODE;
        parts[i].problem = &problems[i];
        parts[i].backend = division->backends[phase];
    }
    need(attn_select_parts(context, parts, 4, NULL, &out, &err), &err);
    return out;
}

static void check_decisions(const struct attn_parts *parts, const struct division *division)
{
    const struct attn_part_decision *decodes = attn_parts_get_decision(parts, 1);
    char why[900];

    snprintf(why, sizeof why, "metadata of %u, cache of %u; '%s'; '%s'", decodes->metadata_part,
             decodes->cache_part, decodes->metadata_text, decodes->cache_text);
    result(decodes->metadata_part == division->metadata_part && decodes->cache_part == division->cache_part &&
               strcmp(decodes->metadata_text, division->metadata_text) == 0 &&
               strcmp(decodes->cache_text, division->cache_text) == 0,
           "what the phases of a class share, and what not", why);
    /* The second class has keys of its own, but the same builders. */
    const struct attn_part_decision *prompts = attn_parts_get_decision(parts, 2);
    const uint32_t caches = attn_parts_get_decision(parts, 3)->cache_part;
    result(prompts->metadata_part == 0 && prompts->cache_part == 2 &&
               attn_parts_get_decision(parts, 3)->metadata_part == division->metadata_part &&
               caches == (division->cache_part == 0 ? 2u : 3u),
           "the second class shares metadata with the first one, and no cache", prompts->cache_text);
}

/* ---------------------------------------------------------------- steps */

/* Gives the caches of one model, memory and shadow, to the other one's backend too. */
static bool lend_caches(struct model *from, struct model *to)
{
    struct attn_error err;

    ATTN_INIT(&err);
    for (uint32_t c = 0; c < to->count; c++) {
        attn_kv_destroy(to->caches[c].kv);
        free(to->caches[c].copy);
        to->caches[c] = from->caches[c];
        to->caches[c].kv = NULL;
        if (attn_kv_create(to->backend, &from->caches[c].desc, &to->caches[c].kv, &err) != ATTN_OK)
            return model_fail(to, "attn_kv_create", &err);
    }
    return true;
}

/* One step of the phase that a model serves; blocks are handed out by both. */
static bool step(struct model *model, struct model *other, struct scene *scene)
{
    scene->model = model;
    const bool good = scene_run(scene);
    memcpy(other->used, model->used, sizeof other->used);
    return good;
}

/* Prompts, decodes of them, and another prompt and a chunk between decodes. */
static bool run_phases(struct model *prompts, struct model *decodes)
{
    struct scene scene = scene_of(prompts);
    bool good = true;

    scene_begin(&scene);
    scene_add(&scene, 0, 1, 29);
    scene_add(&scene, 1, 1, 4);
    good = step(prompts, decodes, &scene);
    for (uint32_t round = 0; round < 6 && good; round++) {
        scene_begin(&scene);
        for (uint32_t n = 0; n < (round < 3 ? 2u : 3u); n++)
            scene_add(&scene, n, 0, 1);
        good = step(decodes, prompts, &scene);
        if (round != 2 || !good)
            continue;
        scene_begin(&scene);
        scene_add(&scene, 2, 1, 17);
        scene_add(&scene, 1, 1, 6);
        good = step(prompts, decodes, &scene);
    }
    return good;
}

static void check_steps(struct attn_context *context, const struct attn_parts *parts)
{
    static struct model prompts, decodes;
    struct attn_backend *backends[2];
    struct attn_open_config config;
    struct attn_error err;
    char name[120];

    ATTN_INIT(&err);
    ATTN_INIT(&config);
    config.threads = 2;
    for (uint32_t i = 0; i < 2; i++)
        need(attn_backend_open(context, attn_parts_get_decision(parts, i)->decision, &config, &backends[i],
                               &err),
             &err);
    bool made = model_init(&prompts, &def, context, backends[0], 7);
    made = model_init(&decodes, &def, context, backends[1], 7) && made; /* both are finished below */
    const bool good = made && lend_caches(&prompts, &decodes) && run_phases(&prompts, &decodes);
    snprintf(name, sizeof name, "prompts on %s, decodes on %s, over one cache memory",
             attn_backend_get_name(backends[0]), attn_backend_get_name(backends[1]));
    result(good, name, prompts.why[0] != 0 ? prompts.why : decodes.why);
    for (uint32_t c = 0; c < decodes.count; c++)
        decodes.caches[c].copy = NULL; /* the other one's */
    model_finish(&decodes);
    model_finish(&prompts);
    attn_backend_destroy(backends[1]);
    attn_backend_destroy(backends[0]);
}

int main(void)
{
    struct attn_context *context = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    need(attn_context_create(NULL, &context, &err), &err);
    for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i++) {
        struct attn_parts *parts = decide(context, &divisions[i]);
        check_decisions(parts, &divisions[i]);
        if (attn_parts_get_decision(parts, 1)->cache_part == 0)
            check_steps(context, parts);
        attn_parts_destroy(parts);
    }
    attn_context_destroy(context);
    printf("1..%u\n", count);
    return failed != 0;
}
