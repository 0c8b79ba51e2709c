/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of flavours, and which one a backend is of. */
#include "flavour.h"

#include <strings.h>

#include "fail.h"

static const struct attn__flavour *const flavours[] = {NULL, &attn__flash_attn, &attn__flashinfer,
                                                       &attn__rocm_flash, &attn__xformers};

enum { COUNT = sizeof flavours / sizeof flavours[0] };

const struct attn__flavour *attn__flavour_get(uint32_t number)
{
    return number < COUNT ? flavours[number] : NULL;
}

int32_t attn__flavour_choose(const struct attn_serving_host *host, uint32_t number,
                             const struct attn__flavour **out, struct attn_error *err)
{
    const char *slash = host->name != NULL ? strchr(host->name, '/') : NULL;

    if (number >= COUNT)
        return attn__fail(err, ATTN_E_INVALID, 0, "flavour",
                          "flavour is %u; 1 to %d, enum attn_flavour, are accepted, or 0 for the backend's",
                          number, COUNT - 1);
    if (number == 0 && host->name == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "flavour",
                          "flavour is not given, and there is no backend to take it from; give it");
    *out = flavours[number];
    for (uint32_t i = 1; i < COUNT && *out == NULL && slash != NULL; i++)
        if (strcasecmp(slash + 1, flavours[i]->name) == 0)
            *out = flavours[i];
    *out = *out != NULL ? *out : &attn__flash_attn;
    return ATTN_OK;
}
