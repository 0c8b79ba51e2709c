/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Brings every address of an argument within reach, or says which is not the device's. */
#include <string.h>

#include "remote.h"

int32_t far_away(struct attn_error *err, const char *field)
{
    if (err != NULL) {
        strncpy(err->message, "a host address was given where memory of the device is wanted",
                sizeof err->message - 1);
        strncpy(err->field, field, sizeof err->field - 1);
    }
    return ATTN_E_INVALID;
}

bool reach_scale(struct attn_scale *scale)
{
    return scale->kind != ATTN_SCALE_DEVICE || remote_reach(&scale->buffer);
}

bool reach_batch(struct attn_batch *batch)
{
    return remote_reach(&batch->q_offsets) && remote_reach(&batch->kv_lens) &&
           remote_reach(&batch->kv_offsets) && remote_reach(&batch->table) &&
           remote_reach(&batch->csr_indptr) && remote_reach(&batch->csr_indices) &&
           remote_reach(&batch->last_page_lens) && remote_reach(&batch->q_positions) &&
           remote_reach(&batch->seq_causal) && remote_reach(&batch->kv_global_lens);
}

bool reach_cache(struct attn_kv_desc *desc)
{
    return remote_reach(&desc->k) && remote_reach(&desc->v) && reach_scale(&desc->k_scale) &&
           reach_scale(&desc->v_scale);
}
