/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A backend's memory as the attention of all models uses it: one stream that keeps everything in order, host
 * memory that copies run from and to, and the tensors of a layer.
 */
#ifndef ENGINE_DEVICE_H
#define ENGINE_DEVICE_H

#include <attn/attn.h>
#include <attn/device.h>
#include <stdbool.h>
#include <stdint.h>

#include "failure.h"

struct device {
    struct attn_backend *backend;
    void *stream; /* NULL: the backend has none of its own */
    char name[160];
};

/*
 * Selects one backend for all problems. The message of a failure is that of the first problem which is
 * refused by itself, with what to ask attn-info for the other reasons.
 */
int device_select(struct attn_context *context, const struct attn_problem *problems, uint32_t count,
                  const char *backend, struct attn_decision **out, struct failure *err);

/* Makes the stream, and the name of the device as a report has it: "cuda:0, NVIDIA H200, sm_90". */
int device_open(struct device *d, struct attn_context *context, struct attn_backend *backend,
                struct failure *err);
/* Waits for what is on the stream: from then on memory may be freed. */
void device_synchronize(struct device *d);
void device_close(struct device *d);

/* Translates an error of libattn. */
int device_fail(struct failure *err, const char *what, const struct attn_error *error);

/* Appends the names of the kernels of a plan for the problem to a list with commas, each name once. */
int device_name_kernels(const struct device *d, const struct attn_problem *problem, char *list, size_t size,
                        struct failure *err);

/* Name of the first generic kernel of the winner, or NULL: such kernels are many times slower than optimised
 * ones. */
const char *device_find_generic(const struct attn_decision *decision);
/* Says on standard error what ran; `generic` as above. */
void device_print(const char *backend, const char *name, const char *kernels, const char *generic);

int device_alloc(const struct device *d, const char *what, uint64_t size, struct attn_buffer *out,
                 struct failure *err);
void device_free(const struct device *d, struct attn_buffer *buffer);

/* Memory of the host, zeroed: pinned where the backend has such memory, so that copies need no staging. */
struct device_host {
    void *memory;
    bool pinned;
};

int device_host_alloc(const struct device *d, const char *what, uint64_t size, struct device_host *out,
                      struct failure *err);
void device_host_free(const struct device *d, struct device_host *host);

/* In the order of the stream; memory of the host must stay as it is until device_wait. */
int device_put(const struct device *d, const struct attn_buffer *to, const void *from, uint64_t size,
               struct failure *err);
int device_get(const struct device *d, void *to, const struct attn_buffer *from, uint64_t size,
               struct failure *err);
int device_wait(const struct device *d, struct failure *err);

/*
 * What a layer reads and writes: queries, keys and values go up in one copy, the output comes down in one.
 * The model's numbers are f32; on the way they get the type that the backend is given. Sizes count elements.
 */
struct device_tensors {
    struct device_host up;
    struct device_host down;
    struct attn_buffer d_up;
    struct attn_buffer d_down;
    uint32_t dtype;         /* f32, f16 or bf16 */
    uint64_t k, v, up_size; /* bytes: where keys and values begin in this step, and all ends */
    uint64_t down_size;
};

/* Allocates memory for q elements of queries, and kv of keys and of values, at most. */
int device_tensors_make(const struct device *d, uint32_t dtype, uint64_t q, uint64_t kv,
                        struct device_tensors *out, struct failure *err);
void device_tensors_free(const struct device *d, struct device_tensors *t);

/* Lays out the tensors of a step; q and kv are not more than device_tensors_make was given. */
void device_tensors_place(struct device_tensors *t, uint64_t q, uint64_t kv);
/* Converts numbers into the memory that the next upload copies; with kv_count 0 queries alone. */
void device_tensors_fill(struct device_tensors *t, const float *q, uint64_t q_count, const float *k,
                         const float *v, uint64_t kv_count);
/* Converts the output that the last download brought. */
void device_tensors_take(const struct device_tensors *t, float *out, uint64_t count);
/* If the stream is captured, both copies become part of the graph. */
int device_tensors_upload(const struct device *d, const struct device_tensors *t, struct failure *err);
int device_tensors_download(const struct device *d, const struct device_tensors *t, struct failure *err);

/* A contiguous view [token, head, dim] that begins so many bytes into a buffer. */
struct attn_tensor device_view(const struct device_tensors *t, struct attn_buffer buffer, uint64_t offset,
                               uint32_t heads, uint32_t dim);

#endif
