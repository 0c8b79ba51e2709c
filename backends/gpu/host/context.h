/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A context that backends of one instance share, with the modules loaded into it. It is made current
 * around every sequence of driver calls, and what was current before is current again afterwards.
 */
#ifndef ATTN_GPU_HOST_CONTEXT_H
#define ATTN_GPU_HOST_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"

/* Files of kernels, one module each. */
enum gpu_module {
#define GPU_MODULE(name) GPU_MODULE_##name,
#include "modules.def"
    GPU_MODULES
};

struct gpu_context {
    struct gpu_context *next; /* of the instance */
    struct attn_instance *instance;
    const struct gpu_driver *driver;
    const struct gpu_device_record *record;
    gpu_handle handle;
    bool primary; /* the device's primary context, retained; else the caller's */
    uint32_t refs;
    _Atomic gpu_result lost; /* the error after which all calls fail, or 0 */
    pthread_mutex_t lock;    /* of the modules */
    gpu_handle modules[GPU_MODULES + 1];
};

/* The context of a device: the caller's, or the primary one if `native` is NULL. Counted. */
int32_t gpu_context_open(struct attn_instance *instance, const struct gpu_device_record *record, void *native,
                         struct gpu_context **out, struct attn_error *err);
void gpu_context_close(struct gpu_context *context);

/* Makes the context current; fails if it is lost. Each success is ended by gpu_leave. */
int32_t gpu_enter(struct gpu_context *context, struct attn_error *err);
/* Makes the context current that was so before, and returns `status`. */
int32_t gpu_leave(struct gpu_context *context, int32_t status);
/* gpu_enter for destroying: false if the context is lost, so that only host memory can be freed. */
bool gpu_enter_to_free(struct gpu_context *context);

/* Turns a result of the driver into a status; `call` is the driver's function. A sticky error loses the
 * context. */
int32_t gpu_check(struct gpu_context *context, gpu_result result, const char *field, const char *call,
                  struct attn_error *err);
bool gpu_is_lost(const struct gpu_context *context);

/* ---------------------------------------------------------------- module.c */

/*
 * A kernel of a module, loaded now if it is not: first use is never inside a capture. `shared_bytes` of
 * dynamic shared memory are allowed for it. The context is current.
 */
int32_t gpu_module_function(struct gpu_context *context, enum gpu_module module, const char *name,
                            uint32_t shared_bytes, gpu_handle *out, struct attn_error *err);
/* Unloads everything. The context is current. */
void gpu_module_unload_all(struct gpu_context *context);

#endif
