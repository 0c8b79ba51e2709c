/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cache handles and shapes for plugins whose calls read the cache description each time. */
#ifndef ATTN_COMMON_KV_HANDLE_H
#define ATTN_COMMON_KV_HANDLE_H

#include <stdbool.h>

#include "attn/plugin.h"

struct attn_kv_impl {
    struct attn_kv_desc desc; /* its addresses are aligned */
};

/* Entries of struct attn_kv_table. */
int32_t attn__kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                        struct attn_kv_impl **out, struct attn_error *err);
void attn__kv_destroy(struct attn_kv_impl *kv);
/*
 * The shape of a problem's cache. In pairs keys and values of a page lie side by side, else those of all
 * pages; flat is without axes for tokens and heads.
 */
int32_t attn__kv_shape(const struct attn_problem *problem, uint32_t pages, bool in_pairs, bool flat,
                       struct attn_kv_shape *out, struct attn_error *err);

/* The description of a reference; a bare one is checked for alignment. */
int32_t attn__kv_resolve(const struct attn_kv_ref *ref, const struct attn_kv_desc **out,
                         struct attn_error *err);

#endif
