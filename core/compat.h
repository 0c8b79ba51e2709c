/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the original's limits share: its flavours as a table, one file per question. */
#ifndef ATTN_CORE_COMPAT_H
#define ATTN_CORE_COMPAT_H

#include "attn/compat.h"
#include "core.h"

enum flavour_id { FLASH_ATTN = 1, FLASHINFER, ROCM_FLASH, XFORMERS, TORCH_SDPA, BLOCKSPARSE };

struct flavour {
    enum flavour_id id;
    const char *name;     /* libattn's */
    const char *original; /* the original's */
    const uint32_t *head_dims;
    uint32_t head_dim_count;
    bool paged; /* one flat half for keys and one for values; paged decode kernels */
    /* Texts of refusals, NULL where the flavour accepts. */
    const char *no_blocksparse;
    const char *no_softcap;
    const char *head_dim_family; /* "FlashAttention" or "PagedAttention": checked at construction */
};

/* Fails if the flavour is unknown. */
const struct flavour *attn__compat_flavour(const char *name, struct attn_error *err);

/* "[32, 64]". */
void attn__compat_list(const uint32_t *values, uint32_t count, char *out, size_t size);

typedef int32_t (*attn__compat_fn)(const struct flavour *flavour, const struct attn_compat_desc *desc,
                                   struct attn_error *err);

int32_t attn__compat_model(const struct flavour *flavour, const struct attn_compat_desc *desc,
                           struct attn_error *err);
int32_t attn__compat_layer(const struct flavour *flavour, const struct attn_compat_desc *desc,
                           struct attn_error *err);
int32_t attn__compat_cache(const struct flavour *flavour, const struct attn_compat_desc *desc,
                           struct attn_error *err);
int32_t attn__compat_views(const struct flavour *flavour, const struct attn_compat_desc *desc,
                           struct attn_error *err);
int32_t attn__compat_metadata(const struct flavour *flavour, const struct attn_compat_desc *desc,
                              struct attn_error *err);
int32_t attn__compat_forward(const struct flavour *flavour, const struct attn_compat_desc *desc,
                             struct attn_error *err);

void attn__compat_cache_values(const struct flavour *flavour, const struct attn_compat_desc *desc,
                               struct attn_compat_values *out);
void attn__compat_view_values(const struct flavour *flavour, const struct attn_compat_desc *desc,
                              struct attn_compat_values *out);

#endif
