/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What fork means: handles of the parent are known in the child, and no lock that all contexts share is left
 * to a thread that the child does not have.
 */
#define _GNU_SOURCE
#include <time.h>

#include "core.h"

/*
 * Longest wait of a fork for other threads that are inside the linker. It is bounded because a constructor of
 * a plugin may itself wait for the thread that forks.
 */
enum { LINKER_SECONDS = 2 };

static _Atomic uint32_t generation = 1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

/* Threads inside the linker, and threads that are about to fork. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t inside, forking;

/* How often this thread is inside: constructors may call the library again, or fork. */
static _Thread_local uint32_t depth;
/* Handlers may be registered twice if a fork falls into the registration. */
static _Thread_local uint32_t prepared;

static void prepare(void)
{
    struct timespec end;
    if (prepared++ > 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += LINKER_SECONDS;
    pthread_mutex_lock(&lock);
    forking++;
    while (inside > depth && pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &end) == 0)
        continue;
    pthread_mutex_lock(&shared);
}

static void resume_parent(void)
{
    if (--prepared > 0)
        return;
    pthread_mutex_unlock(&shared);
    forking--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* The only thread of the child owns everything; waiters of the parent are not there. */
static void resume_child(void)
{
    if (--prepared > 0)
        return;
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    inside = depth;
    forking = 0;
    pthread_cond_init(&changed, NULL);
    pthread_mutex_unlock(&shared);
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    /* Without memory for the handlers children are not recognised; nothing else depends on it. */
    (void)pthread_atfork(prepare, resume_parent, resume_child);
}

uint32_t attn__fork_generation(void)
{
    pthread_once(&once, watch_forks);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

int32_t attn__check_fork(uint32_t born, const char *what, struct attn_error *err)
{
    if (born == atomic_load_explicit(&generation, memory_order_relaxed))
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_STATE, 0, what,
        "%s: the handle was made before fork; a child may only destroy it, or make a new context", what);
}

void attn__linker_enter(void)
{
    pthread_mutex_lock(&lock);
    while (forking > 0 && depth == 0)
        pthread_cond_wait(&changed, &lock);
    inside++;
    depth++;
    pthread_mutex_unlock(&lock);
}

void attn__linker_leave(void)
{
    pthread_mutex_lock(&lock);
    inside--;
    depth--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void attn__shared_lock(void)
{
    pthread_mutex_lock(&shared);
}

void attn__shared_unlock(void)
{
    pthread_mutex_unlock(&shared);
}

void attn__shared_wait(pthread_cond_t *condition)
{
    pthread_cond_wait(condition, &shared);
}
