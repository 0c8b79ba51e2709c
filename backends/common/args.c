/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes sized structs from callers. */
#include "args.h"

#include "fail.h"

/* Larger than any struct of the interface: a larger struct_size was not initialised. */
#define STRUCT_MAX 65536u

int32_t attn__take(void *target, size_t size, const void *source, size_t min_size, const char *name,
                   struct attn_error *err)
{
    if (source == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s is NULL; a struct made with ATTN_INIT is accepted", name);
    uint32_t struct_size;
    memcpy(&struct_size, source, sizeof struct_size);
    if (struct_size < min_size || struct_size > STRUCT_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has struct_size %u; %zu to %u is accepted: set it with ATTN_INIT", name,
                          struct_size, min_size, STRUCT_MAX);
    const unsigned char *bytes = source;
    for (size_t i = size; i < struct_size; i++)
        if (bytes[i] != 0)
            return attn__fail(
                err, ATTN_E_INVALID, 0, name,
                "%s has a value at byte %zu, which this libattn (%zu bytes) does not know; zero "
                "is accepted, or a newer libattn",
                name, i, size);
    memset(target, 0, size);
    memcpy(target, source, struct_size < size ? struct_size : size);
    uint32_t own = (uint32_t)size;
    memcpy(target, &own, sizeof own);
    return ATTN_OK;
}

int32_t attn__args_clear(void *target, size_t size, const char *name, struct attn_error *err)
{
    uint32_t struct_size = 0;

    if (target == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is NULL", name);
    memcpy(&struct_size, target, sizeof struct_size);
    if (struct_size < size || struct_size > STRUCT_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "%s has struct_size %u; %zu at least is accepted: set it with ATTN_INIT", name,
                          struct_size, size);
    memset((char *)target + sizeof struct_size, 0, struct_size - sizeof struct_size);
    return ATTN_OK;
}
