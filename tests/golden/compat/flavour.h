/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the original's limits share: its flavours as a table, one file per question. */
#ifndef COMPAT_FLAVOUR_H
#define COMPAT_FLAVOUR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "compat.h"

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

/* Fills err (may be NULL) and returns status. */
int32_t compat_fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                    const char *format, ...) __attribute__((format(printf, 5, 6), cold));

/* Fails if the flavour is unknown. */
const struct flavour *compat_flavour(const char *name, struct attn_error *err);

/* "[32, 64]". */
void compat_list(const uint32_t *values, uint32_t count, char *out, size_t size);

typedef int32_t (*compat_fn)(const struct flavour *flavour, const struct compat_desc *desc,
                             struct attn_error *err);

int32_t compat_model(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err);
int32_t compat_layer(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err);
int32_t compat_cache(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err);
int32_t compat_views(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err);
int32_t compat_metadata(const struct flavour *flavour, const struct compat_desc *desc,
                        struct attn_error *err);
int32_t compat_forward(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err);

void compat_cache_values(const struct flavour *flavour, const struct compat_desc *desc,
                         struct compat_values *out);
void compat_view_values(const struct flavour *flavour, const struct compat_desc *desc,
                        struct compat_values *out);

#endif
