/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances the arrays of a batch by one decode step, in place. */
#include "advance.h"

#include "graph.h"

int32_t cpu_kv_advance_step(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                            void *stream, struct attn_error *err)
{
    const struct attn_advance advance = attn__advance_arrays(args);
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__advance_step_align(args, err);
    const struct cpu_call call = {CPU_CALL_ADVANCE_STEP, .args = args, .args_size = sizeof *args};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status = attn__advance_check(&advance, err);
    if (status != ATTN_OK)
        return status;
    /* No member of a team writes before all have checked, and none returns before all is written. */
    cpu_join(&executor);
    if (cpu_is_first(&executor))
        attn__advance_write(&advance);
    cpu_join(&executor);
    return ATTN_OK;
}
