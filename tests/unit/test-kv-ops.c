/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of the operations on caches before a mock gets them. */
#include <criterion/criterion.h>

#include "dispatch/call.h"
#include "world.h"

static char memory[64];

/* 4 pages of 16 tokens, 2 heads of 64 f16. */
static struct attn_kv_desc good(void)
{
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

/* Judges the last call: refused for `field` with words that hold `piece`, or (field NULL) accepted. */
static void judge(const struct world *world, int32_t status, const char *field, const char *piece)
{
    if (field == NULL) {
        cr_assert_eq(status, ATTN_OK, "%s: %s", world->err.field, world->err.message);
        return;
    }
    cr_assert_eq(status, ATTN_E_INVALID, "%s: %s", field, piece);
    cr_assert_eq(world->err.reason, 0);
    cr_assert_str_eq(world->err.field, field, "%s: %s", world->err.field, world->err.message);
    cr_assert_not_null(strstr(world->err.message, piece), "%s", world->err.message);
}

/* Changes one member of the target and puts it back. */
#define WITH(member, value, field, piece, call)                                                              \
    do {                                                                                                     \
        const struct attn_kv_desc kept = to;                                                                 \
        to.member = (value);                                                                                 \
        judge(&world, (call), (field), (piece));                                                             \
        to = kept;                                                                                           \
    } while (0)

Test(kv_ops, copy_slots)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc from = good(), to = good();
    struct attn_kv_copy_slots_args args;
    ATTN_INIT(&args);
#define CALL attn_kv_copy_slots(backend, &args, NULL, &world.err)
    judge(&world, CALL, "kv_desc", "from: ");
    args.from_desc = &from;
    judge(&world, CALL, "kv_desc", "to: ");
    args.to_desc = &to;
    judge(&world, CALL, NULL, NULL);
    cr_assert_eq(world_said(&world, "kv copy_slots"), 0, "no pairs, no call");
    args.count = 2;
    judge(&world, CALL, "pairs", "count is 2");
    args.pairs.data = memory;
    WITH(v_dtype, ATTN_BF16, "v_dtype", "v_dtype is f16 in from and bf16 in to", CALL);
    WITH(layout, ATTN_PAGED_X, "layout", "strided in from and paged-x in to", CALL);
    WITH(kv_heads, 1, "kv_heads", "2 in from and 1 in to", CALL);
    WITH(head_dim_vo, 32, "head_dim_vo", "64 in from and 32 in to", CALL);
    WITH(v.data, NULL, "v", "from has v", CALL);
    WITH(block, 0, "block", "to: kv desc.block is 0", CALL);
    WITH(block, 8, NULL, NULL, CALL);
    args.count = 0x80000000U;
    judge(&world, CALL, "count", "up to 2147483647");
    args.count = 2;
    from.k_dtype = to.k_dtype = ATTN_E4M3;
    from.k_scale.kind = to.k_scale.kind = ATTN_SCALE_UNIT;
    judge(&world, CALL, NULL, NULL);
    to.k_scale.kind = ATTN_SCALE_DEVICE;
    to.k_scale.granularity = ATTN_SCALES_TOKEN_HEAD;
    to.k_scale.buffer.data = memory;
    judge(&world, CALL, "k_scale", "2 in from and 5 in to");
#undef CALL
    cr_assert_eq(world_said(&world, "kv copy_slots"), 2);
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv_ops, copy_blocks)
{
    enum { LAYERS = 37 };
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc desc = good(), to = good();
    const struct attn_kv_desc *descs[LAYERS];
    struct attn_kv *kvs[LAYERS];
    struct attn_kv_copy_blocks_args args;
    for (int i = 0; i < LAYERS; i++) {
        descs[i] = &desc;
        cr_assert_eq(attn_kv_create(backend, &desc, &kvs[i], &world.err), ATTN_OK);
    }
    ATTN_INIT(&args);
#define CALL attn_kv_copy_blocks(backend, &args, NULL, &world.err)
    judge(&world, CALL, NULL, NULL);
    args.layers = LAYERS;
    judge(&world, CALL, "kvs", "not given");
    args.kvs = kvs;
    args.kv_descs = descs;
    judge(&world, CALL, "kvs", "both given");
    args.kvs = NULL;
    args.count = 1;
    judge(&world, CALL, "pairs", "count is 1");
    args.pairs.data = memory;
    descs[20] = &to;
    WITH(pages, 5, "pages", "cache[20] has 5 pages", CALL);
    WITH(head_dim, 0, "head_dim", "cache[20]: ", CALL);
    cr_assert_eq(world_said(&world, "of a layer"), 0, "all layers are checked before any is handed on");
    WITH(head_dim, 32, NULL, NULL, CALL);
    cr_assert_eq(world_said(&world, "of a layer"), LAYERS);
    args.kv_descs = NULL;
    args.kvs = kvs;
    judge(&world, CALL, NULL, NULL);
    cr_assert_eq(world_said(&world, "of a layer"), 2 * LAYERS);
    cr_assert_eq(world_said(&world, "not one cache"), 0);
    struct attn_kv *kept = kvs[36];
    kvs[36] = NULL;
    judge(&world, CALL, "kv_desc", "cache[36]: ");
    kvs[36] = kept;
#undef CALL
    for (int i = 0; i < LAYERS; i++)
        attn_kv_destroy(kvs[i]);
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv_ops, swap_blocks)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc from = good(), to = good();
    int64_t pairs[] = {0, 3, -1, 99, 2, -7};
    struct attn_kv_swap_blocks_args args;
    ATTN_INIT(&args);
    args.from_desc = &from;
    args.to_desc = &to;
    args.count = 3;
#define CALL attn_kv_swap_blocks(backend, &args, NULL, &world.err)
    judge(&world, CALL, "pairs", "count is 3");
    args.pairs = pairs;
    judge(&world, CALL, "kind", "kind is 0");
    args.kind = ATTN_COPY_TO_HOST;
    judge(&world, CALL, NULL, NULL);
    WITH(block, 8, "block", "16 in from and 8 in to", CALL);
    WITH(pages, 3, "pairs", "pairs[0] names page 3 of to; pages below 3 are accepted", CALL);
    WITH(k_dtype, ATTN_F32, "k_dtype", "attn_kv_convert", CALL);
    WITH(k_page_stride, 8192, NULL, NULL, CALL);
    pairs[0] = 4;
    judge(&world, CALL, "pairs", "page 4 of from; pages below 4");
    pairs[0] = 5;
    judge(&world, CALL, "pairs", "page 5 of from; pages below 4");
#undef CALL
    cr_assert_eq(world_said(&world, "kv swap_blocks"), 2);
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv_ops, convert)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc from = good(), to = good();
    struct attn_kv_convert_args args;
    ATTN_INIT(&args);
    args.from_desc = &from;
    args.to_desc = &to;
#define CALL attn_kv_convert(backend, &args, NULL, &world.err)
    WITH(layout, ATTN_PAGED_X, NULL, NULL, CALL);
    WITH(k_dtype, ATTN_F32, NULL, NULL, CALL);
    WITH(pages, 3, "pages", "from has 4 pages, to has 3", CALL);
    WITH(pages, 5, NULL, NULL, CALL);
    WITH(block, 32, "block", "16 in from and 32 in to", CALL);
    WITH(head_dim, 32, "head_dim", "64 in from and 32 in to", CALL);
    args.count = 1;
    judge(&world, CALL, "pairs", "count is 1");
    args.pairs.data = memory;
    WITH(pages, 3, NULL, NULL, CALL);
    args.count = 0;
    judge(&world, CALL, NULL, NULL);
#undef CALL
    cr_assert_eq(world_said(&world, "kv convert"), 4);
    attn_backend_destroy(backend);
    world_close(&world);
}

/* What a plugin answers is what the caller gets. */
Test(kv_ops, a_plugin_that_fails)
{
    static char stream[1];
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc desc = good(), other = good();
    const struct attn_kv_desc *const descs[] = {&desc};
    const int64_t host_pairs[2] = {0, 1};
    struct attn_kv_copy_slots_args slots;
    struct attn_kv_copy_blocks_args blocks;
    struct attn_kv_swap_blocks_args swap;
    struct attn_kv_convert_args convert;
    ATTN_INIT(&slots);
    ATTN_INIT(&blocks);
    ATTN_INIT(&swap);
    ATTN_INIT(&convert);
    slots.from_desc = swap.from_desc = convert.from_desc = &desc;
    slots.to_desc = swap.to_desc = convert.to_desc = &other;
    slots.count = blocks.count = swap.count = 1;
    slots.pairs.data = blocks.pairs.data = memory;
    blocks.layers = 1;
    blocks.kv_descs = descs;
    swap.pairs = host_pairs;
    swap.kind = ATTN_COPY_ON_DEVICE;
    const int32_t answers[] = {attn_kv_copy_slots(backend, &slots, stream, &world.err),
                               attn_kv_copy_blocks(backend, &blocks, stream, &world.err),
                               attn_kv_swap_blocks(backend, &swap, stream, &world.err),
                               attn_kv_convert(backend, &convert, stream, &world.err)};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        cr_assert_eq(answers[i], ATTN_E_DEVICE, "%zu: %s", i, world.err.message);
    cr_assert_not_null(strstr(world.err.message, "kv convert"), "%s", world.err.message);
    attn_backend_destroy(backend);
    world_close(&world);
}

static int32_t map_nothing(struct attn_backend_impl *backend, const struct attn_kv_slot_mapping_args *args,
                           void *stream, struct attn_error *err)
{
    (void)backend, (void)args, (void)stream, (void)err;
    return ATTN_E_INVALID;
}

Test(kv_ops, slot_mapping)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    int32_t offsets[] = {0, 3}, lens[] = {2}, table[] = {0, 1};
    struct attn_batch_host host;
    struct attn_batch batch;
    struct attn_kv_slot_mapping_args args;
    ATTN_INIT(&host);
    ATTN_INIT(&batch);
    ATTN_INIT(&args);
#define CALL attn_kv_slot_mapping(backend, &args, NULL, &world.err)
    judge(&world, CALL, "batch", "NULL");
    args.batch = &batch;
    judge(&world, CALL, "addressing", "addressing is 0");
    args.addressing = ATTN_TABLE;
    judge(&world, CALL, "block", "block is 0");
    args.block = 16;
    judge(&world, CALL, NULL, NULL);
    batch.seqs = 1;
    batch.num_tokens = batch.max_q = batch.max_kv = 3;
    batch.q_offsets.data = offsets;
    batch.kv_lens.data = lens;
    batch.table.data = table;
    batch.table_width = 2;
    judge(&world, CALL, "slots", "3 rows");
    args.slots.data = memory;
    judge(&world, CALL, NULL, NULL);
    host.q_offsets = offsets;
    host.kv_lens = lens;
    host.table = table;
    batch.host = &host;
    batch.given = ATTN_GIVEN_HOST_COPIES;
    judge(&world, CALL, "kv_lens", "batch.kv_lens[0] is 2");
    lens[0] = 3;
    judge(&world, CALL, NULL, NULL);
    cr_assert_eq(world_said(&world, "kv slot_mapping"), 2);
    backend->entry->kv.slot_mapping = map_nothing;
    judge(&world, CALL, "", "gpu/flash-attn: kv slot_mapping: ");
#undef CALL
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv_ops, gather)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc to = good();
    int32_t lens[] = {17}, table[] = {0, 4};
    struct attn_batch_host host;
    struct attn_batch batch;
    struct attn_kv_gather_args args;
    ATTN_INIT(&host);
    ATTN_INIT(&batch);
    ATTN_INIT(&args);
    args.kv_desc = &to;
    args.batch = &batch;
    args.addressing = ATTN_TABLE;
    args.tokens = 5;
#define CALL attn_kv_gather(backend, &args, NULL, &world.err)
    judge(&world, CALL, "k", "neither");
    args.k.buffer.data = memory;
    judge(&world, CALL, "k_dtype", "0x0; accepted: f32, f16, bf16, or the cache's own type, f16");
    args.k_dtype = ATTN_E4M3;
    judge(&world, CALL, "k_dtype", "accepted");
    args.k_dtype = ATTN_F32;
    judge(&world, CALL, "k", "rows of 256 bytes overlap");
    args.k.token_stride = 512;
    args.k.head_stride = 256;
    judge(&world, CALL, NULL, NULL);
    args.k_scales.buffer.data = memory;
    judge(&world, CALL, "k_scales", "f32 has no scale");
    args.k_scales.buffer.data = NULL;
    args.v_scales.buffer.data = memory;
    judge(&world, CALL, "v_scales", "without v");
    args.v_scales.buffer.data = NULL;
    args.v.buffer.data = memory;
    args.v_dtype = ATTN_F16;
    args.v.token_stride = 256;
    args.v.head_stride = 128;
    WITH(v.data, NULL, "v", "the cache has none", CALL);
    args.k.head_stride = 2;
    judge(&world, CALL, "k", "element size 4");
    args.k.head_stride = 256;
    batch.seqs = 1;
    batch.max_kv = 17;
    judge(&world, CALL, "kv_lens", "not given");
    batch.kv_lens.data = lens;
    batch.table.data = table;
    batch.table_width = 2;
    judge(&world, CALL, "offsets", "1 sequences");
    args.offsets.data = memory;
    judge(&world, CALL, NULL, NULL);
    host.kv_lens = lens;
    host.table = table;
    batch.host = &host;
    batch.given = ATTN_GIVEN_HOST_COPIES;
    judge(&world, CALL, "table", "batch.table[1] is 4; accepted: below the number of pages, 4");
    table[1] = -5;
    judge(&world, CALL, NULL, NULL);
    WITH(k_dtype, ATTN_INT8, "k_scale", "not given", CALL);
#undef CALL
    cr_assert_eq(world_said(&world, "kv gather"), 2);
    attn_backend_destroy(backend);
    world_close(&world);
}

/* Places in a dense cache, as far as host copies tell. */
Test(kv_ops, dense_places)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "gpu");
    struct attn_kv_desc desc = good();
    int32_t lens[] = {1, 0, 0, 0, 17}, starts[] = {0, 3, 3, 3, 3, 20};
    struct attn_batch_host host;
    struct attn_batch batch;
    struct attn_kv_gather_args args;
    ATTN_INIT(&host);
    ATTN_INIT(&batch);
    ATTN_INIT(&args);
    args.kv_desc = &desc;
    args.batch = &batch;
    args.addressing = ATTN_DENSE;
    args.tokens = 1;
    args.k_dtype = ATTN_F16;
    args.k.buffer.data = args.offsets.data = memory;
    args.k.token_stride = 256;
    args.k.head_stride = 128;
    batch.seqs = 5;
    batch.max_kv = 17;
    batch.kv_lens.data = lens;
    batch.host = &host;
    batch.given = ATTN_GIVEN_HOST_COPIES;
    host.kv_lens = lens;
#define CALL attn_kv_gather(backend, &args, NULL, &world.err)
    judge(&world, CALL, "seqs", "sequence 4 has keys; the cache has 4 pages");
    lens[4] = 0;
    lens[3] = 17;
    judge(&world, CALL, "kv_lens", "batch.kv_lens[3] is 17; a page of the cache has 16 tokens");
    lens[3] = 16;
    judge(&world, CALL, NULL, NULL);
    lens[3] = 0;
    lens[4] = 17;
    batch.kv_offsets.data = starts;
    host.kv_offsets = starts;
    judge(&world, CALL, "kv_offsets", "batch.kv_offsets[4] is 3 with 17 keys; the cache has 16 tokens");
    lens[4] = 13;
    judge(&world, CALL, NULL, NULL);
#undef CALL
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv_ops, what_a_plugin_does_not_know)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "oldkv");
    struct attn_kv_desc desc = good();
    struct attn_kv_copy_slots_args args;
    ATTN_INIT(&args);
    args.from_desc = args.to_desc = &desc;
    cr_assert_eq(attn_kv_copy_slots(backend, &args, NULL, &world.err), ATTN_OK, "%s", world.err.message);
    args.pairs.data = memory;
    cr_assert_eq(attn_kv_copy_slots(backend, &args, NULL, &world.err), ATTN_E_UNSUPPORTED);
    cr_assert_eq(world.err.reason, ATTN_REASON_UNKNOWN_TO_PLUGIN);
    attn_backend_destroy(backend);
    world_close(&world);
}

Test(kv_ops, what_a_plugin_does_not_offer)
{
    struct world world;
    struct attn_backend *backend = open_backend(&world, "host");
    struct attn_kv_desc desc = good();
    struct attn_batch batch;
    struct attn_kv_copy_slots_args slots;
    struct attn_kv_copy_blocks_args blocks;
    struct attn_kv_swap_blocks_args swap;
    struct attn_kv_convert_args convert;
    struct attn_kv_gather_args gather;
    struct attn_kv_slot_mapping_args mapping;
    ATTN_INIT(&batch);
    ATTN_INIT(&slots);
    ATTN_INIT(&blocks);
    ATTN_INIT(&swap);
    ATTN_INIT(&convert);
    ATTN_INIT(&gather);
    ATTN_INIT(&mapping);
    slots.from_desc = slots.to_desc = swap.from_desc = swap.to_desc = &desc;
    convert.from_desc = convert.to_desc = gather.kv_desc = &desc;
    swap.kind = ATTN_COPY_ON_DEVICE;
    gather.batch = mapping.batch = &batch;
    gather.addressing = mapping.addressing = ATTN_TABLE;
    mapping.block = 16;
    const struct {
        const char *name;
        int32_t status;
    } calls[] = {{"copy_slots", attn_kv_copy_slots(backend, &slots, NULL, &world.err)},
                 {"copy_blocks", attn_kv_copy_blocks(backend, &blocks, NULL, &world.err)},
                 {"swap_blocks", attn_kv_swap_blocks(backend, &swap, NULL, &world.err)},
                 {"convert", attn_kv_convert(backend, &convert, NULL, &world.err)},
                 {"gather", attn_kv_gather(backend, &gather, NULL, &world.err)},
                 {"slot_mapping", attn_kv_slot_mapping(backend, &mapping, NULL, &world.err)}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        cr_assert_eq(calls[i].status, ATTN_E_UNSUPPORTED, "%s", calls[i].name);
    cr_assert_str_eq(world.err.field, "slot_mapping");
    cr_assert_not_null(strstr(world.err.message, "host/flash-attn offers no slot_mapping"), "%s",
                       world.err.message);
    attn_backend_destroy(backend);
    world_close(&world);
}
