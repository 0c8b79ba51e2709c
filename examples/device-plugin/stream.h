/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What a vendor's runtime gives a plugin: streams that do work in order while the program goes on. */
#ifndef STREAM_H
#define STREAM_H

#include <attn/plugin-util.h>

struct attn_backend_impl {
    void *null_stream; /* what the stream NULL means */
};

/* One launch: `work` is the stream's copy of the arguments. */
typedef void (*kernel_fn)(void *work);

/* Launches a kernel on a stream and returns at once. The arguments are copied. */
int32_t stream_launch(struct attn_backend_impl *backend, void *stream, kernel_fn kernel, const void *work,
                      size_t size, struct attn_error *err);

int32_t stream_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t stream_synchronize(struct attn_backend_impl *backend, void *stream, struct attn_error *err);
void stream_destroy(struct attn_backend_impl *backend, void *stream);
int32_t event_create(struct attn_backend_impl *backend, void **out, struct attn_error *err);
int32_t event_record(struct attn_backend_impl *backend, void *event, void *stream, struct attn_error *err);
int32_t event_query(struct attn_backend_impl *backend, void *event, struct attn_error *err);
int32_t event_synchronize(struct attn_backend_impl *backend, void *event, struct attn_error *err);
void event_destroy(struct attn_backend_impl *backend, void *event);

#endif
