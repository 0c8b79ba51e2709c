/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches of layers: their shape, their handles, and writing into them. */
#include <stdlib.h>

#include "call.h"
#include "problem.h"

int32_t attn_kv_get_shape(struct attn_backend *backend, const struct attn_problem *problem, uint32_t pages,
                          struct attn_kv_shape *out, struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_kv_get_shape", err);
    struct attn_problem full;
    struct attn_kv_shape own;
    if (status == ATTN_OK) {
        status = attn__answer_begin(out, sizeof own, "out", err);
    }
    if (status == ATTN_OK) {
        status = attn__problem_take(backend->context, problem, &full, err);
    }
    const void *known = NULL;
    if (status == ATTN_OK) {
        status = attn__argument(backend, &full, NULL, sizeof full, backend->entry->plugin->table.problem_size,
                                "problem", &known, err);
    }
    if (status == ATTN_OK && (pages == 0 || pages > ATTN__COUNT_MAX)) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "pages", "pages is %u; accepted: 1 to %u", pages,
                            ATTN__COUNT_MAX);
    }
    if (status != ATTN_OK) {
        return status;
    }
    ATTN_INIT(&own);
    struct attn_error words;
    attn__error_open(&words);
    status = attn__call_end(backend, backend->entry->kv.shape(backend->impl, known, pages, &own, &words),
                            &words, "kv shape", err);
    return status == ATTN_OK ? attn__answer(out, &own, sizeof own, "out", err) : status;
}

void attn_kv_desc_init(struct attn_kv_desc *desc, const struct attn_kv_shape *shape,
                       const struct attn_buffer *memory)
{
    if (desc == NULL || shape == NULL || memory == NULL) {
        return;
    }
    *desc = shape->desc;
    desc->struct_size = (uint32_t)sizeof *desc;
    desc->k.data = memory->data;
    desc->k.byte_offset = memory->byte_offset + shape->k_offset;
    desc->v.data = memory->data;
    desc->v.byte_offset = memory->byte_offset + shape->v_offset;
}

/* ---------------------------------------------------------------- handles */

static int32_t create(struct attn_backend *backend, const struct attn_kv_desc *desc, struct attn_kv *kv,
                      struct attn_error *err)
{
    struct attn_error words;
    attn__error_open(&words);
    const int32_t status = attn__call_end(
        backend, backend->entry->kv.create(backend->impl, desc, &kv->impl, &words), &words, "kv create", err);
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
    if (status == ATTN_OK && out == NULL) {
        status = attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL");
    }
    if (status != ATTN_OK) {
        return status;
    }
    *out = NULL;
    struct attn_kv_desc copy;
    const struct attn_kv_desc *known = NULL;
    status = attn__kv_choose(backend, NULL, desc, &copy, &known, err);
    if (status != ATTN_OK) {
        return status;
    }
    struct attn_kv *kv = calloc(1, sizeof *kv);
    if (kv == NULL) {
        return attn__fail(err, ATTN_E_MEMORY, 0, "kv", "no memory for a cache handle");
    }
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
    if (kv == NULL || atomic_fetch_sub_explicit(&kv->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (kv->backend->born == attn__fork_generation()) {
        kv->backend->entry->kv.destroy(kv->impl);
    }
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
                   : attn__fail(err, ATTN_E_INVALID, 0, "kv", "kv belongs to another backend, %s on %s",
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

/* ---------------------------------------------------------------- write */

/* The part of a problem that says how a batch's sequences find their pages. */
static struct attn_problem batch_problem(const struct attn_kv_write_args *args,
                                         const struct attn_kv_desc *desc)
{
    struct attn_problem problem;
    ATTN_INIT(&problem);
    problem.heads = problem.kv_heads = desc->kv_heads;
    problem.head_dim = desc->head_dim;
    problem.addressing = args->addressing;
    problem.index_dtype = args->index_dtype;
    problem.block = desc->block < ATTN__BLOCK_MAX ? desc->block : ATTN__BLOCK_MAX;
    problem.kv_source = ATTN_KV_CACHE;
    problem.positions = args->batch->q_positions.data != NULL;
    problem.seq_causal = args->batch->seq_causal.data != NULL;
    problem.cp = args->batch->kv_global_lens.data != NULL;
    problem.max_seqs = problem.max_q = problem.max_kv = problem.max_rows = ATTN__COUNT_MAX;
    attn__problem_fill(&problem);
    return problem;
}

static int32_t check_batch(const struct attn_backend *backend, const struct attn_kv_write_args *args,
                           const struct attn_kv_desc *desc, struct attn_error *err)
{
    struct attn_batch copy;
    const void *known = NULL;
    int32_t status = attn__argument(backend, args->batch, &copy, sizeof copy,
                                    backend->entry->plugin->table.batch_size, "batch", &known, err);
    if (status != ATTN_OK) {
        return status;
    }
    const struct attn_batch *batch = known;
    if (args->addressing < ATTN_DENSE || args->addressing > ATTN_CSR) {
        return attn__fail(err, ATTN_E_INVALID, 0, "addressing",
                          "addressing is %u; accepted: ATTN_DENSE, ATTN_TABLE or ATTN_CSR", args->addressing);
    }
    if (args->index_dtype != 0 && args->index_dtype != ATTN_INT32 && args->index_dtype != ATTN_INT64) {
        return attn__fail(err, ATTN_E_INVALID, 0, "index_dtype",
                          "index_dtype is 0x%x; accepted: ATTN_INT32 or ATTN_INT64", args->index_dtype);
    }
    if (batch->rows != args->rows) {
        return attn__fail(err, ATTN_E_INVALID, 0, "rows", "rows is %u, but the batch has %u rows", args->rows,
                          batch->rows);
    }
    const struct attn_problem problem = batch_problem(args, desc);
    status = attn__batch_check(&problem, batch, err);
    return status == ATTN_OK ? attn__batch_check_host(&problem, batch, err) : status;
}

static int32_t check_rows(const struct attn_kv_write_args *args, const struct attn_kv_desc *desc,
                          struct attn_error *err)
{
    if (args->rows > ATTN__COUNT_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, "rows", "rows is %u; accepted: up to %u", args->rows,
                          ATTN__COUNT_MAX);
    }
    const bool latent = desc->v.data == NULL;
    const uint32_t types[] = {args->k_dtype, args->v_dtype};
    for (int i = 0; i < (latent ? 1 : 2); i++) {
        const char *name = i == 0 ? "k_dtype" : "v_dtype";
        if (attn_dtype_size(types[i]) == 0 || types[i] == ATTN_INT32 || types[i] == ATTN_INT64) {
            return attn__fail(err, ATTN_E_INVALID, 0, name,
                              "%s is 0x%x; accepted: f32, f16, bf16, e4m3, e5m2, e4m3fnuz, e5m2fnuz or int8",
                              name, types[i]);
        }
    }
    const int32_t status = attn__tensor_check(&args->k_new, args->k_dtype, args->rows, desc->kv_heads,
                                              desc->head_dim, "k_new", err);
    if (status != ATTN_OK) {
        return status;
    }
    if (latent) {
        return args->v_new.buffer.data == NULL
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_INVALID, 0, "v_new", "v_new is given, but the cache has no v");
    }
    const uint32_t vo = desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim;
    return attn__tensor_check(&args->v_new, args->v_dtype, args->rows, desc->kv_heads, vo, "v_new", err);
}

static int32_t check_write(const struct attn_backend *backend, const struct attn_kv_write_args *args,
                           const struct attn_kv_desc *desc, struct attn_error *err)
{
    const int32_t status = check_rows(args, desc, err);
    if (status != ATTN_OK) {
        return status;
    }
    const bool mapped = args->slot_mapping.data != NULL;
    if (mapped && args->batch != NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "slot_mapping",
                          "slot_mapping and batch are both given; one of them says where the rows go");
    }
    if (!mapped && args->batch == NULL && args->rows > 0) {
        return attn__fail(err, ATTN_E_INVALID, 0, "slot_mapping",
                          "neither slot_mapping nor batch is given; one of them says where the rows go");
    }
    return args->batch != NULL ? check_batch(backend, args, desc, err) : ATTN_OK;
}

int32_t attn_kv_write(struct attn_backend *backend, const struct attn_kv_write_args *args, void *stream,
                      struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_kv_write", err);
    if (status != ATTN_OK) {
        return status;
    }
    struct attn_kv_write_args args_copy;
    struct attn_kv_desc desc_copy;
    const struct attn_kv_desc *desc = NULL;
    const void *known = NULL;
    status = attn__argument(backend, args, &args_copy, sizeof args_copy,
                            backend->entry->plugin->table.kv_write_size, "args", &known, err);
    if (status != ATTN_OK) {
        return status;
    }
    const struct attn_kv_write_args *own = known;
    status = attn__kv_choose(backend, own->kv, own->kv_desc, &desc_copy, &desc, err);
    if (status == ATTN_OK) {
        status = check_write(backend, own, desc, err);
    }
    if (status != ATTN_OK || own->rows == 0) {
        return status;
    }
    struct attn_error words;
    attn__error_open(&words);
    return attn__call_end(backend,
                          backend->entry->kv.write(backend->impl, own, own->kv != NULL ? own->kv->impl : NULL,
                                                   own->kv != NULL ? NULL : desc, stream, &words),
                          &words, "kv write", err);
}
