/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch: checks it, lays out its arguments, hands its work-groups to host threads. */
#include "emu-run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct worker *idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t instructions;
static uint64_t launches;

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

static void read_settings(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    settings.threads = (uint32_t)number_of("EMU_THREADS", processors > 0 ? (uint64_t)processors : 1);
    settings.threads = settings.threads == 0 ? 1 : settings.threads > 64 ? 64 : settings.threads;
    settings.seed = (uint32_t)number_of("EMU_SEED", 0);
    settings.limit = number_of("EMU_LIMIT", 2000) * 1000000;
}

uint64_t emu_instructions(void)
{
    return __atomic_load_n(&instructions, __ATOMIC_RELAXED);
}

static struct worker *worker_take(void)
{
    pthread_mutex_lock(&idle_lock);
    struct worker *k = idle;
    if (k != NULL)
        idle = k->next;
    pthread_mutex_unlock(&idle_lock);
    if (k == NULL) {
        k = calloc(1, sizeof *k);
        if (k != NULL)
            k->waves = aligned_alloc(64, WAVES_MAX * ((sizeof *k->waves + 63) / 64 * 64));
    }
    return k;
}

static void worker_give(struct worker *k)
{
    pthread_mutex_lock(&idle_lock);
    k->next = idle;
    idle = k;
    pthread_mutex_unlock(&idle_lock);
}

static void record(struct running *r, enum emu_result result, const char *why)
{
    pthread_mutex_lock(&r->lock);
    if (r->result == EMU_OK) {
        r->result = result;
        snprintf(r->why, r->why_size, "%s", why);
    }
    pthread_mutex_unlock(&r->lock);
}

static void *work(void *context)
{
    struct running *r = context;
    char why[512];
    uint32_t size = r->kernel->properties.wave_size;
    uint32_t waves = (r->launch->threads + size - 1) / size;
    uint64_t count = 0;
    struct worker *k = worker_take();
    if (k == NULL || k->waves == NULL || !worker_prepare(k, r, waves)) {
        record(r, EMU_LIMIT, "out of memory");
        return NULL;
    }
    for (;;) {
        pthread_mutex_lock(&r->lock);
        uint64_t group = r->result == EMU_OK ? r->next++ : r->groups;
        pthread_mutex_unlock(&r->lock);
        if (group >= r->groups)
            break;
        if (r->settings->seed & 1)
            group = r->groups - 1 - group;
        uint64_t x = r->launch->grid[0], y = r->launch->grid[1];
        k->group = r->model;
        k->group.id[0] = (uint32_t)(group % x);
        k->group.id[1] = (uint32_t)(group / x % y);
        k->group.id[2] = (uint32_t)(group / x / y);
        k->group.why = why;
        k->group.why_size = sizeof why;
        worker_run(k, r, waves, &count);
        if (k->group.result != EMU_OK)
            record(r, k->group.result, why);
    }
    worker_give(k);
    __atomic_fetch_add(&instructions, count, __ATOMIC_RELAXED);
    return NULL;
}

static void run_groups(struct running *r)
{
    pthread_t threads[64];
    uint64_t want = r->settings->threads < r->groups ? r->settings->threads : r->groups;
    size_t made = 0;
    while (made + 1 < want && pthread_create(&threads[made], NULL, work, r) == 0)
        made++;
    work(r);
    for (size_t i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
}

static uint64_t hidden_value(const struct hidden *h, const struct emu_launch *l, uint64_t poison)
{
    switch (h->kind) {
    case HIDDEN_BLOCK_COUNT_X:
    case HIDDEN_BLOCK_COUNT_Y:
    case HIDDEN_BLOCK_COUNT_Z:
        return l->grid[h->kind - HIDDEN_BLOCK_COUNT_X];
    case HIDDEN_GROUP_SIZE_X:
        return l->threads;
    case HIDDEN_GROUP_SIZE_Y:
    case HIDDEN_GROUP_SIZE_Z:
        return 1;
    case HIDDEN_ZERO:
        return 0;
    case HIDDEN_GRID_DIMS:
        return 3;
    case HIDDEN_DYNAMIC_LDS:
        return l->shared_bytes;
    default:
        return poison;
    }
}

static void fill_arguments(const struct running *r, uint8_t *to, size_t size)
{
    const struct emu_launch *l = r->launch;
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)(r->poison >> (8 * (i & 7)));
    for (size_t i = 0; i < r->kernel->hidden_count; i++) {
        const struct hidden *h = &r->kernel->hidden[i];
        uint64_t value = hidden_value(h, l, r->poison);
        if (h->offset + 8u <= size)
            memcpy(to + h->offset, &value, h->size <= 8 ? h->size : 8);
    }
    if (l->argument_size > 0)
        memcpy(to, l->argument, l->argument_size);
}

/* The dispatch packet of HSA, as far as kernels read it. */
static void fill_packet(const struct emu_launch *l, uint8_t packet[64])
{
    uint16_t sizes[3] = {(uint16_t)l->threads, 1, 1};
    uint32_t grid[3] = {l->grid[0] * l->threads, l->grid[1], l->grid[2]};
    memset(packet, 0, 64);
    packet[2] = 3;
    memcpy(packet + 4, sizes, sizeof sizes);
    memcpy(packet + 12, grid, sizeof grid);
}

static const char *unsound(const struct emu_launch *l)
{
    const struct emu_kernel *k = l->kernel;
    uint32_t limit = k->image->number == 0x950 ? 160 * 1024 : 64 * 1024;
    if (l->threads == 0 || l->threads > 1024)
        return "a work-group has 1 to 1024 threads";
    if (k->properties.max_threads != 0 && l->threads > k->properties.max_threads)
        return "the work-group has more threads than the kernel was compiled for";
    if (l->grid[0] == 0 || l->grid[1] == 0 || l->grid[2] == 0)
        return "a grid is empty";
    if ((uint64_t)k->properties.lds_bytes + l->shared_bytes > limit)
        return "the work-group wants more LDS than the GPU has";
    if (k->properties.wave_size != 32 && k->properties.wave_size != 64)
        return "the notes give no wave size";
    if (k->properties.kernarg_bytes < l->argument_size)
        return "the argument is larger than the kernel's";
    return NULL;
}

static enum emu_result run(struct running *r)
{
    const struct emu_launch *l = r->launch;
    struct emu_kernel *k = (struct emu_kernel *)(uintptr_t)l->kernel;
    const char *reason = unsound(l);
    if (reason != NULL) {
        snprintf(r->why, r->why_size,
                 "kernel %s: %s (%u threads, %u + %u bytes of LDS, argument of %zu bytes)", k->name, reason,
                 l->threads, k->properties.lds_bytes, l->shared_bytes, l->argument_size);
        return EMU_LDS;
    }
    if ((k->rsrc1 >> 12 & 0xff) != 0xf0) {
        snprintf(r->why, r->why_size,
                 "kernel %s: the float mode %#x is not modelled (denormals kept, nearest even)", k->name,
                 k->rsrc1 >> 12 & 0xff);
        return EMU_UNMODELLED;
    }
    if (!kernel_decode(k)) {
        snprintf(r->why, r->why_size, "kernel %s: %s", k->name, k->why);
        return EMU_UNMODELLED;
    }
    size_t bytes = k->properties.kernarg_bytes + 16u;
    uint8_t *arguments = aligned_alloc(64, (bytes + 63) / 64 * 64);
    uint8_t packet[64];
    if (arguments == NULL)
        return EMU_LIMIT;
    fill_arguments(r, arguments, bytes);
    fill_packet(l, packet);
    r->model.launch = l;
    r->model.kernarg = (uintptr_t)arguments;
    r->model.kernarg_end = r->model.kernarg + k->properties.kernarg_bytes;
    r->model.packet = (uintptr_t)packet;
    r->model.packet_end = r->model.packet + sizeof packet;
    r->model.image = r->model.code = (uintptr_t)k->image->bytes;
    r->model.image_end = r->model.image + k->image->size;
    pthread_mutex_init(&r->lock, NULL);
    run_groups(r);
    pthread_mutex_destroy(&r->lock);
    free(arguments);
    return r->result;
}

/* Odd launches are filled with NaNs, even ones with numbers. */
static uint64_t poison_of(uint64_t launch, uint32_t seed)
{
    uint64_t x = (launch + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xc2b2ae3d27d4eb4full;
    x ^= x >> 29;
    return launch & 1 ? x | 0x7fc07e007fc07e00ull : x;
}

enum emu_result emu_run(const struct emu_launch *launch, char *why, size_t why_size)
{
    pthread_once(&once, read_settings);
    uint64_t number = __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    struct running r = {
        .launch = launch,
        .kernel = launch->kernel,
        .settings = &settings,
        .poison = poison_of(number, settings.seed),
        .groups = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2],
        .why = why,
        .why_size = why_size,
    };
    return run(&r);
}
