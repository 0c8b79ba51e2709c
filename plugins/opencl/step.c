/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step of decoding in place: lengths, then rows and page numbers. */
#include "opencl.h"

static int32_t add_arrays(struct opencl_launch *launch, const struct attn_kv_advance_step_args *args,
                          struct attn_error *err)
{
    const uint32_t index = args->index_dtype == ATTN_INT64 ? 8 : 4;
    const uint32_t sizes[OPENCL_STEP_BUFFERS] = {
        [OPENCL_STEP_table] = index, [OPENCL_STEP_sampled] = 8, [OPENCL_STEP_tokens] = 8,
        [OPENCL_STEP_positions] = 8, [OPENCL_STEP_slots] = 8,   [OPENCL_STEP_csr_indices] = index,
    };
    const struct {
        const struct attn_buffer *buffer;
        const char *name;
    } arrays[] = {
#define OPENCL_ARRAY(name) {&args->name, #name},
        OPENCL_FOR_STEP_BUFFERS(OPENCL_ARRAY)
#undef OPENCL_ARRAY
    };
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < OPENCL_STEP_BUFFERS && status == ATTN_OK; i++)
        status = opencl_launch_place(launch, i, arrays[i].buffer, sizes[i] != 0 ? sizes[i] : 4,
                                     arrays[i].name, &launch->step.at[i], err);
    return status;
}

/* Work-items that rows and page numbers need. */
static size_t count_work(const struct attn_kv_advance_step_args *args)
{
    const uint64_t cells = (uint64_t)args->queries * args->table_width;
    const uint64_t entries = cells < args->csr_capacity ? cells : args->csr_capacity;

    return args->csr_indptr.data != NULL && entries > args->num_tokens ? entries : args->num_tokens;
}

int32_t opencl_kv_advance_step(struct attn_backend_impl *backend,
                               const struct attn_kv_advance_step_args *args, void *stream,
                               struct attn_error *err)
{
    struct opencl_launch launch = {.buffer_count = OPENCL_STEP_BUFFERS, .size = sizeof launch.step};
    const struct opencl_grid one = {{1, 1, 1}, OPENCL_ITEMS};
    const struct opencl_grid rows = {{(count_work(args) + OPENCL_ITEMS - 1) / OPENCL_ITEMS, 1, 1},
                                     OPENCL_ITEMS};

    launch.step.table_stride = args->table_stride;
    launch.step.csr_capacity = args->csr_capacity < INT64_MAX ? (opencl_i64)args->csr_capacity : INT64_MAX;
    launch.step.window = args->window;
    launch.step.block = (opencl_i32)args->block;
    launch.step.seqs = (opencl_i32)args->seqs;
    launch.step.queries = (opencl_i32)args->queries;
    launch.step.num_tokens = (opencl_i32)args->num_tokens;
    launch.step.keep_padding = args->keep_padding != 0;
    launch.step.wide_index = args->index_dtype == ATTN_INT64;
    launch.step.table_width = args->table_width < INT32_MAX ? (opencl_i32)args->table_width : INT32_MAX;
    launch.step.windowed = (opencl_i32)args->windowed;
    int32_t status = add_arrays(&launch, args, err);
    if (status == ATTN_OK)
        status = opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_step_lengths], &launch, &one,
                                       stream, err);
    return status == ATTN_OK ? opencl_launch_enqueue(backend, backend->kernels[OPENCL_KERNEL_step_rows],
                                                     &launch, &rows, stream, err)
                             : status;
}
