/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Fork at every point of a program's life: the child may destroy what it inherited, in any order, gets
 * ATTN_E_STATE for everything else, and computes with a context of its own; no thread of the parent that held
 * a lock can stop it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

static const char threads[] = "4";

static unsigned count_threads(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != NULL && readdir(tasks) != NULL)
        count++;
    if (tasks != NULL)
        closedir(tasks);
    return count > 2 ? count - 2 : 0;
}

static int compute(void *arg)
{
    (void)arg;
    return step_works(&linked_library, threads) ? 0 : 1;
}

/* A pool of its own, which the step uses: threads of the parent are none of the child's. */
static int compute_with_threads(void *arg)
{
    struct step step;
    (void)arg;
    if (count_threads() != 1)
        return 2;
    if (!step_open(&step, &linked_library, threads) || step_run(&step) != ATTN_OK || !step_is_right(&step))
        return 1;
    if (count_threads() < 2)
        return 3;
    step_close(&step, 0);
    return count_threads() == 1 ? 0 : 4;
}

/* A sanitizer's own locks are not safe across fork, and a thread that begins holds them. */
static void let_threads_begin(void)
{
    if (is_sanitized())
        usleep(200000);
}

/* ---------------------------------------------------------------- every call */

struct calls {
    struct step *step;
    struct attn_error err;
    unsigned wrong;
};

static void expect(struct calls *calls, int32_t status, const char *name)
{
    if (status == ATTN_E_STATE && calls->err.status == ATTN_E_STATE &&
        strstr(calls->err.message, "fork") != NULL)
        return;
    tell("%s answers %s: %s", name, attn_status_name(status), calls->err.message);
    calls->wrong++;
}

#define EXPECT(calls, name, ...)                                                                             \
    do {                                                                                                     \
        ATTN_INIT(&(calls)->err);                                                                            \
        expect((calls), name(__VA_ARGS__, &(calls)->err), #name);                                            \
    } while (0)

static void call_context(struct calls *calls)
{
    struct step *step = calls->step;
    struct attn_report *report = NULL;
    struct attn_decision *decision = NULL;
    struct attn_parts *parts = NULL;
    struct attn_model_part part = {.struct_size = sizeof part, .problem = &step->problem};
    struct attn_backend *backend = NULL;
    const struct attn_axis *axes;
    uint32_t count;
    struct attn_query query;
    ATTN_INIT(&query);
    EXPECT(calls, attn_context_rescan, step->context);
    EXPECT(calls, attn_context_load_all, step->context);
    EXPECT(calls, attn_context_get_report, step->context, &report);
    EXPECT(calls, attn_context_inspect, step->context, "/dev/null", &report);
    EXPECT(calls, attn_select, step->context, &step->problem, 1, NULL, &decision);
    EXPECT(calls, attn_select_parts, step->context, &part, 1, NULL, &parts);
    EXPECT(calls, attn_context_query, step->context, "cpu/flash-attn", NULL, &step->problem, &query);
    EXPECT(calls, attn_context_get_axes, step->context, "cpu/flash-attn", &axes, &count);
    EXPECT(calls, attn_backend_open, step->context, step->decision, NULL, &backend);
}

static void call_backend(struct calls *calls)
{
    struct step *step = calls->step;
    struct attn_plan *plan = NULL;
    struct attn_kv *kv = NULL;
    struct attn_kv_shape shape;
    struct attn_buffer buffer = {step->out, 0};
    struct attn_graph *graph = NULL;
    void *pointer = NULL;
    ATTN_INIT(&shape);
    struct attn_query query;
    ATTN_INIT(&query);
    EXPECT(calls, attn_backend_query, step->backend, &step->problem, &query);
    EXPECT(calls, attn_kv_get_shape, step->backend, &step->problem, 4, &shape);
    EXPECT(calls, attn_kv_create, step->backend, &step->desc, &kv);
    EXPECT(calls, attn_plan_create, step->backend, &step->problem, &plan);
    EXPECT(calls, attn_memory_alloc, step->backend, 64, &buffer);
    EXPECT(calls, attn_memory_copy, step->backend, &buffer, &buffer, 4, ATTN_COPY_TO_HOST, NULL);
    EXPECT(calls, attn_memory_alloc_pinned, step->backend, 64, &pointer);
    EXPECT(calls, attn_stream_create, step->backend, &pointer);
    EXPECT(calls, attn_stream_synchronize, step->backend, NULL);
    EXPECT(calls, attn_event_create, step->backend, &pointer);
    EXPECT(calls, attn_graph_begin, step->backend, NULL, &graph);
#define ARGS(type, function)                                                                                 \
    do {                                                                                                     \
        struct type args;                                                                                    \
        ATTN_INIT(&args);                                                                                    \
        EXPECT(calls, function, step->backend, &args, NULL);                                                 \
    } while (0)
    ARGS(attn_kv_write_args, attn_kv_write);
    ARGS(attn_kv_slot_mapping_args, attn_kv_slot_mapping);
    ARGS(attn_kv_copy_slots_args, attn_kv_copy_slots);
    ARGS(attn_kv_copy_blocks_args, attn_kv_copy_blocks);
    ARGS(attn_kv_swap_blocks_args, attn_kv_swap_blocks);
    ARGS(attn_kv_gather_args, attn_kv_gather);
    ARGS(attn_kv_convert_args, attn_kv_convert);
    ARGS(attn_kv_advance_step_args, attn_kv_advance_step);
    ARGS(attn_merge_args, attn_merge);
    ARGS(attn_rescale_args, attn_rescale);
#undef ARGS
}

static void call_plan(struct calls *calls)
{
    struct step *step = calls->step;
    const struct attn_plan *const plans[] = {step->plan};
    const struct attn_batch *const batches[] = {&step->batch};
    struct attn_plan_info info;
    ATTN_INIT(&info);
    EXPECT(calls, attn_plan_get_sizes, step->plan, &step->sizes);
    EXPECT(calls, attn_plan_describe, step->plan, &info);
    EXPECT(calls, attn_plan_prepare, step->plan, &step->batch, &step->schedule, NULL, NULL);
    EXPECT(calls, attn_plan_prepare_many, plans, batches, &step->schedule, 1, NULL, NULL);
    EXPECT(calls, attn_plan_run, step->plan, &step->batch, &step->tensors, &step->schedule, &step->scratch,
           NULL);
}

static int call_everything(void *arg)
{
    struct calls calls = {.step = arg};
    call_context(&calls);
    call_backend(&calls);
    call_plan(&calls);
    const struct attn_buffer buffer = {calls.step->out, 0};
    attn_memory_free(calls.step->backend, &buffer); /* not the plugin's, and nothing may come of it */
    attn_memory_free_pinned(calls.step->backend, calls.step->out);
    attn_stream_destroy(calls.step->backend, NULL);
    step_close(calls.step, 0);
    if (!step_works(&linked_library, threads))
        calls.wrong++;
    return calls.wrong != 0;
}

/* Destroys what it inherited in the order of the number, then computes. */
struct inheritance {
    struct step *step;
    unsigned order;
};

static int destroy_and_compute(void *arg)
{
    const struct inheritance *inheritance = arg;
    step_close(inheritance->step, inheritance->order);
    return compute(NULL);
}

static int compute_and_destroy(void *arg)
{
    const struct inheritance *inheritance = arg;
    int result = compute(NULL);
    step_close(inheritance->step, inheritance->order);
    return result;
}

static int fork_again(void *arg)
{
    struct step step;
    if (!step_open(&step, &linked_library, threads) || step_run(&step) != ATTN_OK)
        return 1;
    let_threads_begin();
    int result = in_child(call_everything, &step, 20);
    if (step_run(&step) != ATTN_OK || !step_is_right(&step))
        return 2;
    step_close(&step, 0);
    step_close(arg, 1); /* of the grandparent */
    return result;
}

static void check_stages(void)
{
    struct step step;
    struct inheritance inheritance = {.step = &step};
    check(in_child(compute_with_threads, NULL, 20) == 0, "a child of a process that never used the library");
    bool good = step_open(&step, &linked_library, threads);
    check(good, "the parent opens a backend: %s", step.err.message);
    check(in_child(call_everything, &step, 20) == 0, "fork before the first run: every call names fork");
    check(step_run(&step) == ATTN_OK && step_is_right(&step) && count_threads() > 1,
          "the parent computes, with threads");
    let_threads_begin();
    check(in_child(call_everything, &step, 20) == 0, "fork after a run: every call names fork");
    check(in_child(compute_with_threads, NULL, 20) == 0, "a child has threads of its own, and ends them");
    check(in_child(fork_again, &step, 40) == 0, "a grandchild does as a child does");
    unsigned wrong = 0;
    for (inheritance.order = 0; inheritance.order < 120; inheritance.order += is_sanitized() ? 31 : 5)
        wrong += in_child(inheritance.order % 2 == 0 ? destroy_and_compute : compute_and_destroy,
                          &inheritance, 20) != 0;
    check(wrong == 0, "a child destroys in any order: %u went wrong", wrong);
    check(step_run(&step) == ATTN_OK && step_is_right(&step), "the parent computes as before");
    step_close(&step, 0);
}

/* ---------------------------------------------------------------- with threads that hold locks */

static _Atomic bool stop;
static struct attn_context *_Atomic shared;

static void *open_and_close(void *arg)
{
    (void)arg;
    while (!stop) {
        struct attn_context *context = NULL;
        if (attn_context_create(NULL, &context, NULL) == ATTN_OK)
            attn_context_load_all(context, NULL);
        attn_context_destroy(context);
    }
    return NULL;
}

/* Holds the lock of a context that the child will destroy. */
static void *look(void *arg)
{
    (void)arg;
    while (!stop) {
        struct attn_report *report = NULL;
        attn_context_rescan(shared, NULL);
        attn_context_get_report(shared, &report, NULL);
        attn_report_destroy(report);
    }
    return NULL;
}

static int destroy_shared(void *arg)
{
    attn_context_destroy(shared);
    return compute(arg);
}

static void check_busy_parent(void)
{
    enum { rounds = 150 };
    struct attn_context *context = NULL;
    pthread_t workers[4];
    int wrong = 0, hung = 0;
    if (attn_context_create(NULL, &context, NULL) != ATTN_OK)
        exit(99);
    attn_context_load_all(context, NULL);
    shared = context;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&workers[i], NULL, i < 2 ? open_and_close : look, NULL) != 0)
            exit(99);
    for (int i = 0; i < rounds && hung == 0; i++) {
        int result = in_child(destroy_shared, NULL, 20);
        hung += result == CHILD_HANGS;
        wrong += result != 0;
    }
    stop = true;
    for (int i = 0; i < 4; i++)
        pthread_join(workers[i], NULL);
    attn_context_destroy(context);
    check(wrong == 0, "children of a parent whose threads hold locks: %d of %d went wrong, %d hang", wrong,
          rounds, hung);
}

int main(void)
{
    tap_begin();
    check_stages();
    if (is_sanitized())
        skip("children of a parent whose threads hold locks",
             "the allocator belongs to a sanitizer or is not the C library's");
    else
        check_busy_parent();
    return tap_end();
}
