/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names of element types. */
#include "check.h"

const char *attn__dtype_name(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return "f32";
    case ATTN_F16:
        return "f16";
    case ATTN_BF16:
        return "bf16";
    case ATTN_INT8:
        return "int8";
    case ATTN_INT32:
        return "i32";
    case ATTN_INT64:
        return "i64";
    case ATTN_E4M3:
        return "e4m3";
    case ATTN_E4M3FNUZ:
        return "e4m3fnuz";
    case ATTN_E5M2:
        return "e5m2";
    case ATTN_E5M2FNUZ:
        return "e5m2fnuz";
    default:
        return "unknown";
    }
}
