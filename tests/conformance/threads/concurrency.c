/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Threads: one plan under many, many plans beside each other, and others that come and go meanwhile. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "crowd.h"
#include "need.h"

enum { MOST_MEMBERS = 6 };

static const char *const problems[] = {
    "heads=8 kv_heads=4 head_dim=32 q=f32 block=16 lse=1",
    "heads=4 kv_heads=4 head_dim=64 q=bf16 kv=f16 addr=csr block=4",
};

/* What the threads of one check are told. */
struct plot {
    const char *name;
    bool own_plan; /* a plan each instead of a shared one */
    bool handle;   /* the cache as a shared handle */
    bool streams;
    bool visitors; /* two threads make and destroy contexts, backends and plans meanwhile */
    enum executor executors[MOST_MEMBERS];
};

static const struct plot plots[] = {
    {"one plan and one pool", false, true, false, false, {EXECUTOR_POOL}},
    {"a plan each", true, false, false, false, {EXECUTOR_POOL}},
    {"every kind of executor",
     false,
     true,
     false,
     false,
     {EXECUTOR_POOL, EXECUTOR_SERIAL, EXECUTOR_PARALLEL, EXECUTOR_TEAM_2, EXECUTOR_TEAM_3, EXECUTOR_POOL}},
    {"lent threads of several callers",
     false,
     false,
     false,
     false,
     {EXECUTOR_PARALLEL, EXECUTOR_PARALLEL, EXECUTOR_PARALLEL, EXECUTOR_PARALLEL, EXECUTOR_SERIAL,
      EXECUTOR_SERIAL}},
    {"teams beside each other",
     false,
     true,
     false,
     false,
     {EXECUTOR_TEAM_2, EXECUTOR_TEAM_3, EXECUTOR_TEAM_2, EXECUTOR_TEAM_3, EXECUTOR_TEAM_2, EXECUTOR_TEAM_2}},
    {"a stream each", false, true, true, false, {EXECUTOR_POOL}},
    {"others that come and go", false, true, false, true, {EXECUTOR_POOL}},
};

static void wait_for(_Atomic bool *go)
{
    while (!atomic_load(go))
        sched_yield();
}

static void *stay(void *arg)
{
    struct member *member = arg;

    wait_for(member->go);
    for (uint32_t i = 0; i < member->rounds && member_step(member); i++)
        continue;
    return NULL;
}

/* A life of its own: context, backend, plan and cache, used once. */
static bool visit(struct member *member, struct attn_error *err)
{
    struct attn_context_options options;
    struct attn_select_options choice;
    struct attn_context *context = NULL;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_plan *plan = NULL;
    struct attn_kv *kv = NULL;
    struct member guest = {.fixture = member->fixture, .executor = EXECUTOR_POOL};
    char variable[128];
    const char *variables[] = {variable};

    ATTN_INIT(&options);
    ATTN_INIT(&choice);
    snprintf(variable, sizeof variable, "ATTN_CPU_FLAGS=%s", member->target->level);
    options.plugin_path = member->directory;
    options.given = ATTN_GIVEN_LOG;
    options.variables = variables;
    options.variable_count = strcmp(member->target->level, "all") != 0;
    choice.backend = member->target->name;
    bool good = attn_context_create(&options, &context, err) == ATTN_OK &&
                attn_select(context, &member->fixture->step.problem, 1, &choice, &decision, err) == ATTN_OK &&
                attn_backend_open(context, decision, NULL, &backend, err) == ATTN_OK &&
                attn_plan_create(backend, &member->fixture->step.problem, &plan, err) == ATTN_OK &&
                attn_kv_create(backend, &member->fixture->step.kv, &kv, err) == ATTN_OK;
    attn_context_destroy(context);
    attn_decision_destroy(decision);
    guest.backend = backend;
    guest.plan = plan;
    guest.kv = kv;
    if (good && member_init(&guest)) {
        good = member_step(&guest);
        member_finish(&guest);
    }
    if (guest.why[0] != '\0')
        snprintf(err->message, sizeof err->message, "%.440s", guest.why);
    attn_backend_destroy(backend);
    attn_kv_destroy(kv);
    attn_plan_destroy(plan);
    return good;
}

static void *come_and_go(void *arg)
{
    struct member *member = arg;
    struct attn_error err;

    ATTN_INIT(&err);
    wait_for(member->go);
    for (uint32_t i = 0; i < member->rounds / 8 + 1; i++) {
        if (visit(member, &err))
            continue;
        snprintf(member->why, sizeof member->why, "one that came and went: %s", err.message);
        break;
    }
    return NULL;
}

/* Starts the threads, waits, and takes the first complaint. */
static void run_members(struct member *members, uint32_t count, uint32_t visitors, char *why, size_t size)
{
    pthread_t ids[MOST_MEMBERS];
    _Atomic bool go = false;
    uint32_t started = 0;

    for (uint32_t i = 0; i < count; i++) {
        members[i].go = &go;
        if (pthread_create(&ids[i], NULL, i < count - visitors ? stay : come_and_go, &members[i]) != 0)
            break;
        started++;
    }
    atomic_store(&go, true);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    if (started < count)
        snprintf(why, size, "no thread number %u", started);
    for (uint32_t i = 0; i < started && why[0] == '\0'; i++)
        snprintf(why, size, "%s", members[i].why);
}

static bool make_member(struct member *member, const struct plot *plot, uint32_t number,
                        const struct fixture *fixture, const struct target *target,
                        const struct attn_plan *shared)
{
    struct attn_plan *own = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    memset(member, 0, sizeof *member);
    member->target = target;
    member->fixture = fixture;
    member->backend = target->backend;
    member->executor = plot->executors[number];
    member->plan = shared;
    if (plot->own_plan && attn_plan_create(target->backend, &fixture->step.problem, &own, &err) != ATTN_OK) {
        snprintf(member->why, sizeof member->why, "%s", err.message);
        return false;
    }
    if (own != NULL)
        member->plan = own;
    return !plot->streams || attn_stream_create(target->backend, &member->stream, &err) == ATTN_OK;
}

static void drop_member(struct member *member, const struct plot *plot)
{
    member_finish(member);
    attn_stream_destroy(member->backend, member->stream);
    if (plot->own_plan)
        attn_plan_destroy((struct attn_plan *)(uintptr_t)member->plan);
}

/* 1 = done, 0 = the backend has no streams. */
static int play(const struct plot *plot, const struct fixture *fixture, const struct target *target,
                uint32_t rounds, char *why, size_t size)
{
    struct member *members = need(calloc(MOST_MEMBERS, sizeof *members));
    char directory[4096] = "";
    struct attn_plan *plan = NULL;
    struct attn_kv *kv = NULL;
    struct attn_error err;
    uint32_t count = 0;
    int result = 1;

    ATTN_INIT(&err);
    if (target_file(target, directory, sizeof directory))
        *strrchr(directory, '/') = '\0';
    if (attn_plan_create(target->backend, &fixture->step.problem, &plan, &err) != ATTN_OK ||
        (plot->handle && attn_kv_create(target->backend, &fixture->step.kv, &kv, &err) != ATTN_OK))
        snprintf(why, size, "%s", err.message);
    while (count < MOST_MEMBERS && why[0] == '\0' && result == 1) {
        struct member *member = &members[count];
        bool made = make_member(member, plot, count, fixture, target, plan);
        member->kv = kv;
        member->rounds = rounds;
        memcpy(member->directory, directory, sizeof directory);
        count++;
        if (!made && member->why[0] == '\0')
            result = 0;
        else if (!made || !member_init(member))
            snprintf(why, size, "%s", member->why);
    }
    if (why[0] == '\0' && result == 1)
        run_members(members, count, plot->visitors ? 2 : 0, why, size);
    for (uint32_t i = 0; i < count; i++)
        drop_member(&members[i], plot);
    attn_plan_destroy(plan);
    attn_kv_destroy(kv);
    free(members);
    return result;
}

/* What a write leaves, made alone. */
static bool write_alone(struct fixture *fixture, const struct target *target, char *why, size_t size)
{
    struct attn_error err;

    ATTN_INIT(&err);
    memset(fixture->write_memory->data, 0xff, fixture->write_memory->size);
    if (attn_kv_write(target->backend, &fixture->write, NULL, &err) == ATTN_OK)
        return true;
    snprintf(why, size, "%s", err.message);
    return false;
}

static void check_target(const struct target *target, const char *problem, uint64_t seed, uint32_t rounds)
{
    struct fixture *fixture = need(malloc(sizeof *fixture));
    char why[512] = "";
    int made = fixture_init(fixture, target, problem, seed, why, sizeof why);

    tap_begin(target, "concurrency", problem, seed);
    if (made != 1 || !write_alone(fixture, target, why, sizeof why)) {
        if (made == 0)
            tap_skip(why);
        else
            tap_fail("%s", why);
        if (made == 1)
            fixture_finish(fixture);
        free(fixture);
        return;
    }
    tap_pass();
    for (size_t i = 0; i < sizeof plots / sizeof plots[0]; i++) {
        why[0] = '\0';
        tap_begin(target, "concurrency", problem, seed);
        play(&plots[i], fixture, target, rounds, why, sizeof why);
        if (why[0] == '\0')
            tap_pass();
        else
            tap_fail("%s: %s", plots[i].name, why);
    }
    fixture_finish(fixture);
    free(fixture);
}

void check_concurrency(struct target_list *list, const struct run_options *options)
{
    uint64_t seed = options->seed_given ? options->seed : 1;
    bool asked = options->kind != NULL && options->filter_kind == FILTER_PROBLEM;
    uint32_t rounds = options_cases(options, 24, 240);

    for (uint32_t t = 0; t < list->count; t++) {
        if (asked)
            check_target(&list->targets[t], options->filter, seed, rounds);
        for (size_t i = 0; i < sizeof problems / sizeof problems[0] && !asked; i++)
            if (options_wants(options, problems[i]))
                check_target(&list->targets[t], problems[i], seed, rounds);
    }
}
