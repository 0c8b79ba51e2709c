/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Faults: each allocation and each thread refused in turn, and calls that are wrong. */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>

#include "intercept.h"
#include "need.h"

static const char *const problems[] = {
    "heads=4 kv_heads=2 head_dim=16 q=f32 block=4 lse=1",
    "heads=2 head_dim=8 q=f16 addr=csr index=i64 block=2",
};

/* More points of failure than any call has. */
enum { MOST_POINTS = 2000 };

/* A call that failed: says so in full, and for the reason that was given to it. */
static bool failed_well(int32_t status, const struct attn_error *err, char *why, size_t size)
{
    /* Loading reports a plugin that has no memory, and selection one that is missing, in their own words. */
    bool proper = status == ATTN_E_MEMORY || status == ATTN_E_PLUGIN || status == ATTN_E_NO_BACKEND;

    if (!proper)
        snprintf(why, size, "it answered %s (%s)", attn_status_name(status), err->message);
    else if (err->status != status || err->message[0] == '\0')
        snprintf(why, size, "it answered %s, but the error says %s and \"%s\"", attn_status_name(status),
                 attn_status_name(err->status), err->message);
    else
        return true;
    return false;
}

/* One call with one failure. True: go on with the next one. */
static bool try_point(struct bench *bench, const struct call *call, uint32_t nth, uint32_t thread,
                      bool with_error, struct intercept *out, char *why, size_t size)
{
    struct attn_error err;
    bool good = true;

    ATTN_INIT(&err);
    intercept_begin(nth, thread);
    int32_t status = call->act(bench, with_error ? &err : NULL);
    *out = intercept_end();
    if (status == ATTN_OK) {
        good = call->check == NULL || call->check(bench, why, size);
        if (call->undo != NULL)
            call->undo(bench);
    } else if (!out->failed) {
        snprintf(why, size, "nothing was refused, yet it answered %s: %s", attn_status_name(status),
                 err.message);
        good = false;
    } else if (with_error) {
        good = failed_well(status, &err, why, size);
    }
    if (good && intercept_left() > 0) {
        snprintf(why, size, "%u allocations are never freed", intercept_left());
        good = false;
    }
    return good;
}

/* All points of one call; an empty `why` if it is right. */
static void sweep_call(struct bench *bench, const struct call *call, bool threads, char *why, size_t size)
{
    struct intercept happened = {0, 0, 0, true};
    char what[512] = "";
    uint32_t n = 0;

    why[0] = '\0';
    while (happened.failed && n < MOST_POINTS) {
        n++;
        bool good =
            try_point(bench, call, threads ? 0 : n, threads ? n : 0, true, &happened, what, sizeof what);
        if (good && happened.failed)
            good =
                try_point(bench, call, threads ? 0 : n, threads ? n : 0, false, &happened, what, sizeof what);
        if (good)
            continue;
        snprintf(why, size, "%s with %s %u of it refused: %s", call->name, threads ? "thread" : "allocation",
                 n, what);
        if (!happened.failed)
            snprintf(why, size, "%s after %u failures, undisturbed: %s", call->name, n - 1, what);
        return;
    }
    if (happened.failed)
        snprintf(why, size, "%s: no end after %u failures", call->name, n);
    else if (call->quiet && happened.made > 0)
        snprintf(why, size, "%s made %u allocations; it may make none", call->name, happened.made);
}

static void sweep(struct bench *bench, const struct call *calls, bool threads, const char *text,
                  uint64_t seed)
{
    char why[640];

    for (const struct call *call = calls; call->name != NULL; call++) {
        struct attn_error err;
        ATTN_INIT(&err);
        tap_begin(bench->target, "faults", text, seed);
        /* Once undisturbed: what the C library keeps for good is made now. */
        int32_t status = call->act(bench, &err);
        if (status == ATTN_E_UNSUPPORTED && call->optional) {
            tap_pass();
            continue;
        }
        if (status != ATTN_OK) {
            tap_fail("%s: %s: %s", call->name, attn_status_name(status), err.message);
            continue;
        }
        if (call->undo != NULL)
            call->undo(bench);
        sweep_call(bench, call, threads, why, sizeof why);
        if (why[0] == '\0')
            tap_pass();
        else
            tap_fail("%s", why);
    }
}

/* The first run of a backend may start threads, which the system makes room for; itself it makes none. */
static void check_first_run(struct bench *bench, const char *text, uint64_t seed)
{
    const struct attn_backend_table *table = bench->direct.table;
    struct fixture *fixture = &bench->fixture;
    struct attn_backend_impl *impl = NULL;
    struct attn_plan_impl *plan = NULL;
    struct intercept happened = {0, 0, 0, false};
    struct attn_error err;

    ATTN_INIT(&err);
    tap_begin(bench->target, "faults", text, seed);
    int32_t status = bench_open(bench, &impl, &err);
    if (status == ATTN_OK)
        status = table->plan->create(impl, &fixture->step.problem, &plan, &err);
    if (status == ATTN_OK) {
        intercept_watch((const void *)(uintptr_t)bench->direct.entry);
        intercept_begin(INTERCEPT_NEVER, INTERCEPT_NEVER);
        status = table->plan->prepare(plan, &fixture->step.batch, &fixture->schedule, &fixture->staging, NULL,
                                      &err);
        if (status == ATTN_OK)
            status = table->plan->run(plan, &fixture->step.batch, &fixture->step.tensors, NULL,
                                      &fixture->step.kv, &fixture->schedule, &fixture->scratch, NULL, &err);
        happened = intercept_end();
        table->plan->destroy(plan);
    }
    if (impl != NULL)
        table->close(impl);
    fixture_clear(fixture);
    if (status != ATTN_OK)
        tap_fail("the first run of a backend: %s", err.message);
    else if (happened.watched > 0)
        tap_fail("the first prepare and run of a backend made %u allocations", happened.watched);
    else
        tap_pass();
}

static void check_allocations(struct bench *bench, const char *text, uint64_t seed)
{
    if (!intercept_works()) {
        tap_begin(bench->target, "faults", text, seed);
        tap_skip("the allocator belongs to a sanitizer or is not the C library's");
        return;
    }
    intercept_watch((const void *)(uintptr_t)bench->direct.entry);
    sweep(bench, direct_calls, false, text, seed);
    sweep(bench, life_calls, false, text, seed);
    sweep(bench, life_calls, true, text, seed);
    sweep(bench, core_calls, false, text, seed);
    check_first_run(bench, text, seed);
}

/* A bench for one problem; NULL after a line that says why there is none. */
static struct bench *bench_make(const struct target *target, const char *kind, const char *problem,
                                uint64_t seed)
{
    struct bench *bench = need(malloc(sizeof *bench));
    char why[640] = "";
    int made = bench_init(bench, target, problem, seed, why, sizeof why);

    bench->kind = kind;
    if (made == 1)
        return bench;
    tap_begin(target, kind, problem, seed);
    if (made == 0)
        tap_skip(why);
    else
        tap_fail("%s", why);
    free(bench);
    return NULL;
}

static void find_faults(const struct target *target, const char *problem, uint64_t seed)
{
    struct bench *bench = bench_make(target, "faults", problem, seed);

    if (bench == NULL)
        return;
    check_allocations(bench, problem, seed);
    faults_arguments(bench, problem, seed);
    faults_handles(bench, problem, seed);
    bench_finish(bench);
    free(bench);
}

static void find_trust(const struct target *target, const char *problem, uint64_t seed)
{
    struct bench *bench = bench_make(target, "distrust", problem, seed);

    if (bench == NULL)
        return;
    faults_entry(bench, problem, seed);
    faults_distrust(bench, problem, seed);
    bench_finish(bench);
    free(bench);
}

static void check_problems(struct target_list *list, const struct run_options *options,
                           void (*find)(const struct target *target, const char *problem, uint64_t seed))
{
    uint64_t seed = options->seed_given ? options->seed : 1;
    bool asked = options->kind != NULL && options->filter_kind == FILTER_PROBLEM;

    for (uint32_t t = 0; t < list->count; t++) {
        if (asked)
            find(&list->targets[t], options->filter, seed);
        for (size_t i = 0; i < sizeof problems / sizeof problems[0] && !asked; i++)
            if (options_wants(options, problems[i]))
                find(&list->targets[t], problems[i], seed);
    }
}

void check_faults(struct target_list *list, const struct run_options *options)
{
    check_problems(list, options, find_faults);
}

void check_distrust(struct target_list *list, const struct run_options *options)
{
    check_problems(list, options, find_trust);
}
