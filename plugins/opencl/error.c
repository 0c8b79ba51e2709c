/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Errors: filling them in, and the status of OpenCL's results. */
#include <stdarg.h>

#include "opencl.h"

int32_t opencl_fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                    const char *format, ...)
{
    va_list list;

    if (err == NULL)
        return status;
    err->status = status;
    err->reason = reason;
    snprintf(err->field, sizeof err->field, "%s", field);
    va_start(list, format);
    vsnprintf(err->message, sizeof err->message, format, list);
    va_end(list);
    return status;
}

static int32_t status_of(cl_int result)
{
    switch (result) {
    case CL_OUT_OF_HOST_MEMORY:
    case CL_OUT_OF_RESOURCES:
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_INVALID_BUFFER_SIZE:
        return ATTN_E_MEMORY;
    default:
        return ATTN_E_DEVICE;
    }
}

const char *opencl_error_name(cl_int result)
{
    static const struct {
        cl_int code;
        const char *name;
    } names[] = {
#define NAME(name) {CL_##name, "CL_" #name},
#include "errors.def"
#undef NAME
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == result)
            return names[i].name;
    return "OpenCL error";
}

int32_t opencl_check(cl_int result, const char *field, const char *call, struct attn_error *err)
{
    if (result == CL_SUCCESS)
        return ATTN_OK;
    return opencl_fail(err, status_of(result), 0, field, "%s failed with %s (%d)", call,
                       opencl_error_name(result), result);
}
