/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Caches: brings every address within reach and lets the CPU plugin do it. */
#include <stdlib.h>

#include "device-memory.h"

static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    return backend->table->kv->shape(backend->impl, problem, pages, out, err);
}

/* Descriptions of caches that are not there yet may say any address. */
static int32_t kv_create(struct attn_backend_impl *backend, const struct attn_kv_desc *desc,
                         struct attn_kv_impl **out, struct attn_error *err)
{
    struct attn_kv_impl *kv = calloc(1, sizeof *kv);
    struct attn_kv_desc near = *desc;

    if (kv == NULL)
        return ATTN_E_MEMORY;
    (void)reach_cache(&near);
    kv->table = backend->table->kv;
    int32_t status = kv->table->create(backend->impl, &near, &kv->impl, err);
    if (status == ATTN_OK)
        *out = kv;
    else
        free(kv);
    return status;
}

static void kv_destroy(struct attn_kv_impl *kv)
{
    kv->table->destroy(kv->impl);
    free(kv);
}

static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *args,
                        const struct attn_kv_impl *kv, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    struct attn_kv_write_args near = *args;
    struct attn_batch batch;
    struct attn_kv_desc cache;

    if (!device_memory_reach(&near.k_new.buffer) || !device_memory_reach(&near.v_new.buffer) ||
        !device_memory_reach(&near.k_rope.buffer) || !device_memory_reach(&near.slot_mapping))
        return far_away(err, "k_new");
    if (near.batch != NULL) {
        batch = *near.batch;
        near.batch = &batch;
        if (!reach_batch(&batch))
            return far_away(err, "batch");
    }
    if (desc != NULL) {
        cache = *desc;
        if (!reach_cache(&cache))
            return far_away(err, "kv");
    }
    stream = device_memory_catch_up(stream);
    return backend->table->kv->write(backend->impl, &near, kv != NULL ? kv->impl : NULL,
                                     desc != NULL ? &cache : NULL, stream, err);
}

/* One of the two caches of a swap is the host's, so its addresses are nobody's business here. */
static bool reach_ref(const struct attn_kv_ref *ref, bool host, struct attn_kv_desc *copy,
                      struct attn_kv_ref *out)
{
    *out = *ref;
    if (ref->kv != NULL)
        out->kv = ref->kv->impl;
    if (ref->desc == NULL)
        return true;
    *copy = *ref->desc;
    out->desc = copy;
    return host || reach_cache(copy);
}

/* The two caches of a call. */
struct two {
    struct attn_kv_desc copies[2];
    struct attn_kv_ref refs[2];
};

static bool reach_two(struct two *two, const struct attn_kv_ref *from, bool from_host,
                      const struct attn_kv_ref *to, bool to_host)
{
    return reach_ref(from, from_host, &two->copies[0], &two->refs[0]) &&
           reach_ref(to, to_host, &two->copies[1], &two->refs[1]);
}

static int32_t kv_slot_mapping(struct attn_backend_impl *backend,
                               const struct attn_kv_slot_mapping_args *args, void *stream,
                               struct attn_error *err)
{
    struct attn_kv_slot_mapping_args near = *args;
    struct attn_batch batch = *args->batch;

    near.batch = &batch;
    if (!reach_batch(&batch))
        return far_away(err, "batch");
    if (!device_memory_reach(&near.slots))
        return far_away(err, "slots");
    stream = device_memory_catch_up(stream);
    return backend->table->kv->slot_mapping(backend->impl, &near, stream, err);
}

static int32_t kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                             const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                             struct attn_error *err)
{
    struct attn_kv_copy_slots_args near = *args;
    struct two two;

    if (!device_memory_reach(&near.pairs))
        return far_away(err, "pairs");
    if (!reach_two(&two, from, false, to, false))
        return far_away(err, "from or to");
    stream = device_memory_catch_up(stream);
    return backend->table->kv->copy_slots(backend->impl, &near, &two.refs[0], &two.refs[1], stream, err);
}

static int32_t kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                              const struct attn_kv_ref *caches, void *stream, struct attn_error *err)
{
    struct attn_kv_copy_blocks_args near = *args;
    struct attn_kv_desc *copies = calloc((size_t)args->layers + 1, sizeof *copies);
    struct attn_kv_ref *refs = calloc((size_t)args->layers + 1, sizeof *refs);
    bool good = copies != NULL && refs != NULL && device_memory_reach(&near.pairs);

    for (uint32_t i = 0; i < args->layers && good; i++)
        good = reach_ref(&caches[i], false, &copies[i], &refs[i]);
    stream = device_memory_catch_up(stream);
    int32_t status = good ? backend->table->kv->copy_blocks(backend->impl, &near, refs, stream, err)
                          : far_away(err, "caches");
    free(refs);
    free(copies);
    return status;
}

static int32_t kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                              const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                              struct attn_error *err)
{
    struct two two;

    if (!reach_two(&two, from, args->kind == ATTN_COPY_TO_DEVICE, to, args->kind == ATTN_COPY_TO_HOST))
        return far_away(err, "from or to");
    stream = device_memory_catch_up(stream);
    return backend->table->kv->swap_blocks(backend->impl, args, &two.refs[0], &two.refs[1], stream, err);
}

static int32_t kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                         const struct attn_kv_ref *cache, void *stream, struct attn_error *err)
{
    struct attn_kv_gather_args near = *args;
    struct attn_batch batch = *args->batch;
    struct attn_kv_desc copy;
    struct attn_kv_ref ref;

    near.batch = &batch;
    if (!reach_batch(&batch) || !device_memory_reach(&near.offsets) || !device_memory_reach(&near.starts))
        return far_away(err, "batch");
    if (!device_memory_reach(&near.k.buffer) || !device_memory_reach(&near.v.buffer) ||
        !device_memory_reach(&near.k_scales.buffer) || !device_memory_reach(&near.v_scales.buffer))
        return far_away(err, "k or v");
    if (!reach_ref(cache, false, &copy, &ref))
        return far_away(err, "cache");
    stream = device_memory_catch_up(stream);
    return backend->table->kv->gather(backend->impl, &near, &ref, stream, err);
}

static int32_t kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err)
{
    struct attn_kv_convert_args near = *args;
    struct two two;

    if (!device_memory_reach(&near.pairs))
        return far_away(err, "pairs");
    if (!reach_two(&two, from, false, to, false))
        return far_away(err, "from or to");
    stream = device_memory_catch_up(stream);
    return backend->table->kv->convert(backend->impl, &near, &two.refs[0], &two.refs[1], stream, err);
}

static int32_t kv_advance_step(struct attn_backend_impl *backend,
                               const struct attn_kv_advance_step_args *args, void *stream,
                               struct attn_error *err)
{
    struct attn_kv_advance_step_args near = *args;

    if (!device_memory_reach(&near.table) || !device_memory_reach(&near.query_starts) ||
        !device_memory_reach(&near.accepted) || !device_memory_reach(&near.sampled) ||
        !device_memory_reach(&near.tokens) || !device_memory_reach(&near.positions) ||
        !device_memory_reach(&near.slots) || !device_memory_reach(&near.seq_lens) ||
        !device_memory_reach(&near.context_lens) || !device_memory_reach(&near.seq_starts) ||
        !device_memory_reach(&near.csr_indptr) || !device_memory_reach(&near.csr_indices) ||
        !device_memory_reach(&near.last_page_lens) || !device_memory_reach(&near.csr_pages))
        return far_away(err, "an array");
    stream = device_memory_catch_up(stream);
    return backend->table->kv->advance_step(backend->impl, &near, stream, err);
}

const struct attn_kv_table device_memory_kv = {
    .struct_size = sizeof device_memory_kv,
    .shape = kv_shape,
    .create = kv_create,
    .destroy = kv_destroy,
    .write = kv_write,
    .slot_mapping = kv_slot_mapping,
    .copy_slots = kv_copy_slots,
    .copy_blocks = kv_copy_blocks,
    .swap_blocks = kv_swap_blocks,
    .gather = kv_gather,
    .convert = kv_convert,
    .advance_step = kv_advance_step,
};
