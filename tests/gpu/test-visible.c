/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The keys that a row sees, in 32 bits, against the 64-bit function that all backends share. */
#include <criterion/criterion.h>
#include <string.h>

#include "lengths.h"

static uint64_t state = 1;

static uint64_t draw(void)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state >> 20;
}

/* Small numbers, those next to where 32 bits end, and any others. */
static int64_t draw_number(int64_t most)
{
    static const int64_t edges[] = {0, 1, GPU_FAR - 1, GPU_FAR, GPU_FAR + 1, INT32_MAX - 1, INT32_MAX};
    const uint64_t kind = draw() % 4;
    const int64_t number = kind == 0   ? edges[draw() % (sizeof edges / sizeof edges[0])]
                           : kind == 1 ? (int64_t)(draw() % 3000)
                                       : (int64_t)(draw() % (uint64_t)most);

    return number < most ? number : most;
}

static void check(const struct attn_visible *visible, int64_t position)
{
    uint32_t lo, hi, wanted_lo, wanted_hi;

    gpu_visible_find(visible, position, &lo, &hi);
    attn__visible_find(visible, position, &wanted_lo, &wanted_hi);
    cr_assert(lo == wanted_lo && hi == wanted_hi,
              "causal %u kv_len %u left %lld right %lld square %lld position %lld: [%u, %u), wanted [%u, %u)",
              visible->causal, visible->kv_len, (long long)visible->left, (long long)visible->right,
              (long long)visible->square, (long long)position, lo, hi, wanted_lo, wanted_hi);
}

Test(visible, is_that_of_64_bits)
{
    for (uint32_t i = 0; i < 2000000; i++) {
        struct attn_visible visible;
        memset(&visible, 0, sizeof visible);
        visible.causal = draw() % 2 != 0;
        visible.kv_len = (uint32_t)draw_number(draw() % 8 == 0 ? INT32_MAX : 5000);
        visible.left = draw() % 2 != 0 ? -1 : draw_number(INT32_MAX);
        visible.right = draw() % 2 != 0 ? -1 : draw_number(INT32_MAX);
        visible.square = draw() % 4 != 0 ? -1 : draw_number((int64_t)visible.kv_len + 1);
        if (draw() % 8 == 0) {
            visible.shard.world = 3;
            visible.shard.rank = 1;
            visible.shard.interleave = 16;
        }
        const int64_t position = draw_number(draw() % 8 == 0 ? INT64_C(1) << 45 : 6000);
        check(&visible, draw() % 4 != 0 ? position : -position);
    }
}
