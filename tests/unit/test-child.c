/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A context in a child after fork, as a thread that the child does not have left it. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core.h"
#include "malformed.h"

static struct malformed malformed;

static void begin(void)
{
    malformed_create(&malformed);
    malformed_add(&malformed, "good", "libattn-mock.so");
}

static void end(void)
{
    malformed_remove(&malformed);
}

TestSuite(child, .init = begin, .fini = end);

/* Runs in a child, which must not hang. */
static void in_child(void (*work)(struct attn_context *context), struct attn_context *context)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        alarm(10);
        work(context);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}

static pthread_mutex_t *held;
static pthread_barrier_t barrier;

static void *hold(void *arg)
{
    (void)arg;
    pthread_mutex_lock(held);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_mutex_unlock(held);
    return NULL;
}

/* What a list looks like in the middle of a change. */
static void destroy_torn(struct attn_context *context)
{
    context->plugins = (struct attn__plugin **)(uintptr_t)16;
    context->plugin_count = 1;
    context->log.said = (uint64_t *)(uintptr_t)16;
    attn_context_destroy(context);
}

Test(child, leaves_alone_what_was_being_changed)
{
    struct attn_context *context = malformed_context(&malformed, NULL);
    pthread_mutex_t *const locks[] = {&context->lock, &context->log.lock};
    pthread_barrier_init(&barrier, NULL, 2);
    for (size_t i = 0; i < sizeof locks / sizeof locks[0]; i++) {
        pthread_t thread;
        held = locks[i];
        cr_assert_eq(pthread_create(&thread, NULL, hold, NULL), 0);
        pthread_barrier_wait(&barrier);
        in_child(destroy_torn, context);
        pthread_barrier_wait(&barrier);
        pthread_join(thread, NULL);
    }
    attn_context_destroy(context);
}

Test(child, does_not_wait_for_a_thread_that_opens_a_plugin)
{
    struct attn_context *context = malformed_context(&malformed, NULL);
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    held = &context->opening;
    cr_assert_eq(pthread_create(&thread, NULL, hold, NULL), 0);
    pthread_barrier_wait(&barrier);
    in_child(attn_context_destroy, context);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    attn_context_destroy(context);
}

static unsigned finished;

static void count_finish(void *user, uint32_t level, const char *subsystem, const char *text)
{
    (void)user, (void)level, (void)subsystem;
    finished += strcmp(text, "finish") == 0;
}

static void destroy_and_count(struct attn_context *context)
{
    attn_context_destroy(context);
    if (finished != 0)
        _exit(1);
}

/* Its threads and drivers are the parent's. */
Test(child, does_not_finish_plugins_of_the_parent)
{
    struct attn_context *context = malformed_context(&malformed, NULL);
    context->log.fn = count_finish;
    context->log.level = ATTN_LOG_DEBUG;
    cr_assert_eq(attn_context_load_all(context, NULL), ATTN_OK);
    in_child(destroy_and_count, context);
    cr_assert_eq(finished, 0);
    attn_context_destroy(context);
    cr_assert_eq(finished, 1);
}
