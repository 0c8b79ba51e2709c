/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How functions fail: error details, and sized structs of callers. */
#include <stdio.h>

#include "core.h"
#include "show.h"

/* Larger than any struct of the interface: a size beyond it was never set. */
#define STRUCT_MOST 65536U

int32_t attn__fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                   const char *format, ...)
{
    if (err == NULL)
        return status;
    /* The text may be made from the old contents of err. */
    char message[sizeof err->message];
    va_list args;
    va_start(args, format);
    if (vsnprintf(message, sizeof message, format, args) < 0)
        message[0] = '\0';
    va_end(args);
    char name[sizeof err->field];
    attn__show(field != NULL ? field : "", name, sizeof name);

    err->status = status;
    err->reason = reason;
    err->reserved = 0;
    memcpy(err->field, name, sizeof name);
    attn__show(message, err->message, sizeof err->message);
    return status;
}

int32_t attn__take(void *target, size_t size, const void *source, size_t least, const char *name,
                   struct attn_error *err)
{
    if (source == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is NULL; a struct made with ATTN_INIT is accepted", name);
    uint32_t given;
    memcpy(&given, source, sizeof given);
    if (given < least || given > STRUCT_MOST)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has struct_size %u; %zu to %u is accepted: set it with ATTN_INIT", name, given,
                          least, STRUCT_MOST);
    const unsigned char *bytes = source;
    for (size_t i = size; i < given; i++)
        if (bytes[i] != 0)
            return attn__fail(
                err, ATTN_E_INVALID, 0, name,
                "%s has a value at byte %zu, which this libattn (%zu bytes) does not know; zero "
                "is accepted, or a newer libattn",
                name, i, size);
    memset(target, 0, size);
    memcpy(target, source, given < size ? given : size);
    uint32_t own = (uint32_t)size;
    memcpy(target, &own, sizeof own);
    return ATTN_OK;
}
