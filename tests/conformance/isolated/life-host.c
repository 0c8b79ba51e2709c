/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Host services for a plugin that is driven without the core; they notice who uses them too late. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "life.h"
#include "need.h"

enum { PAGE = 65536 }; /* a multiple of every page size in use */

/* The part that the plugin may see, and that is taken away. */
struct lent {
    struct attn_host table;
    struct attn_instance *instance;
    char threads[4];
};

struct life_host {
    struct lent *lent;
    _Atomic bool finished;
    _Atomic(const char *) late;
};

static void use(void *ctx, const char *service)
{
    struct life_host *host = ctx;

    if (atomic_load(&host->finished))
        atomic_store(&host->late, service);
}

static void log_line(void *ctx, uint32_t level, const char *subsystem, const char *text)
{
    (void)level, (void)subsystem, (void)text;
    use(ctx, "log");
}

static uint64_t read_clock(void *ctx)
{
    struct timespec time;

    use(ctx, "clock");
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Two threads, so that a plugin with threads of its own starts some. */
static const char *get_option(void *ctx, const char *key)
{
    struct life_host *host = ctx;

    use(ctx, "get_option");
    if (atomic_load(&host->finished) || key == NULL || strcmp(key, "ATTN_THREADS") != 0)
        return NULL;
    return host->lent->threads;
}

struct life_host *life_host_create(void)
{
    struct life_host *host = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct lent *lent = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    need(host == MAP_FAILED || lent == MAP_FAILED ? NULL : host);
    host->lent = lent;
    ATTN_INIT(&lent->table);
    lent->table.abi_minor = ATTN_ABI_MINOR;
    lent->table.ctx = host;
    lent->table.out_instance = &lent->instance;
    lent->table.log = log_line;
    lent->table.clock = read_clock;
    lent->table.get_option = get_option;
    memcpy(lent->threads, "2", sizeof "2");
    return host;
}

const struct attn_host *life_host_table(const struct life_host *host)
{
    return &host->lent->table;
}

struct attn_instance *life_host_instance(const struct life_host *host)
{
    return host->lent->instance;
}

void life_host_revoke(struct life_host *host)
{
    atomic_store(&host->finished, true);
    mprotect(host->lent, PAGE, PROT_NONE);
}

const char *life_host_late(const struct life_host *host)
{
    return atomic_load(&host->late);
}

void life_host_destroy(struct life_host *host)
{
    if (host == NULL)
        return;
    munmap(host->lent, PAGE);
    munmap(host, PAGE);
}
