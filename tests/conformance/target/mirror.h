/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Backends whose memory the host cannot reach. Cases are made and judged in host memory between guard pages;
 * every buffer of an arena gets a twin in the backend's memory, with red zones on both sides. The calls of
 * the library that take addresses are wrapped by the linker (mirror-plans.c, mirror-kv.c): they bring the
 * twins up to date, make the call with translated addresses on a stream of the backend, wait, and bring the
 * results back. The kinds of checks know nothing of it.
 */
#ifndef MIRROR_H
#define MIRROR_H

#include "conform.h"

struct mirror; /* one backend */
struct twin;   /* of one guarded buffer */

/* Whether memory of a device ("cuda:0") is out of the host's reach; with `all` that of every device counts
 * as. */
bool mirror_wanted(const char *device);
void mirror_all(bool all);
/* Meanwhile calls go through as they are, with addresses of the backend, and nothing new has a mirror. */
void mirror_suspend(bool suspended);
/* NULL for a backend that works on host memory. */
struct mirror *mirror_of(const struct attn_backend *backend);
/* The stream for a call. */
void *mirror_stream(const struct mirror *mirror, void *stream);
int32_t mirror_enable(struct attn_backend *backend, struct attn_error *err);
void mirror_disable(struct attn_backend *backend);

/* Calls of several threads go one after the other. */
void mirror_lock(void);
void mirror_unlock(void);

/* Replaces an address of an arena by that of the twin. A buffer that is not given stays. */
int32_t mirror_translate(struct mirror *mirror, struct attn_buffer *buffer, struct attn_error *err);
/* Host to twins, and back with a look at the red zones. */
int32_t mirror_push(struct mirror *mirror, void *stream, struct attn_error *err);
int32_t mirror_pull(struct mirror *mirror, void *stream, struct attn_error *err);

#endif
