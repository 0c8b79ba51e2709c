/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plugin and the fake driver, opened once; instances, and lines of the test's report. */
#define _GNU_SOURCE
#include "world.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned lines, failures;

static const struct world_vendor vendors[] = {
    {.plugin = "cuda",
     .device_type = ATTN_DEVICE_CUDA,
     .flavours = 2,
     .library = "ATTN_CUDA_LIBRARY",
     .pose = "",
     .arch = "sm_90",
     .old_pose = "",
     .contexts = true,
     .enter = 1,
     .leave = 1,
     .entering = {"cuCtxPushCurrent", "cuCtxPushCurrent"},
     .out_of_memory = "CUDA_ERROR_OUT_OF_MEMORY",
     .fault = "CUDA_ERROR_ILLEGAL_ADDRESS",
     .copy = "cuMemcpyHtoDAsync",
     .batch = "cuMemcpyBatchAsync"},
    {.plugin = "hip",
     .device_type = ATTN_DEVICE_ROCM,
     .flavours = 1,
     .library = "ATTN_HIP_LIBRARY",
     .pose = "any-image,arch=gfx90a:sramecc+:xnack-",
     .arch = "gfx90a:sramecc+:xnack-",
     .old_pose = "any-image,arch=gfx803",
     .enter = 2,
     .entering = {"hipGetDevice", "hipSetDevice"},
     .out_of_memory = "hipErrorOutOfMemory",
     .fault = "hipErrorIllegalAddress",
     .copy = "hipMemcpyHtoDAsync",
     .batch = "hipMemcpyBatchAsync"},
};

static const char *get_option(void *ctx, const char *key)
{
    const struct world *world = ctx;

    if (strcmp(key, "ATTN_FLASHINFER_TENSOR_CORES") == 0)
        return world->tensor_cores;
    return strcmp(key, world->vendor->library) == 0 ? world->library : NULL;
}

void *world_find(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, name) : NULL;

    if (symbol == NULL) {
        printf("Bail out! %s\n", dlerror());
        exit(1);
    }
    return symbol;
}

static __typeof__(attn_plugin_entry_v1) *entry;

void world_init(struct world *world, const char *plugin, const char *fake)
{
    fake_get_fn get;
    void *symbol = world_find(fake, "fake_get");

    setvbuf(stdout, NULL, _IOLBF, 0); /* what was said before a crash is there */
    memset(world, 0, sizeof *world);
    memcpy(&get, &symbol, sizeof get);
    world->fake = get();
    world->vendor = &vendors[strstr(plugin, "attn-hip") != NULL];
    world_pose(world, false);
    symbol = world_find(plugin, "attn_plugin_entry_v1");
    memcpy(&entry, &symbol, sizeof entry);
    world->library = fake;
    ATTN_INIT(&world->err);
}

void world_begin(struct world *world, const struct fake_machine *machine)
{
    struct attn_host host = {.struct_size = sizeof host,
                             .abi_minor = ATTN_ABI_MINOR,
                             .ctx = world,
                             .out_instance = &world->instance,
                             .get_option = get_option};
    const struct attn_backend_table *const *tables;
    uint32_t count;

    world->fake->reset(machine);
    world->instance = NULL;
    if (entry(&host, &world->plugin, &world->err) != ATTN_OK ||
        world->plugin->get_backends(world->instance, &tables, &count, &world->err) != ATTN_OK ||
        strcmp(world->plugin->name, world->vendor->plugin) != 0 || count != world->vendor->flavours) {
        printf("Bail out! the plugin does not start: %s\n", world->err.message);
        exit(1);
    }
    world->table = tables[0];
}

void world_end(struct world *world)
{
    world->plugin->finish(world->instance);
    world->instance = NULL;
}

struct attn_device device_of(const struct world *world, int32_t ordinal)
{
    return (struct attn_device){.type = world->vendor->device_type, .ordinal = ordinal};
}

bool world_enters(const struct world *world, const char *name)
{
    return strcmp(name, world->vendor->entering[0]) == 0 || strcmp(name, world->vendor->entering[1]) == 0;
}

void world_pose(const struct world *world, bool old)
{
    setenv("FAKE_HIP", old ? world->vendor->old_pose : world->vendor->pose, 1);
}

void check(const struct world *world, bool good, const char *what)
{
    printf("%sok %u - %s\n", good ? "" : "not ", ++lines, what);
    if (good)
        return;
    failures++;
    printf("# last error: %d, field %s: %s\n# offence: %s\n", world->err.status, world->err.field,
           world->err.message, world->fake->offence());
}

void check_clean(const struct world *world, const char *what)
{
    char text[256];
    uint32_t depth;
    const uint32_t left = world->fake->leaks(text, sizeof text);

    world->fake->current(&depth);
    if (left != 0)
        printf("# left: %s\n", text);
    if (depth != 0)
        printf("# contexts on the stack: %u\n", depth);
    check(world, left == 0 && depth == 0 && *world->fake->offence() == '\0', what);
}

void check_skip(const char *what, const char *why)
{
    printf("ok %u - %s # SKIP %s\n", ++lines, what, why);
}

int check_end(void)
{
    printf("1..%u\n", lines);
    return failures != 0;
}

int world_main(int argc, char **argv, void (*const parts[])(struct world *), size_t count)
{
    static const struct fake_machine any = {.devices = 1, .major = 9, .version = 12080};
    struct world world;

    if (argc != 3)
        return 2;
    world_init(&world, argv[1], argv[2]);
    world_begin(&world, &any); /* the tables */
    world_end(&world);
    for (size_t i = 0; i < count; i++)
        parts[i](&world);
    return check_end();
}

struct attn_problem world_problem(uint32_t dtype, uint32_t heads, uint32_t kv_heads, uint32_t head_dim)
{
    return (struct attn_problem){.struct_size = sizeof(struct attn_problem),
                                 .type = ATTN_DECODER,
                                 .q_dtype = dtype,
                                 .k_dtype = dtype,
                                 .v_dtype = dtype,
                                 .out_dtype = dtype,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .head_dim_vo = head_dim,
                                 .addressing = ATTN_TABLE,
                                 .index_dtype = ATTN_INT32,
                                 .block = 16,
                                 .causal = ATTN_CAUSAL_YES,
                                 .align = ATTN_ALIGN_END,
                                 .window_left = -1,
                                 .window_right = -1,
                                 .alibi = ATTN_ALIBI_NONE,
                                 .mask = ATTN_MASK_NONE,
                                 .span = ATTN_SPAN_SQUARE,
                                 .kv_source = ATTN_KV_CACHE,
                                 .layout = ATTN_STRIDED,
                                 .q_scale = ATTN_SCALES_NONE,
                                 .k_scale = ATTN_SCALES_NONE,
                                 .v_scale = ATTN_SCALES_NONE,
                                 .out_scale = ATTN_SCALES_NONE,
                                 .graph = ATTN_GRAPH_NEVER};
}
