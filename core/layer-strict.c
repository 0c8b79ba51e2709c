/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Layers that keep to the limits of the original: attn/compat.h in the terms of a layer. */
#include "attn/compat.h"
#include "layer.h"
#include "state.h"

int32_t attn__layer_check_strict(uint32_t number, const struct attn_layer_class *layer_class,
                                 const struct attn_problem *problem, struct attn_error *err)
{
    const struct {
        const char *key;
        bool given;
    } later[] = {{"mask", problem->mask != ATTN_MASK_NONE},
                 {"sinks", problem->sinks == 1},
                 {"lse", problem->lse == 1},
                 {"mla", problem->mla == 1},
                 {"cp", problem->cp == 1},
                 {"positions", problem->positions == 1},
                 {"seq_causal", problem->seq_causal == 1},
                 {"q_scale", problem->q_scale != ATTN_SCALES_NONE},
                 {"out_scale", problem->out_scale != ATTN_SCALES_NONE},
                 {"kv_source", problem->kv_source == ATTN_KV_CACHE_NEW}};

    if (layer_class->strict_original > 1)
        return attn__fail(err, ATTN_E_INVALID, 0, "strict_original",
                          "classes[%u]: strict_original is %u; 0 and 1 are accepted", number,
                          layer_class->strict_original);
    for (size_t i = 0; layer_class->strict_original == 1 && i < sizeof later / sizeof later[0]; i++)
        if (later[i].given)
            return attn__fail(err, ATTN_E_UNSUPPORTED, 0, later[i].key,
                              "classes[%u]: strict_original is 1, and the original knows no %s", number,
                              later[i].key);
    return ATTN_OK;
}

/* The original's name of a cache's type. */
static const char *kv_dtype_name(const struct attn_problem *problem)
{
    switch (problem->k_dtype) {
    case ATTN_E4M3:
        return "fp8_e4m3";
    case ATTN_E5M2:
        return "fp8_e5m2";
    default:
        return "auto";
    }
}

static void describe(const struct attn_layer *layer, uint32_t question, struct attn_compat_desc *out)
{
    const struct attn_problem *problem = &layer->problem;

    ATTN_INIT(out);
    out->questions = question;
    out->type = problem->type;
    out->heads = problem->heads;
    out->kv_heads = problem->kv_heads;
    out->head_dim = problem->head_dim;
    out->model_dtype = problem->q_dtype;
    out->kv_dtype = kv_dtype_name(problem);
    out->block = problem->block;
    if (problem->window_left >= 0) {
        out->given |= ATTN_COMPAT_GIVEN_WINDOW;
        out->window = problem->window_left + 1;
    }
    if (problem->softcap > 0) {
        out->given |= ATTN_COMPAT_GIVEN_SOFTCAP;
        out->softcap = problem->softcap;
    }
    if (problem->alibi != ATTN_ALIBI_NONE)
        out->given |= ATTN_COMPAT_GIVEN_ALIBI;
}

int32_t attn__layer_check_create(const struct attn_layer *layer, struct attn_error *err)
{
    struct attn_compat_desc desc;

    describe(layer, ATTN_COMPAT_LAYER, &desc);
    return attn_compat_check(layer->backend->entry->flavour, &desc, err);
}

/* The scale of all values of a cache, where the host knows it. */
static float scale_of(const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_HOST && scale->granularity == ATTN_SCALES_TENSOR &&
                   scale->buffer.data != NULL
               ? *(const float *)(const void *)((const char *)scale->buffer.data + scale->buffer.byte_offset)
               : 1.0F;
}

int32_t attn__layer_check_forward(const struct attn_layer *layer, const struct attn__class_step *step,
                                  const struct attn_kv *kv, const struct attn_layer_tensors *tensors,
                                  struct attn_error *err)
{
    struct attn_compat_desc desc;

    describe(layer, ATTN_COMPAT_FORWARD, &desc);
    desc.parts = step->parts | (tensors->k_new.buffer.data != NULL ? ATTN_COMPAT_KEY : 0) |
                 (tensors->v_new.buffer.data != NULL ? ATTN_COMPAT_VALUE : 0) |
                 (kv != NULL ? ATTN_COMPAT_HAS_CACHE : 0);
    desc.given |= step->given;
    desc.max_decode_query = step->max_decode_query;
    desc.max_decode_len = step->max_decode_len;
    desc.seqs = step->decodes;
    desc.k_scale = kv != NULL ? scale_of(&kv->desc.k_scale) : 1.0F;
    desc.v_scale = kv != NULL ? scale_of(&kv->desc.v_scale) : 1.0F;
    return attn_compat_check(layer->backend->entry->flavour, &desc, err);
}
