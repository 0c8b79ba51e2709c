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
    case ATTN_Q8_0:
        return "q8_0";
    case ATTN_Q4_0:
        return "q4_0";
    case ATTN_Q4_1:
        return "q4_1";
    case ATTN_Q5_0:
        return "q5_0";
    case ATTN_Q5_1:
        return "q5_1";
    case ATTN_IQ4_NL:
        return "iq4_nl";
    default:
        return "unknown";
    }
}
