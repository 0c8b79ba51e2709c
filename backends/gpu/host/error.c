/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Turns a result of the driver into a status and a reason, and decides whether the context is lost. */
#include "host.h"

/* Errors after which every call of the context fails. */
static bool is_sticky(gpu_result result)
{
    static const gpu_result sticky[] = {
        GPU_DEINITIALIZED,
        GPU_ECC_UNCORRECTABLE,
        GPU_NVLINK_UNCORRECTABLE,
        GPU_CONTAINED,
        GPU_ILLEGAL_ADDRESS,
        GPU_LAUNCH_TIMEOUT,
        GPU_CONTEXT_IS_DESTROYED,
        GPU_ASSERT,
        GPU_HARDWARE_STACK_ERROR,
        GPU_ILLEGAL_INSTRUCTION,
        GPU_MISALIGNED_ADDRESS,
        GPU_INVALID_ADDRESS_SPACE,
        GPU_INVALID_PC,
        GPU_LAUNCH_FAILED,
        GPU_UNKNOWN,
    };

    for (size_t i = 0; i < sizeof sticky / sizeof sticky[0]; i++)
        if (sticky[i] == result)
            return true;
    return false;
}

bool gpu_is_lost(const struct gpu_context *context)
{
    return atomic_load_explicit(&context->lost, memory_order_relaxed) != GPU_SUCCESS;
}

int32_t gpu_check(struct gpu_context *context, gpu_result result, const char *field, const char *call,
                  struct attn_error *err)
{
    char text[240];
    int32_t status = ATTN_E_DEVICE;
    uint32_t reason = 0;

    if (result == GPU_SUCCESS)
        return ATTN_OK;
    gpu_vendor_describe(context->driver, result, text, sizeof text);
    if (is_sticky(result)) {
        gpu_result none = GPU_SUCCESS;
        atomic_compare_exchange_strong(&context->lost, &none, result);
        status = ATTN_E_DEVICE_LOST;
        reason = ATTN_REASON_DEVICE_LOST;
    } else if (result == GPU_OUT_OF_MEMORY) {
        status = ATTN_E_MEMORY;
        reason = ATTN_REASON_MEMORY;
    } else if (result == GPU_NOT_READY) {
        status = ATTN_E_BUSY;
    } else if (result >= GPU_CAPTURE_FIRST && result <= GPU_CAPTURE_LAST) {
        status = ATTN_E_STATE;
    }
    return attn__fail(err, status, reason, field, "%s on " GPU_VENDOR_DEVICE ":%d failed: %s", call,
                      context->record->info.device.ordinal, text);
}
