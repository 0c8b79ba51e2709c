/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Creates layers; what does not change from step to step is checked here, once. */
#include <math.h>
#include <stdlib.h>

#include "dispatch/plan.h"
#include "select/problem.h"
#include "serving/layer.h"

/* An array has to be given if the problem uses it, and must not be otherwise. */
static int32_t check_given(const void *data, bool wanted, const char *name, const char *key,
                           struct attn_error *err)
{
    return (data != NULL) == wanted
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name, "%s is %s, but the problem's %s %s it", name,
                            wanted ? "not given" : "given", key, wanted ? "needs" : "does not use");
}

static int32_t check_desc(const struct attn_layer *layer, struct attn_error *err)
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

static int32_t check_layer(struct attn_layer *layer, struct attn_error *err)
{
    struct attn_plan_info info;
    int32_t status =
        attn__problem_take(layer->backend->context, layer->layer_class.problem, &layer->problem, err);

    if (status == ATTN_OK)
        status = check_desc(layer, err);
    return status == ATTN_OK ? attn__plan_ask(layer->backend, &layer->problem, &info, err) : status;
}

int32_t attn_layer_create(struct attn_backend *backend, const struct attn_layer_desc *desc,
                          struct attn_layer **out, struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_layer_create", err);

    if (status == ATTN_OK && out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the layer is accepted");
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    struct attn_layer *layer = calloc(1, sizeof *layer);
    if (layer == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "layer", "no memory for a layer");
    layer->backend = backend;
    status = attn__take(&layer->desc, sizeof layer->desc, desc, sizeof layer->desc, "desc", err);
    if (status == ATTN_OK && layer->desc.layer_class == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "layer_class",
                            "layer_class is NULL; the one that the state is made with is accepted");
    if (status == ATTN_OK) {
        layer->layer_class = *layer->desc.layer_class;
        status = check_layer(layer, err);
    }
    if (status != ATTN_OK) {
        free(layer);
        return status;
    }
    layer->desc.layer_class = NULL; /* it belongs to the caller, who may free it */
    layer->layer_class.problem = &layer->problem;
    attn__backend_hold(backend);
    *out = layer;
    return ATTN_OK;
}

void attn_layer_destroy(struct attn_layer *layer)
{
    if (layer == NULL)
        return;
    attn__backend_drop(layer->backend);
    free(layer);
}
