/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches of layers: their shape and their handles. */
#include <stdlib.h>

#include "dispatch/call.h"
#include "select/problem.h"

int32_t attn_kv_get_shape(struct attn_backend *backend, const struct attn_problem *problem, uint32_t pages,
                          struct attn_kv_shape *out, struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_kv_get_shape", err);
    struct attn_problem full;
    struct attn_kv_shape own;
    if (status == ATTN_OK)
        status = attn__answer_begin(out, sizeof own, "out", err);
    if (status == ATTN_OK)
        status = attn__problem_take(backend->context, problem, &full, err);
    const void *known = NULL;
    if (status == ATTN_OK) {
        status = attn__argument(backend, &full, NULL, sizeof full, backend->entry->plugin->table.problem_size,
                                "problem", &known, err);
    }
    if (status == ATTN_OK && (pages == 0 || pages > ATTN__COUNT_MAX)) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "pages", "pages is %u; accepted: 1 to %u", pages,
                            ATTN__COUNT_MAX);
    }
    if (status != ATTN_OK)
        return status;
    ATTN_INIT(&own);
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    status = attn__call_end(backend, backend->entry->kv.shape(backend->impl, known, pages, &own, &plugin_err),
                            &plugin_err, "kv shape", err);
    return status == ATTN_OK ? attn__answer(out, &own, sizeof own, "out", err) : status;
}

void attn_kv_desc_init(struct attn_kv_desc *desc, const struct attn_kv_shape *shape,
                       const struct attn_buffer *memory)
{
    if (desc == NULL || shape == NULL || memory == NULL)
        return;
    *desc = shape->desc;
    desc->struct_size = (uint32_t)sizeof *desc;
    desc->k.data = memory->data;
    desc->k.byte_offset = memory->byte_offset + shape->k_offset;
    if (shape->v_offset == shape->k_offset)
        return; /* an MLA cache has no v */
    desc->v.data = memory->data;
    desc->v.byte_offset = memory->byte_offset + shape->v_offset;
}

/* ---------------------------------------------------------------- handles */

static int32_t create(struct attn_backend *backend, const struct attn_kv_desc *desc, struct attn_kv *kv,
                      struct attn_error *err)
{
    struct attn_error plugin_err;
    attn__error_open(&plugin_err);
    const int32_t status =
        attn__call_end(backend, backend->entry->kv.create(backend->impl, desc, &kv->impl, &plugin_err),
                       &plugin_err, "kv create", err);
    if (status == ATTN_OK && kv->impl == NULL) {
        return attn__fail(err, ATTN_E_PLUGIN, 0, "out", "%s: kv create succeeded without a cache",
                          backend->entry->table.name);
    }
    return status;
}

int32_t attn_kv_create(struct attn_backend *backend, const struct attn_kv_desc *desc, struct attn_kv **out,
                       struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_kv_create", err);
    if (status == ATTN_OK && out == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the answer is accepted");
    if (status != ATTN_OK)
        return status;
    *out = NULL;
    struct attn_kv_desc copy;
    const struct attn_kv_desc *known = NULL;
    status = attn__kv_choose(backend, NULL, desc, &copy, &known, err);
    if (status != ATTN_OK)
        return status;
    struct attn_kv *kv = calloc(1, sizeof *kv);
    if (kv == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "kv", "no memory for a cache handle");
    status = create(backend, known, kv, err);
    if (status != ATTN_OK) {
        free(kv);
        return status;
    }
    atomic_init(&kv->refs, 1);
    kv->backend = backend;
    kv->desc = *known;
    attn__backend_hold(backend);
    *out = kv;
    return ATTN_OK;
}

void attn_kv_destroy(struct attn_kv *kv)
{
    if (kv == NULL || atomic_fetch_sub_explicit(&kv->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (kv->backend->born == attn__fork_generation())
        kv->backend->entry->kv.destroy(kv->impl);
    attn__backend_drop(kv->backend);
    free(kv);
}

int32_t attn__kv_choose(const struct attn_backend *backend, const struct attn_kv *kv,
                        const struct attn_kv_desc *bare, struct attn_kv_desc *copy,
                        const struct attn_kv_desc **out, struct attn_error *err)
{
    if (kv != NULL && bare != NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_desc",
                          "kv and kv_desc are both given; give one of them");
    }
    if (kv != NULL) {
        *out = &kv->desc;
        return kv->backend == backend
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_INVALID, 0, "kv",
                                "kv belongs to another backend, %s on %s; one of this backend is accepted",
                                kv->backend->entry->table.name, kv->backend->device_name);
    }
    const void *known = NULL;
    int32_t status = attn__argument(backend, bare, copy, sizeof *copy,
                                    backend->entry->plugin->table.kv_desc_size, "kv_desc", &known, err);
    if (status == ATTN_OK) {
        *out = known;
        status = attn__kv_check(*out, err);
    }
    return status;
}
