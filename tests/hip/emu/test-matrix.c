/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Pins the layouts of matrix instructions: a single one of one operand at a time picks a row or column of the
 * other. Where an element of a matrix lies is told here by AMD's documents, element by element.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu-test.h"

struct shape {
    const char *name;
    uint32_t size, k;
    bool bf16;
};

static const struct shape shapes[] = {
    {"f16_16x16x16", 16, 16, false}, {"bf16_16x16x16", 16, 16, true}, {"f16_32x32x8", 32, 8, false},
    {"f16_16x16x32", 16, 32, false}, {"bf16_16x16x32", 16, 32, true},
};

struct place {
    uint32_t lane, word, copies; /* copies: 16 lanes apart */
};

enum generation { CDNA, RDNA3, RDNA4 };

/* Of element k of row (or column) i of an operand; `word` counts halves. */
static struct place operand_place(enum generation g, const struct shape *s, uint32_t i, uint32_t k)
{
    if (g == RDNA3)
        return (struct place){i, k, 2};
    uint32_t each = g == RDNA4 ? 8 : s->k * s->size / 64;
    return (struct place){i + s->size * (k / each), k % each, 1};
}

static struct place result_place(enum generation g, const struct shape *s, uint32_t m, uint32_t n)
{
    if (g == RDNA3)
        return (struct place){n + 16 * (m % 2), m / 2, 1};
    if (g == RDNA4)
        return (struct place){n + 16 * (m / 8), m % 8, 1};
    if (s->size == 32)
        return (struct place){n + 32 * (m / 4 % 2), m % 4 + 4 * (m / 8), 1};
    return (struct place){n + 16 * (m / 4), m % 4, 1};
}

struct world {
    const struct emu_kernel *kernel;
    struct memory memory;
    uint32_t *from, *to, lanes;
    enum generation g;
    const struct shape *s;
};

/* Small whole numbers are exact in all types. */
static uint16_t code_of(bool bf16, uint32_t x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    if (bf16)
        return (uint16_t)(u >> 16);
    return x == 0 ? 0 : (uint16_t)((((u >> 23) - 112) << 10) | (u >> 13 & 0x3ff));
}

static void put(struct world *w, uint32_t which, uint32_t i, uint32_t k, uint32_t x)
{
    struct place p = operand_place(w->g, w->s, i, k);
    uint16_t code = code_of(w->s->bf16, x);
    for (uint32_t copy = 0; copy < p.copies; copy++)
        memcpy((char *)(w->from + 32 * (p.lane + 16 * copy) + 8 * which) + 2 * p.word, &code, 2);
}

static float get(const struct world *w, uint32_t m, uint32_t n)
{
    struct place p = result_place(w->g, w->s, m, n);
    float f;
    memcpy(&f, w->to + 16 * p.lane + p.word, 4);
    return f;
}

static uint32_t number(uint32_t i, uint32_t k)
{
    return 1 + (i * 37 + k * 11) % 127;
}

static bool run(struct world *w)
{
    struct {
        const uint32_t *from;
        uint32_t *to;
    } a = {w->from, w->to};
    char why[512] = "";
    struct emu_launch l = {.kernel = w->kernel,
                           .argument = &a,
                           .argument_size = sizeof a,
                           .grid = {1, 1, 1},
                           .threads = w->lanes,
                           .ranges = w->memory.ranges,
                           .range_count = w->memory.count};
    if (emu_run(&l, why, sizeof why) == EMU_OK)
        return true;
    printf("# %s\n", why);
    return false;
}

/* One at (i, k) of operand `which`, numbers in the other; c tells each place of the result by its number. */
static unsigned try_one(struct world *w, uint32_t which, uint32_t i, uint32_t k)
{
    unsigned wrong = 0;
    uint32_t size = w->s->size;
    memset(w->from, 0, 4 * 32 * 64);
    for (uint32_t p = 0; p < size; p++)
        for (uint32_t j = 0; j < w->s->k; j++)
            put(w, !which, p, j, number(p, j));
    put(w, which, i, k, 1);
    for (uint32_t m = 0; m < size; m++) {
        for (uint32_t n = 0; n < size; n++) {
            struct place p = result_place(w->g, w->s, m, n);
            float c = (float)(1000 * m + n);
            memcpy(w->from + 32 * p.lane + 16 + p.word, &c, 4);
        }
    }
    if (!run(w))
        return 1;
    for (uint32_t m = 0; m < size; m++) {
        for (uint32_t n = 0; n < size; n++) {
            bool hit = (which == 0 ? m : n) == i;
            float wanted = (float)(1000 * m + n + (hit ? number(which == 0 ? n : m, k) : 0));
            wrong += get(w, m, n) != wanted;
        }
    }
    return wrong;
}

int main(int argc, char **argv)
{
    for (int file = 1; file < argc; file++) {
        struct emu_image *image = image_of(argv[file]);
        const char *arch = emu_image_arch(image);
        struct world w = {.g = strncmp(arch, "gfx9", 4) == 0    ? CDNA
                               : strncmp(arch, "gfx12", 5) == 0 ? RDNA4
                                                                : RDNA3};
        w.from = memory_take(&w.memory, 4 * 32 * 64, false);
        w.to = memory_take(&w.memory, 4 * 16 * 64, true);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            unsigned wrong = 0;
            w.s = &shapes[s];
            w.kernel = emu_kernel_find(image, w.s->name);
            if (w.kernel == NULL)
                continue;
            w.lanes = emu_kernel_properties(w.kernel).wave_size;
            for (uint32_t i = 0; i < w.s->size; i++)
                for (uint32_t k = 0; k < w.s->k; k++)
                    wrong += try_one(&w, 0, i, k) + try_one(&w, 1, i, k);
            check(wrong == 0, "%s of %s: a one in every place of both operands (%u wrong)", w.s->name, arch,
                  wrong);
        }
        memory_drop(&w.memory);
        emu_image_close(image);
    }
    return checks_end();
}
