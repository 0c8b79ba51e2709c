/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Errors: made from a sentence, or from a result of the driver. */
#include <stdarg.h>
#include <stdio.h>

#include "cuda.h"

int32_t cuda_fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                  const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)attn__common_tell(err, status, reason, field, format, args);
    va_end(args);
    return status;
}

/* Errors after which every call of the context fails. */
static bool is_sticky(cuda_result result)
{
    static const cuda_result sticky[] = {
        CUDA_DEINITIALIZED,
        CUDA_ECC_UNCORRECTABLE,
        CUDA_NVLINK_UNCORRECTABLE,
        CUDA_CONTAINED,
        CUDA_ILLEGAL_ADDRESS,
        CUDA_LAUNCH_TIMEOUT,
        CUDA_CONTEXT_IS_DESTROYED,
        CUDA_ASSERT,
        CUDA_HARDWARE_STACK_ERROR,
        CUDA_ILLEGAL_INSTRUCTION,
        CUDA_MISALIGNED_ADDRESS,
        CUDA_INVALID_ADDRESS_SPACE,
        CUDA_INVALID_PC,
        CUDA_LAUNCH_FAILED,
        CUDA_UNKNOWN,
    };

    for (size_t i = 0; i < sizeof sticky / sizeof sticky[0]; i++) {
        if (sticky[i] == result)
            return true;
    }
    return false;
}

bool cuda_is_lost(const struct cuda_context *context)
{
    return atomic_load_explicit(&context->lost, memory_order_relaxed) != CUDA_SUCCESS;
}

int32_t cuda_check(struct cuda_context *context, cuda_result result, const char *field, const char *call,
                   struct attn_error *err)
{
    char text[240];
    int32_t status = ATTN_E_DEVICE;
    uint32_t reason = 0;

    if (result == CUDA_SUCCESS)
        return ATTN_OK;
    cuda_driver_describe(context->driver, result, text, sizeof text);
    if (is_sticky(result)) {
        cuda_result none = CUDA_SUCCESS;
        atomic_compare_exchange_strong(&context->lost, &none, result);
        status = ATTN_E_DEVICE_LOST;
        reason = ATTN_REASON_DEVICE_LOST;
    } else if (result == CUDA_OUT_OF_MEMORY) {
        status = ATTN_E_MEMORY;
        reason = ATTN_REASON_MEMORY;
    } else if (result == CUDA_NOT_READY) {
        status = ATTN_E_BUSY;
    } else if (result >= CUDA_CAPTURE_FIRST && result <= CUDA_CAPTURE_LAST) {
        status = ATTN_E_STATE;
    }
    return cuda_fail(err, status, reason, field, "%s on cuda:%d failed: %s", call,
                     context->record->info.device.ordinal, text);
}
