/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Trees of drafted tokens: masks and positions held against a walk from each token to its root. */
#include <criterion/criterion.h>

#include "attn/input.h"

enum { MOST = 70, STRIDE = 11 };

static uint32_t draw(uint32_t *random, uint32_t below)
{
    *random = *random * UINT32_C(1664525) + UINT32_C(1013904223);
    return (*random >> 8) % below;
}

static bool is_ancestor(const int32_t *parents, int32_t token, int32_t of)
{
    while (of > token)
        of = parents[of];
    return of == token;
}

Test(tree, random_trees)
{
    uint32_t random = 5;
    for (uint32_t n = 0; n < 200; n++) {
        unsigned char mask[MOST * STRIDE];
        int32_t parents[MOST];
        int64_t positions[MOST];
        const uint32_t count = draw(&random, MOST + 1);
        const int64_t context = draw(&random, 1000);
        for (uint32_t i = 0; i < count; i++)
            parents[i] = (int32_t)draw(&random, i + 1) - 1;
        memset(mask, 0x5a, sizeof mask);
        struct attn_error err;
        ATTN_INIT(&err);
        cr_assert_eq(attn_tree_mask(parents, count, context, mask, STRIDE, positions, &err), ATTN_OK, "%s",
                     err.message);
        for (uint32_t i = 0; i < count; i++) {
            int64_t depth = 0;
            for (int32_t at = parents[i]; at >= 0; at = parents[at])
                depth++;
            cr_assert_eq(positions[i], context + depth);
            for (uint32_t c = 0; c < (count + 7) / 8 * 8; c++)
                cr_assert_eq(mask[i * STRIDE + c / 8] >> c % 8 & 1,
                             c < count && is_ancestor(parents, (int32_t)c, (int32_t)i),
                             "row %u, column %u of %u", i, c, count);
            for (uint32_t byte = (count + 7) / 8; byte < STRIDE; byte++)
                cr_assert_eq(mask[i * STRIDE + byte], 0x5a, "bytes behind a row are the caller's");
        }
    }
}

Test(tree, refusals)
{
    static const struct {
        const char *field;
        int32_t status, parents[3];
        uint32_t count;
        int64_t context;
        uint64_t stride;
    } cases[] = {
        {"parents", ATTN_E_INVALID, {-1, 1, 0}, 3, 0, 1},
        {"parents", ATTN_E_INVALID, {0, 0, 0}, 3, 0, 1},
        {"parents", ATTN_E_INVALID, {-1, -2, 0}, 3, 0, 1},
        {"context_len", ATTN_E_INVALID, {-1, 0, 1}, 3, -1, 1},
        {"context_len", ATTN_E_INVALID, {-1, 0, 1}, 3, INT64_MAX - 2, 1},
        {"row_stride", ATTN_E_SIZE, {-1, 0, 1}, 3, 0, 0},
    };
    struct attn_error err;
    ATTN_INIT(&err);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char mask[3] = {7, 7, 7};
        int64_t positions[3] = {9, 9, 9};
        cr_assert_eq(attn_tree_mask(cases[i].parents, cases[i].count, cases[i].context, mask, cases[i].stride,
                                    positions, &err),
                     cases[i].status);
        cr_assert_str_eq(err.field, cases[i].field);
        cr_assert_eq(err.reason, 0);
        cr_assert(mask[0] == 7 && mask[2] == 7 && positions[0] == 9, "nothing is written");
    }
    unsigned char mask[1];
    err.reason = 77;
    cr_assert_eq(attn_tree_mask(NULL, 1, 0, mask, 1, NULL, &err), ATTN_E_INVALID);
    cr_assert_eq(err.reason, 0);
    cr_assert_eq(attn_tree_mask(NULL, 0, 0, NULL, 0, NULL, NULL), ATTN_OK);
}
