/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Pages between host and device on the fake driver: what arrives, and how many calls of the driver it takes.
 * The fake does the copies of a batch in reverse order.
 */
#include <stdio.h>
#include <stdlib.h>

#include "world.h"

enum { PAGES = 16, BLOCK = 4, HEADS = 2, DIM = 8, HALF = BLOCK * HEADS * DIM * 4, CACHE = 2 * PAGES * HALF };

static const struct fake_machine good = {.devices = 1, .major = 9, .minor = 0, .version = 12080};

/* How the two caches lie: keys before values, or both in every page; tokens apart on the device. */
enum layout { SPLIT, PAIRED, GAPS, LAYOUTS };

struct swap {
    struct attn_backend_impl *backend;
    struct attn_buffer device;
    void *stream;
    unsigned char host[CACHE], held[2 * CACHE], wanted[2 * CACHE];
    struct attn_kv_desc host_desc, device_desc;
    enum layout layout;
};

static struct attn_kv_desc describe(void *data, enum layout layout)
{
    const int64_t token = HEADS * DIM * 4 * (layout == GAPS ? 2 : 1), page = token * BLOCK;
    struct attn_kv_desc desc;

    ATTN_INIT(&desc);
    desc.k_dtype = desc.v_dtype = ATTN_F32;
    desc.pages = PAGES;
    desc.block = BLOCK;
    desc.kv_heads = HEADS;
    desc.head_dim = DIM;
    desc.k.data = desc.v.data = data;
    desc.v.byte_offset = (uint64_t)(layout == PAIRED ? page : page * PAGES);
    desc.k_page_stride = desc.v_page_stride = layout == PAIRED ? 2 * page : page;
    desc.k_token_stride = desc.v_token_stride = token;
    desc.k_head_stride = desc.v_head_stride = DIM * 4;
    return desc;
}

static unsigned char *token_at(unsigned char *memory, const struct attn_kv_desc *desc, int half, int64_t page,
                               int64_t token)
{
    return memory + (half == 0 ? 0 : desc->v.byte_offset) + page * desc->k_page_stride +
           token * desc->k_token_stride;
}

static int32_t copy(struct swap *swap, struct world *world, void *host, uint32_t kind)
{
    const struct attn_buffer near = {host, 0};
    const bool up = kind == ATTN_COPY_TO_DEVICE;

    return world->table->memory->copy(swap->backend, up ? &swap->device : &near, up ? &near : &swap->device,
                                      sizeof swap->held, kind, swap->stream, &world->err);
}

static void begin(struct swap *swap, struct world *world, enum layout layout)
{
    const struct attn_device device = device_of(world, 0);
    struct attn_open_config config;

    memset(swap, 0, sizeof *swap);
    ATTN_INIT(&config);
    world_begin(world, &good);
    swap->layout = layout;
    for (size_t i = 0; i < sizeof swap->held; i++)
        swap->held[i] = swap->wanted[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t i = 0; i < sizeof swap->host; i++)
        swap->host[i] = (unsigned char)(i * 11 + i / 253 + 1);
    if (world->table->open(world->instance, &device, &config, &swap->backend, &world->err) != ATTN_OK ||
        world->table->memory->stream_create(swap->backend, &swap->stream, &world->err) != ATTN_OK ||
        world->table->memory->alloc(swap->backend, sizeof swap->held, &swap->device, &world->err) !=
            ATTN_OK ||
        copy(swap, world, swap->held, ATTN_COPY_TO_DEVICE) != ATTN_OK) {
        printf("Bail out! %s\n", world->err.message);
        exit(1);
    }
    swap->host_desc = describe(swap->host, layout == GAPS ? SPLIT : layout);
    swap->device_desc = describe(swap->device.data, layout);
}

static void end(struct swap *swap, struct world *world)
{
    world->table->memory->free(swap->backend, &swap->device);
    world->table->memory->stream_destroy(swap->backend, swap->stream);
    world->table->close(swap->backend);
    world_end(world);
}

static uint64_t count_copies(const struct world *world)
{
    return world->fake->calls_of(world->vendor->copy) + world->fake->calls_of(world->vendor->batch);
}

/* Calls that copy, made by a swap of pairs to the device; UINT64_MAX if it fails. */
static uint64_t swap_in(struct swap *swap, struct world *world, const int64_t *pairs, uint32_t count,
                        void *stream)
{
    const struct attn_kv_ref from = {NULL, &swap->host_desc}, to = {NULL, &swap->device_desc};
    const uint64_t before = count_copies(world);
    struct attn_kv_swap_blocks_args args;

    ATTN_INIT(&args);
    args.pairs = pairs;
    args.count = count;
    args.kind = ATTN_COPY_TO_DEVICE;
    for (uint32_t i = 0; i < count; i++)
        for (int half = 0; half < 2 && pairs[2 * i] >= 0 && pairs[2 * i + 1] >= 0; half++)
            for (int64_t t = 0; t < BLOCK; t++)
                memcpy(token_at(swap->wanted, &swap->device_desc, half, pairs[2 * i + 1], t),
                       token_at(swap->host, &swap->host_desc, half, pairs[2 * i], t), HEADS * DIM * 4);
    if (world->table->kv->swap_blocks(swap->backend, &args, &from, &to, stream, &world->err) != ATTN_OK)
        return UINT64_MAX;
    return count_copies(world) - before;
}

static bool arrived(struct swap *swap, struct world *world)
{
    return copy(swap, world, swap->held, ATTN_COPY_TO_HOST) == ATTN_OK &&
           memcmp(swap->held, swap->wanted, sizeof swap->held) == 0;
}

/* Three runs of pages, with a pair that is left out. */
static const int64_t runs[] = {2, 5, 3, 6, 4, 7, -1, 3, 9, 1, 10, 2, 15, 15};
enum { RUNS = sizeof runs / sizeof runs[0] / 2 };

static void test_calls(struct world *world)
{
    static const uint64_t wanted[LAYOUTS] = {
        [SPLIT] = 6,           /* runs of keys, runs of values */
        [PAIRED] = 3,          /* whole pages */
        [GAPS] = 2 * 6 * BLOCK /* tokens */
    };
    char text[80];
    struct swap swap;

    for (uint32_t layout = 0; layout < LAYOUTS; layout++) {
        begin(&swap, world, (enum layout)layout);
        uint64_t calls = swap_in(&swap, world, runs, RUNS, swap.stream);
        snprintf(text, sizeof text, "layout %u: pages arrive by one call", layout);
        check(world, calls == 1 && arrived(&swap, world), text);
        calls = swap_in(&swap, world, runs, RUNS, NULL);
        snprintf(text, sizeof text, "layout %u: on the default stream by %u", layout,
                 (unsigned)wanted[layout]);
        check(world, calls == wanted[layout] && arrived(&swap, world), text);
        end(&swap, world);
        check_clean(world, "nothing is left");
    }
}

/* Of pairs with one target the last counts, so that they keep their order. */
static void test_order(struct world *world)
{
    static const int64_t same[] = {1, 4, 7, 4, 9, 4};
    struct swap swap;

    begin(&swap, world, SPLIT);
    check(world, swap_in(&swap, world, same, 3, swap.stream) == 6 && arrived(&swap, world),
          "pairs with one target go one by one");
    end(&swap, world);
}

/* A driver that takes no batch of this memory, and one that fails. */
static void test_refused(struct world *world)
{
    struct swap swap;

    begin(&swap, world, SPLIT);
    world->fake->fail(world->fake->calls() + world->vendor->enter + 2,
                      GPU_INVALID_VALUE); /* is it captured, batch */
    check(world, swap_in(&swap, world, runs, RUNS, swap.stream) == 7 && arrived(&swap, world),
          "what the driver does not take as a batch goes piece by piece");
    check(world, strcmp(world->fake->failed(), world->vendor->batch) == 0, "it was the batch");
    world->fake->fail(world->fake->calls() + world->vendor->enter + 2, GPU_OUT_OF_MEMORY);
    check(world,
          swap_in(&swap, world, runs, RUNS, swap.stream) == UINT64_MAX &&
              strcmp(world->err.field, "to") == 0 && strstr(world->err.message, world->vendor->batch) != NULL,
          "another failure is told");
    end(&swap, world);
}

/* Into a capture go copies of one piece each. */
static void test_captured(struct world *world)
{
    const struct attn_memory_table *memory = world->table->memory;
    struct attn_graph_impl *graph = NULL;
    struct swap swap;

    begin(&swap, world, PAIRED);
    check(world,
          memory->graph_begin(swap.backend, swap.stream, &graph, &world->err) == ATTN_OK &&
              swap_in(&swap, world, runs, RUNS, swap.stream) == 3 &&
              memory->graph_end(graph, &world->err) == ATTN_OK &&
              memory->graph_launch(graph, swap.stream, &world->err) == ATTN_OK && arrived(&swap, world),
          "a graph keeps them");
    memory->graph_destroy(graph);
    end(&swap, world);
    check_clean(world, "nothing is left");
}

int main(int argc, char **argv)
{
    static void (*const parts[])(struct world *) = {test_calls, test_order, test_refused, test_captured};

    return world_main(argc, argv, parts, sizeof parts / sizeof parts[0]);
}
