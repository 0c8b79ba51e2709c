/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Layers: handles, arguments, and the calls into the backend's table. */
#include <stdlib.h>

#include "dispatch/plan.h"
#include "select/problem.h"
#include "serving/handle.h"

static int32_t create_impl(struct attn_layer *layer, const struct attn_layer_desc *given,
                           struct attn_error *err)
{
    struct attn_backend *backend = layer->backend;
    struct attn_serving_host host;
    struct attn_layer_class layer_class;
    struct attn_layer_desc desc;
    const void *known;
    int32_t status =
        attn__serving_take(given, &desc, sizeof desc, layer->table->desc_size, "desc", &known, err);

    if (status != ATTN_OK)
        return status;
    desc = *(const struct attn_layer_desc *)known;
    if (desc.layer_class == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "layer_class",
                          "layer_class is NULL; the one that the state is made with is accepted");
    status = attn__problem_take(backend->context, desc.layer_class->problem, &layer->problem, err);
    if (status != ATTN_OK)
        return status;
    layer_class = *desc.layer_class;
    layer_class.problem = &layer->problem;
    desc.layer_class = &layer_class;
    attn__serving_host(backend, &host);
    struct attn_error own;
    attn__error_open(&own);
    return attn__serving_end(backend, layer->table->create(&host, &desc, &layer->impl, &own), &own,
                             "layer create", err);
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
    layer->table = backend->entry->table.layer;
    status = create_impl(layer, desc, err);
    if (status != ATTN_OK) {
        free(layer);
        return status;
    }
    attn__backend_hold(backend);
    *out = layer;
    return ATTN_OK;
}

void attn_layer_destroy(struct attn_layer *layer)
{
    if (layer == NULL)
        return;
    layer->table->destroy(layer->impl);
    attn__backend_drop(layer->backend);
    free(layer);
}

/* ---------------------------------------------------------------- forward */

/*
 * Refuses a layer of another backend. If the state's backend does not serve its problem, that is the better
 * reason.
 */
static int32_t fail_foreign(const struct attn_layer *layer, const struct attn_state *state,
                            struct attn_error *err)
{
    struct attn_plan_info info;
    const int32_t status = attn__plan_ask(state->backend, &layer->problem, &info, err);

    return status != ATTN_OK
               ? status
               : attn__fail(err, ATTN_E_INVALID, 0, "layer",
                            "the layer was made for %s and the state for %s; both of one backend handle are "
                            "accepted",
                            layer->backend->entry->table.name, state->backend->entry->table.name);
}

static int32_t check_handles(const struct attn_layer *layer, const struct attn_state *state,
                             const struct attn_metadata *metadata, const struct attn_kv *kv,
                             struct attn_error *err)
{
    int32_t status = attn__state_begin(state, "attn_layer_forward", err);

    if (status != ATTN_OK)
        return status;
    if (layer == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "layer", "attn_layer_forward: the handle is NULL");
    if (layer->backend != state->backend)
        return fail_foreign(layer, state, err);
    if (kv != NULL && kv->backend != state->backend)
        return attn__fail(err, ATTN_E_INVALID, 0, "kv",
                          "kv was made for %s and the state for %s; both of one backend handle are accepted",
                          kv->backend->entry->table.name, state->backend->entry->table.name);
    status = attn__metadata_begin(metadata, "attn_layer_forward", err);
    return status == ATTN_OK ? attn__state_reads(state, metadata, err) : status;
}

int32_t attn_layer_forward(const struct attn_layer *layer, struct attn_state *state,
                           const struct attn_metadata *metadata, struct attn_kv *kv,
                           const struct attn_layer_tensors *tensors, void *stream, struct attn_error *err)
{
    struct attn_layer_tensors copy;
    const void *known;
    int32_t status = check_handles(layer, state, metadata, kv, err);

    if (status == ATTN_OK)
        status = attn__serving_take(tensors, &copy, sizeof copy, layer->table->tensors_size, "tensors",
                                    &known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_error own;
    attn__error_open(&own);
    status = layer->table->forward(layer->impl, state->impl, metadata->impl, kv, known, stream, &own);
    return attn__serving_end(layer->backend, status, &own, "layer forward", err);
}
