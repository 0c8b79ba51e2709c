/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which kernels a problem gets on a device, and the sizes that they are compiled with. */
#include "opencl.h"

/* Tokens and heads of a kv head that are decoded, unless one token has more. */
#define DECODE_LIMIT 16u
#define MAX_DIM_VO   512u

/* How a kind of device is driven. */
struct tuning {
    const char *vendor; /* part of the name of the vendor; "" = any */
    cl_device_type type;
    uint32_t busy;           /* work-groups for each compute unit that decode at a time */
    uint32_t slice;          /* columns of a slice in local memory, of which 16 need 32 KiB and 32 need 48 */
    const char *definitions; /* options of the compiler */
};

/* The first row that fits. A guess was not measured: groups as small and local memory as little as anywhere.
 */
static const struct tuning tunings[] = {
    {"NVIDIA", CL_DEVICE_TYPE_GPU, 8, 32, " -DNATIVE_EXP"}, /* H200 */
    {"Advanced Micro", CL_DEVICE_TYPE_GPU, 8, 16, ""},      /* guess */
    {"Intel", CL_DEVICE_TYPE_GPU, 4, 16, ""},               /* guess */
    {"", CL_DEVICE_TYPE_CPU, 4, 16, ""},                    /* PoCL */
    {"", CL_DEVICE_TYPE_ALL, 8, 16, ""},                    /* guess */
};

static const struct tuning *find_tuning(const struct opencl_device *device)
{
    const struct tuning *tuning = tunings;

    /* The last row is for a device that does not tell its type, too. */
    while (tuning->type != CL_DEVICE_TYPE_ALL &&
           (strstr(device->vendor, tuning->vendor) == NULL || (device->type & tuning->type) == 0))
        tuning++;
    return tuning;
}

const char *opencl_config_generic(const struct opencl_device *device, const struct attn_problem *p,
                                  uint32_t *out_code, const char **out_field)
{
    *out_code = ATTN_REASON_HEAD_DIM;
    *out_field = "head_dim";
    if (p->head_dim % 8 != 0)
        return "a multiple of 8";
    *out_code = ATTN_REASON_HEAD_DIM_VO;
    if (p->head_dim_vo % 8 != 0 || p->head_dim_vo > MAX_DIM_VO)
        return "a multiple of 8 up to 512 of values";
    *out_code = ATTN_REASON_LAYOUT;
    *out_field = "layout";
    if (p->layout == ATTN_PAGED_X && p->kv_source != ATTN_KV_NEW)
        return "strided";
    *out_code = ATTN_REASON_DEVICE_ARCH;
    *out_field = "device";
    if (device != NULL && device->max_items < OPENCL_PREFILL_ITEMS)
        return "one with work-groups of 128";
    return NULL;
}

uint32_t opencl_config_decode_tokens(const struct attn_problem *p)
{
    const uint32_t group = p->heads / p->kv_heads;

    return group >= DECODE_LIMIT ? 1 : DECODE_LIMIT / group;
}

/* As many rows as the query heads of a kv head, but no more than local memory has room for. */
static uint32_t find_decode_rows(const struct attn_problem *p)
{
    const uint32_t group = p->heads / p->kv_heads;

    return group > 4 && p->head_dim <= 256 ? 8 : group > 2 ? 4 : group;
}

/* As many rows as leave 64 registers for sums; staging takes as many again. */
static uint32_t find_prefill_mr(uint32_t dim_vo, bool exact)
{
    const uint32_t vectors = (dim_vo + 63) / 64, most = exact ? 8 : 16;

    return vectors * 8 <= most ? 8 : vectors * 4 <= most ? 4 : vectors * 2 <= most ? 2 : 1;
}

void opencl_config_find(const struct opencl_device *device, const struct attn_problem *p,
                        struct opencl_config *out)
{
    const struct tuning *tuning = find_tuning(device);
    const char *field;
    uint32_t code;

    *out = (struct opencl_config){.generic = opencl_config_generic(device, p, &code, &field)};
    out->exact = p->out_dtype == ATTN_F32;
    /* Kernels that round no weight are judged by the codes of their results, too. */
    out->decode_exact = p->out_dtype != ATTN_F16 && p->out_dtype != ATTN_BF16;
    out->decode_rows = find_decode_rows(p);
    /* Local memory holds the sums of all rows and work-items, and the queries. */
    out->decode_items = out->decode_rows == 8 || p->head_dim > 256 ? 64 : 128;
    out->decode_tokens = opencl_config_decode_tokens(p);
    out->decode_lanes = out->decode_rows == 8 ? 2 : 4;
    out->busy_groups = tuning->busy * device->info.units;
    out->prefill_mr = find_prefill_mr(p->head_dim_vo, out->exact);
    out->prefill_slice = tuning->slice;
    out->definitions = tuning->definitions;
}

uint32_t opencl_config_prefill_rows(const struct opencl_config *config)
{
    return OPENCL_PREFILL_ITEMS / 16 * config->prefill_mr;
}

void opencl_config_options(const struct opencl_config *config, const struct attn_problem *p, char *out,
                           size_t size)
{
    const int length =
        snprintf(out, size, "-DK_DTYPE=%uu -DV_DTYPE=%uu -DHEAD_DIM=%u -DHEAD_DIM_VO=%u", p->k_dtype,
                 p->mla != 0 ? p->k_dtype : p->v_dtype, p->head_dim, p->head_dim_vo);

    if (config->generic == NULL)
        snprintf(out + length, size - (size_t)length,
                 " -DDECODE_ITEMS=%u -DDECODE_ROWS=%u -DDECODE_LANES=%u -DPREFILL_MR=%u "
                 "-DPREFILL_SLICE=%u%s%s%s%s",
                 config->decode_items, config->decode_rows, config->decode_lanes, config->prefill_mr,
                 config->prefill_slice, config->exact ? " -DPREFILL_EXACT" : "",
                 config->decode_exact ? " -DDECODE_EXACT" : "", p->lse != 0 ? " -DHAS_LSE" : "",
                 config->definitions);
}
