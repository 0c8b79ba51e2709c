/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A CUDA context that backends of one instance share, with the modules loaded into it. It is made current
 * around every sequence of driver calls, and what was current before is current again afterwards.
 */
#ifndef ATTN_CUDA_CONTEXT_H
#define ATTN_CUDA_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

/* Files of kernels, one module each. */
enum cuda_module {
#define CUDA_MODULE(name) CUDA_MODULE_##name,
#include "modules.def"
#undef CUDA_MODULE
    CUDA_MODULES
};

struct cuda_context {
    struct cuda_context *next; /* of the instance */
    struct attn_instance *instance;
    const struct cuda_driver *driver;
    const struct cuda_device_record *record;
    cuda_handle handle;
    bool primary; /* the device's own, retained; else the caller's */
    uint32_t refs;
    _Atomic cuda_result lost; /* the error after which nothing works any more, or 0 */
    pthread_mutex_t lock;     /* of the modules */
    cuda_handle modules[CUDA_MODULES + 1];
};

/* The context of a device: the caller's, or the primary one if `native` is NULL. Counted. */
int32_t cuda_context_open(struct attn_instance *instance, const struct cuda_device_record *record,
                          void *native, struct cuda_context **out, struct attn_error *err);
void cuda_context_close(struct cuda_context *context);

/* Makes the context current; fails if it is lost. Each success is ended by cuda_leave. */
int32_t cuda_enter(struct cuda_context *context, struct attn_error *err);
/* Makes current what was current before, and returns `status`. */
int32_t cuda_leave(struct cuda_context *context, int32_t status);
/* cuda_enter for destroying: false if the context is lost, when only host memory goes. */
bool cuda_enter_to_free(struct cuda_context *context);

/* What a result of the driver means; `call` is what was tried. A sticky error makes the context lost. */
int32_t cuda_check(struct cuda_context *context, cuda_result result, const char *field, const char *call,
                   struct attn_error *err);
bool cuda_is_lost(const struct cuda_context *context);

/* ---------------------------------------------------------------- module.c */

/*
 * A kernel of a module, loaded now if it is not: first use is never inside a capture. `shared_bytes` of
 * dynamic shared memory are allowed for it. The context is current.
 */
int32_t cuda_module_function(struct cuda_context *context, enum cuda_module module, const char *name,
                             uint32_t shared_bytes, cuda_handle *out, struct attn_error *err);
/* Unloads everything. The context is current. */
void cuda_module_unload_all(struct cuda_context *context);

#endif
