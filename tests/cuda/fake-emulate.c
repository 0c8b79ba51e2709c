/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Modules of the fake driver that are code of AMD's GPUs: an emulator runs it, with the live allocations. */
#include <stdio.h>
#include <stdlib.h>

#include "emu.h"
#include "fake-state.h"

enum { WHY = 512 };

bool fake_emulator_open(const void *image, void **out)
{
    char why[WHY];
    struct emu_image *opened = NULL;

    if (!emu_image_open(image, &opened, why, sizeof why)) {
        fake_offend("an image is not taken by the emulator: %s", why);
        return false;
    }
    *out = opened;
    return true;
}

void fake_emulator_close(void *image)
{
    emu_image_close(image);
}

const void *fake_emulator_find(void *image, const char *name)
{
    return emu_kernel_find(image, name);
}

size_t fake_emulator_argument(const void *code)
{
    return emu_kernel_properties(code).argument_bytes;
}

static int compare(const void *a, const void *b)
{
    const struct emu_range *left = a, *right = b;

    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Memory of the device and pinned memory are what a kernel reaches. */
static struct emu_range *list_ranges(size_t *out_count)
{
    struct fake_extent *extents = NULL;
    size_t count = 0, room;

    do {
        room = count;
        free(extents);
        extents = calloc(room + 1, sizeof *extents);
        if (extents == NULL)
            abort();
        count = fake_list_memory(room, extents);
    } while (count > room); /* at first, and when another thread has made some */
    struct emu_range *ranges = calloc(count + 1, sizeof *ranges);
    if (ranges == NULL)
        abort();
    for (size_t i = 0; i < count; i++)
        ranges[i] = (struct emu_range){extents[i].begin, extents[i].end, true};
    qsort(ranges, count, sizeof *ranges, compare);
    free(extents);
    *out_count = count;
    return ranges;
}

/* FAKE_EMULATED names a file to which every kernel that runs is added. */
static void note(const struct emu_kernel *kernel)
{
    const char *path = getenv("FAKE_EMULATED");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;

    if (file == NULL)
        return;
    fprintf(file, "%s\n", emu_kernel_name(kernel));
    (void)fclose(file);
}

gpu_result fake_emulator_run(const struct fake_work *work)
{
    struct emu_launch launch = {.kernel = work->code,
                                .argument = work->argument,
                                .argument_size = emu_kernel_properties(work->code).argument_bytes,
                                .grid = {work->grid.x, work->grid.y, work->grid.z},
                                .threads = work->grid.threads,
                                .shared_bytes = (uint32_t)work->grid.shared};
    struct emu_range *ranges = list_ranges(&launch.range_count);
    char why[WHY] = "";

    launch.ranges = ranges;
    note(launch.kernel);
    const enum emu_result result = emu_run(&launch, why, sizeof why);
    free(ranges);
    if (result == EMU_OK)
        return GPU_SUCCESS;
    fake_offend("%s", why);
    return result == EMU_ADDRESS ? GPU_ILLEGAL_ADDRESS
           : result == EMU_LIMIT ? GPU_LAUNCH_TIMEOUT
                                 : GPU_LAUNCH_FAILED;
}
