/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The allocator, pthread_create and mmap of this program and all that it loads: the C library's, unless a
 * fault is asked for. A symbol of the program stands before those of the libraries.
 */
#define _GNU_SOURCE
#undef _FILE_OFFSET_BITS /* so that mmap and mmap64 are two names here */
#include "intercept.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TAKEN 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TAKEN 0
#endif
#endif
#include <stdlib.h>
#ifndef TAKEN
#ifdef __GLIBC__
#define TAKEN 1
#else
#define TAKEN 0
#endif
#endif

#if TAKEN

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TAKE   __attribute__((visibility("default"), noinline))
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* The C library's own. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

struct range {
    uintptr_t first, end;
};

enum { MOST_BLOCKS = 4096 };

static struct {
    atomic_bool armed; /* counts, and may refuse */
    atomic_bool known; /* frees are looked at */
    atomic_flag lock;  /* of what follows */
    struct intercept so_far;
    uint32_t nth, thread;
    void *blocks[MOST_BLOCKS];
    uint32_t block_count;
    struct range program, linker, watched;
} state = {.lock = ATOMIC_FLAG_INIT};

static void lock(void)
{
    while (atomic_flag_test_and_set_explicit(&state.lock, memory_order_acquire))
        continue;
}

static void unlock(void)
{
    atomic_flag_clear_explicit(&state.lock, memory_order_release);
}

static bool lies_in(const struct range *range, const void *address)
{
    return (uintptr_t)address >= range->first && (uintptr_t)address < range->end;
}

/* Whether a call goes on to the C library. */
static bool admit(const void *caller)
{
    bool refused = false;

    if (!atomic_load_explicit(&state.armed, memory_order_relaxed) || lies_in(&state.program, caller))
        return true;
    lock();
    /* What the linker keeps for threads and libraries stays in its caches. */
    if (!lies_in(&state.linker, caller)) {
        state.so_far.made++;
        state.so_far.watched += lies_in(&state.watched, caller);
        refused = state.so_far.made == state.nth;
        state.so_far.failed |= refused;
    }
    unlock();
    if (refused)
        errno = ENOMEM;
    return !refused;
}

static void *keep(void *block, const void *caller)
{
    if (block == NULL || !atomic_load_explicit(&state.armed, memory_order_relaxed) ||
        lies_in(&state.program, caller) || lies_in(&state.linker, caller))
        return block;
    lock();
    if (state.block_count < MOST_BLOCKS)
        state.blocks[state.block_count++] = block;
    unlock();
    return block;
}

/* True if the block was known. */
static bool forget(const void *block)
{
    bool found = false;

    if (block == NULL || !atomic_load_explicit(&state.known, memory_order_relaxed))
        return false;
    lock();
    for (uint32_t i = state.block_count; i > 0 && !found; i--) {
        found = state.blocks[i - 1] == block;
        if (found)
            state.blocks[i - 1] = state.blocks[--state.block_count];
    }
    unlock();
    return found;
}

TAKE void *malloc(size_t size)
{
    const void *caller = CALLER;

    return admit(caller) ? keep(__libc_malloc(size), caller) : NULL;
}

TAKE void *calloc(size_t count, size_t size)
{
    const void *caller = CALLER;

    return admit(caller) ? keep(__libc_calloc(count, size), caller) : NULL;
}

TAKE void *realloc(void *old, size_t size)
{
    const void *caller = CALLER;

    if (!admit(caller))
        return NULL;
    bool was_known = forget(old);
    void *block = __libc_realloc(old, size);
    if (block == NULL && size > 0 && was_known)
        keep(old, caller);
    /* A block from before that grows is no new one. */
    return old == NULL || was_known ? keep(block, caller) : block;
}

TAKE void free(void *memory)
{
    forget(memory);
    __libc_free(memory);
}

TAKE void *memalign(size_t alignment, size_t size)
{
    const void *caller = CALLER;

    return admit(caller) ? keep(__libc_memalign(alignment, size), caller) : NULL;
}

TAKE void *aligned_alloc(size_t alignment, size_t size)
{
    const void *caller = CALLER;

    return admit(caller) ? keep(__libc_memalign(alignment, size), caller) : NULL;
}

TAKE int posix_memalign(void **out, size_t alignment, size_t size)
{
    const void *caller = CALLER;

    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    void *block = admit(caller) ? keep(__libc_memalign(alignment, size), caller) : NULL;
    if (block == NULL)
        return ENOMEM;
    *out = block;
    return 0;
}

TAKE char *strdup(const char *text)
{
    const void *caller = CALLER;
    size_t size = strlen(text) + 1;
    char *copy = admit(caller) ? keep(__libc_malloc(size), caller) : NULL;

    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

static void *map(void *address, size_t size, int protection, int flags, int file, int64_t offset,
                 const void *caller)
{
    if (lies_in(&state.watched, caller) && !admit(caller))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

TAKE void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    return map(address, size, protection, flags, file, offset, CALLER);
}

TAKE void *mmap64(void *address, size_t size, int protection, int flags, int file, off64_t offset)
{
    return map(address, size, protection, flags, file, offset, CALLER);
}

TAKE int pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    static int (*_Atomic next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    bool refused = false;

    if (atomic_load(&next) == NULL) {
        int (*found)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = NULL;
        void *symbol = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&found, &symbol, sizeof found);
        if (found == NULL)
            return EAGAIN;
        atomic_store(&next, found);
    }
    if (atomic_load_explicit(&state.armed, memory_order_relaxed)) {
        lock();
        refused = ++state.so_far.threads == state.thread;
        state.so_far.failed |= refused;
        unlock();
    }
    return refused ? EAGAIN : atomic_load(&next)(id, attributes, start, arg);
}

/* ---------------------------------------------------------------- whose calls */

struct search {
    uintptr_t address;
    struct range *found;
};

/* From the first to the last byte of the object that holds the address. */
static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct search *search = arg;
    struct range range = {UINTPTR_MAX, 0};

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t first = info->dlpi_addr + segment->p_vaddr, end = first + segment->p_memsz;
        range.first = first < range.first ? first : range.first;
        range.end = end > range.end ? end : range.end;
    }
    if (search->address < range.first || search->address >= range.end)
        return 0;
    *search->found = range;
    return 1;
}

static void find(const void *address, struct range *out)
{
    struct search search = {(uintptr_t)address, out};

    *out = (struct range){0, 0};
    dl_iterate_phdr(look, &search);
}

bool intercept_works(void)
{
    return true;
}

void intercept_watch(const void *address)
{
    find(address, &state.watched);
}

void intercept_begin(uint32_t nth, uint32_t thread)
{
    if (state.program.end == 0) {
        find((const void *)(uintptr_t)&intercept_begin, &state.program);
        find((const void *)getauxval(AT_BASE), &state.linker);
    }
    lock();
    memset(&state.so_far, 0, sizeof state.so_far);
    state.block_count = 0;
    state.nth = nth;
    state.thread = thread;
    unlock();
    atomic_store(&state.known, true);
    atomic_store(&state.armed, true);
}

struct intercept intercept_end(void)
{
    atomic_store(&state.armed, false);
    return state.so_far;
}

uint32_t intercept_left(void)
{
    lock();
    uint32_t left = state.block_count;
    unlock();
    return left;
}

#else

bool intercept_works(void)
{
    return false;
}

void intercept_watch(const void *address)
{
    (void)address;
}

void intercept_begin(uint32_t nth, uint32_t thread)
{
    (void)nth;
    (void)thread;
}

struct intercept intercept_end(void)
{
    return (struct intercept){0, 0, 0, false};
}

uint32_t intercept_left(void)
{
    return 0;
}

#endif
