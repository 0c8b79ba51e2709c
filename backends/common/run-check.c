/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of what a run is given: tensors, masks, slopes, sinks, new keys, and the cache. */
#include "check.h"

static int32_t check_kv(const struct attn_problem *problem, const struct attn_kv_desc *desc,
                        struct attn_error *err)
{
    /* The values of a latent cache are columns of its keys. */
    const uint32_t vo = problem->mla != 0        ? problem->head_dim_vo
                        : desc->head_dim_vo != 0 ? desc->head_dim_vo
                                                 : desc->head_dim;
    const struct {
        const char *name;
        uint32_t got, wanted;
    } members[] = {
        {"kv.k_dtype", desc->k_dtype, problem->k_dtype},
        {"kv.v_dtype", problem->mla != 0 ? problem->v_dtype : desc->v_dtype, problem->v_dtype},
        {"kv.kv_heads", desc->kv_heads, problem->kv_heads},
        {"kv.head_dim", desc->head_dim, problem->head_dim},
        {"kv.head_dim_vo", vo, problem->head_dim_vo},
        {"kv.layout", desc->layout != 0 ? desc->layout : (uint32_t)ATTN_STRIDED, problem->layout},
        {"kv.block", problem->addressing == ATTN_DENSE ? problem->block : desc->block, problem->block}};

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (members[i].got == members[i].wanted)
            continue;
        if (i < 2)
            return attn__fail(err, ATTN_E_INVALID, 0, members[i].name,
                              "%s is %s, the plan's is %s; they must be equal", members[i].name,
                              attn__dtype_name(members[i].got), attn__dtype_name(members[i].wanted));
        return attn__fail(err, ATTN_E_INVALID, 0, members[i].name,
                          "%s is %u, the plan's is %u; they must be equal", members[i].name, members[i].got,
                          members[i].wanted);
    }
    if (attn__address(&desc->v) == NULL && problem->mla == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "kv.v",
                          "kv.v is not given; the plan needs values of their own");
    return ATTN_OK;
}

/* An array of the run: given, and aligned to its elements. */
static int32_t check_array(const struct attn_buffer *buffer, uint32_t size, const char *name,
                           struct attn_error *err)
{
    uintptr_t address = (uintptr_t)attn__address(buffer);

    if (address == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; the plan needs it", name);
    if (address % size != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "the address of %s is no multiple of %u", name, size);
    return ATTN_OK;
}

/* Every element of an additive mask is aligned. */
static int32_t check_mask_bits(const struct attn_problem *p, uint64_t bits, struct attn_error *err)
{
    uint32_t size = p->mask == ATTN_MASK_BITS ? 1 : attn__dtype_size(attn__mask_dtype(p->mask));

    return (bits & (size - 1)) == 0
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "tensors.mask",
                            "strides and starts of the mask must be multiples of its element size %u", size);
}

static int32_t check_mask(const struct attn_problem *p, const struct attn_tensors *tensors,
                          struct attn_error *err)
{
    uint32_t size = p->mask == ATTN_MASK_BITS ? 1 : attn__dtype_size(attn__mask_dtype(p->mask));
    bool starts = attn__address(&tensors->mask_starts) != NULL;
    uint64_t bits = (uint64_t)tensors->mask_head_stride | (uint64_t)tensors->mask_row_stride;
    int32_t status = check_array(&tensors->mask, size, "tensors.mask", err);

    if (status == ATTN_OK && starts)
        status = check_array(&tensors->mask_starts, sizeof(int64_t), "tensors.mask_starts", err);
    bits |= starts ? 0 : (uint64_t)tensors->mask_seq_stride;
    return status == ATTN_OK ? check_mask_bits(p, bits, err) : status;
}

/* What the array of starts holds; a graph's has its contents at the launch. */
int32_t attn__run_check_mask_starts(const struct attn_problem *p, const struct attn_batch *batch,
                                    const struct attn_tensors *tensors, struct attn_error *err)
{
    const int64_t *starts = (const int64_t *)(const void *)attn__address(&tensors->mask_starts);
    uint64_t bits = 0;

    for (uint32_t n = 0; p->mask != ATTN_MASK_NONE && starts != NULL && n < batch->seqs; n++)
        bits |= starts[n] >= 0 ? (uint64_t)starts[n] : 0;
    return p->mask != ATTN_MASK_NONE ? check_mask_bits(p, bits, err) : ATTN_OK;
}

static int32_t check_extras(const struct attn_problem *p, const struct attn_tensors *tensors,
                            struct attn_error *err)
{
    if (p->mask != ATTN_MASK_NONE) {
        int32_t status = check_mask(p, tensors, err);
        if (status != ATTN_OK)
            return status;
    }
    if (p->alibi != ATTN_ALIBI_NONE) {
        int32_t status = check_array(&tensors->alibi_slopes, sizeof(float), "tensors.alibi_slopes", err);
        if (status != ATTN_OK)
            return status;
    }
    if (p->sinks != 0 && tensors->sinks_dtype != ATTN_F32 && tensors->sinks_dtype != ATTN_BF16)
        return attn__fail(err, ATTN_E_INVALID, 0, "tensors.sinks_dtype",
                          "sinks are %s; f32 and bf16 are served", attn__dtype_name(tensors->sinks_dtype));
    if (p->sinks != 0)
        return check_array(&tensors->sinks, attn__dtype_size(tensors->sinks_dtype), "tensors.sinks", err);
    return ATTN_OK;
}

int32_t attn__run_check_tensors(const struct attn_problem *p, const struct attn_batch *batch,
                                const struct attn_tensors *tensors, struct attn_error *err)
{
    uint32_t rows = batch->rows, size = attn__dtype_size(p->q_dtype);
    bool pieces = attn__address(&tensors->q_rope.buffer) != NULL;
    int32_t status = attn__tensor_check(&tensors->q, rows, p->heads, pieces ? p->head_dim_vo : p->head_dim,
                                        size, 0, "tensors.q", err);

    if (status == ATTN_OK && pieces)
        status = attn__tensor_check(&tensors->q_rope, rows, p->heads, p->head_dim - p->head_dim_vo, size, 0,
                                    "tensors.q_rope", err);
    if (status == ATTN_OK)
        status = attn__tensor_check(&tensors->out, rows, p->heads, p->head_dim_vo,
                                    attn__dtype_size(p->out_dtype), 1, "tensors.out", err);
    if (status == ATTN_OK && p->lse != 0)
        status = attn__tensor_check(&tensors->lse, rows, p->heads, 1, sizeof(float), 1, "tensors.lse", err);
    if (status == ATTN_OK)
        status = attn__scale_check(&tensors->q_scale, p->q_dtype, "tensors.q_scale", err);
    if (status == ATTN_OK)
        status = attn__scale_check(&tensors->out_scale, p->out_dtype, "tensors.out_scale", err);
    return status == ATTN_OK ? check_extras(p, tensors, err) : status;
}

int32_t attn__run_check_new(const struct attn_problem *p, const struct attn_tensors *tensors, uint64_t tokens,
                            struct attn_error *err)
{
    int32_t status = attn__tensor_check(&tensors->k_new, tokens, p->kv_heads, p->head_dim,
                                        attn__dtype_size(p->k_dtype), 0, "tensors.k_new", err);

    if (status == ATTN_OK)
        status = attn__scale_check(&tensors->k_new_scale, p->k_dtype, "tensors.k_new_scale", err);
    if (status != ATTN_OK || p->mla != 0)
        return status;
    status = attn__tensor_check(&tensors->v_new, tokens, p->kv_heads, p->head_dim_vo,
                                attn__dtype_size(p->v_dtype), 0, "tensors.v_new", err);
    return status == ATTN_OK
               ? attn__scale_check(&tensors->v_new_scale, p->v_dtype, "tensors.v_new_scale", err)
               : status;
}

int32_t attn__run_check_cache(const struct attn_problem *problem, const struct attn_batch *batch,
                              const struct attn_extent *extent, const struct attn_kv_desc *desc, bool bare,
                              struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (desc == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "tensors.kv",
                          "neither a cache nor a description is given; one of them is needed");
    if (bare)
        status = attn__kv_check(desc, err);
    if (status == ATTN_OK)
        status = check_kv(problem, desc, err);
    return status == ATTN_OK ? attn__extent_check(problem, batch, extent, desc, err) : status;
}
