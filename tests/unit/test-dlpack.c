/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Conversions between DLPack tensors and plain data. */
#include <criterion/criterion.h>

#include "attn/attn.h"
#include "attn/dlpack.h"

static attn_dl_tensor make(int32_t ndim, int64_t *shape, int64_t *strides)
{
    static char memory[8];
    attn_dl_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = memory;
    tensor.byte_offset = 24;
    tensor.ndim = ndim;
    tensor.dtype = attn_dtype_to_dl(ATTN_BF16);
    tensor.shape = shape;
    tensor.strides = strides;
    tensor.device = (attn_dl_device){ATTN_DEVICE_CUDA, 3};
    return tensor;
}

Test(dlpack, layout_is_dlpacks)
{
    cr_assert_eq(sizeof(attn_dl_tensor), 48);
    cr_assert_eq(offsetof(attn_dl_tensor, device), 8);
    cr_assert_eq(offsetof(attn_dl_tensor, ndim), 16);
    cr_assert_eq(offsetof(attn_dl_tensor, dtype), 20);
    cr_assert_eq(offsetof(attn_dl_tensor, shape), 24);
    cr_assert_eq(offsetof(attn_dl_tensor, strides), 32);
    cr_assert_eq(offsetof(attn_dl_tensor, byte_offset), 40);
}

Test(dlpack, types_and_devices)
{
    static const uint32_t types[] = {ATTN_INT8, ATTN_INT32, ATTN_INT64,    ATTN_F16,  ATTN_F32,
                                     ATTN_BF16, ATTN_E4M3,  ATTN_E4M3FNUZ, ATTN_E5M2, ATTN_E5M2FNUZ};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const attn_dl_dtype dl = attn_dtype_to_dl(types[i]);
        cr_assert_eq(attn_dtype_from_dl(dl), types[i]);
        cr_assert_eq(dl.lanes, 1);
        cr_assert_eq(dl.bits, attn_dtype_size(types[i]) * 8);
    }
    cr_assert_eq(attn_dtype_from_dl((attn_dl_dtype){2, 16, 1}), ATTN_F16);
    cr_assert_eq(attn_dtype_from_dl((attn_dl_dtype){4, 16, 1}), ATTN_BF16);
    cr_assert_null(attn_dtype_name(attn_dtype_from_dl((attn_dl_dtype){2, 16, 4})),
                   "four lanes are no element");
    const struct attn_device device = attn_device_from_dl((attn_dl_device){10, 2});
    cr_assert_eq(device.type, ATTN_DEVICE_ROCM);
    cr_assert_eq(device.ordinal, 2);
    cr_assert_eq(attn_device_to_dl(device).device_type, 10);
    cr_assert_eq(attn_device_to_dl(device).device_id, 2);
}

Test(dlpack, tensors)
{
    int64_t shape[] = {5, 8, 64};
    int64_t strides[] = {8 * 96, -96, 1};
    struct attn_tensor out;
    attn_dl_tensor tensor = make(3, shape, NULL);
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_OK);
    cr_assert_eq(out.buffer.data, tensor.data);
    cr_assert_eq(out.buffer.byte_offset, 24);
    cr_assert_eq(out.token_stride, 8 * 64 * 2, "strides are bytes");
    cr_assert_eq(out.head_stride, 64 * 2);
    tensor.strides = strides;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_OK);
    cr_assert_eq(out.token_stride, 8 * 96 * 2);
    cr_assert_eq(out.head_stride, -96 * 2);
    tensor.ndim = 2;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_OK, "a log-sum-exp [token, head]");
    cr_assert_eq(out.head_stride, -96 * 2);
    shape[2] = 0;
    tensor.ndim = 3;
    tensor.strides = NULL;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_OK, "an empty one");
}

Test(dlpack, tensors_that_are_refused)
{
    int64_t shape[] = {5, 8, 64, 1};
    int64_t strides[] = {1024, 128, 2, 1};
    struct attn_tensor out = {.head_stride = 77};
    attn_dl_tensor tensor = make(3, shape, strides);
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID, "the innermost dimension has gaps");
    shape[2] = 1;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_OK, "of one element there are none");
    out.head_stride = 77;
    strides[2] = 1;
    tensor.ndim = 4;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID);
    tensor.ndim = 1;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID);
    tensor = make(3, shape, strides);
    strides[0] = INT64_MAX / 2 + 1;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID, "bytes overflow");
    strides[0] = INT64_MIN / 2 - 1;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID);
    strides[0] = 1024;
    shape[0] = -1;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID);
    shape[0] = 5;
    shape[1] = INT64_MAX;
    shape[2] = 64;
    tensor.strides = NULL;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID, "compact strides overflow");
    shape[1] = 8;
    tensor.dtype.lanes = 2;
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID);
    tensor.dtype = (attn_dl_dtype){1, 4, 1};
    cr_assert_eq(attn_tensor_from_dl(&tensor, &out), ATTN_E_INVALID, "half bytes");
    cr_assert_eq(attn_tensor_from_dl(NULL, &out), ATTN_E_INVALID);
    cr_assert_eq(out.head_stride, 77, "left alone");
}

Test(dlpack, buffers)
{
    int64_t shape[] = {5, 1, 4};
    int64_t strides[] = {4, 99, 1};
    struct attn_buffer out = {NULL, 0};
    attn_dl_tensor tensor = make(3, shape, strides);
    cr_assert_eq(attn_buffer_from_dl(&tensor, &out), ATTN_OK, "a dimension of one has no stride");
    cr_assert_eq(out.data, tensor.data);
    cr_assert_eq(out.byte_offset, 24);
    strides[0] = 5;
    cr_assert_eq(attn_buffer_from_dl(&tensor, &out), ATTN_E_INVALID, "gaps");
    tensor.strides = NULL;
    cr_assert_eq(attn_buffer_from_dl(&tensor, &out), ATTN_OK);
    tensor.ndim = 0;
    cr_assert_eq(attn_buffer_from_dl(&tensor, &out), ATTN_OK, "one number");
}

Test(dlpack, and_back)
{
    const struct attn_device device = {.type = ATTN_DEVICE_CPU};
    struct attn_tensor tensor = {.buffer = {&tensor, 8}, .token_stride = 1024, .head_stride = 128};
    int64_t shape[] = {5, 8, 64};
    int64_t strides[3];
    attn_dl_tensor view;
    cr_assert_eq(attn_tensor_to_dl(&tensor, ATTN_F16, device, shape, strides, &view), ATTN_OK);
    cr_assert_eq(view.ndim, 3);
    cr_assert_eq(strides[0], 512);
    cr_assert_eq(strides[1], 64);
    cr_assert_eq(strides[2], 1);
    struct attn_tensor again;
    cr_assert_eq(attn_tensor_from_dl(&view, &again), ATTN_OK);
    cr_assert_arr_eq(&again, &tensor, sizeof tensor);
    tensor.head_stride = 127;
    cr_assert_eq(attn_tensor_to_dl(&tensor, ATTN_F16, device, shape, strides, &view), ATTN_E_INVALID);
    cr_assert_eq(attn_tensor_to_dl(&tensor, 0, device, shape, strides, &view), ATTN_E_INVALID);
}
