/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches a kernel with its buffers and argument block. */
#include "opencl.h"

_Static_assert(sizeof(struct opencl_arguments) + OPENCL_BUFFERS * 8 <= 1024,
               "more than every device takes as arguments");
_Static_assert(OPENCL_F32 == ATTN_F32 && OPENCL_F16 == ATTN_F16 && OPENCL_BF16 == ATTN_BF16 &&
                   OPENCL_INT8 == ATTN_INT8 && OPENCL_E4M3 == ATTN_E4M3 && OPENCL_E5M2 == ATTN_E5M2 &&
                   OPENCL_E4M3FNUZ == ATTN_E4M3FNUZ && OPENCL_E5M2FNUZ == ATTN_E5M2FNUZ,
               "types");
_Static_assert(OPENCL_DENSE == ATTN_DENSE && OPENCL_TABLE == ATTN_TABLE && OPENCL_CSR == ATTN_CSR,
               "addressing");
_Static_assert(OPENCL_DISTANCE == ATTN_ALIBI_DISTANCE && OPENCL_BY_MASK == ATTN_ALIBI_MASK, "ALiBi");

int32_t opencl_launch_add(struct opencl_launch *launch, enum opencl_buffer which,
                          const struct attn_buffer *buffer, uint32_t size, const char *name,
                          struct attn_error *err)
{
    if (buffer->data == NULL)
        return ATTN_OK;
    if (buffer->byte_offset % size != 0)
        return opencl_fail(err, ATTN_E_INVALID, 0, name, "the offset of %s is no multiple of %u", name, size);
    launch->buffers[which] = (cl_mem)buffer->data;
    launch->arguments.at[which] = (opencl_i64)buffer->byte_offset;
    launch->arguments.given |= 1 << which;
    return ATTN_OK;
}

static bool are_aligned(const struct opencl_launch *launch, enum opencl_buffer which, int64_t page,
                        int64_t token, int64_t head, uint32_t dtype)
{
    const int64_t size = opencl_size(dtype) == 1 ? 8 : 16;

    return launch->buffers[which] == NULL || (launch->arguments.at[which] | page | token | head) % size == 0;
}

bool opencl_launch_is_aligned(const struct opencl_launch *launch)
{
    const struct opencl_arguments *a = &launch->arguments;
    const uint32_t q = (uint32_t)a->q_dtype, k = (uint32_t)a->k_to, v = (uint32_t)a->v_to;

    return are_aligned(launch, OPENCL_BUFFER_q, 0, a->q.token, a->q.head, q) &&
           are_aligned(launch, OPENCL_BUFFER_q_rope, 0, a->q_rope.token, a->q_rope.head, q) &&
           are_aligned(launch, OPENCL_BUFFER_k, a->k.page, a->k.token, a->k.head, k) &&
           are_aligned(launch, OPENCL_BUFFER_v, a->v.page, a->v.token, a->v.head, v) &&
           are_aligned(launch, OPENCL_BUFFER_k_new, 0, a->k_new.token, a->k_new.head, k) &&
           are_aligned(launch, OPENCL_BUFFER_v_new, 0, a->v_new.token, a->v_new.head, v);
}

/* The instance is locked: a kernel has one set of arguments for all threads. */
static cl_int enqueue(const struct opencl_functions *cl, cl_kernel kernel, const struct opencl_launch *launch,
                      const struct opencl_grid *grid, cl_command_queue queue, const char **out_call)
{
    const size_t local[3] = {grid->items, 1, 1};
    const size_t global[3] = {grid->groups[0] * grid->items, grid->groups[1], grid->groups[2]};

    *out_call = "clSetKernelArg";
    for (cl_uint i = 0; i < OPENCL_BUFFERS; i++) {
        const cl_int result = cl->clSetKernelArg(kernel, i, sizeof launch->buffers[i], &launch->buffers[i]);
        if (result != CL_SUCCESS)
            return result;
    }
    const cl_int result =
        cl->clSetKernelArg(kernel, OPENCL_BUFFERS, sizeof launch->arguments, &launch->arguments);
    if (result != CL_SUCCESS)
        return result;
    *out_call = "clEnqueueNDRangeKernel";
    return cl->clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL);
}

int32_t opencl_launch_enqueue(struct attn_backend_impl *backend, cl_kernel kernel,
                              const struct opencl_launch *launch, const struct opencl_grid *grid,
                              void *stream, struct attn_error *err)
{
    cl_command_queue queue = opencl_queue(backend, stream);
    const char *call;

    if (grid->groups[0] == 0 || grid->groups[1] == 0 || grid->groups[2] == 0)
        return ATTN_OK;
    pthread_mutex_lock(&backend->instance->lock);
    const cl_int result = enqueue(backend->cl, kernel, launch, grid, queue, &call);
    pthread_mutex_unlock(&backend->instance->lock);
    const int32_t status = opencl_check(result, "stream", call, err);
    return status == ATTN_OK ? opencl_check(backend->cl->clFlush(queue), "stream", "clFlush", err) : status;
}
