/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How a wrapped call begins and ends, and how its arguments are translated. */
#include "mirror-call.h"

struct call_capture call_capture;

bool call_begin(struct call *call, const struct attn_backend *backend, void *stream, struct attn_error *err)
{
    mirror_lock();
    call->mirror = mirror_of(backend);
    if (call->mirror == NULL) {
        mirror_unlock();
        return false;
    }
    call->status = ATTN_OK;
    ATTN_INIT(&call->own);
    call->err = err != NULL ? err : &call->own;
    call->stream = mirror_stream(call->mirror, stream);
    return true;
}

void call_buffer(struct call *call, struct attn_buffer *buffer)
{
    if (call->status == ATTN_OK)
        call->status = mirror_translate(call->mirror, buffer, call->err);
}

/* Calls that are captured move nothing yet: the launch does. */
static bool call_is_captured(const struct call *call)
{
    return call_capture.stream != NULL && call->stream == call_capture.stream;
}

bool call_ready(struct call *call)
{
    if (call->status == ATTN_OK && !call_is_captured(call))
        call->status = mirror_push(call->mirror, call->stream, call->err);
    return call->status == ATTN_OK;
}

int32_t call_end(struct call *call, int32_t status)
{
    if (call->status == ATTN_OK && call_is_captured(call)) {
        call->status = status;
    } else if (call->status == ATTN_OK) {
        call->status = mirror_pull(call->mirror, call->stream, call->err);
        call->status = status != ATTN_OK ? status : call->status;
    }
    mirror_unlock();
    return call->status;
}

/* ---------------------------------------------------------------- arguments */

void call_scale(struct call *call, struct attn_scale *scale)
{
    if (scale->kind == ATTN_SCALE_DEVICE)
        call_buffer(call, &scale->buffer);
}

void call_batch(struct call *call, struct attn_batch *batch)
{
    struct attn_buffer *const all[] = {&batch->q_offsets,      &batch->kv_lens,     &batch->kv_offsets,
                                       &batch->table,          &batch->csr_indptr,  &batch->csr_indices,
                                       &batch->last_page_lens, &batch->q_positions, &batch->seq_causal,
                                       &batch->kv_global_lens};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        call_buffer(call, all[i]);
}

void call_cache(struct call *call, struct attn_kv_desc *desc)
{
    call_buffer(call, &desc->k);
    call_buffer(call, &desc->v);
    call_scale(call, &desc->k_scale);
    call_scale(call, &desc->v_scale);
}

/* A copy of a bare cache; NULL stays NULL. */
const struct attn_kv_desc *call_bare(struct call *call, const struct attn_kv_desc *from,
                                     struct attn_kv_desc *to)
{
    if (from == NULL)
        return NULL;
    *to = *from;
    call_cache(call, to);
    return to;
}

void call_tensors(struct call *call, struct attn_tensors *tensors)
{
    struct attn_buffer *const all[] = {
        &tensors->q.buffer,   &tensors->q_rope.buffer, &tensors->k_new.buffer, &tensors->v_new.buffer,
        &tensors->out.buffer, &tensors->lse.buffer,    &tensors->alibi_slopes, &tensors->sinks,
        &tensors->mask,       &tensors->mask_starts};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        call_buffer(call, all[i]);
    call_scale(call, &tensors->q_scale);
    call_scale(call, &tensors->k_new_scale);
    call_scale(call, &tensors->v_new_scale);
    call_scale(call, &tensors->out_scale);
}
