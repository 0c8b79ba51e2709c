/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Many lives in one process: what they leave behind adds up, and every order of ending them is right. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "need.h"
#include "side-effects.h"

/* What all lives together should take: where one takes long, blocks have fewer. */
enum { BLOCKS = 5, MOST_LIVES = 8, MILLISECONDS = 30000 };

struct use {
    uint64_t heap;
    uint64_t mapped;
    uint64_t descriptors;
};

/* The address sanitizer has its own heap and its own count, and maps as it likes. */
typedef size_t (*count_fn)(void);

static count_fn find_sanitizer(void)
{
    return (count_fn)(uintptr_t)dlsym(RTLD_DEFAULT, "__sanitizer_get_current_allocated_bytes");
}

/* Bytes in use. */
static uint64_t count_heap(void)
{
    count_fn count = find_sanitizer();

    if (count != NULL)
        return count();
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Everything that is mapped but the heap, which has its own count and shrinks when it likes. */
static uint64_t count_mapped(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    unsigned long long from, to;
    char line[512];
    uint64_t sum = 0;

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%llx-%llx", &from, &to) == 2 && strstr(line, "[heap]") == NULL &&
            strstr(line, "[stack]") == NULL)
            sum += to - from;
    if (file != NULL)
        fclose(file);
    return sum;
}

/* False if the count does not see an allocation. */
static bool heap_counts(void)
{
    uint64_t before = count_heap();
    char *volatile block = need(malloc(5000));
    bool counts = count_heap() >= before + 5000;

    free(block);
    return counts;
}

static bool live(struct life *life, uint32_t count, struct use *out)
{
    for (uint32_t i = 0; i < count; i++) {
        bool good = life_live(life);
        life_forget(life);
        if (!good)
            return false;
    }
    out->heap = count_heap();
    out->mapped = count_mapped();
    out->descriptors = trace_count_descriptors();
    return true;
}

/*
 * What each block of lives added at least. Stacks that the C library keeps for later threads, or a buffer
 * that is made once, grow some blocks; a leak grows every one.
 */
static void find_growth(const struct use uses[BLOCKS + 1], struct use *out)
{
    *out = (struct use){UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const struct use *a = &uses[i], *b = &uses[i + 1];
        uint64_t heap = b->heap > a->heap ? b->heap - a->heap : 0;
        uint64_t mapped = b->mapped > a->mapped ? b->mapped - a->mapped : 0;
        uint64_t files = b->descriptors > a->descriptors ? b->descriptors - a->descriptors : 0;
        out->heap = heap < out->heap ? heap : out->heap;
        out->mapped = mapped < out->mapped ? mapped : out->mapped;
        out->descriptors = files < out->descriptors ? files : out->descriptors;
    }
}

/* Bytes that a life may add to the heap: rounding, or what a driver forgets of each context. */
enum { SOME_BYTES = 8, DRIVER_BYTES = 1024 };

/* `lives` of a block. */
static void judge_growth(struct isolated *isolated, const struct use *growth, uint32_t lives, bool driver)
{
    const uint64_t allowed = lives * (driver ? DRIVER_BYTES : SOME_BYTES);

    if (!heap_counts())
        isolated_skip(isolated, "heap over many lives", "the heap in use is not known here");
    else if (growth->heap >= allowed)
        isolated_fail(isolated, "heap over many lives", "ATTN_P15: %llu bytes more after each life",
                      (unsigned long long)(growth->heap / lives));
    if (find_sanitizer() != NULL)
        isolated_skip(isolated, "mappings over many lives", "a sanitizer maps memory of its own");
    else if (growth->mapped >= lives * UINT64_C(4096))
        isolated_fail(isolated, "mappings over many lives",
                      "ATTN_P15: %llu bytes more are mapped after each life",
                      (unsigned long long)(growth->mapped / lives));
    if (growth->descriptors > 0)
        isolated_fail(isolated, "descriptors over many lives", "ATTN_P15: %llu more after %u lives",
                      (unsigned long long)growth->descriptors, lives);
    isolated_pass(isolated, "heap over many lives");
    isolated_pass(isolated, "mappings over many lives");
    isolated_pass(isolated, "descriptors over many lives");
}

/* How many lives a block has, after one more life; 0 if that fails. */
static uint32_t choose_lives(struct life *life)
{
    struct timespec from, to;
    struct use use;

    clock_gettime(CLOCK_MONOTONIC, &from);
    if (!live(life, 1, &use))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &to);
    int64_t each = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 + 1;
    int64_t lives = MILLISECONDS / (each * (BLOCKS + 1));
    return lives < 1 ? 1 : lives < MOST_LIVES ? (uint32_t)lives : MOST_LIVES;
}

/* A block of lives to warm up, then those that are compared. */
static bool live_blocks(struct life *life, uint32_t lives, struct use uses[BLOCKS + 1])
{
    for (uint32_t i = 0; i <= BLOCKS; i++)
        if (!live(life, lives, &uses[i]))
            return false;
    return true;
}

void live_often(struct isolated *isolated, const char *plugin)
{
    struct life life = {0};
    struct use uses[BLOCKS + 1], growth;
    uint32_t threads = 1, lives = 0;
    bool good = life_load(&life, isolated, plugin);

    if (good) {
        threads = trace_count_threads(1);
        good = live(&life, 1, &uses[0]);
    }
    if (good && life_has_driver(&life))
        threads = trace_settle_threads();
    if (good) {
        lives = choose_lives(&life);
        good = lives > 0 && live_blocks(&life, lives, uses);
    }
    if (!good) {
        isolated_fail(isolated, "many lives", "%s", life.why);
        return;
    }
    find_growth(uses, &growth);
    judge_growth(isolated, &growth, lives, life_has_driver(&life));
    uint32_t left = trace_count_threads(threads);
    if (left > threads)
        isolated_fail(isolated, "threads over many lives", "ATTN_P15: %u threads are left of %u lives",
                      left - threads, 2 + (BLOCKS + 1) * lives);
    else
        isolated_pass(isolated, "threads over many lives");
}

/* ---------------------------------------------------------------- orders */

enum { LIVES = 2, EACH = 2, ORDERS = 8 };

/* Which open backend is closed first, second, ...; life = number / EACH. */
static const uint8_t orders[ORDERS][LIVES * EACH] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {2, 0, 3, 1},
                                                     {1, 0, 3, 2}, {1, 2, 0, 3}, {3, 0, 2, 1}, {2, 3, 0, 1}};

/* Two instances with two backends each, closed in one order; each instance ends with its last backend. */
static bool try_order(const struct life *loaded, const uint8_t order[LIVES * EACH], char *why, size_t size)
{
    struct life lives[LIVES];
    struct life_backend backends[LIVES * EACH];
    bool open[LIVES * EACH] = {false};
    uint32_t left[LIVES] = {EACH, EACH};
    bool good = true;

    for (uint32_t i = 0; i < LIVES; i++) {
        lives[i] = (struct life){.isolated = loaded->isolated, .entry = loaded->entry};
        good = good && life_begin(&lives[i]) && life_ask(&lives[i]);
    }
    for (uint32_t i = 0; good && i < LIVES * EACH; i++) {
        struct life *life = &lives[i / EACH];
        open[i] = life_open(life, i % EACH % life->backend_count, &backends[i]);
        good = open[i] ? life_work(&backends[i]) : life->why[0] == '\0';
    }
    for (uint32_t i = 0; good && i < LIVES * EACH; i++) {
        uint32_t number = order[i];
        if (open[number])
            life_close(&backends[number]);
        open[number] = false;
        uint32_t life = number / EACH;
        if (--left[life] == 0)
            life_end(&lives[life]);
        for (uint32_t other = 0; good && other < LIVES * EACH; other++)
            good = !open[other] || life_work(&backends[other]);
    }
    snprintf(why, size, "%.250s%.250s", lives[0].why, lives[1].why);
    for (uint32_t i = 0; i < LIVES; i++)
        life_forget(&lives[i]);
    return good;
}

void destroy_in_every_order(struct isolated *isolated, const char *plugin)
{
    static const char name[] = "orders of destruction";
    struct life life = {0};
    char why[512], list[512] = "";
    uint32_t threads = 0, files = 0;

    if (!life_load(&life, isolated, plugin)) {
        isolated_fail(isolated, name, "%s", life.why);
        return;
    }
    threads = trace_count_threads(1);
    files = trace_count_descriptors();
    bool begun = life_begin(&life), asked = begun && life_ask(&life);
    if (begun)
        life_end(&life);
    life_forget(&life);
    if (asked && life_has_driver(&life) && life_live(&life)) {
        threads = trace_settle_threads();
        files = trace_count_descriptors();
    }
    life_forget(&life);
    for (uint32_t i = 0; i < ORDERS && life.isolated->count == 0; i++) {
        if (!try_order(&life, orders[i], why, sizeof why))
            isolated_fail(isolated, name, "order %u: %s", i, why);
        uint32_t left = trace_count_threads(threads);
        if (left > threads)
            isolated_fail(isolated, name, "ATTN_P15: order %u leaves %u threads", i, left - threads);
        trace_list_descriptors(list, sizeof list);
        if (trace_count_descriptors() > files)
            isolated_fail(isolated, name, "ATTN_P15: order %u leaves descriptors; open are %s", i, list);
    }
}
