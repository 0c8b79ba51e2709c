/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Builds programs, each once for a context: from its file in the cache, or from the sources. */
#include "opencl.h"

static int32_t fail_build(const struct attn_backend_impl *backend, cl_program program, cl_int result,
                          struct attn_error *err)
{
    char log[320] = "";

    if (backend->cl->clGetProgramBuildInfo(program, backend->device->device, CL_PROGRAM_BUILD_LOG,
                                           sizeof log - 1, log, NULL) != CL_SUCCESS)
        snprintf(log, sizeof log, "no log");
    return opencl_fail(err, ATTN_E_DEVICE, 0, "device",
                       "the kernels do not compile: clBuildProgram failed with %s (%d): %s",
                       opencl_error_name(result), result, log);
}

static cl_int build(const struct attn_backend_impl *backend, cl_program program, const char *options)
{
    return backend->cl->clBuildProgram(program, 1, &backend->device->device, options, NULL, NULL);
}

static int32_t build_sources(const struct attn_backend_impl *backend, const char *options, cl_program *out,
                             struct attn_error *err)
{
    cl_int result = CL_SUCCESS;

    *out = backend->cl->clCreateProgramWithSource(backend->context, opencl_source_count,
                                                  (const char **)(uintptr_t)opencl_sources, NULL, &result);
    const int32_t status = opencl_check(result, "device", "clCreateProgramWithSource", err);
    if (status != ATTN_OK)
        return status;
    result = build(backend, *out, options);
    if (result == CL_SUCCESS)
        return ATTN_OK;
    fail_build(backend, *out, result, err);
    backend->cl->clReleaseProgram(*out);
    return ATTN_E_DEVICE;
}

/* A file that the driver does not take any more is replaced. */
static int32_t load(const struct attn_backend_impl *backend, const char *options, cl_program *out,
                    struct attn_error *err)
{
    char name[512];
    const bool cached = opencl_cache_name(backend->instance, backend->device, options, name, sizeof name);

    *out = cached ? opencl_cache_load(backend, name) : NULL;
    if (*out != NULL && build(backend, *out, options) == CL_SUCCESS)
        return ATTN_OK;
    if (*out != NULL)
        backend->cl->clReleaseProgram(*out);
    const int32_t status = build_sources(backend, options, out, err);
    if (status == ATTN_OK && cached)
        opencl_cache_store(backend, name, *out);
    return status;
}

/* Finds a program, or adds it. The instance is locked. */
static int32_t find(struct attn_backend_impl *backend, const char *options, struct opencl_program **out,
                    struct attn_error *err)
{
    struct attn_instance *instance = backend->instance;

    for (*out = instance->programs; *out != NULL; *out = (*out)->next)
        if ((*out)->context == backend->context && (*out)->device == backend->device &&
            strcmp((*out)->options, options) == 0)
            return ATTN_OK;
    struct opencl_program *program = calloc(1, sizeof *program);
    if (program == NULL)
        return opencl_fail(err, ATTN_E_MEMORY, 0, "device", "no memory for a program");
    int32_t status =
        opencl_check(backend->cl->clRetainContext(backend->context), "device", "clRetainContext", err);
    if (status == ATTN_OK) {
        status = load(backend, options, &program->program, err);
        if (status != ATTN_OK)
            backend->cl->clReleaseContext(backend->context);
    }
    if (status != ATTN_OK) {
        free(program);
        return status;
    }
    snprintf(program->options, sizeof program->options, "%s", options);
    program->device = backend->device;
    program->context = backend->context;
    program->next = instance->programs;
    instance->programs = program;
    *out = program;
    return ATTN_OK;
}

int32_t opencl_kernel_create(struct attn_backend_impl *backend, const char *options, const char *name,
                             cl_kernel *out, struct attn_error *err)
{
    struct opencl_program *program;
    cl_int result = CL_SUCCESS;
    cl_device_fp_config single = 0;
    char all[sizeof((struct opencl_program *)NULL)->options];

    *out = NULL;
    backend->cl->clGetDeviceInfo(backend->device->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single,
                                 NULL);
    const bool rounds = (single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    snprintf(all, sizeof all, "-cl-std=CL1.2%s%s %s", rounds ? " -cl-fp32-correctly-rounded-divide-sqrt" : "",
             (backend->device->type & CL_DEVICE_TYPE_GPU) != 0 ? " -DON_GPU" : "", options);
    pthread_mutex_lock(&backend->instance->lock);
    int32_t status = find(backend, all, &program, err);
    if (status == ATTN_OK) {
        *out = backend->cl->clCreateKernel(program->program, name, &result);
        status = opencl_check(result, "device", "clCreateKernel", err);
    }
    pthread_mutex_unlock(&backend->instance->lock);
    return status;
}
