/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Threads that select, open, plan and run on one context while others scan and read reports: every one gets
 * the same answer, a warning is said once, and each line of a log file stays whole.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "malformed.h"

#define THREADS 8
#define ROUNDS  12
#define PROBLEM "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16"

static struct malformed malformed;
static pthread_barrier_t barrier;
static _Atomic unsigned failures;

/* One context for all threads of a round, with its plan. */
static struct shared {
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_plan *plan;
    struct attn_kv *kv;
    struct attn_problem problem;
    _Atomic unsigned lines, overruled;
} shared;

static void expect(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "failed: %s\n", what);
        atomic_fetch_add(&failures, 1);
    }
}

static void count_line(void *user, uint32_t level, const char *subsystem, const char *text)
{
    struct shared *all = user;
    expect(level >= ATTN_LOG_ERROR && level <= ATTN_LOG_DEBUG && subsystem[0] != '\0', "line of the log");
    atomic_fetch_add(&all->lines, 1);
    if (strstr(text, "overrules ATTN_BACKEND=") != NULL)
        atomic_fetch_add(&all->overruled, 1);
}

static struct attn_context *open_context(void)
{
    const char *variables[] = {"ATTN_BACKEND=host", "ATTN_LOG=debug"};
    struct attn_context_options options;
    struct attn_context *context = NULL;
    ATTN_INIT(&options);
    options.plugin_path = malformed.path;
    options.variables = variables;
    options.variable_count = 2;
    options.log = count_line;
    options.log_user = &shared;
    expect(attn_context_create(&options, &context, NULL) == ATTN_OK, "attn_context_create");
    return context;
}

/* Chooses `gpu` over the variable, or what the variable says. */
static struct attn_backend *choose(struct attn_context *context, int overrule)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_error err;
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.backend = overrule ? "gpu" : NULL;
    expect(attn_select(context, &shared.problem, 1, &options, &decision, &err) == ATTN_OK, err.message);
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    expect(info != NULL && info->effective != NULL &&
               strcmp(info->effective, overrule ? "gpu/flash-attn" : "host/flash-attn") == 0,
           "every thread gets the same winner");
    expect(attn_backend_open(context, decision, NULL, &backend, &err) == ATTN_OK, err.message);
    attn_decision_destroy(decision);
    return backend;
}

static void run(void)
{
    static char input[4096]; /* the mock reads nothing of it */
    char output[4096];
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_scratch scratch;
    struct attn_span schedule = {.buffer = {output, 0}, .size = 256};
    struct attn_error err;
    ATTN_INIT(&batch);
    ATTN_INIT(&tensors);
    ATTN_INIT(&scratch);
    ATTN_INIT(&err);
    batch.seqs = 2;
    batch.num_tokens = 3;
    batch.max_q = 2;
    batch.max_kv = 20;
    batch.table_width = 2;
    batch.table_stride = 8;
    batch.q_offsets.data = batch.kv_lens.data = batch.table.data = input;
    tensors.softmax_scale = 0.125F;
    tensors.q.buffer.data = tensors.out.buffer.data = input;
    tensors.q.token_stride = tensors.out.token_stride = 1024;
    tensors.q.head_stride = tensors.out.head_stride = 128;
    scratch.scratch = (struct attn_span){.buffer = {output, 512}, .size = 256};
    scratch.counters = (struct attn_span){.buffer = {output, 1024}, .size = 64};
    tensors.kv = shared.kv;
    expect(attn_plan_run(shared.plan, &batch, &tensors, &schedule, &scratch, NULL, &err) == ATTN_OK,
           err.message);
}

static void use_plan(void)
{
    struct attn_plan_sizes sizes;
    struct attn_plan_info info;
    struct attn_plan *own = NULL;
    ATTN_INIT(&sizes);
    ATTN_INIT(&info);
    expect(attn_plan_get_sizes(shared.plan, &sizes, NULL) == ATTN_OK, "attn_plan_get_sizes");
    expect(attn_plan_describe(shared.plan, &info, NULL) == ATTN_OK, "attn_plan_describe");
    run();
    expect(attn_plan_create(shared.backend, &shared.problem, &own, NULL) == ATTN_OK, "attn_plan_create");
    attn_plan_destroy(own);
}

/* What all threads of the round use. */
static void make_shared(struct attn_backend *backend)
{
    static char memory[4096];
    struct attn_buffer buffer = {memory, 0};
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    ATTN_INIT(&shape);
    shared.backend = backend;
    expect(attn_plan_create(backend, &shared.problem, &shared.plan, NULL) == ATTN_OK, "attn_plan_create");
    expect(attn_kv_get_shape(backend, &shared.problem, 4, &shape, NULL) == ATTN_OK, "attn_kv_get_shape");
    attn_kv_desc_init(&desc, &shape, &buffer);
    expect(attn_kv_create(backend, &desc, &shared.kv, NULL) == ATTN_OK, "attn_kv_create");
}

static void *work(void *arg)
{
    const int number = *(const int *)arg;
    for (int round = 0; round < ROUNDS; round++) {
        if (number == 0) {
            shared.context = open_context();
            atomic_store(&shared.overruled, 0);
        }
        pthread_barrier_wait(&barrier);
        struct attn_backend *backend = choose(shared.context, number % 2);
        if (number % 4 == 3)
            expect(attn_context_rescan(shared.context, NULL) == ATTN_OK, "attn_context_rescan");
        pthread_barrier_wait(&barrier);
        if (number == 1) {
            make_shared(backend);
            expect(atomic_load(&shared.overruled) == 1, "that the call overrules the variable is said once");
        }
        pthread_barrier_wait(&barrier);
        use_plan();
        pthread_barrier_wait(&barrier);
        /* The handles of a round go in any order. */
        if (number == 0)
            attn_context_destroy(shared.context);
        if (number == 1)
            attn_plan_destroy(shared.plan);
        if (number == 2)
            attn_kv_destroy(shared.kv);
        attn_backend_destroy(backend);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    malformed_create(&malformed);
    chmod(malformed.path, 0755);
    malformed_add(&malformed, "gpu", "libattn-gpu.so");
    malformed_add(&malformed, "host", "libattn-host.so");
    malformed_add(&malformed, "nodrv", "libattn-nodrv.so");
    malformed_add(&malformed, "noentry", "libattn-a.so");
    ATTN_INIT(&shared.problem);
    expect(attn_problem_parse(PROBLEM, &shared.problem, NULL) == ATTN_OK, "attn_problem_parse");
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]) != 0)
            return 99;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    malformed_remove(&malformed);
    printf("%u lines, %u failures\n", atomic_load(&shared.lines), atomic_load(&failures));
    return atomic_load(&failures) != 0;
}
