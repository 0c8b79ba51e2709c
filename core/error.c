/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How functions fail: error details, sized structs of callers, and calls in a child after fork. */
#include <stdio.h>

#include "core.h"

/* Larger than any struct of the interface: a size beyond it was never set. */
#define STRUCT_MOST 65536U

static _Atomic uint32_t generation = 1;
static pthread_once_t generation_once = PTHREAD_ONCE_INIT;

int32_t attn__fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                   const char *format, ...)
{
    if (err == NULL)
        return status;
    /* The text may be made from the old contents of err. */
    char message[sizeof err->message];
    va_list args;
    va_start(args, format);
    if (vsnprintf(message, sizeof message, format, args) < 0)
        message[0] = '\0';
    va_end(args);
    char name[sizeof err->field];
    snprintf(name, sizeof name, "%s", field != NULL ? field : "");

    err->status = status;
    err->reason = reason;
    err->reserved = 0;
    memcpy(err->field, name, sizeof name);
    memcpy(err->message, message, sizeof message);
    return status;
}

int32_t attn__take(void *target, size_t size, const void *source, size_t least, const char *name,
                   struct attn_error *err)
{
    if (source == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is NULL; a struct made with ATTN_INIT is accepted", name);
    uint32_t given;
    memcpy(&given, source, sizeof given);
    if (given < least || given > STRUCT_MOST)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has struct_size %u; %zu to %u is accepted: set it with ATTN_INIT", name, given,
                          least, STRUCT_MOST);
    const unsigned char *bytes = source;
    for (size_t i = size; i < given; i++)
        if (bytes[i] != 0)
            return attn__fail(
                err, ATTN_E_INVALID, 0, name,
                "%s has a value at byte %zu, which this libattn (%zu bytes) does not know; zero "
                "is accepted, or a newer libattn",
                name, i, size);
    memset(target, 0, size);
    memcpy(target, source, given < size ? given : size);
    uint32_t own = (uint32_t)size;
    memcpy(target, &own, sizeof own);
    return ATTN_OK;
}

static void count_child(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    /* Without memory for the handler children are not recognised; nothing else depends on it. */
    (void)pthread_atfork(NULL, NULL, count_child);
}

uint32_t attn__fork_generation(void)
{
    pthread_once(&generation_once, watch_forks);
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
