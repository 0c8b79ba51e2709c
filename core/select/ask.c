/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The question whether a backend serves a problem, and the one refusal that holds for a vendor as a whole. */
#include "dispatch/call.h"
#include "select/select.h"

bool attn__hip_refuses(const struct attn__backend *entry, uint32_t type)
{
    static const char vendor[] = "hip/";

    return strncmp(entry->table.name, vendor, sizeof vendor - 1) == 0 &&
           (type == ATTN_ENCODER || type == ATTN_ENCODER_DECODER);
}

/* Before the plugin's own reasons, of which the last gives way if there is no room. */
static void refuse_hip(struct attn_query *query)
{
    query->accepted = 0;
    for (uint32_t i = 0; i < query->reason_count && i < query->reason_capacity; i++)
        if (query->reasons[i].code == ATTN_REASON_ENC_DEC_ROCM_HIP)
            return;
    if (query->reason_capacity > 0) {
        memmove(query->reasons + 1, query->reasons, (query->reason_capacity - 1) * sizeof *query->reasons);
        struct attn_reason *reason = &query->reasons[0];
        memset(reason, 0, sizeof *reason);
        reason->code = ATTN_REASON_ENC_DEC_ROCM_HIP;
        attn__copy_text(reason->field, sizeof reason->field, "type");
        attn__copy_text(reason->wanted, sizeof reason->wanted, "decoder or encoder_only");
        attn__copy_text(reason->text, sizeof reason->text, attn_reason_text(reason->code));
    }
    query->reason_count++;
}

int32_t attn__ask_backend(const struct attn__backend *entry, const struct attn_device *device,
                          const struct attn_problem *problem, struct attn_query *query)
{
    const int32_t status = entry->table.query(entry->plugin->instance, device, problem, query);

    if (status == ATTN_OK && attn__hip_refuses(entry, problem->type))
        refuse_hip(query);
    return status;
}
