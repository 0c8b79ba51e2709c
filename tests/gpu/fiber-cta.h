/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The CTA that runs: its threads, and what they wait for. */
#ifndef FIBER_CTA_H
#define FIBER_CTA_H

#include <stdarg.h>

#include "device-fiber.h"
#include "fiber-switch.h"
#include "fiber.h"

enum { NAMED_BARRIERS = 16 };

/* FIBER_PAUSED: goes on when no other thread can, those first that have paused longest. */
enum fiber_state {
    FIBER_READY,
    FIBER_IN_WARP,
    FIBER_AT_BARRIER,
    FIBER_AT_MBARRIER,
    FIBER_PAUSED,
    FIBER_DONE
};

/* A copy that was begun. */
struct fiber_copy {
    void *to;
    const void *from;
    uint32_t size, bytes;
    uint32_t group;
};

/* A range of shared memory. */
struct fiber_range {
    uintptr_t begin, end;
};

/* Products under way with the same accumulators. */
struct fiber_product {
    float (*d)[4];
    float values[32][4];
    uint32_t count;
    uint32_t group;               /* of the last one */
    struct fiber_range ranges[8]; /* that they read, one for each 16 KB or so */
    uint32_t range_count;
};

enum { FIBER_PRODUCTS = 4, FIBER_ARRIVALS = 8, FIBER_BOXES = 256, FIBER_UNFENCED = 16, FIBER_NEAR = 4096 };

/* A box that the copy engine for tensors has not copied yet. */
struct fiber_box {
    void *to;
    struct fiber_map map;
    uint64_t *barrier;
    uint32_t column, token, head, page;
};

/* An arrival when the copies of a group, and of those before it, have arrived. */
struct fiber_arrival {
    uint64_t *barrier;
    uint32_t group;
};

struct fiber_thread {
    struct fiber_stack stack;
    enum fiber_state state;
    uint32_t barrier; /* that it waits at */
    uint64_t *mbarrier;
    uint32_t paused; /* barriers that had opened by then */
    struct fiber_copy *copies;
    uint32_t copy_count, copy_room;
    uint32_t groups; /* closed */
    struct fiber_arrival arrivals[FIBER_ARRIVALS];
    uint32_t arrival_count;
    struct fiber_product products[FIBER_PRODUCTS];
    uint32_t product_count;
    uint32_t product_groups; /* closed */
    /* That copies of this thread have reached, and products do not see yet. */
    struct fiber_range unfenced[FIBER_UNFENCED];
};

struct fiber_warp {
    struct gpu_fiber_slot slots[2][GPU_WARP]; /* of this meeting and the last one */
    uint32_t phase;
    uint32_t arrived;
    enum gpu_fiber_op op;
    uint32_t ready; /* lanes that can go on */
};

struct fiber_cta {
    struct fiber_grid grid;
    uint32_t x, y, z;
    uint32_t current; /* thread */
    uint32_t done;
    fiber_kernel_fn kernel;
    const void *argument;
    unsigned char *shared;
    struct fiber_stack scheduler;
    struct fiber_thread thread[FIBER_THREADS];
    struct fiber_warp warp[FIBER_THREADS / 32];
    uint32_t arrived[NAMED_BARRIERS];
    uint32_t opened; /* barriers so far */
    struct fiber_box boxes[FIBER_BOXES];
    uint32_t box_count;
    /* Whether a thread has arrived at a barrier that has not opened since. */
    bool here[NAMED_BARRIERS][FIBER_THREADS];
};

extern struct fiber_cta fiber_cta;

/* Ends the program with the place in the grid and a reason. */
_Noreturn void fiber_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline struct fiber_thread *fiber_own_thread(void)
{
    return &fiber_cta.thread[fiber_cta.current];
}

/* Bytes of shared memory, aligned to their number. */
void fiber_check_shared(const void *at, uint32_t size);
/* No product under way, which the first lane of each warp knows, reads what a copy writes. */
void fiber_check_not_read(const void *shared, uint32_t size);
/* Nor has a thread written there what is not fenced. */
void fiber_check_fenced(const void *shared, uint32_t size);
/* Lets the box arrive that was begun first; false if there is none. */
bool fiber_box_arrives(void);
/* Lets the copies of a thread arrive that it waits for nowhere, and arrives for them; false if there are
 * none. */
bool fiber_arrive_behind_copies(uint32_t index);
/* Products do not see what a copy of this thread has written before a fence. */
void fiber_note_copy(const void *shared, uint32_t size);

/* Lets the threads at a barrier go on if as many as `wanted` are there. */
void fiber_open_barrier(uint32_t id, uint32_t wanted);

#endif
