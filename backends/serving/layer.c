/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates layers; what does not change from step to step is checked here, once. */
#include <math.h>
#include <stdlib.h>

#include "fail.h"
#include "state.h"

/* An array has to be given if the problem uses it, and must not be otherwise. */
static int32_t check_given(const void *data, bool wanted, const char *name, const char *key,
                           struct attn_error *err)
{
    return (data != NULL) == wanted
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %s, but the problem's %s %s it", name,
                            wanted ? "not given" : "given", key, wanted ? "needs" : "does not use");
}

static int32_t check_desc(const struct attn_layer_impl *layer, struct attn_error *err)
{
    const struct attn_layer_desc *desc = &layer->desc;
    const struct attn_problem *problem = &layer->problem;

    if (!isfinite(desc->softmax_scale) || desc->softmax_scale <= 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "softmax_scale",
                          "softmax_scale is %g; accepted: finite and > 0; there is no default",
                          (double)desc->softmax_scale);
    int32_t status =
        check_given(desc->alibi_slopes.data, problem->alibi != ATTN_ALIBI_NONE, "alibi_slopes", "alibi", err);
    if (status == ATTN_OK)
        status = check_given(desc->sinks.data, problem->sinks == 1, "sinks", "sinks", err);
    if (status == ATTN_OK && problem->sinks == 1 && desc->sinks_dtype != ATTN_F32 &&
        desc->sinks_dtype != ATTN_BF16)
        status = attn__fail(err, ATTN_E_INVALID, 0, "sinks_dtype",
                            "sinks_dtype is 0x%x; accepted: ATTN_F32 or ATTN_BF16", desc->sinks_dtype);
    return status;
}

int32_t attn__class_ask(const struct attn_serving_host *host, const struct attn_problem *problem,
                        struct attn_error *err)
{
    const int32_t status = host->problem_ask(host->backend, problem, err);

    if (status != ATTN_OK)
        return status;
    if (problem->type == ATTN_ENCODER && problem->kv_source != ATTN_KV_NEW)
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_KV_SOURCE, "kv_source",
                          "an encoder caches nothing; kv_source=new is accepted");
    if (problem->type == ATTN_ENCODER_DECODER && problem->kv_source == ATTN_KV_CACHE_NEW)
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_KV_SOURCE, "kv_source",
                          "keys of cross-attention are new with the prompt and cached for its decodes, never "
                          "both; kv_source=cache is accepted");
    return ATTN_OK;
}

static int32_t check_layer(struct attn_layer_impl *layer, const struct attn_serving_host *host,
                           struct attn_error *err)
{
    int32_t status = host->problem_resolve(host->backend, layer->layer_class.problem, &layer->problem, err);

    if (status == ATTN_OK)
        status = check_desc(layer, err);
    return status == ATTN_OK ? attn__class_ask(host, &layer->problem, err) : status;
}

int32_t attn__layer_create(const struct attn_serving_host *host, const struct attn_layer_desc *desc,
                           struct attn_layer_impl **out, struct attn_error *err)
{
    struct attn_layer_impl *layer = calloc(1, sizeof *layer);

    *out = NULL;
    if (layer == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "layer", "no memory for a layer");
    layer->desc = *desc;
    layer->layer_class = *desc->layer_class;
    const int32_t status = check_layer(layer, host, err);
    if (status != ATTN_OK) {
        free(layer);
        return status;
    }
    layer->desc.layer_class = NULL; /* it belongs to the caller, who may free it */
    layer->layer_class.problem = &layer->problem;
    *out = layer;
    return ATTN_OK;
}

void attn__layer_destroy(struct attn_layer_impl *layer)
{
    free(layer);
}
