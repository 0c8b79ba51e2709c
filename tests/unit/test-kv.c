/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of cache descriptions, writes, merges and memory on a mock. */
#include <criterion/criterion.h>

#include "attn/device.h"
#include "dispatch/call.h"
#include "world.h"

/* A good description: 4 pages of 16 tokens, 2 heads of 64 f16. */
static struct attn_kv_desc good(void)
{
    static char memory[16];
    struct attn_kv_desc desc;
    ATTN_INIT(&desc);
    desc.k_dtype = desc.v_dtype = ATTN_F16;
    desc.pages = 4;
    desc.block = 16;
    desc.kv_heads = 2;
    desc.head_dim = 64;
    desc.k.data = desc.v.data = memory;
    desc.k_page_stride = desc.v_page_stride = 4096;
    desc.k_token_stride = desc.v_token_stride = 256;
    desc.k_head_stride = desc.v_head_stride = 128;
    return desc;
}

static void check(const struct attn_kv_desc *desc, const char *field, const char *piece)
{
    struct attn_error err;
    ATTN_INIT(&err);
    const int32_t status = attn__kv_check(desc, &err);
    if (field == NULL) {
        cr_assert_eq(status, ATTN_OK, "%s: %s", err.field, err.message);
        return;
    }
    cr_assert_eq(status, ATTN_E_INVALID, "accepted, but %s: %s was expected", field, piece);
    cr_assert_str_eq(err.field, field, "%s: %s", err.field, err.message);
    cr_assert_eq(err.reason, 0);
    cr_assert_not_null(strstr(err.message, piece), "%s", err.message);
}

#define REFUSED(field, piece, ...)                                                                           \
    do {                                                                                                     \
        struct attn_kv_desc d = good();                                                                      \
        __VA_ARGS__;                                                                                         \
        check(&d, field, piece);                                                                             \
    } while (0)
#define ACCEPTED(...) REFUSED(NULL, NULL, __VA_ARGS__)

Test(kv, descriptions)
{
    ACCEPTED(d.layout = ATTN_STRIDED);
    ACCEPTED(d.v.data = NULL; d.v_dtype = ATTN_F16);
    ACCEPTED(d.v.data = NULL; d.v_dtype = 0; d.head_dim_vo = 48);
    REFUSED("v_dtype", "that of k, f16", d.v.data = NULL; d.v_dtype = ATTN_BF16);
    REFUSED("v_scale", "without v", d.v.data = NULL; d.v_scale.kind = ATTN_SCALE_UNIT);
    REFUSED("head_dim_vo", "up to head_dim, 64", d.v.data = NULL; d.head_dim_vo = 65);
    ACCEPTED(d.k_page_stride = -4096; d.k_token_stride = 0);
    REFUSED("k_dtype", "0x0", d.k_dtype = 0);
    REFUSED("k_dtype", "accepted: f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz, int8, q8_0",
            d.k_dtype = ATTN_INT32);
    REFUSED("v_dtype", "accepted: f32", d.v_dtype = 12345);
    REFUSED("pages", "1 to 2147483647", d.pages = 0);
    REFUSED("pages", "1 to 2147483647", d.pages = 0x80000000U);
    REFUSED("block", "is 0", d.block = 0);
    REFUSED("kv_heads", "is 0", d.kv_heads = 0);
    REFUSED("head_dim", "1 to 65536", d.head_dim = 65537);
    REFUSED("head_dim_vo", "1 to 65536", d.head_dim_vo = 65537);
    REFUSED("layout", "is 3", d.layout = 3);
    REFUSED("k", "no buffer", d.k.data = NULL);
    REFUSED("k", "multiples of 2, the size of its elements", d.k_token_stride = 255);
    REFUSED("v", "multiples of 2, the size of its elements", d.v_head_stride = 127);
}

Test(kv, strides_that_overflow)
{
    ACCEPTED(d.k_page_stride = (INT64_MAX - 10000) / 3 / 2 * 2);
    REFUSED("k", "63 bits", d.k_page_stride = INT64_MAX / 3 / 2 * 2);
    REFUSED("k", "63 bits", d.k_page_stride = INT64_MIN);
    ACCEPTED(d.pages = 1; d.k_page_stride = INT64_MIN); /* never multiplied */
    REFUSED("v", "63 bits", d.v_token_stride = INT64_MIN / 8);
    REFUSED("v", "63 bits", d.v_head_stride = INT64_MAX - 1);
    REFUSED("k", "63 bits", d.k_page_stride = (int64_t)1 << 61; d.k_token_stride = (int64_t)1 << 59);
    cr_assert(attn__extent_fits((int64_t[]){-1}, (uint64_t[]){2}, 1, INT64_MAX - 1));
    cr_assert_not(attn__extent_fits((int64_t[]){-1}, (uint64_t[]){2}, 1, INT64_MAX));
}

Test(kv, paged_x)
{
    ACCEPTED(d.layout = ATTN_PAGED_X; d.k_token_stride = d.v_token_stride = 7);
    REFUSED("head_dim", "multiples of 8", d.layout = ATTN_PAGED_X; d.head_dim = 60);
    ACCEPTED(d.layout = ATTN_PAGED_X; d.head_dim_vo = 60);
    REFUSED("head_dim", "is 40; layout paged-x accepts multiples of 16 with k of int8",
            d.layout = ATTN_PAGED_X;
            d.head_dim = 40; d.k_dtype = ATTN_INT8; d.k_scale.kind = ATTN_SCALE_UNIT);
    ACCEPTED(d.layout = ATTN_PAGED_X; d.head_dim = 4; d.k_dtype = ATTN_F32);
}

Test(kv, scales)
{
    static float one = 1;
    REFUSED("k_scale", "no scale", d.k_scale.kind = ATTN_SCALE_UNIT);
    REFUSED("k_scale", "say kind ATTN_SCALE_UNIT", d.k_dtype = ATTN_E4M3);
    REFUSED("v_scale", "v is int8", d.v_dtype = ATTN_INT8);
    ACCEPTED(d.k_dtype = ATTN_E4M3; d.k_scale.kind = ATTN_SCALE_UNIT);
    ACCEPTED(d.k_dtype = ATTN_E4M3; d.k_scale.kind = ATTN_SCALE_HOST;
             d.k_scale.granularity = ATTN_SCALES_TENSOR; d.k_scale.buffer.data = &one);
    REFUSED("k_scale", "granularity 6", d.k_dtype = ATTN_E4M3; d.k_scale.kind = ATTN_SCALE_HOST;
            d.k_scale.granularity = ATTN_SCALES_KV_HEAD; d.k_scale.buffer.data = &one);
    REFUSED("k_scale", "no buffer", d.k_dtype = ATTN_E4M3; d.k_scale.kind = ATTN_SCALE_DEVICE;
            d.k_scale.granularity = ATTN_SCALES_TENSOR);
    REFUSED("k_scale", "kind 9", d.k_dtype = ATTN_E4M3; d.k_scale.kind = 9;
            d.k_scale.granularity = ATTN_SCALES_HEAD; d.k_scale.buffer.data = &one);
    REFUSED("k_scale", "63 bits", d.k_dtype = ATTN_E4M3; d.k_scale.kind = ATTN_SCALE_DEVICE;
            d.k_scale.granularity = ATTN_SCALES_TOKEN_HEAD; d.k_scale.buffer.data = &one;
            d.k_scale.outer_stride = INT64_MAX);
}

static void fits(const char *keys, const struct attn_kv_desc *desc, const char *field)
{
    struct attn_problem problem;
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_problem_parse(keys, &problem, &err), ATTN_OK, "%s", err.message);
    const int32_t status = attn__kv_fits(desc, &problem, &err);
    cr_assert_eq(status, field == NULL ? ATTN_OK : ATTN_E_INVALID, "%s: %s", keys, err.message);
    cr_assert_eq(err.reason, 0);
    if (field != NULL)
        cr_assert_str_eq(err.field, field, "%s: %s", keys, err.message);
}

Test(kv, a_cache_fits_its_problem)
{
    struct attn_kv_desc desc = good();
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=f16", &desc, NULL);
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 k=f16", &desc, "v_dtype");
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16", &desc, "k_dtype");
    fits("heads=8 kv_heads=4 head_dim=64 q=bf16 kv=f16", &desc, "kv_heads");
    fits("heads=8 kv_heads=2 head_dim=128 q=bf16 kv=f16", &desc, "head_dim");
    fits("heads=8 kv_heads=2 head_dim=64/128 q=bf16 kv=f16", &desc, "head_dim_vo");
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=f16 block=32", &desc, "block");
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=f16 block=32 addr=dense", &desc, NULL);
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=f16 layout=paged-x", &desc, "layout");
    desc.k_dtype = desc.v_dtype = ATTN_E4M3;
    desc.k_scale.kind = desc.v_scale.kind = ATTN_SCALE_UNIT;
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=e4m3 scales=unit", &desc, NULL);
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=e4m3 scales=head", &desc, "k_scale");
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=e4m3 k_scale=unit v_scale=head", &desc, "v_scale");
    desc = good();
    desc.v.data = NULL;
    fits("heads=8 kv_heads=2 head_dim=64 q=bf16 kv=f16", &desc, "v");
    desc.kv_heads = 1;
    fits("heads=8 head_dim=64/32 q=bf16 kv=f16 mla=1", &desc, NULL);
}

/* Keys and values lie at their offsets of the shape, in memory that has an offset of its own. */
Test(kv, a_description_of_a_shape)
{
    static char bytes[64];
    const struct attn_buffer memory = {bytes, 7};
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    ATTN_INIT(&shape);
    shape.desc = good();
    shape.k_offset = 16;
    shape.v_offset = 32;
    attn_kv_desc_init(&desc, &shape, &memory);
    cr_assert(desc.k.data == bytes && desc.k.byte_offset == 23, "%llu",
              (unsigned long long)desc.k.byte_offset);
    cr_assert(desc.v.data == bytes && desc.v.byte_offset == 39, "%llu",
              (unsigned long long)desc.v.byte_offset);
    cr_assert_eq(desc.kv_heads, good().kv_heads);
}

/* ---------------------------------------------------------------- calls on a backend */

static struct attn_backend *open_backend(struct world *world, const char *mock)
{
    struct attn_decision *decision;
    struct attn_backend *backend;
    world_open(world, mock, NULL);
    cr_assert_eq(world_select(world, "heads=8 kv_heads=2 head_dim=64 q=bf16", NULL, NULL, &decision),
                 ATTN_OK);
    cr_assert_eq(attn_backend_open(world->context, decision, NULL, &backend, &world->err), ATTN_OK);
    attn_decision_destroy(decision);
    return backend;
}

static void refuse_write(struct world *world, struct attn_backend *backend,
                         const struct attn_kv_write_args *args, const char *field, const char *piece)
{
    cr_assert_eq(attn_kv_write(backend, args, NULL, &world->err), ATTN_E_INVALID, "%s", piece);
    cr_assert_eq(world->err.reason, 0);
    cr_assert_str_eq(world->err.field, field, "%s: %s", world->err.field, world->err.message);
    cr_assert_not_null(strstr(world->err.message, piece), "%s", world->err.message);
}

Test(kv, write)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc desc = good();
    struct attn_kv_write_args args;
    ATTN_INIT(&args);
    refuse_write(&world, backend, &args, "kv_desc", "NULL");
    args.kv_desc = &desc;
    args.num_tokens = 3;
    refuse_write(&world, backend, &args, "k_dtype",
                 "accepted: f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz or int8");
    args.k_dtype = args.v_dtype = ATTN_F16;
    refuse_write(&world, backend, &args, "k_new", "not given");
    args.k_new.buffer.data = args.v_new.buffer.data = desc.k.data;
    refuse_write(&world, backend, &args, "slot_mapping", "neither");
    args.slot_mapping.data = desc.k.data;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    struct attn_batch batch;
    ATTN_INIT(&batch);
    args.batch = &batch;
    refuse_write(&world, backend, &args, "slot_mapping", "both given");
    args.slot_mapping.data = NULL;
    refuse_write(&world, backend, &args, "addressing", "ATTN_TABLE");
    args.addressing = ATTN_DENSE;
    refuse_write(&world, backend, &args, "num_tokens", "num_tokens is 3, but the batch has 0");
    batch.num_tokens = 3;
    batch.seqs = 1;
    batch.max_q = batch.max_kv = 3;
    refuse_write(&world, backend, &args, "q_offsets", "not given");
    batch.q_offsets.data = batch.kv_lens.data = desc.k.data;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    args.index_dtype = ATTN_F16;
    refuse_write(&world, backend, &args, "index_dtype", "ATTN_INT64");
    args.index_dtype = 0;
    args.k_dtype = ATTN_E4M3;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_E_UNSUPPORTED,
                 "codes of another type");
    cr_assert_str_eq(world.err.field, "k_dtype");
    cr_assert_eq(world.err.reason, ATTN_REASON_DTYPE_K);
    cr_assert_not_null(strstr(world.err.message, "; f32, f16 and bf16 are served, and codes of"));
    args.k_dtype = ATTN_F16;
    args.v_dtype = ATTN_INT8;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_E_UNSUPPORTED);
    cr_assert_eq(world.err.reason, ATTN_REASON_DTYPE_V);
    args.v_dtype = ATTN_F16;
    desc.v.data = NULL;
    refuse_write(&world, backend, &args, "v_new", "the cache has no v");
    args.v_new.buffer.data = NULL;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    args.k_rope.buffer.data = desc.k.data;
    refuse_write(&world, backend, &args, "k_rope", "head_dim_vo is 0 of head_dim 64");
    desc.head_dim_vo = 48;
    args.k_rope.token_stride = 1;
    refuse_write(&world, backend, &args, "k_rope", "multiples of its element size 2");
    args.k_rope.token_stride = 2;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    desc.v.data = desc.k.data;
    args.v_new.buffer.data = desc.k.data;
    refuse_write(&world, backend, &args, "k_rope", "only an MLA cache");
    cr_assert_eq(world_said(&world, "kv write"), 4);
    attn_backend_destroy(backend);
    world_close(&world);
}

/* Rows of the cache's own codes have no scale: not if the cache has one for each of them. */
Test(kv, codes_are_written_without_scales)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc desc = good();
    struct attn_kv_write_args args;
    ATTN_INIT(&args);
    desc.k_dtype = desc.v_dtype = args.k_dtype = args.v_dtype = ATTN_INT8;
    desc.k_scale.kind = desc.v_scale.kind = ATTN_SCALE_UNIT;
    args.kv_desc = &desc;
    args.num_tokens = 1;
    args.k_new.buffer.data = args.v_new.buffer.data = args.slot_mapping.data = desc.k.data;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    desc.v_scale.kind = ATTN_SCALE_DEVICE;
    desc.v_scale.buffer.data = desc.k.data;
    desc.v_scale.granularity = ATTN_SCALES_HEAD;
    desc.v_scale.head_stride = 4;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    desc.v_scale.head_stride = 6;
    refuse_write(&world, backend, &args, "v_scale", "multiples of 4");
    desc.v_scale.head_stride = 4;
    desc.v_scale.granularity = ATTN_SCALES_TOKEN_HEAD;
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_E_UNSUPPORTED);
    cr_assert_str_eq(world.err.field, "v_dtype");
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv, handles_stay_with_their_backend)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_decision *decision;
    struct attn_backend *other;
    cr_assert_eq(world_select(&world, "heads=8 head_dim=64 q=bf16", NULL, NULL, &decision), ATTN_OK);
    cr_assert_eq(attn_backend_open(world.context, decision, NULL, &other, &world.err), ATTN_OK);
    struct attn_kv_desc desc = good();
    struct attn_kv *kv;
    cr_assert_eq(attn_kv_create(backend, &desc, &kv, &world.err), ATTN_OK);
    struct attn_kv_write_args args;
    ATTN_INIT(&args);
    args.kv = kv;
    refuse_write(&world, other, &args, "kv", "another backend");
    cr_assert_eq(attn_kv_write(backend, &args, NULL, &world.err), ATTN_E_INVALID, "no types yet");
    desc.block = 0;
    struct attn_kv *none = kv;
    cr_assert_eq(attn_kv_create(backend, &desc, &none, &world.err), ATTN_E_INVALID);
    cr_assert_null(none);
    cr_assert_eq(attn_kv_create(backend, NULL, &none, &world.err), ATTN_E_INVALID);
    attn_kv_destroy(kv);
    attn_backend_destroy(other);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    world_close(&world);
}

Test(kv, merge_and_rescale)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    static char memory[64];
    struct attn_merge_part part;
    memset(&part, 0, sizeof part);
    part.out.buffer.data = part.lse.buffer.data = memory;
    struct attn_merge_args args;
    ATTN_INIT(&args);
    args.count = args.num_tokens = args.heads = 1;
    args.head_dim = 4;
    args.parts = &part;
    args.dtype = ATTN_F16;
    args.lse_base = ATTN_LSE_BASE2;
    args.out.buffer.data = memory;
    cr_assert_eq(attn_merge(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    static const struct {
        const char *field;
        size_t offset;
        uint32_t value;
    } bad[] = {{"dtype", offsetof(struct attn_merge_args, dtype), ATTN_E4M3},
               {"lse_base", offsetof(struct attn_merge_args, lse_base), 3},
               {"count", offsetof(struct attn_merge_args, count), 0},
               {"heads", offsetof(struct attn_merge_args, heads), 0},
               {"head_dim", offsetof(struct attn_merge_args, head_dim), 70000},
               {"num_tokens", offsetof(struct attn_merge_args, num_tokens), 0x80000000U}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct attn_merge_args wrong = args;
        memcpy((char *)&wrong + bad[i].offset, &bad[i].value, sizeof bad[i].value);
        cr_assert_eq(attn_merge(backend, &wrong, NULL, &world.err), ATTN_E_INVALID);
        cr_assert_str_eq(world.err.field, bad[i].field);
        if (i == 0)
            cr_assert_str_eq(world.err.message, "dtype is 0x1080a; accepted: f32, f16 or bf16");
    }
    args.heads = 2;
    cr_assert_eq(attn_merge(backend, &args, NULL, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "out", "heads on one another");
    cr_assert_eq(world.err.reason, 0);
    args.out.head_stride = 8;
    args.lse.buffer.data = memory;
    cr_assert_eq(attn_merge(backend, &args, NULL, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "lse");
    args.lse.head_stride = 4;
    cr_assert_eq(attn_merge(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    args.heads = 1;
    part.lse.buffer.data = NULL;
    cr_assert_eq(attn_merge(backend, &args, NULL, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "parts.lse");
    struct attn_rescale_args rescale;
    ATTN_INIT(&rescale);
    rescale.dtype = ATTN_F32;
    rescale.lse_base = ATTN_LSE_NATURAL;
    rescale.count = rescale.num_tokens = rescale.heads = rescale.head_dim = 1;
    rescale.all = &part.out;
    rescale.own.buffer.data = rescale.out.buffer.data = memory;
    cr_assert_eq(attn_rescale(backend, &rescale, NULL, &world.err), ATTN_E_UNSUPPORTED,
                 "the mock has no rescale");
    rescale.num_tokens = 2;
    cr_assert_eq(attn_rescale(backend, &rescale, NULL, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "out", "rows on one another");
    rescale.num_tokens = 1;
    rescale.own.buffer.data = NULL;
    cr_assert_eq(attn_rescale(backend, &rescale, NULL, &world.err), ATTN_E_INVALID);
    cr_assert_str_eq(world.err.field, "own");
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv, memory_and_streams)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_error *err = &world.err;
    struct attn_buffer buffer;
    void *memory = &world;
    cr_assert_eq(attn_memory_alloc(backend, 0, &buffer, err), ATTN_E_INVALID);
    cr_assert_str_eq(err->field, "size");
    cr_assert_eq(attn_memory_alloc(backend, 100, NULL, err), ATTN_E_INVALID);
    cr_assert_eq(attn_memory_alloc(backend, 100, &buffer, err), ATTN_OK);
    char text[] = "over and back";
    char back[sizeof text];
    const struct attn_buffer from = {text, 0};
    const struct attn_buffer to = {back, 0};
    cr_assert_eq(attn_memory_copy(backend, &buffer, &from, sizeof text, ATTN_COPY_TO_DEVICE, NULL, err),
                 ATTN_OK);
    cr_assert_eq(attn_memory_copy(backend, &to, &buffer, sizeof text, ATTN_COPY_TO_HOST, NULL, err), ATTN_OK);
    cr_assert_str_eq(back, text);
    cr_assert_eq(attn_memory_copy(backend, &to, &buffer, 1, 4, NULL, err), ATTN_E_INVALID);
    cr_assert_eq(attn_memory_copy(backend, NULL, &buffer, 1, 1, NULL, err), ATTN_E_INVALID);
    cr_assert_eq(attn_memory_copy(backend, NULL, NULL, 0, 1, NULL, err), ATTN_OK);
    attn_memory_free(backend, &buffer);
    attn_memory_free(backend, NULL);
    attn_memory_free(NULL, &buffer);
    attn_memory_free(backend, &(struct attn_buffer){NULL, 0});
    cr_assert_eq(attn_memory_alloc_pinned(backend, 8, &memory, err), ATTN_E_UNSUPPORTED);
    cr_assert_null(memory);
    attn_memory_free_pinned(backend, NULL);
    cr_assert_eq(attn_stream_create(backend, &memory, err), ATTN_E_UNSUPPORTED);
    attn_stream_destroy(backend, NULL);
    cr_assert_eq(attn_stream_synchronize(backend, NULL, err), ATTN_OK, "without streams all is done");
    cr_assert_eq(attn_stream_synchronize(NULL, NULL, err), ATTN_E_INVALID);
    attn_backend_destroy(backend);
    world_close(&world);
}
