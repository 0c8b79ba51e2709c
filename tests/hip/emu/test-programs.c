/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs one instruction a kernel over many numbers, and compares with what it is to give. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu-test.h"

static float f(uint32_t x)
{
    float y;
    memcpy(&y, &x, 4);
    return y;
}

static uint32_t u(float x)
{
    uint32_t y;
    memcpy(&y, &x, 4);
    return y;
}

static double d(uint64_t x)
{
    double y;
    memcpy(&y, &x, 8);
    return y;
}

static uint64_t q(double x)
{
    uint64_t y;
    memcpy(&y, &x, 8);
    return y;
}

/* Reciprocals know no denormals. */
static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

static uint32_t permuted(uint32_t a, uint32_t b, uint32_t c)
{
    uint8_t bytes[16] = {0}, selectors[4], made[4];
    uint32_t r;
    memcpy(bytes, &b, 4);
    memcpy(bytes + 4, &a, 4);
    for (int i = 0; i < 4; i++) /* 8 to 11: signs of the halves */
        bytes[8 + i] = bytes[2 * i + 1] & 0x80 ? 0xff : 0;
    bytes[13] = bytes[14] = bytes[15] = 0xff;
    memcpy(selectors, &c, 4);
    for (int i = 0; i < 4; i++)
        made[i] = selectors[i] < 16 ? bytes[selectors[i]] : 0xff;
    memcpy(&r, made, 4);
    return r;
}

static int32_t middle(int32_t a, int32_t b, int32_t c)
{
    if ((a <= b && b <= c) || (c <= b && b <= a))
        return b;
    return (b <= a && a <= c) || (c <= a && a <= b) ? a : c;
}

/* A pair of f16 times one plus zero: the same, but that -0 becomes 0 and NaNs are quiet. */
static uint32_t half_numbers(uint32_t x)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i += 16) {
        uint32_t h = x >> i & 0xffff;
        if (h == 0x8000)
            h = 0;
        if ((h & 0x7fff) > 0x7c00)
            h |= 0x200;
        r |= h << i;
    }
    return r;
}

enum kind { WORD_RESULT, WIDE_RESULT };

struct program {
    const char *name;
    enum kind kind;
    uint64_t (*wanted)(uint64_t a, uint64_t b, uint64_t c, uint32_t first_a);
    uint32_t (*lane)(uint32_t l);
};

#define WORD(name, text, result)                                                                             \
    static uint64_t wanted_##name(uint64_t a_, uint64_t b_, uint64_t c_, uint32_t first_a)                   \
    {                                                                                                        \
        uint32_t a = (uint32_t)a_, b = (uint32_t)b_, c = (uint32_t)c_;                                       \
        (void)a, (void)b, (void)c, (void)first_a;                                                            \
        return (result);                                                                                     \
    }
#define WIDE(name, text, result)                                                                             \
    static uint64_t wanted_##name(uint64_t a, uint64_t b, uint64_t c, uint32_t first_a)                      \
    {                                                                                                        \
        (void)b, (void)c, (void)first_a;                                                                     \
        return (result);                                                                                     \
    }
#define LANE(name, text, from)                                                                               \
    static uint32_t lane_##name(uint32_t l)                                                                  \
    {                                                                                                        \
        (void)l;                                                                                             \
        return (from);                                                                                       \
    }
#include "programs.def"
#undef WORD
#undef WIDE
#undef LANE
#define WORD(name, text, result) {#name, WORD_RESULT, wanted_##name, NULL},
#define WIDE(name, text, result) {#name, WIDE_RESULT, wanted_##name, NULL},
#define LANE(name, text, from)   {#name, WORD_RESULT, NULL, lane_##name},
static const struct program programs[] = {
#include "programs.def"
};

/* Numbers of each kind that matters: small, large, random; floats that sums and products keep finite. */
static uint32_t pick(uint32_t *seed, uint32_t round)
{
    *seed = *seed * 1664525 + 1013904223;
    uint32_t x = *seed ^ *seed >> 15;
    switch (round % 4) {
    case 0:
        return x;
    case 1:
        return x & 15;
    case 2:
        return u((float)(int32_t)x * 0x1p-24f);
    default:
        return (x & 0x0c0f0f0f) + 0x3c003c00;
    }
}

static bool nan_of(const struct program *p, uint64_t x)
{
    return p->kind == WIDE_RESULT ? d(x) != d(x) : f((uint32_t)x) != f((uint32_t)x);
}

static void try_program(const struct emu_kernel *k, const struct program *p, const char *arch)
{
    struct memory m = {0};
    uint32_t lanes = emu_kernel_properties(k).wave_size, *from = memory_take(&m, 24 * 64, false), seed = 7;
    uint32_t *to = memory_take(&m, 8 * 64, true), wrong = 0;
    struct {
        const uint32_t *from;
        uint32_t *to;
    } a = {from, to};
    char why[512] = "";
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t threads = round % 5 == 4 ? lanes - 5 : lanes; /* some without a full EXEC */
        for (uint32_t i = 0; i < 6 * 64; i++)
            from[i] = pick(&seed, p->kind == WIDE_RESULT ? 2 * (i & 1) : round);
        struct emu_launch l = {.kernel = k,
                               .argument = &a,
                               .argument_size = sizeof a,
                               .grid = {1, 1, 1},
                               .threads = threads,
                               .ranges = m.ranges,
                               .range_count = m.count};
        if (emu_run(&l, why, sizeof why) != EMU_OK) {
            wrong++;
            break;
        }
        for (uint32_t i = 0; i < (p->lane != NULL ? lanes & ~15u : threads); i++) {
            const uint32_t *in = from + 6 * i;
            uint64_t got = to[2 * i], wanted;
            if (p->lane != NULL && (threads < lanes || i >= threads))
                break;
            if (p->kind == WIDE_RESULT)
                got |= (uint64_t)to[2 * i + 1] << 32;
            if (p->lane != NULL)
                wanted = from[6 * p->lane(i)];
            else if (p->kind == WIDE_RESULT)
                wanted = p->wanted(in[0] | (uint64_t)in[1] << 32, in[2] | (uint64_t)in[3] << 32,
                                   in[4] | (uint64_t)in[5] << 32, from[0]);
            else
                wanted = p->wanted(in[0], in[2], in[4], from[0]);
            if (got != wanted && !(nan_of(p, got) && nan_of(p, wanted)) && wrong++ == 0)
                printf("# %s %s lane %u: %#llx, %#llx, %#llx gave %#llx instead of %#llx\n", arch, p->name, i,
                       (unsigned long long)in[0], (unsigned long long)in[2], (unsigned long long)in[4],
                       (unsigned long long)got, (unsigned long long)wanted);
        }
    }
    check(wrong == 0, "%s of %s (%u wrong) %s", p->name, arch, wrong, why);
    memory_drop(&m);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct emu_image *image = image_of(argv[i]);
        for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
            const struct emu_kernel *k = emu_kernel_find(image, programs[p].name);
            if (k == NULL)
                check(false, "there is a kernel %s", programs[p].name);
            else
                try_program(k, &programs[p], emu_image_arch(image));
        }
        emu_image_close(image);
    }
    return checks_end();
}
