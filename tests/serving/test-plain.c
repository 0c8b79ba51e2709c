/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The short way of plain decodes against the long way: two builders get the same adds, but one is told that
 * the lists are as they were, the other that nothing is. Answers, words and metadata are to be the same, for
 * what is wrong too. argv[1]: steps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { ROWS = 6, BLOCKS = 2048, TOKENS = 12, MISCHIEFS = 16 };

static struct attn_error err[2];
static int64_t lists[ROWS][BLOCKS];
static uint32_t seen[MISCHIEFS][2]; /* accepted, refused */

static struct attn_builder_impl *create(uint32_t flavour, uint32_t block, uint64_t *seed)
{
    struct attn_builder_group group = {.block = block, .max_blocks = BLOCKS};
    struct attn_builder_params params;
    struct attn_builder_impl *builder;

    ATTN_INIT(&params);
    params.flavour = flavour;
    params.groups = 1;
    params.chunked = 1;
    params.steps = 1;
    params.index_dtype = engine_below(seed, 2) != 0 ? ATTN_INT64 : ATTN_INT32;
    params.group = &group;
    params.max_seqs = ROWS;
    params.max_tokens = TOKENS;
    const struct attn_serving_host host = {.struct_size = sizeof host, .device_type = ATTN_DEVICE_CPU};
    if (attn_serving_builder.create(&host, &params, &builder, &err[0]) != ATTN_OK) {
        printf("Bail out! create: %s\n", err[0].message);
        exit(1);
    }
    return builder;
}

/* What an add can have that is not plain, or not right. */
static void make_mischief(uint32_t kind, uint32_t block, struct attn_builder_add_args *add,
                          struct attn_blocks *blocks, uint64_t *seed)
{
    int64_t *list = lists[add->row % ROWS];

    switch (kind) {
    case 1:
        add->row += 1;
        break;
    case 2:
        add->context_len = INT32_MAX - engine_below(seed, 2);
        break;
    case 3:
        add->context_len = blocks->count * block - engine_below(seed, 2);
        break;
    case 4:
        add->query_len = engine_below(seed, 4);
        break;
    case 5:
        add->query_len = TOKENS - engine_below(seed, 4);
        break;
    case 6:
        list[add->context_len / block] = INT64_C(1) << (30 + engine_below(seed, 20));
        break;
    case 7:
        list[engine_below(seed, blocks->count)] = -3;
        break;
    case 8:
        blocks->computed = engine_below(seed, blocks->count + 2);
        break;
    case 9:
        blocks->window_blocks = 1 + engine_below(seed, blocks->count + 1);
        break;
    case 10:
        blocks->seq_len = 1 + engine_below(seed, add->context_len + 2);
        break;
    case 11:
        add->prefix_hit = 1;
        break;
    case 12:
        add->prompt = 1 + engine_below(seed, 2);
        break;
    case 13:
        blocks->kind = engine_below(seed, 5);
        break;
    case 14:
        add->given = 0;
        break;
    case 15:
        blocks->blocks = NULL;
        break;
    default:
        break;
    }
}

/* One add to both; they must say the same. */
static bool add_both(struct attn_builder_impl *const builder[2], const struct attn_builder_add_args *given,
                     const struct attn_blocks *blocks, uint32_t kind)
{
    int32_t status[2];

    for (uint32_t i = 0; i < 2; i++) {
        struct attn_blocks own = *blocks;
        struct attn_builder_add_args add = *given;
        own.unchanged = i == 0 ? own.unchanged : 0;
        add.blocks = &own;
        ATTN_INIT(&err[i]);
        status[i] = attn_serving_builder.add(builder[i], &add, &err[i]);
    }
    seen[kind][status[0] != ATTN_OK]++;
    /* One text tells what is unchanged, which is what differs here. */
    const size_t words = strncmp(err[0].message, "unchanged is ", 13) == 0 ? 13 : sizeof err[0].message;
    if (status[0] == status[1] && strncmp(err[0].message, err[1].message, words) == 0)
        return true;
    printf("# mischief %u: %d \"%s\", %d \"%s\"\n", kind, status[0], err[0].message, status[1],
           err[1].message);
    return false;
}

/* A step; `old` is how many blocks each row was added with before. */
static bool run_step(struct attn_builder_impl *const builder[2], uint32_t block, uint32_t *old,
                     uint64_t *seed)
{
    struct attn_metadata_impl *out[2] = {NULL, NULL};
    const uint32_t seqs = 1 + engine_below(seed, ROWS);
    bool good = true;

    for (uint32_t i = 0; i < 2; i++)
        attn_serving_builder.reset(builder[i], &err[i]);
    for (uint32_t n = 0; n < seqs && good; n++) {
        struct attn_blocks blocks = {.kind = ATTN_BLOCKS_LIST, .blocks = lists[n]};
        struct attn_builder_add_args add;
        const uint32_t kind = engine_below(seed, 4) == 0 ? engine_below(seed, MISCHIEFS) : 0;
        int64_t kept[BLOCKS];
        ATTN_INIT(&add);
        add.given = ATTN_GIVEN_ROW;
        add.row = n;
        add.query_len = 1;
        blocks.count = old[n] > 0 && engine_below(seed, 4) != 0 ? old[n] : 1 + engine_below(seed, BLOCKS / 2);
        blocks.unchanged = old[n] < blocks.count ? old[n] : blocks.count;
        add.context_len = engine_below(seed, blocks.count * block);
        memcpy(kept, lists[n], sizeof kept);
        make_mischief(kind, block, &add, &blocks, seed);
        if (memcmp(kept, lists[n], sizeof kept) != 0 || (kind == 1 && n == 0))
            blocks.unchanged = 0; /* or it would be a lie */
        good = add_both(builder, &add, &blocks, kind);
        if (err[0].message[0] == '\0')
            old[n] = kind == 0 ? blocks.count : 0;
        memcpy(lists[n], kept, sizeof kept);
        if (kind == 1) /* from here on rows are others' */
            memset(old, 0, ROWS * sizeof *old);
        if (err[0].message[0] != '\0')
            break;
    }
    int32_t status[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct attn_builder_build_args build;
        ATTN_INIT(&build);
        status[i] = attn_serving_builder.build(builder[i], &build, NULL, &out[i], &err[i]);
    }
    return good && status[0] == status[1] && (status[0] != ATTN_OK || engine_equal(out[0], out[1], 0) != 0);
}

int main(int argc, char **argv)
{
    static const uint32_t flavours[] = {ATTN_FLASH_ATTN, ATTN_FLASHINFER, ATTN_ROCM_FLASH};
    const uint32_t steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;
    bool good = true;
    uint64_t seed = 1;

    for (uint32_t round = 0; round < 12 && good; round++) {
        const uint32_t block = (const uint32_t[]){16, 5, 1, UINT32_C(1) << 20}[round % 4];
        struct attn_builder_impl *builder[2];
        uint32_t old[ROWS] = {0};
        uint64_t same = seed;
        builder[0] = create(flavours[round % 3], block, &seed);
        builder[1] = create(flavours[round % 3], block, &same);
        for (uint32_t n = 0; n < ROWS; n++)
            for (uint32_t i = 0; i < BLOCKS; i++)
                lists[n][i] = engine_below(&seed, 1000);
        for (uint32_t i = 0; i < steps && good; i++)
            good = run_step(builder, block, old, &seed);
        attn_serving_builder.destroy(builder[0]);
        attn_serving_builder.destroy(builder[1]);
    }
    printf("%sok 1 - the short way of adds says and makes what the long way does\n", good ? "" : "not ");
    bool all = true;
    for (uint32_t i = 0; i < MISCHIEFS; i++)
        all = all && seen[i][0] + seen[i][1] > 0;
    printf("%sok 2 - every kind of add was tried\n1..2\n", all && seen[0][1] > 0 ? "" : "not ");
    return !good || !all || seen[0][1] == 0;
}
