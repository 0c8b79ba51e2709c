/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dlpack.h beside DLPack's own types, spelled here as that project spells them for C++. */
#include <cstdint>

#define DLPACK_MAJOR_VERSION 1
typedef enum : int32_t { kDLCPU = 1, kDLCUDA = 2 } DLDeviceType;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

#include "attn/dlpack.h"

int32_t attn_test_dlpack(const DLTensor *tensor, attn_tensor *out, attn_device *device);
int32_t attn_test_dlpack(const DLTensor *tensor, attn_tensor *out, attn_device *device)
{
    *device = attn_device_from_dl(tensor->device);
    DLDevice back = attn_device_to_dl(*device);
    return back.device_type == tensor->device.device_type ? attn_tensor_from_dl(tensor, out) : ATTN_E_INVALID;
}
