/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Where element (page, token, head, dim) of a cache lies, in every layout. In layout strided the vector of a
 * head is contiguous. In layout paged-x, as in vLLM's cache, every x elements of it are: keys are [pages,
 * heads, head_dim / x, block, x] with x elements in 16 bytes, values [pages, heads, head_dim, block], x = 1.
 */
#ifndef ATTN_COMMON_KV_VIEW_H
#define ATTN_COMMON_KV_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "attn/types.h"

/* Bytes of x elements of a key in layout paged-x. */
#define ATTN__PAGED_X_BYTES 16u

/* Keys or values of a cache. Strides are bytes. */
struct attn__kv_view {
    char *base;
    int64_t page_stride;
    int64_t token_stride;
    int64_t head_stride;
    int64_t x_stride; /* from x elements of a vector to the next x; 0 in layout strided */
    uint32_t x_bytes; /* bytes of x elements; of the whole vector in layout strided */
    uint32_t size;    /* bytes of an element; what has blocks is not read by element */
    uint32_t dim;     /* elements of a vector */
    uint32_t dtype;
};

/* `values`: the cache's v, which an MLA cache does not have. `base` is the address of its element 0. */
static inline struct attn__kv_view attn__kv_view(const struct attn_kv_desc *desc, bool values, char *base)
{
    const uint32_t dtype = values ? desc->v_dtype : desc->k_dtype, size = (dtype >> 8 & 0xff) / 8;
    const uint32_t dim = values && desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    struct attn__kv_view view = {.base = base,
                                 .x_bytes = (uint32_t)attn_row_bytes(dtype, dim),
                                 .size = size,
                                 .dim = dim,
                                 .dtype = dtype};

    view.page_stride = values ? desc->v_page_stride : desc->k_page_stride;
    view.token_stride = values ? desc->v_token_stride : desc->k_token_stride;
    view.head_stride = values ? desc->v_head_stride : desc->k_head_stride;
    if (desc->layout == ATTN_PAGED_X) {
        view.x_bytes = values ? size : ATTN__PAGED_X_BYTES;
        view.token_stride = view.x_bytes;
        view.x_stride = (int64_t)desc->block * view.x_bytes;
    }
    return view;
}

/* Byte offset of element 0 of a vector from the base. */
static inline int64_t attn__kv_offset(const struct attn__kv_view *view, int64_t page, int64_t token,
                                      int64_t head)
{
    return page * view->page_stride + token * view->token_stride + head * view->head_stride;
}

static inline char *attn__kv_at(const struct attn__kv_view *view, int64_t page, int64_t token, int64_t head)
{
    return view->base + attn__kv_offset(view, page, token, head);
}

/* Byte offset of element d of a vector from its element 0. */
static inline int64_t attn__kv_column(const struct attn__kv_view *view, uint32_t d)
{
    const uint32_t byte = d * view->size;

    return byte < view->x_bytes ? (int64_t)byte
                                : (int64_t)(byte / view->x_bytes) * view->x_stride + byte % view->x_bytes;
}

/* Copies elements [d, d + count) of the vector at `at` to contiguous memory. */
static inline void attn__kv_load(const struct attn__kv_view *view, const char *at, uint32_t d, uint32_t count,
                                 void *to)
{
    const uint32_t end = count * view->size;

    for (uint32_t done = 0; done < end;) {
        const uint32_t left = view->x_bytes - (d * view->size + done) % view->x_bytes;
        const uint32_t bytes = left < end - done ? left : end - done;
        memcpy((char *)to + done, at + attn__kv_column(view, d + done / view->size), bytes);
        done += bytes;
    }
}

/* Copies them from contiguous memory into the cache. */
static inline void attn__kv_store(const struct attn__kv_view *view, char *at, uint32_t d, uint32_t count,
                                  const void *from)
{
    const uint32_t end = count * view->size;

    for (uint32_t done = 0; done < end;) {
        const uint32_t left = view->x_bytes - (d * view->size + done) % view->x_bytes;
        const uint32_t bytes = left < end - done ? left : end - done;
        memcpy(at + attn__kv_column(view, d + done / view->size), (const char *)from + done, bytes);
        done += bytes;
    }
}

#endif
