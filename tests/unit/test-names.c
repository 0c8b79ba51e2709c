/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every status and reason has a name, a text and an advice that people can read. */
#include <criterion/criterion.h>

#include "core.h"

static void check_text(const char *name, const char *text)
{
    cr_assert_neq(text[0], 0, "%s is empty", name);
    cr_assert_null(strchr(text, '%'), "%s holds a format: %s", name, text);
    cr_assert_null(strchr(text, '\n'), "%s holds a line end", name);
    cr_assert_null(strstr(text, "  "), "%s holds two blanks: %s", name, text);
}

Test(names, every_status_is_described)
{
    static const int32_t values[] = {
#define ATTN_STATUS(name, value, text, advice) value,
#include "attn/status.def"
    };
    static const char *const names[] = {
#define ATTN_STATUS(name, value, text, advice) "ATTN_" #name,
#include "attn/status.def"
    };
    const size_t count = sizeof values / sizeof values[0];
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(values[i], -(int32_t)i, "%s: numbers have no gap", names[i]);
        cr_assert_str_eq(attn_status_name(values[i]), names[i]);
        check_text(names[i], attn_status_text(values[i]));
        if (values[i] != ATTN_OK)
            check_text(names[i], attn_status_advice(values[i]));
    }
    cr_assert_eq(count, 14);
    cr_assert_str_eq(attn_status_name(-1000), "ATTN_E_UNKNOWN");
    cr_assert_str_eq(attn_status_name(7), "ATTN_E_UNKNOWN");
    check_text("unknown", attn_status_text(7));
    check_text("unknown", attn_status_advice(7));
}

Test(names, every_reason_is_described)
{
    enum kind { ABSENCE, REFUSAL, EXPLICIT, ADVICE };
    static const struct {
        const char *name;
        uint32_t value;
        enum kind kind;
    } reasons[] = {
#define ATTN_REASON(name, value, kind, text, advice) {#name, value, kind},
#include "attn/reason.def"
    };
    const size_t count = sizeof reasons / sizeof reasons[0];
    uint32_t absences = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t value = reasons[i].value;
        cr_assert_str_eq(attn_reason_name(value), reasons[i].name);
        check_text(reasons[i].name, attn_reason_text(value));
        check_text(reasons[i].name, attn_reason_advice(value));
        cr_assert_eq(attn_reason_is_absence(value), reasons[i].kind == ABSENCE, "%s", reasons[i].name);
        cr_assert_eq(attn_reason_is_explicit(value), reasons[i].kind == EXPLICIT, "%s", reasons[i].name);
        absences += reasons[i].kind == ABSENCE;
        cr_assert(i == 0 || value > reasons[i - 1].value, "%s: numbers rise", reasons[i].name);
    }
    cr_assert_eq(absences, 7);
    cr_assert(attn_reason_is_absence(ATTN_REASON_NO_DRIVER));
    cr_assert_not(attn_reason_is_absence(ATTN_REASON_HEAD_DIM));
    cr_assert_not(attn_reason_is_absence(ATTN_REASON_SIDE_EFFECTS));
    cr_assert_not(attn_reason_is_absence(0));
    cr_assert(attn_reason_is_explicit(ATTN_REASON_ENC_DEC_ROCM_HIP));
    cr_assert_not(attn_reason_is_explicit(0));
    cr_assert_str_eq(attn_reason_text(ATTN_REASON_ENC_DEC_ROCM_HIP),
                     "ROCm/HIP is not currently supported with encoder/decoder models.");
}

Test(names, numbers_that_are_no_reasons)
{
    cr_assert_str_eq(attn_reason_name(0), "NONE");
    cr_assert_str_eq(attn_reason_text(0), "");
    cr_assert_str_eq(attn_reason_advice(0), "");
    cr_assert_str_eq(attn_reason_name(200), "UNKNOWN");
    cr_assert_str_eq(attn_reason_name(ATTN_REASON_PRIVATE), "PRIVATE");
    cr_assert_str_eq(attn_reason_name(0x10007), "PRIVATE");
    check_text("private", attn_reason_text(0x10007));
    check_text("private", attn_reason_advice(0x10007));
    cr_assert_str_eq(attn_reason_advice(ATTN_REASON_PRIVATE), attn_reason_advice(0x10007));
    cr_assert_str_eq(attn_reason_text(ATTN_REASON_PRIVATE), attn_reason_text(0x10007));
}

Test(names, element_types)
{
    static const struct {
        uint32_t dtype;
        const char *name;
        uint32_t size;
    } types[] = {{ATTN_INT8, "int8", 1},        {ATTN_INT32, "i32", 4}, {ATTN_INT64, "i64", 8},
                 {ATTN_F16, "f16", 2},          {ATTN_F32, "f32", 4},   {ATTN_BF16, "bf16", 2},
                 {ATTN_E4M3, "e4m3", 1},        {ATTN_E5M2, "e5m2", 1}, {ATTN_E4M3FNUZ, "e4m3fnuz", 1},
                 {ATTN_E5M2FNUZ, "e5m2fnuz", 1}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        cr_assert_str_eq(attn_dtype_name(types[i].dtype), types[i].name);
        cr_assert_eq(attn_dtype_size(types[i].dtype), types[i].size);
    }
    cr_assert_null(attn_dtype_name(0));
    cr_assert_null(attn_dtype_name(ATTN_DTYPE(8, 8)), "DLPack's other e4m3 is not ours");
    cr_assert_eq(attn_dtype_size(ATTN_DTYPE(8, 8)), 0);
    cr_assert_eq(ATTN_DTYPE(10, 8), ATTN_E4M3);
}

Test(names, small_enumerations)
{
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_FOUND), "found");
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_TRUSTED), "trusted");
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_NOTE), "note");
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_PROBED), "probed");
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_LOADED), "loaded");
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_NEGOTIATED), "negotiated");
    cr_assert_str_eq(attn_stage_name(ATTN_STAGE_READY), "ready");
    cr_assert_str_eq(attn_stage_name(0), "unknown");
    cr_assert_str_eq(attn_stage_name(8), "unknown");
    cr_assert_str_eq(attn_backend_state_name(ATTN_BACKEND_READY), "ready");
    cr_assert_str_eq(attn_backend_state_name(ATTN_BACKEND_NO_DEVICE), "no-device");
    cr_assert_str_eq(attn_backend_state_name(ATTN_BACKEND_NOT_ASKED), "not-asked");
    cr_assert_str_eq(attn_backend_state_name(ATTN_BACKEND_REFUSED), "refused");
    cr_assert_str_eq(attn_backend_state_name(0), "unknown");
    cr_assert_str_eq(attn_backend_state_name(5), "unknown");
    cr_assert_str_eq(attn_decided_by_name(ATTN_DECIDED_BY_CALL), "call");
    cr_assert_str_eq(attn_decided_by_name(ATTN_DECIDED_BY_ENVIRONMENT), "environment");
    cr_assert_str_eq(attn_decided_by_name(ATTN_DECIDED_BY_AUTOMATIC), "automatic");
    cr_assert_str_eq(attn_decided_by_name(0), "unknown");
    cr_assert_str_eq(attn_decided_by_name(4), "unknown");
    cr_assert_str_eq(attn_version(), "0.1.0");
}
