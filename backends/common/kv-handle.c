/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Handles of caches. */
#include "kv-handle.h"

#include <stdlib.h>

#include "check.h"

int32_t attn__kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                        struct attn_kv_impl **out, struct attn_error *err)
{
    const int32_t status = attn__kv_align(desc, err);

    (void)backend;
    *out = NULL;
    if (status != ATTN_OK)
        return status;
    struct attn_kv_impl *kv = malloc(sizeof *kv);
    if (kv == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "kv", "no memory for the cache's description");
    kv->desc = *desc;
    *out = kv;
    return ATTN_OK;
}

void attn__kv_destroy(struct attn_kv_impl *kv)
{
    free(kv);
}

int32_t attn__kv_resolve(const struct attn_kv_ref *ref, const struct attn_kv_desc **out,
                         struct attn_error *err)
{
    *out = ref->kv != NULL ? &ref->kv->desc : ref->desc;
    return ref->kv != NULL ? ATTN_OK : attn__kv_align(ref->desc, err);
}
