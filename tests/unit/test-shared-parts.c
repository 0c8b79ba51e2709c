/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the parts of a model share of metadata and caches, and the words for what differs. */
#include "parts.h"

#include <stdio.h>

static const struct part phases[] = {{0, ATTN_PHASE_PREFILL, SMALL PROMPTS, NULL},
                                     {0, ATTN_PHASE_DECODE, SMALL DECODES, NULL}};

Test(shared_parts, shapes_of_caches)
{
    static const char *const own = "pairs/flash-attn cuda:0";
    struct world world;
    char text[100];
    snprintf(text, sizeof text, "prompts/flash-attn cuda:0 0 0; %s 0 0", own);
    struct attn_parts *out = parts_expect(&world, "prompts pairs", phases, 2, ATTN_OK, text);
    cr_assert_eq(world_said(&world, "kv create"), 1);
    cr_assert_eq(world_said(&world, "kv destroy"), 1);
    cr_assert_eq(world_said(&world, "mock: close"), 2);
    parts_done(&world, out);
    snprintf(text, sizeof text, "prompts/flash-attn cuda:0 0 0; %s 0 1", own);
    out = parts_expect(&world, "prompts only-pairs", phases, 2, ATTN_OK, text);
    parts_expect_texts(out, 1, "",
                       "parts[0]: cache: [2, n, 16, 4, 64] and [n, 2, 16, 4, 64] (pairs/flash-attn: kv "
                       "create: keys and values "
                       "take turns)");
    parts_done(&world, out);
    out = parts_expect(&world, "prompts no-open", phases, 2, ATTN_OK,
                       "prompts/flash-attn cuda:0 0 0; shut/flash-attn cuda:0 0 1");
    parts_expect_texts(
        out, 1, "", "parts[0]: cache: its shape is not known: shut/flash-attn: open: the mock does not open");
    parts_done(&world, out);
}

/* Scales of every token lie as far apart as a page of any size needs. */
Test(shared_parts, caches_with_scales_of_tokens)
{
#define SCALED SMALL "kv=int8 k_scale=token-head v_scale=token-head block=5 "
    static const struct part scaled[] = {{0, ATTN_PHASE_PREFILL, SCALED PROMPTS, NULL},
                                         {0, ATTN_PHASE_DECODE, SCALED DECODES, NULL}};
    struct world world;
    struct attn_parts *out = parts_expect(&world, "prompts pairs", scaled, 2, ATTN_OK,
                                          "prompts/flash-attn cuda:0 0 0; pairs/flash-attn cuda:0 0 0");
    parts_expect_texts(out, 1, "", "");
    parts_done(&world, out);
}

/* Two parts of one backend with these problems; what differs for metadata and for caches. */
static void compare(const char *first, const char *second, uint32_t second_class, const char *metadata,
                    const char *cache)
{
    const struct part parts[] = {
        {0, second_class == 0 ? ATTN_PHASE_PREFILL : 0, first, "host/flash-attn"},
        {second_class, second_class == 0 ? ATTN_PHASE_DECODE : 0, second, "host/flash-attn"}};
    char line[100], texts[2][200];
    struct world world;
    snprintf(line, sizeof line, "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 %d %d", metadata[0] != 0,
             cache[0] != 0);
    struct attn_parts *out = parts_expect(&world, "host", parts, 2, ATTN_OK, line);
    snprintf(texts[0], sizeof texts[0], "%s%s", metadata[0] != 0 ? "parts[0]: " : "", metadata);
    snprintf(texts[1], sizeof texts[1], "%s%s", cache[0] != 0 ? "parts[0]: " : "", cache);
    parts_expect_texts(out, 1, texts[0], texts[1]);
    cr_assert_eq(world_said(&world, "mock: open"), 0, "one backend needs not be opened");
    parts_done(&world, out);
}

Test(shared_parts, problems_that_differ)
{
    compare(SMALL, SMALL "addr=csr", 0, "addr: table and csr", "");
    compare(SMALL "addr=csr index=i64", SMALL "addr=csr", 1, "index: i64 and i32", "");
    compare(SMALL "index=i64", SMALL, 1, "", ""); /* of tables it says nothing */
    compare(SMALL, SMALL "addr=dense", 0, "addr: table and dense", "addr: table and dense");
    /* A class has one block; cache groups of a builder have each their own. */
    compare(SMALL, SMALL "block=32", 0, "block: 16 and 32", "block: 16 and 32");
    compare(SMALL, SMALL "block=32", 1, "", "block: 16 and 32");
    compare(SMALL, SMALL "kv=e4m3 scales=head", 1, "",
            "k: bf16 and e4m3, v: bf16 and e4m3, k_scale: none and head, v_scale: none and head");
    compare(SMALL, "heads=8 kv_heads=2 head_dim=64/32 q=bf16 layout=paged-x", 1, "",
            "kv_heads: 4 and 2, head_dim: 64 and 64/32, layout: strided and paged-x");
    compare("heads=8 head_dim=64/32 q=bf16 kv_heads=1", "heads=8 head_dim=64/32 q=bf16 mla=1", 1, "",
            "mla: 0 and 1");
    /* Cross-attention has a table beside whatever the decoder has. */
    compare(SMALL "addr=csr", SMALL "type=encoder_decoder", 1, "", "");
    /* Who reads new keys alone writes a cache that others tell the types of. */
    compare(SMALL "kv_source=new", SMALL "kv=e4m3 scales=head addr=csr", 0, "", "");
    compare(SMALL "kv_source=new block=8", SMALL, 0, "block: 8 and 16", "block: 8 and 16");
}

Test(shared_parts, a_cache_has_the_types_of_its_first_reader)
{
    const struct part parts[] = {{0, ATTN_PHASE_PREFILL, SMALL "kv_source=new", NULL},
                                 {0, ATTN_PHASE_DECODE, SMALL "kv=e4m3 scales=unit", NULL},
                                 {1, 0, SMALL, NULL},
                                 {2, 0, SMALL "type=encoder", NULL},
                                 {3, 0, SMALL "kv=e4m3 scales=unit", NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "host", parts, 5, ATTN_OK,
                     "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 2; "
                     "host/flash-attn cpu:0 0 3; host/flash-attn cpu:0 0 0");
    parts_expect_texts(
        out, 2, "",
        "parts[0]: k: e4m3 and bf16, v: e4m3 and bf16, k_scale: unit and none, v_scale: unit and "
        "none");
    parts_expect_texts(out, 3, "", "an encoder keeps no cache");
    parts_expect_texts(
        out, 4, "",
        "parts[2]: k: bf16 and e4m3, v: bf16 and e4m3, k_scale: none and unit, v_scale: none and "
        "unit");
    parts_done(&world, out);
}

/* Who reads new keys alone joins a cache whose types another one has told. */
Test(shared_parts, types_of_a_cache_stay)
{
    const struct part parts[] = {{0, ATTN_PHASE_DECODE, SMALL "kv=e4m3 scales=unit", NULL},
                                 {0, ATTN_PHASE_PREFILL, SMALL "kv_source=new", NULL},
                                 {1, 0, SMALL "kv=int8 scales=unit", NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "host", parts, 3, ATTN_OK,
                     "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 2");
    parts_expect_texts(out, 2, "", "parts[0]: k: e4m3 and int8, v: e4m3 and int8");
    parts_done(&world, out);
}

/* The blocks of a class are those of its other phase, even if both share with a third part. */
Test(shared_parts, a_phase_is_compared_with_the_other_one_of_its_class)
{
    const struct part parts[] = {{0, 0, SMALL "block=64", NULL},
                                 {1, ATTN_PHASE_PREFILL, SMALL "block=32", NULL},
                                 {1, ATTN_PHASE_DECODE, SMALL "block=64", NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "host", parts, 3, ATTN_OK,
                     "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 1; host/flash-attn cpu:0 2 0");
    parts_expect_texts(out, 2, "parts[0]: block: 32 and 64", "parts[1]: block: 32 and 64");
    parts_done(&world, out);
}

/* Caches with scales are made with scales; on the same device, so that they can be compared at all. */
Test(shared_parts, caches_of_codes_are_compared_too)
{
    static const struct {
        const char *problem, *scales;
    } kinds[] = {{"head_dim=64 kv=e4m3 scales=unit ", NULL},
                 {"head_dim=64 kv=e4m3 scales=tensor ", "k_scale lies 0, 0, 0 apart"},
                 {"head_dim=64 kv=e4m3 scales=head ", "k_scale lies 0, 0, 4 apart"},
                 {"head_dim=64 kv=int8 scales=token-head ", "k_scale lies 512, 32, 4 apart"},
                 {"head_dim=64/32 mla=1 ", NULL}};
    struct world world;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char texts[2][120];
        snprintf(texts[0], sizeof texts[0], "heads=8 q=bf16 %s" PROMPTS, kinds[i].problem);
        snprintf(texts[1], sizeof texts[1], "heads=8 q=bf16 %s" DECODES, kinds[i].problem);
        const struct part parts[] = {{0, ATTN_PHASE_PREFILL, texts[0], NULL},
                                     {0, ATTN_PHASE_DECODE, texts[1], NULL}};
        struct attn_parts *out = parts_expect(&world, "prompts pairs", parts, 2, ATTN_OK,
                                              "prompts/flash-attn cuda:0 0 0; pairs/flash-attn cuda:0 0 0");
        cr_assert_eq(world_said(&world, "kv create"), 1);
        cr_assert_eq(world_said(&world, kinds[i].scales != NULL ? kinds[i].scales : "k_scale lies"),
                     kinds[i].scales != NULL, "%s", kinds[i].problem);
        parts_done(&world, out);
    }
}

/* Classes in any order, so that a part's other phase is not any part before it. */
Test(shared_parts, classes_in_any_order)
{
    const struct part parts[] = {{1, 0, SMALL "block=32", NULL}, {0, 0, SMALL, NULL}};
    struct world world;
    struct attn_parts *out = parts_expect(&world, "host", parts, 2, ATTN_OK,
                                          "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 1");
    parts_expect_texts(out, 1, "", "parts[0]: block: 32 and 16");
    parts_done(&world, out);
}

/* What the other phase of the class has is said first, for a long text is cut. */
Test(shared_parts, the_other_phase_is_named_first)
{
    const struct part parts[] = {{0, 0, SMALL "block=64", NULL},
                                 {1, ATTN_PHASE_PREFILL, SMALL "block=32", NULL},
                                 {1, ATTN_PHASE_DECODE, SMALL "block=16", NULL}};
    struct world world;
    struct attn_parts *out =
        parts_expect(&world, "host", parts, 3, ATTN_OK,
                     "host/flash-attn cpu:0 0 0; host/flash-attn cpu:0 0 1; host/flash-attn cpu:0 2 2");
    parts_expect_texts(out, 2, "parts[0]: block: 32 and 16",
                       "parts[1]: block: 32 and 16; parts[0]: block: 64 and 16");
    parts_done(&world, out);
}
