/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Launches a kernel with its buffers and argument block. */
#include "opencl.h"

_Static_assert(sizeof(struct opencl_arguments) + OPENCL_BUFFERS * 8 <= 1024,
               "more than every device takes as arguments");
_Static_assert(sizeof(struct opencl_move) + (OPENCL_MOVE_PAIRS + 1) * 8 <= 1024 &&
                   sizeof(struct opencl_convert) + (OPENCL_CONVERT_PAIRS + 1) * 8 <= 1024 &&
                   sizeof(struct opencl_merge) + (OPENCL_MERGE_PARTS + 1) * 8 <= 1024 &&
                   sizeof(struct opencl_step) + OPENCL_STEP_BUFFERS * 8 <= 1024 &&
                   (int)OPENCL_MERGE_PARTS < (int)OPENCL_BUFFERS &&
                   (int)OPENCL_STEP_BUFFERS <= (int)OPENCL_BUFFERS,
               "as above");
_Static_assert(OPENCL_F32 == ATTN_F32 && OPENCL_F16 == ATTN_F16 && OPENCL_BF16 == ATTN_BF16 &&
                   OPENCL_INT8 == ATTN_INT8 && OPENCL_E4M3 == ATTN_E4M3 && OPENCL_E5M2 == ATTN_E5M2 &&
                   OPENCL_E4M3FNUZ == ATTN_E4M3FNUZ && OPENCL_E5M2FNUZ == ATTN_E5M2FNUZ,
               "types");
_Static_assert(OPENCL_DENSE == ATTN_DENSE && OPENCL_TABLE == ATTN_TABLE && OPENCL_CSR == ATTN_CSR,
               "addressing");
_Static_assert(OPENCL_DISTANCE == ATTN_ALIBI_DISTANCE && OPENCL_BY_MASK == ATTN_ALIBI_MASK, "ALiBi");

int32_t opencl_launch_place(struct opencl_launch *launch, uint32_t which, const struct attn_buffer *buffer,
                            uint32_t size, const char *name, opencl_i64 *out_at, struct attn_error *err)
{
    *out_at = -1;
    if (buffer->data == NULL)
        return ATTN_OK;
    if (buffer->byte_offset % size != 0)
        return opencl_fail(err, ATTN_E_INVALID, 0, name, "the offset of %s is no multiple of %u", name, size);
    launch->buffers[which] = (cl_mem)buffer->data;
    *out_at = (opencl_i64)buffer->byte_offset;
    return ATTN_OK;
}

int32_t opencl_launch_add(struct opencl_launch *launch, enum opencl_buffer which,
                          const struct attn_buffer *buffer, uint32_t size, const char *name,
                          struct attn_error *err)
{
    opencl_i64 at;
    const int32_t status = opencl_launch_place(launch, which, buffer, size, name, &at, err);

    if (status != ATTN_OK || at < 0)
        return status;
    launch->arguments.at[which] = at;
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

cl_int opencl_launch_set(const struct opencl_functions *cl, cl_kernel kernel,
                         const struct opencl_launch *launch)
{
    const cl_uint count = launch->buffer_count != 0 ? launch->buffer_count : (cl_uint)OPENCL_BUFFERS;
    const size_t size = launch->size != 0 ? launch->size : sizeof launch->arguments;

    for (cl_uint i = 0; i < count; i++) {
        const cl_int result = cl->clSetKernelArg(kernel, i, sizeof launch->buffers[i], &launch->buffers[i]);
        if (result != CL_SUCCESS)
            return result;
    }
    return cl->clSetKernelArg(kernel, count, size, &launch->arguments);
}

int32_t opencl_launch_start(const struct opencl_functions *cl, cl_kernel kernel,
                            const struct opencl_grid *grid, cl_command_queue queue, struct attn_error *err)
{
    const size_t local[3] = {grid->items, 1, 1};
    const size_t global[3] = {grid->groups[0] * grid->items, grid->groups[1], grid->groups[2]};

    return opencl_check(cl->clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL),
                        "stream", "clEnqueueNDRangeKernel", err);
}

int32_t opencl_launch_enqueue(struct attn_backend_impl *backend, cl_kernel kernel,
                              const struct opencl_launch *launch, const struct opencl_grid *grid,
                              void *stream, struct attn_error *err)
{
    cl_command_queue queue = opencl_queue(backend, stream);
    struct attn_graph_impl *graph = opencl_graph_find(backend, stream);

    if (grid->groups[0] == 0 || grid->groups[1] == 0 || grid->groups[2] == 0)
        return ATTN_OK;
    if (graph != NULL)
        return opencl_graph_add_launch(graph, kernel, launch, grid, err);
    pthread_mutex_lock(&backend->instance->lock); /* a kernel has one set of arguments for all threads */
    int32_t status =
        opencl_check(opencl_launch_set(backend->cl, kernel, launch), "stream", "clSetKernelArg", err);
    if (status == ATTN_OK)
        status = opencl_launch_start(backend->cl, kernel, grid, queue, err);
    pthread_mutex_unlock(&backend->instance->lock);
    return status == ATTN_OK ? opencl_check(backend->cl->clFlush(queue), "stream", "clFlush", err) : status;
}
