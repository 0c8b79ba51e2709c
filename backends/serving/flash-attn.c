/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* FlashAttention: kernels read block tables; decodes may verify drafted tokens, and prompts become decodes.
 */
#include "flavour.h"

#include "kv-handle.h"

const struct attn__flavour attn__flash_attn = {
    .number = ATTN_FLASH_ATTN,
    .name = "flash-attn",
    .original_name = "FLASH_ATTN",
    .drafts = true,
    .hit_shows_all = true,
    .graph_rows_are_seqs = true,
    .grows_past_window = true,
    .captures_cross = true,
};

/* [2, pages, block, kv_heads, head_dim] */
int32_t attn__kv_shape_flash_attn(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                  uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(problem, pages, false, false, out, err);
}
