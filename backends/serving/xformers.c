/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* XFormers: vLLM's common builder; its steps do not advance. */
#include "flavour.h"

const struct attn__flavour attn__xformers = {
    .number = ATTN_XFORMERS,
    .name = "xformers",
    .original_name = "XFORMERS",
    .module_name = "rocm_flash_attn",
    .graph_prompts_are_decodes = true,
    .no_decode_q = true,
    .no_advance = true,
    .captures_cross = true,
};
