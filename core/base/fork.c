/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Handles fork: a child recognises handles of its parent, and finds the lock that all contexts share
 * unlocked. */
#include "core.h"

static _Atomic uint32_t generation = 1;
static pthread_mutex_t shared = PTHREAD_MUTEX_INITIALIZER;

static void resume_child(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    pthread_mutex_unlock(&shared);
}

/* If registering fails, handles of a parent are not recognised in children; nothing else depends on it. */
__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(attn__shared_lock, attn__shared_unlock, resume_child);
}

uint32_t attn__fork_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

int32_t attn__check_fork(uint32_t born, const char *what, struct attn_error *err)
{
    if (born == attn__fork_generation())
        return ATTN_OK;
    return attn__fail(
        err, ATTN_E_STATE, 0, what,
        "%s: the handle was made before fork; a child may only destroy it, or make a new context", what);
}

void attn__shared_lock(void)
{
    pthread_mutex_lock(&shared);
}

void attn__shared_unlock(void)
{
    pthread_mutex_unlock(&shared);
}
