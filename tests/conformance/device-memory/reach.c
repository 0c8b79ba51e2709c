/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Brings every address of an argument within reach, or says which is not the device's. */
#include <string.h>

#include "device-memory.h"

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
    return scale->kind != ATTN_SCALE_DEVICE || device_memory_reach(&scale->buffer);
}

bool reach_batch(struct attn_batch *batch)
{
    return device_memory_reach(&batch->q_offsets) && device_memory_reach(&batch->kv_lens) &&
           device_memory_reach(&batch->kv_offsets) && device_memory_reach(&batch->table) &&
           device_memory_reach(&batch->csr_indptr) && device_memory_reach(&batch->csr_indices) &&
           device_memory_reach(&batch->last_page_lens) && device_memory_reach(&batch->q_positions) &&
           device_memory_reach(&batch->seq_causal) && device_memory_reach(&batch->kv_global_lens);
}

bool reach_cache(struct attn_kv_desc *desc)
{
    return device_memory_reach(&desc->k) && device_memory_reach(&desc->v) && reach_scale(&desc->k_scale) &&
           reach_scale(&desc->v_scale);
}
