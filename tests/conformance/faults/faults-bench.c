/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The objects that calls are made on, opened twice: through the library, and past it. */
#include <stdio.h>
#include <stdlib.h>

#include "faults.h"
#include "need.h"

int32_t bench_open(struct bench *bench, struct attn_backend_impl **out, struct attn_error *err)
{
    struct attn_open_config config;

    ATTN_INIT(&config);
    config.threads = BENCH_THREADS;
    return bench->direct.table->open(bench->direct.instance, &bench->target->device, &config, out, err);
}

static bool open_direct(struct bench *bench, char *why, size_t size)
{
    struct attn_error err;

    ATTN_INIT(&err);
    if (!direct_init(&bench->direct, bench->target, why, size))
        return false;
    const struct attn_backend_table *table = bench->direct.table;
    if (bench_open(bench, &bench->impl, &err) == ATTN_OK &&
        table->plan->create(bench->impl, &bench->fixture.step.problem, &bench->plan_impl, &err) == ATTN_OK &&
        table->kv->create(bench->impl, &bench->fixture.step.kv, &bench->kv_impl, &err) == ATTN_OK)
        return true;
    snprintf(why, size, "without the library: %s", err.message);
    return false;
}

int32_t bench_create_context(const struct bench *bench, struct attn_context **out, struct attn_error *err)
{
    struct attn_context_options options;
    char variable[128];
    const char *variables[] = {variable};

    snprintf(variable, sizeof variable, "ATTN_CPU_FLAGS=%s", bench->target->level);
    ATTN_INIT(&options);
    options.plugin_path = bench->directory;
    options.given = ATTN_GIVEN_LOG;
    options.variables = variables;
    options.variable_count = strcmp(bench->target->level, "all") != 0;
    *out = NULL;
    return attn_context_create(&options, out, err);
}

static bool make_decision(struct bench *bench, struct attn_error *err)
{
    struct attn_select_options choice;

    ATTN_INIT(&choice);
    choice.backend = bench->target->name;
    return bench_create_context(bench, &bench->context, err) == ATTN_OK &&
           attn_select(bench->context, &bench->fixture.step.problem, 1, &choice, &bench->decision, err) ==
               ATTN_OK;
}

static bool open_core(struct bench *bench, char *why, size_t size)
{
    struct attn_plan_sizes sizes;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&sizes);
    if (!target_file(bench->target, bench->plugin_path, sizeof bench->plugin_path)) {
        snprintf(why, size, "no file is known for %s", bench->target->name);
        return false;
    }
    snprintf(bench->directory, sizeof bench->directory, "%s", bench->plugin_path);
    *strrchr(bench->directory, '/') = '\0';
    if (!make_decision(bench, &err) ||
        attn_plan_create(bench->target->backend, &bench->fixture.step.problem, &bench->plan, &err) !=
            ATTN_OK ||
        attn_kv_create(bench->target->backend, &bench->fixture.step.kv, &bench->kv, &err) != ATTN_OK ||
        attn_plan_get_sizes(bench->plan, &sizes, &err) != ATTN_OK) {
        snprintf(why, size, "%s", err.message);
        return false;
    }
    fixture_blocks(&bench->fixture, &sizes);
    bench->tensors = bench->fixture.step.tensors;
    bench->tensors.kv = bench->kv;
    return true;
}

/* Two parts of one result, which is the first of them. */
static void make_merge(struct bench *bench)
{
    enum { ROWS = 3, HEADS = 2, DIM = 8 };
    static const uint32_t out_shape[3] = {2 * ROWS, HEADS, DIM}, lse_shape[3] = {2 * ROWS, HEADS, 1};
    struct rng rng = {mix(bench->fixture.the_case.seed, 60)};
    struct attn_tensor out, lse;

    tensor_init(&out, &bench->fixture.arena, "parts", out_shape, 4, &bench->fixture.step.layout, &rng, 0);
    tensor_init(&lse, &bench->fixture.arena, "lses", lse_shape, 4, &bench->fixture.step.layout, &rng, 0);
    for (uint32_t i = 0; i < 2; i++) {
        bench->parts[i].out = out;
        bench->parts[i].out.buffer.byte_offset += (uint64_t)(i * ROWS * out.token_stride);
        bench->parts[i].lse = lse;
        bench->parts[i].lse.buffer.byte_offset += (uint64_t)(i * ROWS * lse.token_stride);
        bench->lses[i] = bench->parts[i].lse;
    }
    ATTN_INIT(&bench->merge);
    bench->merge.count = 2;
    bench->merge.parts = bench->parts;
    bench->merge.dtype = ATTN_F32;
    bench->merge.lse_base = ATTN_LSE_NATURAL;
    bench->merge.num_tokens = ROWS;
    bench->merge.heads = HEADS;
    bench->merge.head_dim = DIM;
    const uint32_t merged_shape[3] = {ROWS, HEADS, DIM};
    bench->merged = tensor_init(&bench->merge.out, &bench->fixture.arena, "merged", merged_shape, 4,
                                &bench->fixture.step.layout, &rng, 0);
    ATTN_INIT(&bench->rescale);
    bench->rescale.count = 2;
    bench->rescale.all = bench->lses;
    bench->rescale.dtype = ATTN_F32;
    bench->rescale.lse_base = ATTN_LSE_NATURAL;
    bench->rescale.num_tokens = ROWS;
    bench->rescale.heads = HEADS;
    bench->rescale.head_dim = DIM;
    bench->rescale.out = bench->merge.out;
    bench->rescale.own = bench->lses[0];
}

int bench_init(struct bench *bench, const struct target *target, const char *problem, uint64_t seed,
               char *why, size_t size)
{
    memset(bench, 0, sizeof *bench);
    bench->target = target;
    int made = fixture_init(&bench->fixture, target, problem, seed, why, size);
    if (made != 1)
        return made;
    make_merge(bench);
    if (open_core(bench, why, size) && open_direct(bench, why, size))
        return 1;
    bench_finish(bench);
    return -1;
}

void bench_finish(struct bench *bench)
{
    attn_kv_destroy(bench->kv);
    attn_plan_destroy(bench->plan);
    attn_decision_destroy(bench->decision);
    attn_context_destroy(bench->context);
    if (bench->direct.table != NULL) {
        if (bench->kv_impl != NULL)
            bench->direct.table->kv->destroy(bench->kv_impl);
        if (bench->plan_impl != NULL)
            bench->direct.table->plan->destroy(bench->plan_impl);
        if (bench->impl != NULL)
            bench->direct.table->close(bench->impl);
    }
    direct_finish(&bench->direct);
    fixture_finish(&bench->fixture);
    memset(bench, 0, sizeof *bench);
}
