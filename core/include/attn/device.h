/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Memory and streams of a backend, for tools and small programs that have no runtime of their own. An engine
 * that already manages device memory needs nothing of this header.
 */
#ifndef ATTN_DEVICE_H
#define ATTN_DEVICE_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Allocates `size` bytes (> 0) of the backend's memory, aligned to 64 bytes at least; contents undefined. The
 * caller frees it with attn_memory_free before it destroys the backend.
 * Returns ATTN_E_MEMORY if there is not enough, ATTN_E_INVALID for size 0.
 */
ATTN_API int32_t attn_memory_alloc(struct attn_backend *backend, uint64_t size, struct attn_buffer *out,
                                   struct attn_error *err);

/* Frees what attn_memory_alloc gave. A buffer with data NULL is ignored. */
ATTN_API void attn_memory_free(struct attn_backend *backend, const struct attn_buffer *buffer);

/*
 * Copies `size` bytes in stream order (`kind`: enum attn_copy_kind). Host memory must stay
 * until the stream has passed; ranges must not overlap.
 */
ATTN_API int32_t attn_memory_copy(struct attn_backend *backend, const struct attn_buffer *to,
                                  const struct attn_buffer *from, uint64_t size, uint32_t kind, void *stream,
                                  struct attn_error *err);

/* Pinned host memory, for staging. ATTN_E_UNSUPPORTED if the backend has none. */
ATTN_API int32_t attn_memory_alloc_pinned(struct attn_backend *backend, uint64_t size, void **out,
                                          struct attn_error *err);
ATTN_API void attn_memory_free_pinned(struct attn_backend *backend, void *memory);

/*
 * A stream of the backend. ATTN_E_UNSUPPORTED if it has no streams of its own; NULL is always a legal stream.
 */
ATTN_API int32_t attn_stream_create(struct attn_backend *backend, void **out, struct attn_error *err);
ATTN_API void attn_stream_destroy(struct attn_backend *backend, void *stream);

/* Waits until everything on the stream is done. On a backend without streams it returns at once. */
ATTN_API int32_t attn_stream_synchronize(struct attn_backend *backend, void *stream, struct attn_error *err);

#ifdef __cplusplus
}
#endif
#endif
