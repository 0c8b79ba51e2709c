/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The device intrinsics (backends/gpu/kernels/device.h) on the host, for tests: one fiber per thread
 * (fiber.h). */
#ifndef DEVICE_FIBER_H
#define DEVICE_FIBER_H

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"

#define GPU_INLINE static inline __attribute__((unused))
#define GPU_COLD   static __attribute__((unused))
#define GPU_KERNEL(name, threads, ctas)                                                                      \
    static_assert((threads) % GPU_WARP == 0 && (ctas) > 0, #name);                                           \
    static void name
#define GPU_ARGUMENT(type, arg) const type arg
/* One CTA runs at a time. The section is filled before each. */
#define GPU_SHARED static __attribute__((section("gpu_shared_arrays")))
#define GPU_UNROLL
#define GPU_LOOP
#define GPU_WARP         32u
#define GPU_COPY_WAIT(n) gpu_fiber_copy_wait(n)

struct gpu_u128 {
    uint32_t x[4];
};
struct gpu_u64 {
    uint32_t x[2];
};

/* ---------------------------------------------------------------- fiber-device.c */

#ifdef __cplusplus
extern "C" {
#endif

enum gpu_fiber_op {
    GPU_FIBER_SHUFFLE = 1,
    GPU_FIBER_XOR,
    GPU_FIBER_BALLOT,
    GPU_FIBER_SYNC,
    GPU_FIBER_MATRIX,
    GPU_FIBER_TRANSPOSE,
    GPU_FIBER_MMA
};

/* What a lane shows to its warp. */
struct gpu_fiber_slot {
    uint64_t word;
    uint32_t fragment[6];
};

uint32_t gpu_thread(void);
uint32_t gpu_threads(void);
uint32_t gpu_cta(void);
uint32_t gpu_cta_y(void);
uint32_t gpu_cta_z(void);
uint32_t gpu_ctas(void);
unsigned char *gpu_shared(void);
void gpu_barrier(void);
void gpu_barrier_part(uint32_t id, uint32_t threads);
void gpu_barrier_arrive(uint32_t id, uint32_t threads);
void gpu_mbarrier_init(uint64_t *at, uint32_t arrivals);
void gpu_mbarrier_arrive(uint64_t *at);
void gpu_mbarrier_arrive_as(uint64_t *at, uint32_t threads);
void gpu_mbarrier_expect(uint64_t *at, uint32_t bytes);
void gpu_copy_arrive(uint64_t *at);
void gpu_mbarrier_wait(uint64_t *at, uint32_t parity);
uint32_t gpu_atomic_add(uint32_t *at, uint32_t value);
uint32_t gpu_atomic_or(uint32_t *at, uint32_t bits);

/* Meets the other lanes of the warp; returns what each showed, until the next meeting. */
const struct gpu_fiber_slot *gpu_fiber_meet(enum gpu_fiber_op op, const struct gpu_fiber_slot *own);

struct gpu_tensor_map;
void gpu_prefetch_map(const struct gpu_tensor_map *map);
void gpu_copy_box(void *to, const struct gpu_tensor_map *map, uint32_t column, uint32_t token, uint32_t head,
                  uint32_t page, uint64_t *barrier);

GPU_INLINE void gpu_prefetch(uint64_t global)
{
    (void)*(const volatile unsigned char *)(uintptr_t)global; /* it is there */
}
void gpu_copy_async16(void *shared, const void *global, uint32_t bytes);
void gpu_copy_async4(void *shared, uint64_t global);
void gpu_copy_commit(void);
void gpu_fiber_copy_wait(uint32_t groups);

void gpu_fiber_load_matrix(uint32_t *to, const void *row, uint32_t matrices, uint32_t trans);
uint32_t gpu_transpose_matrix(uint32_t pair);
void gpu_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2]);
/* `bf16`: the type of a and b, else f16. */
void gpu_fiber_mma(float d[4], const uint32_t a[4], const uint32_t b[2], uint32_t bf16);

/*
 * Products of warp groups: one that begins, with 4 * `count` accumulators `d`, gets others to add to, which
 * take the place of `d` when it is waited for. Until then `d` holds NaN, and no copy may reach what it reads.
 */
float (*gpu_fiber_begin_product(float (*d)[4], uint32_t count))[4];
void gpu_fiber_reads_matrix(const unsigned char *at, uint32_t bytes);
void gpu_fiber_commit_products(void);
void gpu_fiber_wait_products(uint32_t groups);
/* What has been copied is seen by products. */
void gpu_fiber_fence_copies(void);

#ifdef __cplusplus
}
#endif

GPU_INLINE void gpu_copy_async16_if(void *shared, uint64_t global, bool wanted)
{
    if (wanted)
        gpu_copy_async16(shared, (const void *)global, 16);
}

/* ---------------------------------------------------------------- warps */

GPU_INLINE uint64_t gpu_shuffle_u64(uint64_t value, uint32_t lane)
{
    const struct gpu_fiber_slot own = {value, {0}};

    return gpu_fiber_meet(GPU_FIBER_SHUFFLE, &own)[lane % GPU_WARP].word;
}

GPU_INLINE uint64_t gpu_fiber_xor(uint64_t value, uint32_t mask)
{
    const struct gpu_fiber_slot own = {value, {0}};
    const uint32_t lane = gpu_thread() % GPU_WARP;

    return gpu_fiber_meet(GPU_FIBER_XOR, &own)[(lane ^ mask) % GPU_WARP].word;
}

GPU_INLINE uint32_t gpu_f32_bits(float value)
{
    return attn__f32_bits(value);
}
GPU_INLINE float gpu_f32_of_bits(uint32_t bits)
{
    return attn__f32_of_bits(bits);
}

GPU_INLINE uint32_t gpu_shuffle_u32(uint32_t value, uint32_t lane)
{
    return (uint32_t)gpu_shuffle_u64(value, lane);
}
GPU_INLINE float gpu_shuffle_f32(float value, uint32_t lane)
{
    return gpu_f32_of_bits(gpu_shuffle_u32(gpu_f32_bits(value), lane));
}
GPU_INLINE uint32_t gpu_shuffle_xor_u32(uint32_t value, uint32_t mask)
{
    return (uint32_t)gpu_fiber_xor(value, mask);
}
GPU_INLINE float gpu_shuffle_xor_f32(float value, uint32_t mask)
{
    return gpu_f32_of_bits(gpu_shuffle_xor_u32(gpu_f32_bits(value), mask));
}
GPU_INLINE double gpu_shuffle_xor_f64(double value, uint32_t mask)
{
    uint64_t word;

    memcpy(&word, &value, sizeof word);
    word = gpu_fiber_xor(word, mask);
    memcpy(&value, &word, sizeof value);
    return value;
}

GPU_INLINE uint32_t gpu_ballot(bool predicate)
{
    const struct gpu_fiber_slot own = {predicate, {0}};
    const struct gpu_fiber_slot *slots = gpu_fiber_meet(GPU_FIBER_BALLOT, &own);
    uint32_t bits = 0;

    for (uint32_t lane = 0; lane < GPU_WARP; lane++)
        bits |= (uint32_t)slots[lane].word << lane;
    return bits;
}

GPU_INLINE void gpu_warp_barrier(void)
{
    const struct gpu_fiber_slot own = {0, {0}};

    gpu_fiber_meet(GPU_FIBER_SYNC, &own);
}

GPU_INLINE const void *gpu_argument(const void *argument)
{
    return argument;
}
GPU_INLINE const void *gpu_again(const void *part)
{
    return part;
}
GPU_INLINE uint32_t gpu_own_u32(uint32_t x)
{
    return x;
}
GPU_INLINE uint64_t gpu_own_u64(uint64_t x)
{
    return x;
}

/* CTAs and threads run one at a time. */
GPU_INLINE void gpu_fence(void)
{
}

GPU_INLINE uint32_t gpu_atomic_wrap(uint32_t *at, uint32_t last)
{
    const uint32_t was = *at;

    *at = was >= last ? 0 : was + 1;
    return was;
}
GPU_INLINE uint32_t gpu_atomic_count(uint32_t *at, uint32_t last)
{
    return gpu_atomic_wrap(at, last);
}

/* ---------------------------------------------------------------- numbers */

GPU_INLINE float gpu_exp2_fast(float x)
{
    return exp2f(x);
}
GPU_INLINE float gpu_exp2(float x)
{
    return exp2f(x);
}
GPU_INLINE float gpu_exp(float x)
{
    return expf(x);
}
GPU_INLINE float gpu_tanh(float x)
{
    return tanhf(x);
}
GPU_INLINE float gpu_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
GPU_INLINE float gpu_divide(float a, float b)
{
    return a / b;
}
GPU_INLINE double gpu_exp_f64(double x)
{
    return exp(x);
}
GPU_INLINE double gpu_log_f64(double x)
{
    return log(x);
}
GPU_INLINE float gpu_tanh_large(float x)
{
    return tanhf(x);
}
GPU_INLINE double gpu_tanh_f64(double x)
{
    return tanh(x);
}
GPU_INLINE uint32_t gpu_first_bit(uint32_t x)
{
    return (uint32_t)__builtin_ctz(x);
}
GPU_INLINE float gpu_f16_to_f32(uint16_t x)
{
    return attn__f16_to_f32(x);
}
GPU_INLINE uint16_t gpu_f32_to_f16(float x)
{
    return attn__f32_to_f16(x);
}
GPU_INLINE float gpu_bf16_to_f32(uint16_t x)
{
    return attn__bf16_to_f32(x);
}
GPU_INLINE uint16_t gpu_f32_to_bf16(float x)
{
    return attn__f32_to_bf16(x);
}
GPU_INLINE uint32_t gpu_pack_f16(float low, float high)
{
    return attn__f32_to_f16(low) | (uint32_t)attn__f32_to_f16(high) << 16;
}
GPU_INLINE uint32_t gpu_pack_bf16(float low, float high)
{
    return attn__f32_to_bf16(low) | (uint32_t)attn__f32_to_bf16(high) << 16;
}

/* Sums of whole numbers, and products of f16: f32 holds them. */
GPU_INLINE uint32_t gpu_fma_f16(uint32_t a, uint32_t b, uint32_t c)
{
    float x[2];
    for (uint32_t i = 0; i < 2; i++)
        x[i] = gpu_f16_to_f32((uint16_t)(a >> 16 * i)) * gpu_f16_to_f32((uint16_t)(b >> 16 * i)) +
               gpu_f16_to_f32((uint16_t)(c >> 16 * i));
    return gpu_pack_f16(x[0], x[1]);
}
GPU_INLINE uint32_t gpu_fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    float x[2];
    for (uint32_t i = 0; i < 2; i++)
        x[i] = gpu_bf16_to_f32((uint16_t)(a >> 16 * i)) * gpu_bf16_to_f32((uint16_t)(b >> 16 * i)) +
               gpu_bf16_to_f32((uint16_t)(c >> 16 * i));
    return gpu_pack_bf16(x[0], x[1]);
}
/* Codes by their fields. */
GPU_INLINE void gpu_e4m3_to_f16(uint32_t codes, uint32_t out[2])
{
    float x[4];
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t code = codes >> 8 * i & 0xff, field = code >> 3 & 15, fraction = code & 7;
        x[i] = field == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), (int)field - 10);
        x[i] = (code & 0x7f) == 0x7f ? NAN : (code & 0x80) != 0 ? -x[i] : x[i];
    }
    out[0] = gpu_pack_f16(x[0], x[1]);
    out[1] = gpu_pack_f16(x[2], x[3]);
}
GPU_INLINE uint32_t gpu_keep(uint32_t x)
{
    return x;
}
/* Bytes of low (0 to 3) and high (4 to 7) by four digits of the selector, the lowest first. */
GPU_INLINE uint32_t gpu_permute(uint32_t low, uint32_t high, uint32_t selector)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = 0;
    for (uint32_t i = 0; i < 4; i++)
        out |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}

/* ---------------------------------------------------------------- memory and matrices */

/* UBSan sees addresses that are not aligned. */
struct gpu_fiber_u128 {
    struct gpu_u128 value;
} __attribute__((aligned(16)));

GPU_INLINE struct gpu_u128 gpu_load_u128(const void *at)
{
    return ((const struct gpu_fiber_u128 *)at)->value;
}
GPU_INLINE void gpu_store_u128(void *at, struct gpu_u128 value)
{
    ((struct gpu_fiber_u128 *)at)->value = value;
}
GPU_INLINE struct gpu_u128 gpu_load_global_u128(uint64_t at)
{
    return gpu_load_u128((const void *)(uintptr_t)at);
}
GPU_INLINE struct gpu_u64 gpu_load_volatile_u64(uint64_t at)
{
    const uint32_t *from = (const uint32_t *)(uintptr_t)at;
    const struct gpu_u64 value = {{from[0], from[1]}};

    return value;
}
GPU_INLINE struct gpu_u128 gpu_load_volatile_u128(uint64_t at)
{
    return gpu_load_global_u128(at);
}
GPU_INLINE void gpu_store_global_f32x2(uint64_t at, float first, float second)
{
    float *to = (float *)(uintptr_t)at;

    to[0] = first;
    to[1] = second;
}
GPU_INLINE void gpu_store_global_u128(uint64_t at, struct gpu_u128 from)
{
    gpu_store_u128((void *)(uintptr_t)at, from);
}

GPU_INLINE void gpu_load_matrix4(uint32_t to[4], const void *row)
{
    gpu_fiber_load_matrix(to, row, 4, 0);
}
GPU_INLINE void gpu_load_matrix4_trans(uint32_t to[4], const void *row)
{
    gpu_fiber_load_matrix(to, row, 4, 1);
}
GPU_INLINE void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    gpu_fiber_mma(d, a, b, 0);
}
GPU_INLINE void gpu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    gpu_fiber_mma(d, a, b, 1);
}

/* ---------------------------------------------------------------- warp groups */

#ifdef __cplusplus
constexpr bool GPU_PRODUCTS_TRUNCATE = false;
constexpr bool GPU_READS_BLOCKS = true;
#ifdef FIBER_WITHOUT_WGMMA
constexpr bool GPU_HAS_WGMMA = false;
#else
constexpr bool GPU_HAS_WGMMA = true;
#endif

/* Two bytes of a matrix at `offset` from where it begins: swizzled as addresses are. */
GPU_INLINE uint32_t gpu_fiber_swizzled(const unsigned char *at, uint32_t offset)
{
    const uintptr_t linear = (uintptr_t)at + offset;

    return *(const uint16_t *)(linear ^ (linear >> 7 & 7) << 4);
}

GPU_INLINE void gpu_wgmma_fence(void)
{
    gpu_fiber_fence_copies();
}
GPU_INLINE void gpu_wgmma_begin(void)
{
}
GPU_INLINE void gpu_wgmma_commit(void)
{
    gpu_fiber_commit_products();
}
template <uint32_t groups> GPU_INLINE void gpu_wgmma_wait(void)
{
    gpu_fiber_wait_products(groups);
}
template <uint32_t tiles> GPU_INLINE void gpu_wgmma_keep(float (&)[tiles][4])
{
}

template <uint32_t registers> GPU_INLINE void gpu_registers_raise(void)
{
    static_assert(registers % 8 == 0 && registers <= 256, "there are so many");
}
template <uint32_t registers> GPU_INLINE void gpu_registers_lower(void)
{
    gpu_registers_raise<registers>();
}

struct gpu_matrix {
    const unsigned char *at;
    uint32_t rows;
};
template <uint32_t rows> GPU_INLINE gpu_matrix gpu_matrix_of(const unsigned char *at)
{
    const gpu_matrix matrix = {at, rows};

    return matrix;
}
template <uint32_t rows> GPU_INLINE gpu_matrix gpu_matrix_of_all(const unsigned char *at)
{
    return gpu_matrix_of<rows>(at);
}
template <uint32_t rows>
GPU_INLINE void gpu_matrices_of_all(const unsigned char *a, const unsigned char *b, gpu_matrix of[2])
{
    of[0] = gpu_matrix_of<rows>(a);
    of[1] = gpu_matrix_of<rows>(b);
}
GPU_INLINE gpu_matrix gpu_matrix_from(gpu_matrix matrix, uint32_t bytes)
{
    matrix.at += bytes;
    return matrix;
}

/* The rows of a matrix in shared memory that are this lane's, of 16 columns. */
GPU_INLINE void gpu_fiber_matrix_rows(gpu_matrix matrix, uint32_t a[4])
{
    const uint32_t lane = gpu_thread() % GPU_WARP, row = gpu_thread() / GPU_WARP % 4 * 16 + lane / 4;

    gpu_fiber_reads_matrix(matrix.at, 63 * 128 + 32);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t offset = (row + i % 2 * 8) * 128 + (lane % 4 * 2 + i / 2 * 8) * 2;
        a[i] = gpu_fiber_swizzled(matrix.at, offset) | gpu_fiber_swizzled(matrix.at, offset + 2) << 16;
    }
}

template <bool bf16, uint32_t tiles>
GPU_INLINE void gpu_wgmma_rows(float (&to)[tiles][4], const uint32_t a[4], gpu_matrix matrix)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    float(*d)[4] = gpu_fiber_begin_product(to, tiles);

    gpu_fiber_reads_matrix(matrix.at, (tiles * 8 - 1) * 128 + 32);
    for (uint32_t n = 0; n < tiles; n++) {
        uint32_t b[2];
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t at = (n * 8 + lane / 4) * 128 + (lane % 4 * 2 + i * 8) * 2;
            b[i] = gpu_fiber_swizzled(matrix.at, at) | gpu_fiber_swizzled(matrix.at, at + 2) << 16;
        }
        gpu_fiber_mma(d[n], a, b, bf16);
    }
}

template <bool bf16, uint32_t tiles>
GPU_INLINE void gpu_wgmma_rows(float (&to)[tiles][4], gpu_matrix rows, gpu_matrix matrix, bool adds_to)
{
    float(*d)[4] = gpu_fiber_begin_product(to, tiles);
    uint32_t a[4];

    for (uint32_t i = 0; i < 4 * tiles; i++)
        d[i / 4][i % 4] = adds_to ? d[i / 4][i % 4] : 0;
    gpu_fiber_matrix_rows(rows, a);
    gpu_wgmma_rows<bf16>(to, a, matrix);
}

/* The code nearest to a number, of two that are as near the even one; 448 for all larger ones. */
GPU_INLINE uint32_t gpu_fiber_e4m3(float x)
{
    const float size = fabsf(x);
    int exponent;

    if (x != x)
        return 0x7f;
    (void)frexpf(size < 448 ? size : 448, &exponent); /* of a number in [1/2, 1) */
    exponent = exponent < -5 || size == 0 ? -5 : exponent;
    const uint32_t steps = (uint32_t)nearbyintf(ldexpf(size < 448 ? size : 448, 4 - exponent));
    return (signbit(x) ? 0x80u : 0u) | ((uint32_t)(exponent + 5) * 8 + steps);
}
GPU_INLINE uint32_t gpu_mark_nonfinite(uint32_t marks, uint32_t pair, bool bf16)
{
    const uint32_t exponents = bf16 ? 0x7f80 : 0x7c00;

    for (uint32_t i = 0; i < 32; i += 16)
        if ((pair >> i & exponents) == exponents)
            marks |= 0x7fffu << i;
    return marks;
}
GPU_INLINE float gpu_max3_positive(float x, float y, float z)
{
    const uint32_t first = gpu_f32_bits(x), second = gpu_f32_bits(y), third = gpu_f32_bits(z);
    const uint32_t most = first > second ? first : second;

    return gpu_f32_of_bits(most > third ? most : third);
}
GPU_INLINE uint32_t gpu_pack_e4m3(float x, float y, float z, float w)
{
    return gpu_fiber_e4m3(x) | gpu_fiber_e4m3(y) << 8 | gpu_fiber_e4m3(z) << 16 | gpu_fiber_e4m3(w) << 24;
}

/* Of a product of 32 codes: two of 16 numbers, of the lower and the upper codes of each word. */
GPU_INLINE void gpu_fiber_mma_e4m3(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t wide_a[4], wide_b[2], pairs[2];
        for (uint32_t i = 0; i < 4; i++) {
            gpu_e4m3_to_f16(a[i], pairs);
            wide_a[i] = pairs[half];
        }
        for (uint32_t i = 0; i < 2; i++) {
            gpu_e4m3_to_f16(b[i], pairs);
            wide_b[i] = pairs[half];
        }
        gpu_fiber_mma(d, wide_a, wide_b, false);
    }
}

GPU_INLINE uint32_t gpu_fiber_swizzled_word(const unsigned char *at, uint32_t offset)
{
    return gpu_fiber_swizzled(at, offset) | gpu_fiber_swizzled(at, offset + 2) << 16;
}

template <uint32_t tiles>
GPU_INLINE void gpu_wgmma_rows_e4m3(float (&to)[tiles][4], const uint32_t a[4], gpu_matrix matrix)
{
    const uint32_t lane = gpu_thread() % GPU_WARP;
    float(*d)[4] = gpu_fiber_begin_product(to, tiles);

    gpu_fiber_reads_matrix(matrix.at, (tiles * 8 - 1) * 128 + 32);
    for (uint32_t n = 0; n < tiles; n++) {
        const uint32_t at = (n * 8 + lane / 4) * 128 + lane % 4 * 4;
        const uint32_t b[2] = {gpu_fiber_swizzled_word(matrix.at, at),
                               gpu_fiber_swizzled_word(matrix.at, at + 16)};
        gpu_fiber_mma_e4m3(d[n], a, b);
    }
}

template <uint32_t tiles>
GPU_INLINE void gpu_wgmma_rows_e4m3(float (&to)[tiles][4], gpu_matrix rows, gpu_matrix matrix, bool adds_to)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, row = gpu_thread() / GPU_WARP % 4 * 16 + lane / 4;
    float(*d)[4] = gpu_fiber_begin_product(to, tiles);
    uint32_t a[4];

    for (uint32_t i = 0; i < 4 * tiles; i++)
        d[i / 4][i % 4] = adds_to ? d[i / 4][i % 4] : 0;
    gpu_fiber_reads_matrix(rows.at, 63 * 128 + 32);
    for (uint32_t i = 0; i < 4; i++)
        a[i] = gpu_fiber_swizzled_word(rows.at, (row + i % 2 * 8) * 128 + lane % 4 * 4 + i / 2 * 16);
    gpu_wgmma_rows_e4m3(to, a, matrix);
}

template <bool bf16, uint32_t tiles>
GPU_INLINE void gpu_wgmma_columns(float (&to)[tiles][4], const uint32_t a[4], gpu_matrix matrix)
{
    const uint32_t lane = gpu_thread() % GPU_WARP, block = matrix.rows * 128;
    float(*d)[4] = gpu_fiber_begin_product(to, tiles);

    for (uint32_t n = 0; n < tiles / 8; n++)
        gpu_fiber_reads_matrix(matrix.at + n * block, 16 * 128);
    for (uint32_t n = 0; n < tiles; n++) {
        uint32_t b[2];
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t at = n / 8 * block + (lane % 4 * 2 + i * 8) * 128 + (n % 8 * 8 + lane / 4) * 2;
            b[i] = gpu_fiber_swizzled(matrix.at, at) | gpu_fiber_swizzled(matrix.at, at + 128) << 16;
        }
        gpu_fiber_mma(d[n], a, b, bf16);
    }
}

template <bool bf16> GPU_INLINE void gpu_wgmma_columns(float (&to)[32][4], gpu_matrix rows, gpu_matrix matrix)
{
    uint32_t a[4];

    gpu_fiber_begin_product(to, 32);
    gpu_fiber_matrix_rows(rows, a);
    gpu_wgmma_columns<bf16>(to, a, matrix);
}
#endif

#endif
