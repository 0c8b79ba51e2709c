/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Wrapped calls of caches and of merging. */
#include <stdio.h>
#include <stdlib.h>

#include "mirror-call.h"
#include "need.h"

/* ---------------------------------------------------------------- caches */

/* Shapes are tried on memory that no case uses: addresses of no arena stay as they are. */
WRAP(int32_t, attn_kv_create, struct attn_backend *backend, const struct attn_kv_desc *desc,
     struct attn_kv **out, struct attn_error *err)
{
    struct attn_kv_desc copy;
    struct call call;

    if (desc == NULL || !call_begin(&call, backend, NULL, err))
        return __real_attn_kv_create(backend, desc, out, err);
    copy = *desc;
    call_cache(&call, &copy);
    if (call.status == ATTN_E_INVALID) {
        copy = *desc;
        call.status = ATTN_OK;
    }
    mirror_unlock();
    return call.status == ATTN_OK ? __real_attn_kv_create(backend, &copy, out, err) : call.status;
}

WRAP(int32_t, attn_kv_write, struct attn_backend *backend, const struct attn_kv_write_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_write_args copy;
    struct attn_kv_desc desc;
    struct attn_batch moved;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_write(backend, args, stream, err);
    copy = *args;
    call_buffer(&call, &copy.k_new.buffer);
    call_buffer(&call, &copy.v_new.buffer);
    call_buffer(&call, &copy.k_rope.buffer);
    call_buffer(&call, &copy.slot_mapping);
    copy.kv_desc = call_bare(&call, copy.kv_desc, &desc);
    if (copy.batch != NULL) {
        moved = *copy.batch;
        call_batch(&call, &moved);
        copy.batch = &moved;
    }
    return call_end(&call,
                    call_ready(&call) ? __real_attn_kv_write(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_slot_mapping, struct attn_backend *backend,
     const struct attn_kv_slot_mapping_args *args, void *stream, struct attn_error *err)
{
    struct attn_kv_slot_mapping_args copy;
    struct attn_batch moved;
    struct call call;

    if (args == NULL || args->batch == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_slot_mapping(backend, args, stream, err);
    copy = *args;
    moved = *args->batch;
    call_batch(&call, &moved);
    copy.batch = &moved;
    call_buffer(&call, &copy.slots);
    return call_end(&call, call_ready(&call) ? __real_attn_kv_slot_mapping(backend, &copy, call.stream, err)
                                             : ATTN_OK);
}

WRAP(int32_t, attn_kv_copy_slots, struct attn_backend *backend, const struct attn_kv_copy_slots_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_copy_slots_args copy;
    struct attn_kv_desc from, to;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_copy_slots(backend, args, stream, err);
    copy = *args;
    copy.from_desc = call_bare(&call, copy.from_desc, &from);
    copy.to_desc = call_bare(&call, copy.to_desc, &to);
    call_buffer(&call, &copy.pairs);
    return call_end(&call, call_ready(&call) ? __real_attn_kv_copy_slots(backend, &copy, call.stream, err)
                                             : ATTN_OK);
}

WRAP(int32_t, attn_kv_copy_blocks, struct attn_backend *backend, const struct attn_kv_copy_blocks_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_copy_blocks_args copy;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_copy_blocks(backend, args, stream, err);
    copy = *args;
    struct attn_kv_desc *descs = need(calloc((size_t)args->layers + 1, sizeof *descs));
    const struct attn_kv_desc **pointers = need(calloc((size_t)args->layers + 1, sizeof *pointers));
    for (uint32_t i = 0; i < args->layers && args->kv_descs != NULL; i++)
        pointers[i] = call_bare(&call, args->kv_descs[i], &descs[i]);
    copy.kv_descs = args->kv_descs != NULL ? pointers : NULL;
    call_buffer(&call, &copy.pairs);
    int32_t status = call_end(
        &call, call_ready(&call) ? __real_attn_kv_copy_blocks(backend, &copy, call.stream, err) : ATTN_OK);
    free(pointers);
    free(descs);
    return status;
}

/* One of the two caches may be the host's. */
WRAP(int32_t, attn_kv_swap_blocks, struct attn_backend *backend, const struct attn_kv_swap_blocks_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_swap_blocks_args copy;
    struct attn_kv_desc from, to;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_swap_blocks(backend, args, stream, err);
    copy = *args;
    if (copy.kind != ATTN_COPY_TO_DEVICE)
        copy.from_desc = call_bare(&call, copy.from_desc, &from);
    if (copy.kind != ATTN_COPY_TO_HOST)
        copy.to_desc = call_bare(&call, copy.to_desc, &to);
    return call_end(&call, call_ready(&call) ? __real_attn_kv_swap_blocks(backend, &copy, call.stream, err)
                                             : ATTN_OK);
}

WRAP(int32_t, attn_kv_gather, struct attn_backend *backend, const struct attn_kv_gather_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_gather_args copy;
    struct attn_kv_desc desc;
    struct attn_batch moved;
    struct call call;

    if (args == NULL || args->batch == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_gather(backend, args, stream, err);
    copy = *args;
    moved = *args->batch;
    call_batch(&call, &moved);
    copy.batch = &moved;
    copy.kv_desc = call_bare(&call, copy.kv_desc, &desc);
    call_buffer(&call, &copy.offsets);
    call_buffer(&call, &copy.starts);
    call_buffer(&call, &copy.k.buffer);
    call_buffer(&call, &copy.v.buffer);
    call_buffer(&call, &copy.k_scales.buffer);
    call_buffer(&call, &copy.v_scales.buffer);
    return call_end(&call,
                    call_ready(&call) ? __real_attn_kv_gather(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_convert, struct attn_backend *backend, const struct attn_kv_convert_args *args,
     void *stream, struct attn_error *err)
{
    struct attn_kv_convert_args copy;
    struct attn_kv_desc from, to;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_convert(backend, args, stream, err);
    copy = *args;
    copy.from_desc = call_bare(&call, copy.from_desc, &from);
    copy.to_desc = call_bare(&call, copy.to_desc, &to);
    call_buffer(&call, &copy.pairs);
    return call_end(&call,
                    call_ready(&call) ? __real_attn_kv_convert(backend, &copy, call.stream, err) : ATTN_OK);
}

WRAP(int32_t, attn_kv_advance_step, struct attn_backend *backend,
     const struct attn_kv_advance_step_args *args, void *stream, struct attn_error *err)
{
    struct attn_kv_advance_step_args copy;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_kv_advance_step(backend, args, stream, err);
    copy = *args;
    struct attn_buffer *const all[] = {
        &copy.table,      &copy.query_starts, &copy.accepted,       &copy.sampled,      &copy.tokens,
        &copy.positions,  &copy.slots,        &copy.seq_lens,       &copy.context_lens, &copy.seq_starts,
        &copy.csr_indptr, &copy.csr_indices,  &copy.last_page_lens, &copy.csr_pages};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        call_buffer(&call, all[i]);
    return call_end(&call, call_ready(&call) ? __real_attn_kv_advance_step(backend, &copy, call.stream, err)
                                             : ATTN_OK);
}

/* ---------------------------------------------------------------- merge */

WRAP(int32_t, attn_merge, struct attn_backend *backend, const struct attn_merge_args *args, void *stream,
     struct attn_error *err)
{
    struct attn_merge_args copy;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_merge(backend, args, stream, err);
    copy = *args;
    struct attn_merge_part *parts = need(calloc((size_t)args->count + 1, sizeof *parts));
    for (uint32_t i = 0; i < args->count; i++) {
        parts[i] = args->parts[i];
        call_buffer(&call, &parts[i].out.buffer);
        call_buffer(&call, &parts[i].lse.buffer);
    }
    copy.parts = parts;
    call_buffer(&call, &copy.out.buffer);
    call_buffer(&call, &copy.lse.buffer);
    int32_t status =
        call_end(&call, call_ready(&call) ? __real_attn_merge(backend, &copy, call.stream, err) : ATTN_OK);
    free(parts);
    return status;
}

WRAP(int32_t, attn_rescale, struct attn_backend *backend, const struct attn_rescale_args *args, void *stream,
     struct attn_error *err)
{
    struct attn_rescale_args copy;
    struct call call;

    if (args == NULL || !call_begin(&call, backend, stream, err))
        return __real_attn_rescale(backend, args, stream, err);
    copy = *args;
    struct attn_tensor *all = need(calloc((size_t)args->count + 1, sizeof *all));
    for (uint32_t i = 0; i < args->count; i++) {
        all[i] = args->all[i];
        call_buffer(&call, &all[i].buffer);
    }
    copy.all = all;
    call_buffer(&call, &copy.out.buffer);
    call_buffer(&call, &copy.own.buffer);
    int32_t status =
        call_end(&call, call_ready(&call) ? __real_attn_rescale(backend, &copy, call.stream, err) : ATTN_OK);
    free(all);
    return status;
}
