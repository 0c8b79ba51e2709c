/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Tests the conversion of caches over all encodings: every code and pattern to every other type, and f32
 * around every midpoint of the target, against the oracle; and how the kernels of each level store results.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "attn/attn.h"
#include "cpu.h"
#include "oracle.h"
#include "plugin.h"

enum { TYPES = 8, DIM = 64, MOST = 3 * 65536 };

static const uint32_t types[TYPES] = {ATTN_E4M3, ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ,
                                      ATTN_INT8, ATTN_F16,  ATTN_BF16,     ATTN_F32};

static unsigned char source[4 * MOST], target[4 * MOST];

/* One page of an MLA cache: keys of one head are all there is. */
static struct attn_kv_desc describe(uint32_t dtype, uint32_t tokens, uint32_t layout, float *scale,
                                    void *memory)
{
    struct attn_kv_desc desc;
    const uint32_t size = oracle_size(dtype);

    ATTN_INIT(&desc);
    desc.k_dtype = dtype;
    desc.layout = layout;
    desc.pages = desc.kv_heads = 1;
    desc.block = tokens;
    desc.head_dim = DIM;
    desc.k.data = memory;
    desc.k_token_stride = desc.k_head_stride = (int64_t)DIM * size;
    if (oracle_is_8bit(dtype) && scale == NULL)
        desc.k_scale.kind = ATTN_SCALE_UNIT;
    else if (oracle_is_8bit(dtype))
        desc.k_scale = (struct attn_scale){
            .kind = ATTN_SCALE_HOST, .granularity = ATTN_SCALES_TENSOR, .buffer.data = scale};
    return desc;
}

/* Element number i of a page in chunks. */
static size_t chunk_place(uint32_t dtype, uint32_t tokens, uint32_t i)
{
    const uint32_t x = 16 / oracle_size(dtype), token = i / DIM, d = i % DIM;

    return ((size_t)(d / x) * tokens + token) * x + d % x;
}

static void judge(uint32_t from, uint32_t to, double value, double scale, bool moved,
                  const unsigned char *source_at, const unsigned char *at)
{
    unsigned char wanted[4] = {0};
    double stored = 0;

    if (moved) {
        cr_assert_arr_eq(at, source_at, oracle_size(to));
        return;
    }
    if (oracle_is_8bit(to))
        wanted[0] = oracle_write8(to, value, scale);
    else
        oracle_store(to, value, wanted);
    oracle_load(to, at, 1, &stored);
    if (!oracle_is_8bit(to) && isnan(value) && isnan(stored))
        return;
    cr_assert(memcmp(at, wanted, oracle_size(to)) == 0, "%s to %s: %a became %a", attn_dtype_name(from),
              attn_dtype_name(to), value, stored);
}

/* Converts `count` elements of `source`, to a strided cache and to one in chunks. */
static void convert(const struct entered *entered, struct attn_backend_impl *backend, uint32_t from,
                    uint32_t to, uint32_t count, float *from_scale, float *to_scale)
{
    const uint32_t tokens = count / DIM;
    const struct attn_kv_desc a = describe(from, tokens, ATTN_STRIDED, from_scale, source);
    struct attn_kv_convert_args args;
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&args);
    for (uint32_t layout = ATTN_STRIDED; layout <= ATTN_PAGED_X; layout++) {
        const struct attn_kv_desc b = describe(to, tokens, layout, to_scale, target);
        const struct attn_kv_ref refs[] = {{NULL, &a}, {NULL, &b}};
        memset(target, 0x33, sizeof target);
        cr_assert_eq(entered->table->kv->convert(backend, &args, &refs[0], &refs[1], NULL, &err), ATTN_OK,
                     "%s", err.message);
        for (uint32_t i = 0; i < tokens * DIM; i++) {
            const unsigned char *at = source + (size_t)i * oracle_size(from);
            const size_t place = layout == ATTN_PAGED_X ? chunk_place(to, tokens, i) : i;
            double value;
            oracle_load(from, at, 1, &value);
            if (from_scale != NULL && oracle_is_8bit(from))
                value = (double)(float)(value * (double)*from_scale);
            judge(from, to, value, to_scale != NULL ? (double)*to_scale : 1,
                  from == to && (from_scale == NULL) == (to_scale == NULL), at,
                  target + place * oracle_size(to));
        }
    }
}

/* All patterns of a type of 8 or 16 bits. */
static uint32_t fill_patterns(uint32_t dtype)
{
    const uint32_t size = oracle_size(dtype), count = size == 1 ? 256 : 65536;

    for (uint32_t i = 0; i < count; i++)
        memcpy(source + (size_t)i * size, &i, size);
    return count;
}

/* f32 at and next to the middle between each pattern of a type and the one after it. */
static uint32_t fill_midpoints(uint32_t dtype)
{
    const uint32_t size = oracle_size(dtype), patterns = size == 1 ? 256 : 65536;

    for (uint32_t i = 0; i < patterns; i++) {
        const uint32_t next = i + 1 < patterns ? i + 1 : i;
        double a, b;
        oracle_load(dtype, &i, 1, &a);
        oracle_load(dtype, &next, 1, &b);
        const float middle = (float)((a + b) / 2);
        const float around[] = {nextafterf(middle, -INFINITY), middle, nextafterf(middle, INFINITY)};
        memcpy(source + (size_t)i * sizeof around, around, sizeof around);
    }
    return 3 * patterns;
}

static void all_types(bool scaled)
{
    struct entered entered;
    float from_scale = 0.7f, to_scale = 1.3f;

    plugin_enter(&entered, NULL, NULL);
    struct attn_backend_impl *backend = plugin_open(&entered, 2);
    for (int to = 0; to < TYPES; to++) {
        for (int from = 0; from < TYPES; from++) {
            const bool wide = types[from] == ATTN_F32;
            if (wide && types[to] == ATTN_F32)
                continue; /* has no midpoints in f32 */
            const uint32_t count = wide ? fill_midpoints(types[to]) : fill_patterns(types[from]);
            convert(&entered, backend, types[from], types[to], count, scaled ? &from_scale : NULL,
                    scaled ? &to_scale : NULL);
        }
    }
    entered.table->close(backend);
    plugin_leave(&entered);
}

Test(convert, every_encoding)
{
    all_types(false);
}

Test(convert, every_encoding_with_scales)
{
    all_types(true);
}

/* Numbers around all that f16 and bf16 have, and around the middles between them. */
static void check_store(const struct cpu_kernel *kernel, uint32_t dtype)
{
    static const uint32_t ends[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001,
                                    0x7fff, 0x8000, 0x8001, 0xefff, 0xf000, 0xf001, 0xffff};
    enum { COUNT = sizeof ends / sizeof *ends * 5 };
    float numbers[COUNT];
    uint16_t got[COUNT + 1], wanted[COUNT];

    for (uint32_t high = 0; high < 65536; high += 5) {
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t bits = (high + i % 5) << 16 | ends[i / 5];
            memcpy(&numbers[i], &bits, sizeof bits);
        }
        got[COUNT] = 0x1234;
        kernel->store(dtype, got, numbers, COUNT);
        cpu_store(dtype, wanted, numbers, COUNT);
        cr_assert_arr_eq(got, wanted, sizeof wanted, "%s, numbers of %#x to %#x", kernel->caps.name, high,
                         high + 4);
        cr_assert_eq(got[COUNT], 0x1234);
    }
}

Test(convert, results_at_every_level)
{
    struct entered entered;
    cpu_store_fn last = cpu_store;

    plugin_enter(&entered, "", NULL);
    for (uint32_t i = 0; i < cpu_kernel_count; i++) {
        const struct cpu_kernel *kernel = &cpu_kernels[i];
        const uint32_t needed = cpu_level_flags(kernel->level);
        if (kernel->store == last || (entered.instance->flags & needed) != needed)
            continue;
        last = kernel->store;
        check_store(kernel, ATTN_F16);
        check_store(kernel, ATTN_BF16);
    }
    plugin_leave(&entered);
}
