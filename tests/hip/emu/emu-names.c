/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Generations name the same instruction differently; the tables know one name, that of gfx9 or gfx11. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "emu-image.h"

static const char *const whole[][2] = {
    {"v_add_nc_u32", "v_add_u32"},
    {"v_sub_nc_u32", "v_sub_u32"},
    {"v_subrev_nc_u32", "v_subrev_u32"},
    {"v_add_nc_i32", "v_add_i32"},
    {"v_sub_nc_i32", "v_sub_i32"},
    {"v_add_nc_u16", "v_add_u16"},
    {"v_sub_nc_u16", "v_sub_u16"},
    {"v_add_co_ci_u32", "v_addc_co_u32"},
    {"v_sub_co_ci_u32", "v_subb_co_u32"},
    {"v_subrev_co_ci_u32", "v_subbrev_co_u32"},
    {"v_mad_co_u64_u32", "v_mad_u64_u32"},
    {"v_mad_co_i64_i32", "v_mad_i64_i32"},
    {"v_max_num_f32", "v_max_f32"},
    {"v_min_num_f32", "v_min_f32"},
    {"v_max_num_f64", "v_max_f64"},
    {"v_min_num_f64", "v_min_f64"},
    {"v_max_num_f16", "v_max_f16"},
    {"v_min_num_f16", "v_min_f16"},
    {"v_max3_num_f32", "v_max3_f32"},
    {"v_min3_num_f32", "v_min3_f32"},
    {"v_med3_num_f32", "v_med3_f32"},
    {"v_maxmin_num_f32", "v_maxmin_f32"},
    {"v_minmax_num_f32", "v_minmax_f32"},
    {"v_pk_max_num_f16", "v_pk_max_f16"},
    {"v_pk_min_num_f16", "v_pk_min_f16"},
    {"v_cvt_pk_rtz_f16_f32", "v_cvt_pkrtz_f16_f32"},
    {"v_dot2acc_f32_f16", "v_dot2c_f32_f16"},
    {"v_mul_legacy_f32", "v_mul_dx9_zero_f32"},
    {"v_mad_mix_f32", "v_fma_mix_f32"},
    {"s_add_co_i32", "s_add_i32"},
    {"s_sub_co_i32", "s_sub_i32"},
    {"s_add_co_u32", "s_add_u32"},
    {"s_sub_co_u32", "s_sub_u32"},
    {"s_add_co_ci_u32", "s_addc_u32"},
    {"s_sub_co_ci_u32", "s_subb_u32"},
    {"s_addk_co_i32", "s_addk_i32"},
    {"s_max_num_f32", "s_max_f32"},
    {"s_min_num_f32", "s_min_f32"},
    {"s_and_not1_b32", "s_andn2_b32"},
    {"s_and_not1_b64", "s_andn2_b64"},
    {"s_or_not1_b32", "s_orn2_b32"},
    {"s_or_not1_b64", "s_orn2_b64"},
    {"s_and_not1_saveexec_b32", "s_andn2_saveexec_b32"},
    {"s_and_not1_saveexec_b64", "s_andn2_saveexec_b64"},
    {"s_or_not1_saveexec_b32", "s_orn2_saveexec_b32"},
    {"s_or_not1_saveexec_b64", "s_orn2_saveexec_b64"},
    {"s_and_not0_saveexec_b32", "s_andn1_saveexec_b32"},
    {"s_and_not0_saveexec_b64", "s_andn1_saveexec_b64"},
    {"s_and_not1_wrexec_b32", "s_andn2_wrexec_b32"},
    {"s_and_not1_wrexec_b64", "s_andn2_wrexec_b64"},
    {"s_ctz_i32_b32", "s_ff1_i32_b32"},
    {"s_ctz_i32_b64", "s_ff1_i32_b64"},
    {"s_clz_i32_u32", "s_flbit_i32_b32"},
    {"s_clz_i32_u64", "s_flbit_i32_b64"},
    {"s_cls_i32", "s_flbit_i32"},
    {"v_clz_i32_u32", "v_ffbh_u32"},
    {"v_ctz_i32_b32", "v_ffbl_b32"},
    {"v_cls_i32", "v_ffbh_i32"},
    {"v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16f16"},
    {"v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x16bf16_1k"},
    {"v_mfma_f32_32x32x8_f16", "v_mfma_f32_32x32x8f16"},
    {"v_mfma_f32_32x32x8_bf16", "v_mfma_f32_32x32x8bf16_1k"},
};

/* In front of the rest, and within it. */
static const char *const heads[][2] = {
    {"ds_read2st64_", "ds_load_2addr_stride64_"},
    {"ds_write2st64_", "ds_store_2addr_stride64_"},
    {"ds_read2_", "ds_load_2addr_"},
    {"ds_write2_", "ds_store_2addr_"},
    {"ds_read_", "ds_load_"},
    {"ds_write_", "ds_store_"},
};

static const char *const tails[][2] = {
    {"load_dwordx16", "load_b512"},
    {"load_dwordx8", "load_b256"},
    {"load_dwordx4", "load_b128"},
    {"load_dwordx3", "load_b96"},
    {"load_dwordx2", "load_b64"},
    {"load_dword", "load_b32"},
    {"load_ushort", "load_u16"},
    {"load_sshort", "load_i16"},
    {"load_ubyte_d16_hi", "load_d16_hi_u8"},
    {"load_ubyte_d16", "load_d16_u8"},
    {"load_sbyte_d16_hi", "load_d16_hi_i8"},
    {"load_sbyte_d16", "load_d16_i8"},
    {"load_ubyte", "load_u8"},
    {"load_sbyte", "load_i8"},
    {"load_short_d16_hi", "load_d16_hi_b16"},
    {"load_short_d16", "load_d16_b16"},
    {"store_dwordx4", "store_b128"},
    {"store_dwordx3", "store_b96"},
    {"store_dwordx2", "store_b64"},
    {"store_dword", "store_b32"},
    {"store_short_d16_hi", "store_d16_hi_b16"},
    {"store_short", "store_b16"},
    {"store_byte_d16_hi", "store_d16_hi_b8"},
    {"store_byte", "store_b8"},
    {"atomic_add_u32", "atomic_add"},
    {"atomic_or_b32", "atomic_or"},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* The name in the tables; valid until the thread's next call. */
const char *name_common(const char *name)
{
    static _Thread_local char made[64];
    for (size_t i = 0; i < COUNT(whole); i++)
        if (strcmp(name, whole[i][0]) == 0)
            return whole[i][1];
    for (size_t i = 0; i < COUNT(heads); i++) {
        size_t n = strlen(heads[i][0]);
        if (strncmp(name, heads[i][0], n) == 0) {
            snprintf(made, sizeof made, "%s%s", heads[i][1], name + n);
            return made;
        }
    }
    for (size_t i = 0; i < COUNT(tails); i++) {
        const char *at = strstr(name, tails[i][0]);
        if (at != NULL && at[strlen(tails[i][0])] == '\0') {
            snprintf(made, sizeof made, "%.*s%s", (int)(at - name), name, tails[i][1]);
            return made;
        }
    }
    return name;
}
