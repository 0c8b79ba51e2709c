/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Writes, gathers and conversions by whole rows, on fibers, against the same by a warp per vector, which
 * attn-check judges: all memory has to be equal, bit for bit. Shapes are drawn such that nearly all of them
 * go by rows.
 */
#include <stdio.h>
#include <string.h>

#include "fiber-names.h"
#include "kv-resolve.h"

enum { CASES = 100, PAGES = 5, BLOCK_MOST = 24, HEADS_MOST = 4, DIM_MOST = 264, ROWS_MOST = 100 };
enum { CACHE = 2 * PAGES * BLOCK_MOST * HEADS_MOST * (DIM_MOST + 16) * 4, SCALES = 1 << 14 };
enum { ROWS = ROWS_MOST * HEADS_MOST * (DIM_MOST + 16) * 4 };

/* All that a kernel may write, and what it reads. */
struct memory {
    _Alignas(64) unsigned char cache[2][CACHE];
    _Alignas(64) unsigned char rows[3][ROWS];
    float scales[2][2][SCALES]; /* of each cache: keys, values */
    float row_scales[2][ROWS_MOST * HEADS_MOST];
};

static struct memory source, memory[2]; /* by rows, and by vectors */
static uint64_t state;
static uint32_t hits[4];

static uint32_t below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static uint32_t any_dtype(void)
{
    static const uint32_t dtypes[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,     ATTN_BF16, ATTN_E4M3,
                                      ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ, ATTN_INT8};

    return dtypes[below(9)];
}

static uint32_t wide_dtype(void)
{
    static const uint32_t dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16};

    return dtypes[below(3)];
}

/* Numbers of all sizes where they are f32, else any codes. */
static void fill(void)
{
    static const float sizes[] = {1e-6f, 0.01f, 1, 30, 70000};
    unsigned char *bytes = (unsigned char *)&source;

    for (size_t i = 0; i < sizeof source; i++)
        bytes[i] = (unsigned char)below(256);
    for (uint32_t i = 0; i < 2 * 2 * SCALES; i++)
        (&source.scales[0][0][0])[i] = (float)(1 + below(1000)) * sizes[below(4)];
}

struct shape {
    uint32_t heads, dim, vo, block;
};

static int64_t gap(uint32_t size)
{
    return (int64_t)(below(3) == 0 ? 16 * size : 0);
}

static struct attn_scale any_scale(uint32_t cache, bool values, uint32_t dtype, uint32_t granularity,
                                   const struct shape *s)
{
    const struct attn_buffer buffer = {source.scales[cache][values], 0};

    if (attn__dtype_size(dtype) != 1)
        return (struct attn_scale){0};
    if (granularity == ATTN_SCALES_TOKEN_HEAD)
        return (struct attn_scale){.kind = ATTN_SCALE_DEVICE,
                                   .granularity = granularity,
                                   .buffer = buffer,
                                   .head_stride = 4,
                                   .token_stride = 4 * s->heads,
                                   .outer_stride = 4 * s->heads * s->block};
    return (struct attn_scale){.kind = below(2) == 0 ? ATTN_SCALE_DEVICE : ATTN_SCALE_HOST,
                               .granularity = granularity,
                               .buffer = buffer,
                               .head_stride = granularity == ATTN_SCALES_HEAD ? 4 : 0};
}

static uint32_t any_granularity(void)
{
    static const uint32_t all[] = {ATTN_SCALES_TENSOR, ATTN_SCALES_HEAD, ATTN_SCALES_TOKEN_HEAD,
                                   ATTN_SCALES_TOKEN_HEAD};

    return all[below(4)];
}

/* A cache in `cache` of the source; `mla`: keys alone. */
static struct attn_kv_desc any_cache(uint32_t cache, const struct shape *s, bool mla, uint32_t k, uint32_t v)
{
    const bool paged_x = !mla && s->dim % 16 == 0 && below(4) == 0; /* of whole chunks */
    const int64_t k_head = s->dim * attn__dtype_size(k) + gap(1),
                  v_head = s->vo * attn__dtype_size(v) + gap(1);
    struct attn_kv_desc desc;

    ATTN_INIT(&desc);
    desc.k_dtype = k;
    desc.v_dtype = v;
    desc.layout = paged_x ? ATTN_PAGED_X : ATTN_STRIDED;
    desc.pages = PAGES;
    desc.block = s->block;
    desc.kv_heads = s->heads;
    desc.head_dim = s->dim;
    desc.head_dim_vo = s->vo;
    desc.k.data = source.cache[cache];
    desc.v.data = mla ? NULL : source.cache[cache] + CACHE / 2;
    const bool heads_first = paged_x || below(2) == 0;
    desc.k_head_stride = heads_first ? k_head * s->block : k_head;
    desc.v_head_stride = heads_first ? v_head * s->block : v_head;
    desc.k_token_stride = paged_x ? 0 : heads_first ? k_head : k_head * s->heads;
    desc.v_token_stride = paged_x ? 0 : heads_first ? v_head : v_head * s->heads;
    desc.k_page_stride = k_head * s->block * s->heads;
    desc.v_page_stride = v_head * s->block * s->heads;
    desc.k_scale = any_scale(cache, false, k, any_granularity(), s);
    desc.v_scale = any_scale(cache, true, v, any_granularity(), s);
    return desc;
}

static struct attn_tensor tensor_of(uint32_t index, uint32_t heads, uint32_t dim, uint32_t dtype)
{
    const int64_t head = dim * attn__dtype_size(dtype) + gap(1);

    return (struct attn_tensor){
        .buffer = {source.rows[index], 0}, .token_stride = head * heads, .head_stride = head};
}

static struct shape any_shape(void)
{
    static const uint32_t dims[] = {8, 16, 32, 64, 96, 120, 128, 192, 256, 264};
    struct shape s;

    s.heads = 1 + below(HEADS_MOST);
    s.dim = dims[below(10)];
    s.block = 1 + below(BLOCK_MOST);
    s.vo = below(2) == 0 ? s.dim : dims[below(10)];
    return s;
}

/* ---------------------------------------------------------------- addresses */

static uint64_t moved_to(uint64_t address, const struct memory *to)
{
    const uint64_t from = (uint64_t)(uintptr_t)&source;

    return address >= from && address < from + sizeof source ? address - from + (uint64_t)(uintptr_t)to
                                                             : address;
}

static void move_side(struct gpu_kv_side *side, const struct memory *to)
{
    side->cache.base = moved_to(side->cache.base, to);
    side->cache.scale.base = moved_to(side->cache.scale.base, to);
}

/* ---------------------------------------------------------------- judging */

static int judge(const char *what, uint32_t number, const struct gpu_kv_rows by[2])
{
    for (uint32_t i = 0; i < 2; i++)
        hits[by[i].method]++;
    if (memcmp(&memory[0], &memory[1], sizeof source) == 0)
        return 0;
    fprintf(stderr, "case %u, %s: rows and vectors differ (ways %u and %u, %u and %u units)\n", number, what,
            by[0].method, by[1].method, by[0].units, by[1].units);
    return 1;
}

static void begin(uint32_t i)
{
    memcpy(&memory[i], &source, sizeof source);
}

/* The other way has a warp for each vector. */
static void by_vectors(struct gpu_kv_rows by[2])
{
    for (uint32_t i = 0; i < 2; i++)
        by[i].method = by[i].method == GPU_KV_NO_ROWS ? GPU_KV_NO_ROWS : GPU_KV_BY_VECTOR;
}

static void launch(const char *name, const void *argument, uint64_t x, uint32_t y, uint32_t order)
{
    const struct fiber_grid grid = {
        .x = order % 3 == 0 ? 1 : (uint32_t)x, .y = y, .threads = GPU_KV_THREADS, .order = order};

    fiber_launch(driver_named(driver_kv_kernels, name)->call, argument, &grid);
}

/* ---------------------------------------------------------------- write */

static int write_case(uint32_t number)
{
    const bool mla = below(4) == 0;
    struct shape s = any_shape();
    static int64_t slots[ROWS_MOST];
    struct attn_kv_write_args args;

    if (mla)
        s = (struct shape){.heads = 1, .dim = 72, .vo = 64, .block = s.block};
    ATTN_INIT(&args);
    args.k_dtype = wide_dtype();
    args.v_dtype = wide_dtype();
    const uint32_t k = below(3) == 0 ? args.k_dtype : any_dtype(), v = any_dtype();
    const struct attn_kv_desc desc = any_cache(0, &s, mla, k, v);
    args.num_tokens = 1 + below(ROWS_MOST);
    args.k_new = tensor_of(0, s.heads, s.dim, args.k_dtype);
    args.v_new = tensor_of(1, s.heads, s.vo, args.v_dtype);
    if (mla && below(4) != 0)
        args.k_rope = tensor_of(2, 1, s.dim - s.vo, args.k_dtype);
    /* Every slot once: the order of rows does not count. */
    const int64_t first = below(PAGES * s.block), all = PAGES * (int64_t)s.block;
    for (uint32_t i = 0; i < ROWS_MOST; i++)
        slots[i] = i >= all || below(12) == 0 ? -1 : (first + i) % all;
    args.slot_mapping.data = slots;
    struct gpu_kv_share share = gpu_kv_share_first(&desc);
    struct gpu_kv_write write;
    begin(0), begin(1);
    gpu_kv_write_resolve(&write, &args, &desc, &share);
    struct gpu_kv_write other = write;
    const uint32_t each = below(3) == 0 ? 1u << below(6) : write.each;
    write.each = each;
    write.shares = 1 + below(3);
    by_vectors(other.by_row);
    for (uint32_t i = 0; i < 2; i++) {
        move_side(&write.to[i], &memory[0]);
        move_side(&other.to[i], &memory[1]);
    }
    launch("gpu_kv_write_rows", &write, gpu_kv_rows_ctas(write.by_row, write.rows, write.heads, each),
           write.sides * write.shares, number);
    launch("gpu_kv_write_rows", &other, 4, other.sides * other.shares, number);
    return judge("write", number, write.by_row);
}

/* ---------------------------------------------------------------- gather */

static int gather_case(uint32_t number)
{
    enum { SEQS = 4, WIDTH = 3 };
    const struct shape s = any_shape();
    static int32_t table[SEQS * WIDTH], lens[SEQS], offsets[SEQS + 1], starts[SEQS];
    const uint32_t k = any_dtype(), v = any_dtype();
    const struct attn_kv_desc desc = any_cache(0, &s, false, k, v);
    struct attn_kv_gather_args args;
    struct attn_batch batch;

    ATTN_INIT(&args);
    ATTN_INIT(&batch);
    args.k_dtype = below(3) == 0 ? k : wide_dtype();
    args.v_dtype = below(3) == 0 ? v : wide_dtype();
    args.addressing = ATTN_TABLE;
    for (uint32_t i = 0; i < SEQS; i++) {
        const uint32_t most = WIDTH * s.block;
        starts[i] = (int32_t)below(most);
        const uint32_t taken = below(most - (uint32_t)starts[i] + 1);
        lens[i] = (int32_t)most;
        offsets[i + 1] = offsets[i] + (int32_t)(taken < ROWS_MOST / SEQS ? taken : ROWS_MOST / SEQS);
        for (uint32_t j = 0; j < WIDTH; j++)
            table[i * WIDTH + j] = (int32_t)below(PAGES + 1) - 1;
    }
    args.tokens = (uint32_t)offsets[SEQS] + below(3);
    batch.seqs = SEQS;
    batch.table_width = WIDTH;
    batch.table_stride = WIDTH * sizeof *table;
    batch.table.data = table;
    batch.kv_lens.data = lens;
    args.batch = &batch;
    args.offsets.data = offsets;
    args.starts.data = starts;
    const bool no_keys = below(5) == 0;
    if (!no_keys)
        args.k = tensor_of(0, s.heads, s.dim, args.k_dtype);
    args.v = tensor_of(1, s.heads, s.vo, args.v_dtype);
    for (uint32_t i = 0; i < 2; i++) {
        const struct attn_tensor scales = {
            .buffer = {source.row_scales[i], 0}, .token_stride = 4 * s.heads, .head_stride = 4};
        if (attn__dtype_size(i == 0 ? args.k_dtype : args.v_dtype) == 1)
            *(i == 0 ? &args.k_scales : &args.v_scales) = scales;
    }
    struct gpu_kv_gather gather;
    begin(0), begin(1);
    gpu_kv_gather_resolve(&gather, &args, &desc, 0, s.heads);
    struct gpu_kv_gather other = gather;
    by_vectors(other.by_row);
    for (uint32_t i = 0; i < 2; i++) {
        gather.to[i].base = moved_to(gather.to[i].base, &memory[0]);
        gather.scales[i].base = moved_to(gather.scales[i].base, &memory[0]);
        other.to[i].base = moved_to(other.to[i].base, &memory[1]);
        other.scales[i].base = moved_to(other.scales[i].base, &memory[1]);
    }
    gather.each = 1u << below(6);
    gather.shares = 1 + below(3);
    launch("gpu_kv_gather_rows", &gather,
           1 + gpu_kv_rows_ctas(gather.by_row, gather.tokens, gather.heads, gather.each), 2 * gather.shares,
           number);
    launch("gpu_kv_gather_rows", &other, 4, 2 * other.shares, number);
    return judge("gather", number, gather.by_row);
}

/* ---------------------------------------------------------------- convert */

static int convert_case(uint32_t number)
{
    const struct shape s = any_shape();
    static int64_t pairs[2 * PAGES];
    const uint32_t k = any_dtype(), v = any_dtype();
    const struct attn_kv_desc from = any_cache(0, &s, false, k, v);
    const uint32_t to_k = below(3) == 0 ? k : any_dtype();
    const uint32_t to_v = below(3) == 0 ? v : any_dtype();
    const struct attn_kv_desc to = any_cache(1, &s, false, to_k, to_v);
    struct attn_kv_convert_args args;

    ATTN_INIT(&args);
    args.count = below(PAGES + 1);
    for (uint32_t i = 0; i < 2 * PAGES; i++)
        pairs[i] = (int64_t)below(PAGES);
    args.pairs.data = args.count > 0 ? pairs : NULL;
    struct gpu_kv_convert convert;
    begin(0), begin(1);
    gpu_kv_convert_resolve(&convert, &args, &from, &to, 0, s.heads);
    struct gpu_kv_convert other = convert;
    by_vectors(other.by_row);
    for (uint32_t i = 0; i < 2; i++) {
        move_side(&convert.to[i], &memory[0]);
        move_side(&other.to[i], &memory[1]);
    }
    launch("gpu_kv_convert_pages", &convert, convert.count, convert.parts * convert.sides, number);
    other.parts = 2;
    launch("gpu_kv_convert_pages", &other, other.count, other.parts * other.sides, number);
    return judge("convert", number, convert.by_row);
}

int main(void)
{
    int failed = 0;

    state = 5;
    fill();
    for (uint32_t i = 0; i < CASES; i++) {
        state = 1000 + i;
        failed += write_case(i);
        failed += gather_case(i);
        failed += convert_case(i);
    }
    printf("%d cases, %d differ; halves by vector %u, moved %u, converted %u\n", 3 * CASES, failed,
           hits[GPU_KV_BY_VECTOR], hits[GPU_KV_MOVED], hits[GPU_KV_CONVERTED]);
    return failed != 0 || hits[GPU_KV_MOVED] < CASES / 2 || hits[GPU_KV_CONVERTED] < CASES / 2;
}
