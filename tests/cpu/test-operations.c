/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests the operations of a level by themselves, lane by lane, against plain C: all codes of all types, and
 * what kernels meet too rarely for a share of the cases of attn-check. Compiled for the level as level.c is.
 */
#include <math.h>
#include <stdio.h>

#include CPU_LEVEL_SIMD

#include "block-codes.h"
#include "fp8-int8.h"
#include "half.h"
#include "simd/math.h"

#define FIRST_LANES ((UINT32_C(1) << VEC_LANES) - 1)

static const uint32_t dtypes[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,     ATTN_INT8,   ATTN_E4M3,
                                  ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_Q8_0,   ATTN_Q4_0,
                                  ATTN_Q4_1, ATTN_Q5_0,     ATTN_Q5_1,     ATTN_IQ4_NL, ATTN_E4M3};
static int failures;

static void fail(const char *what, uint32_t at, float got, float wanted)
{
    if (failures++ < 20)
        printf("%s, %#x: %a (%#x), not %a (%#x)\n", what, at, (double)got, attn__f32_bits(got),
               (double)wanted, attn__f32_bits(wanted));
}

/* The same number, zeros with their signs, or NaN both. */
static void expect(const char *what, uint32_t at, float got, float wanted)
{
    if (attn__f32_bits(got) != attn__f32_bits(wanted) && !(isnan(got) && isnan(wanted)))
        fail(what, at, got, wanted);
}

static void expect_vec(const char *what, uint32_t at, vec got, const float *wanted)
{
    float lanes[VEC_LANES];
    vec_store(lanes, got);
    for (uint32_t i = 0; i < VEC_LANES; i++)
        expect(what, at + i, lanes[i], wanted[i]);
}

static float decode(enum vec_type type, uint32_t code)
{
    if (type == VEC_F16)
        return attn__f16_to_f32((uint16_t)code);
    if (type == VEC_BF16)
        return attn__bf16_to_f32((uint16_t)code);
    return attn__codec8_decode(dtypes[type], (uint8_t)code) / vec_gain(type);
}

/* Every code that the type has, at addresses that are not aligned. */
static void test_loads(enum vec_type type)
{
    const uint32_t size = vec_size(type), codes = UINT32_C(1) << 8 * size;
    char bytes[1 + VEC_LANES * sizeof(float)];
    float wanted[VEC_LANES];
    for (uint32_t code = 0; code < codes; code += VEC_LANES) {
        for (uint32_t i = 0; i < VEC_LANES; i++) {
            const bool none = type == VEC_E4M3_FINITE && isnan(decode(type, code + i));
            const uint16_t x = (uint16_t)(none ? 0 : code + i);
            memcpy(bytes + 1 + (size_t)i * size, &x, size); /* the low byte first */
            wanted[i] = decode(type, x);
        }
        expect_vec("load", (uint32_t)type << 16 | code, vec_load(type, bytes + 1), wanted);
    }
}

/* Rows of two blocks: all bytes there are in every place of a block, and thus all kinds of scales. */
static void test_blocks(enum vec_type type)
{
    enum { ROW = 2 * ATTN_BLOCK_ELEMENTS, MOST_BYTES = 2 * 34 };
    char row[1 + MOST_BYTES];
    float wanted[ROW];
    uint32_t bits = 1;
    for (uint32_t turn = 0; turn < 8192; turn++) {
        for (uint32_t i = 1; i < sizeof row; i++) {
            bits = bits * UINT32_C(1664525) + UINT32_C(1013904223);
            row[i] = (char)(bits >> 24);
        }
        attn__blocks_decode(dtypes[type], row + 1, ROW, wanted);
        for (uint32_t at = 0; at < ROW; at += VEC_LANES)
            expect_vec("block", (uint32_t)type << 16 | at, block_load(type, row + 1, at), wanted + at);
    }
}

/* Stores VEC_LANES numbers, which are rounded as plain C rounds them. */
static void check_halves(enum vec_type type, const float *x)
{
    uint16_t halves[VEC_LANES + 1] = {0};
    vec_store_half(type, halves, vec_load_f32(x));
    for (uint32_t i = 0; i < VEC_LANES; i++) {
        const uint16_t wanted = type == VEC_F16 ? attn__f32_to_f16(x[i]) : attn__f32_to_bf16(x[i]);
        const uint16_t quiet = type == VEC_F16 ? 0x7e00 : 0x7fc0;
        if (isnan(x[i]) ? (halves[i] & quiet) != quiet : halves[i] != wanted)
            fail("store", attn__f32_bits(x[i]), decode(type, halves[i]), decode(type, wanted));
    }
    if (halves[VEC_LANES] != 0)
        fail("behind the store", VEC_LANES, halves[VEC_LANES], 0);
}

/* Every number of the type, and about it what rounds up, down or to even. */
static void test_stores(enum vec_type type)
{
    static const int32_t away[] = {0,       1,      -1,     0x0fff, 0x1000, 0x1001,
                                   -0x1000, 0x7fff, 0x8000, 0x8001, -0x8000};
    float x[VEC_LANES];
    uint32_t n = 0;
    for (uint32_t code = 0; code < 0x10000; code++) {
        for (uint32_t i = 0; i < sizeof away / sizeof *away; i++) {
            x[n++] = attn__f32_of_bits(attn__f32_bits(decode(type, code)) + (uint32_t)away[i]);
            if (n == VEC_LANES) {
                check_halves(type, x);
                n = 0;
            }
        }
    }
}

static const float numbers[] = {0.0f,      -0.0f, 1.0f,    -1.0f,     1.5f,     -3.25f, 0x1.fffffep0f,
                                0x1p-130f, 8.0f,  1e30f,   -0x1p-24f, INFINITY, NAN,    -INFINITY,
                                0x1p-149f, 7.0f,  0.3333f, -1e-20f,   126.5f,   2.0f};
#define NUMBERS (sizeof numbers / sizeof *numbers)

/* Number i in lane 0, the next ones in the others. */
static void numbers_from(size_t i, float *out)
{
    for (uint32_t lane = 0; lane < VEC_LANES; lane++)
        out[lane] = numbers[(i + lane) % NUMBERS];
}

#define EACH(what, vector, scalar)                                                                           \
    do {                                                                                                     \
        float wanted_[VEC_LANES];                                                                            \
        for (uint32_t l = 0; l < VEC_LANES; l++)                                                             \
            wanted_[l] = (scalar);                                                                           \
        expect_vec(what, at, vector, wanted_);                                                               \
    } while (0)

static void test_pair(uint32_t at, const float *a, const float *b)
{
    const vec x = vec_load_f32(a), y = vec_load_f32(b), one = vec_set(1), none = vec_zero();
    const float c = b[VEC_LANES - 1];
    EACH("add", vec_add(x, y), a[l] + b[l]);
    EACH("sub", vec_sub(x, y), a[l] - b[l]);
    EACH("mul", vec_mul(x, y), a[l] * b[l]);
    EACH("div", vec_div(x, y), a[l] / b[l]);
    EACH("fma", vec_fma(x, y, vec_broadcast(&c)), fmaf(a[l], b[l], c));
    EACH("max", vec_max(x, y), a[l] > b[l] ? a[l] : b[l]);
    EACH("min", vec_min(x, y), a[l] < b[l] ? a[l] : b[l]);
    EACH("abs", vec_abs(x), fabsf(a[l]));
    EACH("signed", vec_signed(vec_abs(x), y), copysignf(fabsf(a[l]), b[l]));
    EACH("less", vec_select(vec_less(x, y), one, none), a[l] < b[l]);
    EACH("equal", vec_select(vec_equal(x, y), one, none), a[l] == b[l]);
    expect("first", at, vec_first(x), a[0]);
}

static void test_arithmetic(void)
{
    float a[VEC_LANES], b[VEC_LANES];
    for (uint32_t i = 0; i < NUMBERS; i++) {
        for (uint32_t j = 0; j < NUMBERS; j++) {
            numbers_from(i, a);
            numbers_from(j, b);
            test_pair(i << 8 | j, a, b);
        }
    }
}

static void expect_near(const char *what, float x, float got, double wanted, double error)
{
    if (!(fabs((double)got - wanted) <= error * fabs(wanted)))
        fail(what, attn__f32_bits(x), got, (float)wanted);
}

static void test_functions(void)
{
    for (float x = -126; x <= 127; x += 0.0371f)
        expect_near("exp2", x, vec_exp2_scalar(x), exp2((double)x), 1.1e-7);
    for (float x = -11; x <= 11; x += 0.00137f)
        expect_near("tanh", x, vec_first(vec_tanh(vec_set(x))), tanh((double)x), 3e-7);
    for (int32_t n = -126; n <= 127; n++)
        expect("exp2", (uint32_t)n, vec_exp2_scalar((float)n), ldexpf(1, n));
    expect("exp2", 0, vec_exp2_scalar(-INFINITY), 0);
    expect("exp2", 0, vec_exp2_scalar(NAN), NAN);
    expect("tanh", 0, vec_first(vec_tanh(vec_set(NAN))), NAN);
}

/* Lanes by bits of a word, by a bit of each, and of which one is NaN. */
static void test_lanes(void)
{
    const vec one = vec_set(1), none = vec_zero();
    int32_t words[VEC_LANES];
    float a[VEC_LANES];
    const uint32_t at = 0;
    for (uint32_t i = 0; i < 4096; i++) {
        const uint32_t bits = i < 2 ? FIRST_LANES * i : i * 2654435761u >> 8 & FIRST_LANES;
        EACH("lanes", vec_select(vec_lanes(bits), one, none), (float)(bits >> l & 1));
        expect("bits", i, (float)vec_bits(vec_lanes(bits)), (float)bits);
    }
    for (uint32_t i = 0; i < VEC_LANES; i++)
        words[i] = (int32_t)((i + 1) * 2654435761u);
    for (uint32_t bit = 0; bit < 32; bit++)
        EACH("bit", vec_select(vec_bit(vec_load_int(words), bit), one, none),
             (float)((uint32_t)words[l] >> bit & 1));
    for (uint32_t i = 0; i <= VEC_LANES; i++) {
        for (uint32_t l = 0; l < VEC_LANES; l++)
            a[l] = l == i ? NAN : l % 2 ? INFINITY : 0;
        expect("any NaN", i, (float)(vec_any_nan(vec_load_f32(a)) != 0), i < VEC_LANES);
    }
}

/* Sums of powers of two are exact and tell which lanes are in them. */
static void test_reductions(void)
{
    vec x[4];
    float a[VEC_LANES], sums[5] = {0}, pairs[6] = {0};
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t l = 0; l < VEC_LANES; l++)
            a[l] = ldexpf((float)(2 * i + 1), (int)l);
        x[i] = vec_load_f32(a);
        expect("reduce add", i, vec_reduce_add(x[i]), (float)((2 * i + 1) * FIRST_LANES));
    }
    vec4_store(sums, vec_sum4(x[0], x[1], x[2], x[3]));
    vec4_store_pairs(pairs, pairs + 3, vec_sum4(x[0], x[1], x[2], x[3]));
    for (uint32_t i = 0; i < 5; i++)
        expect("sum", i, sums[i], i < 4 ? (float)((2 * i + 1) * FIRST_LANES) : 0);
    for (uint32_t i = 0; i < 6; i++)
        expect("pairs", i, pairs[i], i % 3 < 2 ? sums[i / 3 * 2 + i % 3] : 0);
    for (uint32_t i = 0; i < VEC_LANES; i++) {
        for (uint32_t l = 0; l < VEC_LANES; l++)
            a[l] = l == i ? -1.0f : l % 2 ? -INFINITY : -2.0f - (float)l;
        expect("reduce max", i, vec_reduce_max(vec_load_f32(a)), -1);
    }
}

static void test_transposition(void)
{
    vec rows[VEC_LANES];
    float a[VEC_LANES];
    for (uint32_t r = 0; r < VEC_LANES; r++) {
        for (uint32_t l = 0; l < VEC_LANES; l++)
            a[l] = (float)(r * VEC_LANES + l);
        rows[r] = vec_load_f32(a);
    }
    vec_transpose(rows);
    for (uint32_t at = 0; at < VEC_LANES; at++)
        EACH("transpose", rows[at], (float)(l * VEC_LANES + at));
}

#ifdef DOT_CODES
/* Sums of products of codes, extreme ones first, at addresses that are not aligned. */
static void test_dots(void)
{
    enum { DIM = 576, KEYS = 8, TURNS = 64 };
    static int8_t code[(KEYS + 1) * (DIM + 1)]; /* the query's are first */
    uint32_t bits = 1;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        const char *keys[KEYS];
        dot_code q[DIM];
        dots a[KEYS / DOT_KEYS];
        float s[KEYS];
        int32_t sum = 0;
        for (uint32_t i = 0; i < (KEYS + 1) * (DIM + 1); i++) {
            bits = bits * UINT32_C(1664525) + UINT32_C(1013904223);
            code[i] = turn < 4 ? (int8_t)((i < DIM ? turn : turn >> 1) % 2 != 0 ? 127 : -128)
                               : (int8_t)(bits >> 24);
        }
        for (uint32_t d = 0; d < DIM; d++) {
            q[d] = code[d];
            sum += code[d];
        }
        for (uint32_t j = 0; j < KEYS; j++)
            keys[j] = (const char *)code + (j + 1) * DIM + (j & 1);
        for (uint32_t j = 0; j < KEYS / DOT_KEYS; j++) {
            a[j] = dot_begin(sum);
            for (uint32_t d = 0; d < DIM; d += DOT_CODES)
                a[j] = dot_add(a[j], dot_keys(keys + j * DOT_KEYS, d), dot_query(q + d));
        }
#if DOT_KEYS == 1
        for (uint32_t j = 0; j < KEYS; j += 4)
            vec4_store(s + j, dot_sum4(a[j], a[j + 1], a[j + 2], a[j + 3]));
#else
        dots_store(1, KEYS, a, s, KEYS);
#endif
        for (uint32_t j = 0; j < KEYS; j++) {
            int32_t wanted = 0;
            for (uint32_t d = 0; d < DIM; d++)
                wanted += code[d] * (int8_t)keys[j][d];
            expect("dot", turn << 8 | j, s[j], (float)wanted);
        }
    }
}
#endif

#if defined(VEC_TILES) || defined(VEC_BF16_ALONE)
/* The number that a lane's code is. */
static float code_of_lane(vec_int codes, uint32_t lane)
{
    uint32_t words[VEC_LANES];
    memcpy(words, &codes, sizeof words);
    return attn__bf16_to_f32((uint16_t)words[lane]);
}

/* 2^x as bf16, from where there are no numbers to the largest that weights have. */
static void test_rounded_powers(void)
{
    for (float x = -140; x < 9; x += 0x1.234p-7f) {
        const float code = code_of_lane(bf16_exp2(vec_set(x - 0.5f)), (uint32_t)(x + 140) % VEC_LANES);
        const double wanted = exp2((double)x), error = fabs((double)code - wanted);
        if (x >= -125 ? error > wanted * 1.03 * 0x1p-8 : !(code >= 0 && code < 0x1.1p-125f))
            fail("2^x as bf16", attn__f32_bits(x), code, (float)wanted);
    }
    for (int n = -126; n < 9; n++)
        expect("2^n as bf16", (uint32_t)n, code_of_lane(bf16_exp2(vec_set((float)n - 0.5f)), 0),
               ldexpf(1, n));
    expect("2^-inf as bf16", 0, code_of_lane(bf16_exp2(vec_set(-INFINITY)), 0), 0);
    const vec x = vec_select(vec_less(vec_load_f32(key_numbers), vec_set(3)), vec_set(NAN), vec_set(-0.5f));
    for (uint32_t l = 0; l < VEC_LANES; l++)
        expect("NaN as bf16", l, code_of_lane(bf16_nan(x, bf16_exp2(x)), l), l < 3 ? NAN : 1);
}

/* Codes side by side, and their sum on top of what is there. */
static void test_pairs(void)
{
    uint16_t pairs[2 * VEC_LANES];
    float sums[VEC_LANES];
    const vec x = vec_sub(vec_load_f32(key_numbers), vec_set(3.5f));
    const vec_int joined = bf16_join(bf16_exp2(x), bf16_exp2(vec_set(1.5f)));
    bf16_store_pairs(pairs, joined);
    for (uint32_t l = 0; l < VEC_LANES; l++) {
        expect("even of a pair", l, attn__bf16_to_f32(pairs[2 * l]), ldexpf(1, (int)l - 3));
        expect("odd of a pair", l, attn__bf16_to_f32(pairs[2 * l + 1]), 4);
        sums[l] = 1.5f + 4 + ldexpf(1, (int)l - 3);
    }
    expect_vec("sum of a pair", 0, bf16_add_pairs(vec_set(1.5f), joined), sums);
}
#endif

#ifdef VEC_BF16_ALONE
/* Pairs of two rows, what their products are added to, and whether some number is not finite. */
static void test_pair_products(void)
{
    uint16_t even[VEC_LANES], odd[VEC_LANES];
    float first[VEC_LANES], second[VEC_LANES], wanted[VEC_LANES], slots[VEC_LANES];
    for (uint32_t l = 0; l < VEC_LANES; l++) {
        first[l] = (float)l - 7;
        second[l] = 0.5f * (float)l;
        even[l] = attn__f32_to_bf16(first[l]);
        odd[l] = attn__f32_to_bf16(second[l]);
        wanted[l] = 1 + first[l] * 2 + second[l] * -3;
    }
    const vec_int pairs = bf16_interleave(even, odd), factors = bf16_pairs(vec_set(2), vec_set(-3));
    bf16_store_pairs((uint16_t *)(void *)slots, pairs);
    const vec x = vec_load_f32(slots);
    expect_vec("first of pairs", 0, bf16_of_pairs(x, 0), first);
    expect_vec("second of pairs", 0, bf16_of_pairs(x, 1), second);
    bf16_store_pairs((uint16_t *)(void *)slots, factors);
    expect_vec("products of pairs", 0, bf16_product(x, vec_load_f32(slots), vec_set(1)), wanted);
    expect("finite pairs", 0, bf16_any_nonfinite(pairs), 0);
    for (uint32_t l = 0; l < VEC_LANES; l++) {
        const uint16_t finite = odd[l];
        odd[l] = l % 2 != 0 ? 0xff80 : 0x7fc1;
        expect("pairs that are not", l, bf16_any_nonfinite(bf16_interleave(even, odd)), 1);
        odd[l] = finite;
    }
}
#endif

#ifdef VEC_TILES
/* Rows are copied but for numbers without terms, and kinds of numbers are told from 2^55 and 2^127 on. */
static void test_copies(void)
{
    static const uint16_t codes[] = {0x5aff, 0xdb00, 0x7eff, 0xff00, 0x7f80, 0x7fc0};
    static const uint32_t kinds[] = {0, BF16_LARGE, BF16_LARGE, 3, 3, 3};
    for (uint32_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        uint16_t from[32] = {0x3f80}, to[32];
        from[5 * i + 1] = codes[i];
        expect("kinds of numbers", codes[i], (float)bf16_copy(to, from), (float)kinds[i]);
        expect("copy", codes[i], to[5 * i + 1], (kinds[i] & BF16_ODD) != 0 ? 0 : codes[i]);
        expect("copy of 1", codes[i], to[0], 0x3f80);
    }
}
#endif

/* Whether this processor has what the program was compiled for. */
static bool runs_here(void)
{
#if defined(__AVX512F__)
#if defined(__AVX512BF16__)
    if (!__builtin_cpu_supports("avx512bf16"))
        return false;
#endif
#if defined(__AVX512VNNI__)
    if (!__builtin_cpu_supports("avx512vnni"))
        return false;
#endif
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

int main(void)
{
    if (!runs_here()) {
        printf("the processor has not this level\n");
        return 77; /* a skip */
    }
    for (uint32_t type = VEC_F16; type <= VEC_E4M3_FINITE; type++)
        if (vec_has_blocks((enum vec_type)type))
            test_blocks((enum vec_type)type);
        else
            test_loads((enum vec_type)type);
    test_stores(VEC_F16);
    test_stores(VEC_BF16);
    test_arithmetic();
    test_functions();
    test_lanes();
    test_reductions();
    test_transposition();
#ifdef DOT_CODES
    test_dots();
#endif
#if defined(VEC_TILES) || defined(VEC_BF16_ALONE)
    test_rounded_powers();
    test_pairs();
#endif
#ifdef VEC_BF16_ALONE
    test_pair_products();
#endif
#ifdef VEC_TILES
    test_copies();
#endif
    printf("%d failures\n", failures);
    return failures != 0;
}
