/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The error bounds of docs/definition.md, sections 3 and 6. */
#include "oracle.h"

#include <math.h>

/* F: scores far from zero cost precision in f32. */
static double factor(double largest)
{
    return fmax(1, largest / 32);
}

static double pick(uint32_t dtype, double f32, double f16, double bf16)
{
    if (dtype == ATTN_F32 || oracle_is_8bit(dtype))
        return f32;
    return dtype == ATTN_F16 ? f16 : bf16;
}

double oracle_bound_out(enum oracle_class class, uint32_t out_dtype, double largest)
{
    switch (class) {
    case ORACLE_UNROUNDED:
        return pick(out_dtype, 3e-6 * factor(largest), 6e-4, 4e-3);
    case ORACLE_P_F16:
    case ORACLE_SUM_F16:
        return pick(out_dtype, 6e-4, 8e-4, 4e-3);
    case ORACLE_P_BF16:
    case ORACLE_SUM_BF16:
        return pick(out_dtype, 4e-3, 4e-3, 5e-3);
    case ORACLE_P_E4M3:
        return 4e-2;
    case ORACLE_Q_QUANTISED:
        return 5e-2;
    }
    return 0;
}

double oracle_bound_lse(enum oracle_class class, double largest, double lse)
{
    switch (class) {
    case ORACLE_SUM_F16:
        return 6e-4;
    case ORACLE_SUM_BF16:
        return 4e-3;
    case ORACLE_Q_QUANTISED:
        return 2e-2;
    default:
        return 1e-5 * factor(largest) + 2 * oracle_ulp32(lse);
    }
}

double oracle_bound_merge_out(uint32_t parts, uint32_t depth, double largest_lse, double largest_out)
{
    return (parts + 8 + 2 * (depth - 1.0) * fmax(1, largest_lse)) * 0x1p-24 * largest_out;
}

double oracle_bound_merge_lse(uint32_t parts, uint32_t depth, double largest_lse)
{
    return (parts + 4) * 0x1p-24 + (depth + 1) * 0x1p-23 * fmax(1, largest_lse);
}

double oracle_overflow(uint32_t dtype)
{
    switch (dtype) {
    case ATTN_F16:
        return 65520;
    case ATTN_BF16:
        return 0x1.ffp127;
    default:
        return 0x1.ffffffp127;
    }
}

double oracle_error(uint32_t dtype, double result, double wanted)
{
    if (!isinf(result))
        return fabs(result - wanted);
    if (isnan(wanted) || signbit(result) != signbit(wanted))
        return (double)INFINITY;
    return fmax(0, oracle_overflow(dtype) - fabs(wanted));
}

double oracle_error_before_rounding(uint32_t dtype, double result, double wanted)
{
    double error = oracle_error(dtype, result, wanted);

    return dtype == ATTN_F32 || isinf(result) ? error : fmax(0, error - oracle_half_step(dtype, result));
}
