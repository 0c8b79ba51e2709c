/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the tests of steps share: random numbers that can be repeated, memory between guard pages, checks. */
#ifndef TESTS_STEP_H
#define TESTS_STEP_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---------------------------------------------------------------- random numbers */

struct dice {
    uint64_t state;
};

static inline uint64_t dice_next(struct dice *dice)
{
    uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number of [low, high]. */
static inline int64_t dice_roll(struct dice *dice, int64_t low, int64_t high)
{
    return low + (int64_t)(dice_next(dice) % (uint64_t)(high - low + 1));
}

/* ---------------------------------------------------------------- memory between guard pages */

/* `room` bytes, with pages that nobody may touch before and behind. */
struct fence {
    char *map;
    size_t page;
    size_t room; /* a multiple of a page */
};

static inline void fence_init(struct fence *fence, size_t room)
{
    fence->page = (size_t)sysconf(_SC_PAGESIZE);
    fence->room = (room + fence->page - 1) / fence->page * fence->page;
    fence->map = mmap(NULL, fence->room + 2 * fence->page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fence->map == MAP_FAILED ||
        mprotect(fence->map + fence->page, fence->room, PROT_READ | PROT_WRITE) != 0) {
        perror("mmap");
        exit(1);
    }
}

/* `size` bytes that end where the guard begins. */
static inline void *fence_end(const struct fence *fence, size_t size)
{
    return fence->map + fence->page + fence->room - size;
}

static inline void fence_finish(struct fence *fence)
{
    munmap(fence->map, fence->room + 2 * fence->page);
}

/* ---------------------------------------------------------------- checks */

extern unsigned long checks_failed;

/* Prints the first failures with the seed that repeats them. */
#define CHECK(condition, seed, ...)                                                                          \
    do {                                                                                                     \
        if (!(condition) && checks_failed++ < 20) {                                                          \
            printf("%s:%d: seed %llu: not %s: ", __FILE__, __LINE__, (unsigned long long)(seed),             \
                   #condition);                                                                              \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

#endif
