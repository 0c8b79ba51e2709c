/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fills errors, of libattn and of plugins. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "show.h"

int32_t attn__fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                   const char *format, ...)
{
    if (err == NULL)
        return status;
    char message[sizeof err->message], name[sizeof err->field];
    va_list args;

    va_start(args, format);
    if (vsnprintf(message, sizeof message, format, args) < 0)
        message[0] = '\0';
    va_end(args);
    attn__show(field != NULL ? field : "", name, sizeof name);
    err->status = status;
    err->reason = reason;
    err->reserved = 0;
    memcpy(err->field, name, sizeof name);
    attn__show(message, err->message, sizeof err->message);
    return status;
}

bool attn__reason_is_explicit(uint32_t reason)
{
    enum { ABSENCE, REFUSAL, EXPLICIT, ADVICE };

    switch (reason) {
#define ATTN_REASON(name, value, kind, text, advice)                                                         \
    case ATTN_REASON_##name:                                                                                 \
        return (kind) == EXPLICIT;
#include "attn/reason.def"
    default:
        return false;
    }
}
