/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs kernels with planted faults: each has to end with the right result and a sentence that names it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu-test.h"

struct arguments {
    const uint32_t *from, *table;
    uint32_t *to;
    uint32_t count, pad;
};

#define COUNT 1000

struct world {
    struct emu_image *image;
    struct memory memory;
    struct arguments a;
    char why[512];
};

static enum emu_result run(struct world *w, const char *name, uint32_t groups, uint32_t shared)
{
    const struct emu_kernel *k = emu_kernel_find(w->image, name);
    struct emu_launch l = {
        .kernel = k,
        .argument = &w->a,
        .argument_size = sizeof w->a,
        .grid = {groups, 1, 1},
        .threads = 256,
        .shared_bytes = shared,
        .ranges = w->memory.ranges,
        .range_count = w->memory.count,
    };
    w->why[0] = '\0';
    if (k == NULL) {
        check(false, "there is a kernel %s", name);
        return EMU_UNMODELLED;
    }
    return emu_run(&l, w->why, sizeof w->why);
}

static void test_right(struct world *w)
{
    unsigned wrong = 0;
    enum emu_result result = run(w, "right", 4, 1024);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t j = i / 256 * 256 + 255 - i % 256;
        uint32_t wanted = (j < COUNT ? w->a.from[j] : 0) + w->a.table[i & 7];
        wrong += w->a.to[i] != wanted;
    }
    check(result == EMU_OK && wrong == 0, "a right kernel is right: %u wrong %s", wrong, w->why);
    result = run(w, "bytes_apart", 1, 256);
    for (uint32_t t = 0; t < 64; t++)
        wrong += w->a.to[t] != (t | (t + 64) << 8 | (t + 128) << 16 | (t + 192) << 24);
    check(result == EMU_OK && wrong == 0, "bytes of a word may be written by different waves: %s", w->why);
    memset(w->a.to, 0, COUNT * 4);
    result = run(w, "counted", 3, 0);
    for (uint32_t i = 1; i <= 24; i++)
        wrong += w->a.to[i] != ~0u;
    check(result == EMU_OK && wrong == 0 && w->a.to[0] == 768, "atomics of all groups count: %u %s",
          w->a.to[0], w->why);
}

static void found(struct world *w, const char *name, uint32_t shared, enum emu_result wanted,
                  const char *word)
{
    enum emu_result result = run(w, name, 1, shared);
    bool good = result == wanted && strstr(w->why, word) != NULL && strstr(w->why, name) != NULL;
    check(good, "%s is found (%d): %s", name, (int)result, w->why);
}

static void test_unwritten(struct world *w)
{
    uint32_t first[256];
    unsigned same = 0;
    enum emu_result a = run(w, "lds_unwritten", 1, 1024);
    memcpy(first, w->a.to, sizeof first);
    enum emu_result b = run(w, "lds_unwritten", 1, 1024);
    for (unsigned i = 0; i < 256; i++)
        same += first[i] == w->a.to[i] || first[i] == 0;
    check(a == EMU_OK && b == EMU_OK && same == 0,
          "unwritten LDS differs from launch to launch (%u the same)", same);
}

static void test_launches(struct world *w)
{
    struct emu_launch l = {.kernel = emu_kernel_find(w->image, "right"),
                           .argument = &w->a,
                           .argument_size = sizeof w->a,
                           .grid = {1, 1, 1},
                           .threads = 256,
                           .shared_bytes = 1 << 20};
    check(emu_run(&l, w->why, sizeof w->why) == EMU_LDS, "more LDS than there is: %s", w->why);
    l.shared_bytes = 1024;
    l.threads = 257;
    check(emu_run(&l, w->why, sizeof w->why) == EMU_LDS, "more threads than compiled for: %s", w->why);
    l.threads = 256;
    check(emu_run(&l, w->why, sizeof w->why) == EMU_ADDRESS, "no memory at all: %s", w->why);
    check(emu_kernel_find(w->image, "no such kernel") == NULL, "a kernel that is not there");
}

static void test_images(void)
{
    char bytes[256] = "no ELF", why[256] = "";
    struct emu_image *image;
    check(!emu_image_open(bytes, &image, why, sizeof why) && image == NULL, "refused: %s", why);
    memcpy(bytes, "\177ELF\2\1\1", 7);
    check(!emu_image_open(bytes, &image, why, sizeof why) && image == NULL, "refused: %s", why);
}

int main(int argc, char **argv)
{
    setenv("EMU_LIMIT", "1", 1);
    for (int i = 1; i < argc; i++) {
        struct world w = {.image = image_of(argv[i])};
        uint32_t *from = memory_take(&w.memory, COUNT * 4, false),
                 *table = memory_take(&w.memory, 8 * 4, false);
        w.a = (struct arguments){from, table, memory_take(&w.memory, COUNT * 4, true), COUNT, 0};
        for (uint32_t k = 0; k < COUNT; k++)
            from[k] = k * k;
        for (uint32_t k = 0; k < 8; k++)
            table[k] = 1000 * k;
        printf("# %s\n", emu_image_arch(w.image));
        test_right(&w);
        found(&w, "table_off_by_one", 0, EMU_ADDRESS, "reads 4 bytes");
        found(&w, "write_to_input", 0, EMU_ADDRESS, "may only be read");
        found(&w, "divergent_barrier", 0, EMU_BARRIER, "ended without it");
        found(&w, "missing_barrier", 1024, EMU_RACE, "another wave");
        found(&w, "write_after_read", 1024, EMU_RACE, "read or wrote");
        found(&w, "lds_overrun", 1024, EMU_LDS, "beyond the 1024");
        found(&w, "endless", 0, EMU_LIMIT, "EMU_LIMIT");
        found(&w, "atomic_misaligned", 0, EMU_ADDRESS, "not aligned");
        found(&w, "unmodelled", 0, EMU_UNMODELLED, "s_sethalt");
        test_unwritten(&w);
        test_launches(&w);
        memory_drop(&w.memory);
        emu_image_close(w.image);
    }
    test_images();
    return checks_end();
}
