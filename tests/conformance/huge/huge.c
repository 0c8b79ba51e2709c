/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sparse memory, and strides beyond 2^32 bytes. */
#define _GNU_SOURCE
#include "huge.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "need.h"

enum { SLOTS = 1 << 16 };

/* Of one area: far below what a process may address. */
#define MOST_BYTES (UINT64_C(1) << 41)

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

bool area_init(struct area *area, struct arena *arena, const char *name, uint64_t size, uint8_t fill)
{
    uint64_t page = page_size(), inner = (size + page - 1) / page * page;

    memset(area, 0, sizeof *area);
    if (arena->count == ARENA_BUFFERS)
        return false;
    unsigned char *map =
        mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    area->memory = &arena->buffers[arena->count++];
    *area->memory = (struct guarded){
        .name = name, .map = map, .map_size = inner + 2 * page, .data = map + page, .size = inner};
    area->fill = fill;
    area->pages = need(calloc(SLOTS, sizeof *area->pages));
    return true;
}

void area_finish(struct area *area)
{
    free(area->pages);
    area->pages = NULL;
}

/* True if the page was not known. */
static bool add_page(struct area *area, uint64_t number)
{
    uint64_t at = mix(number, 0) % SLOTS;

    while (area->pages[at] != 0 && area->pages[at] != number + 1)
        at = (at + 1) % SLOTS;
    if (area->pages[at] != 0)
        return false;
    area->pages[at] = number + 1;
    area->page_count++;
    return true;
}

unsigned char *area_commit(struct area *area, uint64_t at, uint64_t size)
{
    uint64_t page = page_size();

    for (uint64_t number = at / page; size > 0 && number <= (at + size - 1) / page; number++) {
        unsigned char *start = area->memory->data + number * page;
        if (!add_page(area, number))
            continue;
        if (area->page_count > SLOTS / 2 || mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
            fprintf(stderr, "attn-check: no memory for the touched pages of %s\n", area->memory->name);
            exit(2);
        }
        memset(start, area->fill, page);
    }
    return area->memory->data + at;
}

bool area_is_clean(const struct area *area)
{
    uint64_t page = page_size();

    for (uint32_t i = 0; i < SLOTS; i++) {
        if (area->pages[i] == 0)
            continue;
        const unsigned char *start = area->memory->data + (area->pages[i] - 1) * page;
        for (uint64_t k = 0; k < page; k++)
            if (start[k] != area->fill)
                return false;
    }
    return true;
}

/* ---------------------------------------------------------------- strides */

static uint64_t round_to(uint64_t size, uint64_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* Packs every dimension but `far`, innermost last; returns the bytes of the block. */
static uint64_t pack(struct grid *grid, uint32_t far)
{
    uint64_t size = round_to(grid->bytes, grid->unit);

    for (uint32_t i = 3; i > 0; i--) {
        uint32_t dimension = i - 1;
        if (grid->fixed[dimension])
            grid->strides[dimension] = 0;
        if (grid->fixed[dimension] || dimension == far)
            continue;
        grid->strides[dimension] = (int64_t)size;
        size *= grid->counts[dimension] > 0 ? grid->counts[dimension] : 1;
    }
    return size;
}

static void measure(struct grid *grid)
{
    grid->size = grid->bytes;
    for (uint32_t i = 0; i < 3; i++)
        grid->size += grid->counts[i] > 1 ? (grid->counts[i] - 1) * (uint64_t)grid->strides[i] : 0;
}

void grid_pack(struct grid *grid)
{
    pack(grid, 3);
    measure(grid);
}

void grid_spread(struct grid *grid, struct rng *rng)
{
    static const uint64_t distances[] = {UINT64_C(1) << 30, UINT64_C(1) << 31, UINT64_C(1) << 32,
                                         UINT64_C(1) << 32, UINT64_C(1) << 33, UINT64_C(1) << 34};
    uint32_t order[3], far = 3;

    rng_shuffle(rng, order, 3);
    for (uint32_t i = 0; i < 3 && far == 3; i++)
        if (grid->counts[order[i]] > 1 && !grid->fixed[order[i]])
            far = order[i];
    uint64_t block = pack(grid, far);
    if (far < 3) {
        uint64_t distance = rng_pick(rng, distances), count = grid->counts[far];
        while ((count - 1) * distance < UINT64_C(1) << 32)
            distance *= 2;
        while (count * distance > MOST_BYTES && distance > block)
            distance /= 2;
        /* A little more, so that the lower 32 bits of two offsets are not the same. */
        distance += block + grid->unit * rng_below(rng, 1000);
        grid->strides[far] = (int64_t)round_to(distance, grid->unit);
    }
    measure(grid);
}
