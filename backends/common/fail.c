/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Errors of the shared parts. */
#include <stdarg.h>
#include <stdio.h>

#include "fail.h"

int32_t attn__common_fail(struct attn_error *err, int32_t status, const char *field, const char *format, ...)
{
    if (err == NULL)
        return status;
    va_list args;
    va_start(args, format);
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0)
        err->message[0] = '\0';
    va_end(args);
    snprintf(err->field, sizeof err->field, "%s", field);
    err->status = status;
    err->reason = 0;
    err->reserved = 0;
    return status;
}

int32_t attn__common_refuse(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                            const char *format, ...)
{
    if (err == NULL)
        return status;
    va_list args;
    va_start(args, format);
    if (vsnprintf(err->message, sizeof err->message, format, args) < 0)
        err->message[0] = '\0';
    va_end(args);
    snprintf(err->field, sizeof err->field, "%s", field);
    err->status = status;
    err->reason = reason;
    err->reserved = 0;
    return status;
}
