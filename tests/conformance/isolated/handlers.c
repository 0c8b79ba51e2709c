/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Notes who installs exit and fork handlers. The functions of the C library are defined here again, exported
 * by the program, so that every library finds these first; they pass everything on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "life.h"
#include "trace.h"

#define EXPORTED __attribute__((visibility("default")))

typedef void (*plain_fn)(void);
typedef void (*arg_fn)(void *arg);
typedef void (*status_fn)(int status, void *arg);

EXPORTED int __cxa_atexit(arg_fn fn, void *arg, void *object);
EXPORTED int __cxa_at_quick_exit(arg_fn fn, void *object);
EXPORTED int on_exit(status_fn fn, void *arg);
EXPORTED int __register_atfork(plain_fn prepare, plain_fn parent, plain_fn child, void *object);

enum { MOST_HANDLERS = 256 };

/* Libraries may install handlers before main, so that nothing here may need to be set up. */
static struct installed {
    const char *what;
    const void *caller;
    const void *object;
} handlers[MOST_HANDLERS];
static _Atomic uint32_t handler_count;

static void note(const char *what, const void *caller, const void *object)
{
    uint32_t place = atomic_fetch_add(&handler_count, 1);

    if (place < MOST_HANDLERS)
        handlers[place] = (struct installed){what, caller, object};
}

/* The function of the C library that `name` would be without this file. */
#define NEXT(type, name) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

/* A thread sanitizer installs handlers before its own are ready to be followed. */
#if defined(__SANITIZE_THREAD__)
#define UNTAKEN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNTAKEN
#endif
#endif

#ifndef UNTAKEN

int __cxa_atexit(arg_fn fn, void *arg, void *object)
{
    int (*next)(arg_fn, void *, void *) = NEXT(int (*)(arg_fn, void *, void *), "__cxa_atexit");

    note("atexit", __builtin_return_address(0), object);
    return next != NULL ? next(fn, arg, object) : -1;
}

int __cxa_at_quick_exit(arg_fn fn, void *object)
{
    int (*next)(arg_fn, void *) = NEXT(int (*)(arg_fn, void *), "__cxa_at_quick_exit");

    note("at_quick_exit", __builtin_return_address(0), object);
    return next != NULL ? next(fn, object) : -1;
}

int on_exit(status_fn fn, void *arg)
{
    int (*next)(status_fn, void *) = NEXT(int (*)(status_fn, void *), "on_exit");

    note("on_exit", __builtin_return_address(0), NULL);
    return next != NULL ? next(fn, arg) : -1;
}

int __register_atfork(plain_fn prepare, plain_fn parent, plain_fn child, void *object)
{
    int (*next)(plain_fn, plain_fn, plain_fn, void *) =
        NEXT(int (*)(plain_fn, plain_fn, plain_fn, void *), "__register_atfork");

    note("pthread_atfork", __builtin_return_address(0), object);
    return next != NULL ? next(prepare, parent, child, object) : -1;
}

#endif

static bool lies_in(const void *address, const void *from, const void *to)
{
    return (uintptr_t)address >= (uintptr_t)from && (uintptr_t)address < (uintptr_t)to;
}

void handlers_list(const void *from, const void *to, char *text, size_t size)
{
    uint32_t count = atomic_load(&handler_count);

    for (uint32_t i = 0; i < count && i < MOST_HANDLERS; i++) {
        const struct installed *handler = &handlers[i];
        if (lies_in(handler->caller, from, to) || lies_in(handler->object, from, to))
            add_line(text, size, "%s was called, for the time number %u", handler->what, i);
    }
}
