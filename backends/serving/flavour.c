/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names of flavours, and which one a backend is of. */
#include <strings.h>

#include "fail.h"
#include "flavour.h"

static const char *const names[] = {NULL, "flash-attn", "flashinfer", "rocm-flash", "xformers"};

enum { COUNT = sizeof names / sizeof names[0] };

const char *attn__flavour_name(uint32_t flavour)
{
    return flavour < COUNT ? names[flavour] : NULL;
}

int32_t attn__flavour_choose(const struct attn_serving_host *host, uint32_t *flavour, struct attn_error *err)
{
    const char *slash = host->name != NULL ? strchr(host->name, '/') : NULL;

    if (*flavour >= COUNT)
        return attn__fail(err, ATTN_E_INVALID, 0, "flavour",
                          "flavour is %u; 1 to %d, enum attn_flavour, are accepted, or 0 for the backend's",
                          *flavour, COUNT - 1);
    if (*flavour == 0 && host->name == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "flavour",
                          "flavour is not given, and there is no backend to take it from; give it");
    for (uint32_t i = 1; i < COUNT && *flavour == 0 && slash != NULL; i++)
        if (strcasecmp(slash + 1, names[i]) == 0)
            *flavour = i;
    *flavour = *flavour != 0 ? *flavour : (uint32_t)ATTN_FLASH_ATTN;
    return ATTN_OK;
}
