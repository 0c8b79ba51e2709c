/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Copies many pairs among few places by the kernel, on fibers, and compares with copying one pair after the
 * other: chains, cycles and targets that come many times, within a chunk of pairs and from one to the next;
 * and lists without any of these.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fiber-names.h"
#include "kv-resolve.h"

enum { PAGES = 24, BLOCK = 4, HEADS = 2, DIM = 12, VECTOR = 2 * DIM, PAIRS = 600, CASES = 60 };
/* Token, head and page of keys and values, with gaps. */
enum { HEAD = VECTOR + 4, TOKEN = HEADS * HEAD + 8, PAGE = BLOCK * TOKEN + 16, HALF = PAGES * PAGE };

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static struct attn_kv_desc describe(unsigned char *memory)
{
    struct attn_kv_desc desc;

    ATTN_INIT(&desc);
    desc.k_dtype = desc.v_dtype = ATTN_F16;
    desc.pages = PAGES;
    desc.block = BLOCK;
    desc.kv_heads = HEADS;
    desc.head_dim = DIM;
    desc.k.data = memory;
    desc.v.data = memory + HALF;
    desc.k_page_stride = desc.v_page_stride = PAGE;
    desc.k_token_stride = desc.v_token_stride = TOKEN;
    desc.k_head_stride = desc.v_head_stride = HEAD;
    return desc;
}

/* One token, as it is defined. */
static void copy_token(unsigned char *memory, int64_t from, int64_t to)
{
    const int64_t a = from / BLOCK * PAGE + from % BLOCK * TOKEN, b = to / BLOCK * PAGE + to % BLOCK * TOKEN;

    for (int half = 0; half < 2; half++)
        for (int head = 0; head < HEADS; head++)
            memmove(memory + half * HALF + b + head * HEAD, memory + half * HALF + a + head * HEAD, VECTOR);
}

static void by_hand(unsigned char *memory, const int64_t *pairs, uint32_t count, int pages)
{
    for (uint32_t i = 0; i < count; i++) {
        const int64_t from = pairs[2 * i], to = pairs[2 * i + 1];
        if (from < 0 || to < 0)
            continue;
        if (pages == 0)
            copy_token(memory, from, to);
        for (int64_t token = 0; token < BLOCK && pages != 0; token++)
            copy_token(memory, from * BLOCK + token, to * BLOCK + token);
    }
}

/* `here`: pairs travel with the launches. */
static void on_fibers(unsigned char *memory, const int64_t *pairs, uint32_t count, int pages, int here,
                      uint32_t order)
{
    const struct attn_kv_desc desc = describe(memory);
    struct gpu_kv_move move = {.count = count, .pairs = here != 0 ? 0 : (uint64_t)(uintptr_t)pairs};

    if (pages != 0)
        gpu_kv_move_pages(&move, &desc, &desc);
    else
        gpu_kv_move_slots(&move, &desc, &desc);
    for (uint32_t first = 0; first < count; first += move.count) {
        if (here != 0) {
            move.count = count - first < GPU_KV_PAIRS ? count - first : GPU_KV_PAIRS;
            memcpy(move.here, pairs + 2 * first, 2 * sizeof *pairs * move.count);
        }
        gpu_kv_move_cut(&move);
        const struct fiber_grid grid = {
            .x = order % 4 == 0 ? 3 : (uint32_t)move.slices, .threads = GPU_KV_THREADS, .order = order};
        fiber_launch(driver_named(driver_kv_kernels, "gpu_kv_move_pairs")->call, &move, &grid);
    }
}

static int run_case(uint32_t number)
{
    static unsigned char wanted[2 * HALF], got[2 * HALF];
    static int64_t pairs[2 * PAIRS];
    const int pages = (int)below(2), here = (int)below(3) == 0;
    const uint32_t places = (uint32_t)PAGES * (pages != 0 ? 1 : BLOCK);
    const uint32_t few = 2 + below(places - 1), half = places / 2;
    const bool apart = below(3) == 0;
    const uint32_t count = 1 + below(apart ? half : PAIRS);

    for (size_t i = 0; i < sizeof wanted; i++)
        wanted[i] = got[i] = (unsigned char)below(256);
    for (uint32_t i = 0; i < 2 * count; i++)
        pairs[i] = below(20) == 0 ? -1 : (int64_t)below(few);
    for (uint32_t i = 1; i < count; i++)
        if (below(4) == 0)
            pairs[2 * i] = pairs[2 * i - 1];
    /* Targets that come once, and sources that may be one; or targets that are no source. */
    const uint32_t sources = below(2) == 0 ? half : places;
    const bool twice = sources == half && below(2) == 0;
    for (uint32_t i = 0; i < count && apart; i++) {
        pairs[2 * i] = (int64_t)below(sources);
        pairs[2 * i + 1] = half + (twice ? below(half) : i);
    }
    by_hand(wanted, pairs, count, pages);
    on_fibers(got, pairs, count, pages, here, number);
    if (memcmp(wanted, got, sizeof wanted) == 0)
        return 0;
    fprintf(stderr, "case %u: %u pairs over %u %s differ\n", number, count, few,
            pages != 0 ? "pages" : "slots");
    return 1;
}

int main(void)
{
    int failed = 0;

    for (uint32_t i = 0; i < CASES; i++) {
        state = i;
        failed += run_case(i);
    }
    printf("%u lists of pairs, %d differ\n", CASES, failed);
    return failed != 0;
}
