/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches: a handle is a description that was checked once. */
#include <stdlib.h>

#include "cpu.h"

int32_t cpu_kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                      struct attn_kv_impl **out, struct attn_error *err)
{
    int32_t status = attn__kv_check(desc, err);

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

void cpu_kv_destroy(struct attn_kv_impl *kv)
{
    free(kv);
}
