/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sized structs of callers. */
#include "args.h"

#include "fail.h"

/* Larger than any struct of the interface: a size beyond it was never set. */
#define STRUCT_MOST 65536u

/* The size that a caller set, 0 if there is none to be trusted. */
static uint32_t size_of(const void *source)
{
    uint32_t size;

    memcpy(&size, source, sizeof size);
    return size < 2 * sizeof size || size > STRUCT_MOST ? 0 : size;
}

int32_t attn__args_take(void *target, size_t size, const void *source, const char *name,
                        struct attn_error *err)
{
    const uint32_t own = (uint32_t)size, given = source != NULL ? size_of(source) : 0;

    if (source == NULL)
        return attn__common_fail(err, ATTN_E_INVALID, name,
                                 "%s is NULL; a struct made with ATTN_INIT is accepted", name);
    if (given == 0)
        return attn__common_fail(err, ATTN_E_INVALID, name,
                                 "%s has no valid struct_size: set it with ATTN_INIT", name);
    for (size_t i = size; i < given; i++)
        if (((const unsigned char *)source)[i] != 0)
            return attn__common_fail(
                err, ATTN_E_INVALID, name,
                "%s has a value at byte %zu, which this libattn (%zu bytes) does not know; "
                "zero is accepted, or a newer libattn",
                name, i, size);
    memset(target, 0, size);
    memcpy(target, source, given < size ? given : size);
    memcpy(target, &own, sizeof own);
    return ATTN_OK;
}

int32_t attn__args_clear(void *target, size_t size, const char *name, struct attn_error *err)
{
    if (target == NULL)
        return attn__common_fail(err, ATTN_E_INVALID, name, "%s is NULL", name);
    const uint32_t given = size_of(target);
    if (given < size)
        return attn__common_fail(err, ATTN_E_INVALID, name,
                                 "%s has struct_size %u; %zu at least is accepted: set it with ATTN_INIT",
                                 name, given, size);
    memset((char *)target + sizeof given, 0, given - sizeof given);
    return ATTN_OK;
}
