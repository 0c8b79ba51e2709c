/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kernels that work on caches, for the driver of tests. */
#include "fiber-names.h"

#include "../../backends/cuda/upload.cu"

#include "kv-gather.h"
#include "kv-move.h"
#include "kv-write.h"
#include "merge.h"
#include "step.h"

DRIVER_KERNEL(gpu_put, gpu_upload)
DRIVER_KERNEL(gpu_kv_write_rows, gpu_kv_write)
DRIVER_KERNEL(gpu_kv_map_slots, gpu_kv_slots)
DRIVER_KERNEL(gpu_kv_gather_rows, gpu_kv_gather)
DRIVER_KERNEL(gpu_kv_convert_pages, gpu_kv_convert)
DRIVER_KERNEL(gpu_kv_move_pairs, gpu_kv_move)
DRIVER_KERNEL(gpu_merge_rows, gpu_merge)
DRIVER_KERNEL(gpu_rescale_rows, gpu_merge)
DRIVER_KERNEL(gpu_step_lengths, gpu_step)
DRIVER_KERNEL(gpu_step_rows, gpu_step)

const struct driver_kernel driver_kv_kernels[] = {
    DRIVER_LINE(gpu_put, gpu_upload),
    DRIVER_LINE(gpu_kv_write_rows, gpu_kv_write),
    DRIVER_LINE(gpu_kv_map_slots, gpu_kv_slots),
    DRIVER_LINE(gpu_kv_gather_rows, gpu_kv_gather),
    DRIVER_LINE(gpu_kv_convert_pages, gpu_kv_convert),
    DRIVER_LINE(gpu_kv_move_pairs, gpu_kv_move),
    DRIVER_LINE(gpu_merge_rows, gpu_merge),
    DRIVER_LINE(gpu_rescale_rows, gpu_merge),
    DRIVER_LINE(gpu_step_lengths, gpu_step),
    DRIVER_LINE(gpu_step_rows, gpu_step),
    {NULL, NULL, 0, 0},
};
