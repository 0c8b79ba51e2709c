/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Errors of the shared parts, and how plugins make theirs. */
#include "fail.h"

#include <stdio.h>

int32_t attn__common_tell(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                          const char *format, va_list args)
{
    if (err == NULL)
        return status;
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0)
        err->message[0] = '\0';
    snprintf(err->field, sizeof err->field, "%s", field);
    err->status = status;
    err->reason = reason;
    err->reserved = 0;
    return status;
}

int32_t attn__common_fail(struct attn_error *err, int32_t status, const char *field, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)attn__common_tell(err, status, 0, field, format, args);
    va_end(args);
    return status;
}

int32_t attn__common_refuse(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                            const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)attn__common_tell(err, status, reason, field, format, args);
    va_end(args);
    return status;
}
