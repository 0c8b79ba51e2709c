/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ROCm: vLLM's common builder, whose prefill and decode parts need every array to be set. */
#include "flavour.h"

#include "kv-handle.h"

const struct attn__flavour attn__rocm_flash = {
    .number = ATTN_ROCM_FLASH,
    .name = "rocm-flash",
    .original_name = "ROCM_FLASH",
    .module_name = "rocm_flash_attn",
    .graph_prompts_are_decodes = true,
    .no_decode_q = true,
    .parts_need_all = true,
};

/* [2, pages, block * kv_heads * head_dim] */
int32_t attn__kv_shape_rocm_flash(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                  uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(problem, pages, false, true, out, err);
}
