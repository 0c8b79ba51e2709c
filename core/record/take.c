/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes what a call was made with and what it wrote: tensors, cache and scales, packed. */
#include <inttypes.h>
#include <stdlib.h>

#include "attn/device.h"
#include "base/hash.h"
#include "record/recorder.h"

/* ---------------------------------------------------------------- memory */

static bool own(struct attn__taken *taken, void *memory)
{
    void **more = realloc(taken->owned, (taken->owned_count + 1) * sizeof *more);

    if (more == NULL || memory == NULL) {
        taken->owned = more != NULL ? more : taken->owned;
        free(memory);
        attn__fail(taken->err, ATTN_E_MEMORY, 0, NULL, "no memory for a copy of the call");
        return false;
    }
    taken->owned = more;
    taken->owned[taken->owned_count++] = memory;
    return true;
}

static void disown(struct attn__taken *taken, const void *memory)
{
    for (uint32_t i = 0; i < taken->owned_count; i++) {
        if (taken->owned[i] != memory)
            continue;
        free(taken->owned[i]);
        taken->owned[i] = taken->owned[--taken->owned_count];
        return;
    }
}

void attn__taken_finish(struct attn__taken *taken)
{
    for (uint32_t i = 0; i < taken->owned_count; i++)
        free(taken->owned[i]);
    free(taken->owned);
    taken->owned = NULL;
    taken->owned_count = 0;
}

void *attn__taken_room(struct attn__taken *taken, const char *name, uint64_t size)
{
    if (size > taken->left) {
        attn__record_too_large(name, size, taken->left, taken->err);
        return NULL;
    }
    void *memory = calloc(1, size + 1);
    if (!own(taken, memory))
        return NULL;
    taken->left -= size;
    return memory;
}

static bool is_host(const struct attn__taken *taken)
{
    return taken->run->plan->backend->device.type == ATTN_DEVICE_CPU;
}

const unsigned char *attn__taken_view(struct attn__taken *taken, const struct attn_buffer *buffer,
                                      int64_t offset, uint64_t size)
{
    struct attn_backend *backend = taken->run->plan->backend;
    struct attn_buffer from = *buffer;

    from.byte_offset += (uint64_t)offset;
    if (is_host(taken))
        return (const unsigned char *)from.data + from.byte_offset;
    const struct attn_buffer to = {calloc(1, size + 1), 0};
    if (!own(taken, to.data))
        return NULL;
    if (attn_memory_copy(backend, &to, &from, size, ATTN_COPY_TO_HOST, taken->run->stream, taken->err) !=
            ATTN_OK ||
        attn_stream_synchronize(backend, taken->run->stream, taken->err) != ATTN_OK)
        return NULL;
    return to.data;
}

void attn__taken_drop(struct attn__taken *taken, const unsigned char *view)
{
    if (!is_host(taken))
        disown(taken, view);
}

/* An address modulo the alignment of parts. A device whose `data` is no address has only the offset. */
static uint32_t alignment(const struct attn__taken *taken, const struct attn_buffer *buffer)
{
    const uint32_t type = taken->run->plan->backend->device.type;
    const bool address = type == ATTN_DEVICE_CPU || type == ATTN_DEVICE_CUDA || type == ATTN_DEVICE_ROCM;

    return (uint32_t)(((address ? (uintptr_t)buffer->data : 0) + buffer->byte_offset) % ATTN__RECORD_ALIGN);
}

/* ---------------------------------------------------------------- parts */

/* Bytes for a part whose counts are known; NULL with the error filled. */
static unsigned char *open_part(struct attn__taken *taken, uint32_t kind)
{
    struct attn__part *part = &taken->call->parts[kind];
    uint64_t bytes;

    if (!attn__part_bytes(part, &bytes)) {
        attn__fail(taken->err, ATTN_E_SIZE, 0, attn__part_name(kind), "%s does not fit 63 bits",
                   attn__part_name(kind));
        return NULL;
    }
    unsigned char *to = attn__taken_room(taken, attn__part_name(kind), bytes);
    part->bytes = to;
    return to;
}

/* All bytes are there: makes their hash, which is all that stays of a tensor if contents are not wanted. */
static void close_part(struct attn__taken *taken, uint32_t kind)
{
    struct attn__part *part = &taken->call->parts[kind];
    uint64_t bytes = 0;

    (void)attn__part_bytes(part, &bytes);
    part->hash = attn__hash(ATTN__HASH_START, part->bytes, bytes);
    part->form = ATTN__PART_BYTES;
    if (!taken->hash || !attn__part_is_tensor(kind))
        return;
    disown(taken, part->bytes);
    taken->left += bytes;
    part->bytes = NULL;
    part->form = ATTN__PART_HASH;
}

bool attn__taken_array(struct attn__taken *taken, uint32_t kind, const void *from, uint64_t size,
                       uint64_t count)
{
    struct attn__part *part = &taken->call->parts[kind];

    *part = (struct attn__part){.count = {count, 1, 1}, .row = size};
    unsigned char *to = open_part(taken, kind);
    if (to == NULL)
        return false;
    memcpy(to, from, size * count);
    attn__part_pack(part);
    close_part(taken, kind);
    return true;
}

/* Copies vectors [count1, count2] that lie at strides from `from` on. */
static void pack(const struct attn__part *part, const int64_t *stride, const unsigned char *from,
                 unsigned char *to)
{
    for (uint64_t i = 0; i < part->count[1]; i++)
        for (uint64_t j = 0; j < part->count[2]; j++, to += part->row)
            memcpy(to, from + (int64_t)i * stride[1] + (int64_t)j * stride[2], part->row);
}

/*
 * Copies one outer index of a part. On a device the memory from its first to its last byte is copied to the
 * host first, which is only done where there is little between the vectors.
 */
static bool copy_outer(struct attn__taken *taken, uint32_t kind, const struct attn_buffer *buffer, bool host,
                       int64_t outer, unsigned char *to)
{
    const struct attn__part *part = &taken->call->parts[kind];
    const int64_t *stride = part->stride;
    struct attn__part inner = *part;
    uint64_t bytes, first;

    if (host || is_host(taken)) {
        pack(part, stride, (const unsigned char *)buffer->data + buffer->byte_offset + outer * stride[0], to);
        return true;
    }
    inner.count[0] = 1;
    if (!attn__part_extent(&inner, &bytes, &first)) {
        attn__fail(taken->err, ATTN_E_UNSUPPORTED, 0, attn__part_name(kind),
                   "%s lies in device memory at strides of %" PRId64 ", %" PRId64 " and %" PRId64
                   " bytes, with more than %u times its bytes in between",
                   attn__part_name(kind), stride[0], stride[1], stride[2], ATTN__RECORD_SPARSE);
        return false;
    }
    const unsigned char *view = attn__taken_view(taken, buffer, outer * stride[0] - (int64_t)first, bytes);
    if (view == NULL)
        return false;
    pack(part, stride, view + first, to);
    attn__taken_drop(taken, view);
    return true;
}

/*
 * A part of the shape `wanted` at these strides. `outer` are the outer indices to take, -1 = none, which
 * leaves zeros; NULL = all in order. `host`: whatever the device, the memory is the host's.
 */
static bool take_part(struct attn__taken *taken, uint32_t kind, const struct attn__part *wanted,
                      const int64_t stride[3], const struct attn_buffer *buffer, const int64_t *outer,
                      bool host)
{
    struct attn__part *part = &taken->call->parts[kind];
    uint64_t bytes, first;

    *part = *wanted;
    memcpy(part->stride, stride, sizeof part->stride);
    part->align = alignment(taken, buffer);
    unsigned char *to = open_part(taken, kind);
    if (to == NULL)
        return false;
    const uint64_t size = part->row * part->count[1] * part->count[2];
    for (uint64_t i = 0; i < part->count[0] && size > 0; i++, to += size)
        if ((outer == NULL || outer[i] >= 0) &&
            !copy_outer(taken, kind, buffer, host, outer != NULL ? outer[i] : (int64_t)i, to))
            return false;
    if (!attn__part_extent(part, &bytes, &first))
        attn__part_pack(part); /* what lies between the vectors is not worth the memory of a replay */
    close_part(taken, kind);
    return true;
}

static bool take_tensor(struct attn__taken *taken, uint32_t kind, const struct attn__part *wanted,
                        const struct attn_tensor *tensor)
{
    const int64_t stride[3] = {tensor->token_stride, tensor->head_stride, 0};

    return wanted[kind].form == ATTN__PART_ABSENT || tensor->buffer.data == NULL ||
           take_part(taken, kind, &wanted[kind], stride, &tensor->buffer, NULL, false);
}

/* Scales of one value have strides of 0, and only those values are there that strides lead to. */
static bool take_scale(struct attn__taken *taken, uint32_t kind, const struct attn__part *wanted,
                       const struct attn_scale *scale, const int64_t *pages)
{
    const int64_t stride[3] = {scale->outer_stride, scale->token_stride, scale->head_stride};
    struct attn__part part = wanted[kind];

    if (part.form == ATTN__PART_ABSENT)
        return true;
    for (int i = 0; i < 3; i++)
        part.count[i] = stride[i] == 0 && part.count[i] > 1 ? 1 : part.count[i];
    part.place = scale->kind;
    return take_part(taken, kind, &part, stride, &scale->buffer, stride[0] != 0 ? pages : NULL,
                     scale->kind == ATTN_SCALE_HOST);
}

static bool take_vector(struct attn__taken *taken, uint32_t kind, const struct attn__part *wanted,
                        const struct attn_buffer *buffer)
{
    const int64_t stride[3] = {(int64_t)wanted[kind].row, 0, 0};

    return wanted[kind].form == ATTN__PART_ABSENT ||
           take_part(taken, kind, &wanted[kind], stride, buffer, NULL, false);
}

static bool take_cache(struct attn__taken *taken, const struct attn__part *wanted, const int64_t *pages)
{
    const struct attn_kv_desc *desc = taken->run->desc;

    if (desc == NULL)
        return true;
    const int64_t k[3] = {desc->k_page_stride, desc->k_token_stride, desc->k_head_stride};
    const int64_t v[3] = {desc->v_page_stride, desc->v_token_stride, desc->v_head_stride};
    return take_part(taken, ATTN__PART_k, &wanted[ATTN__PART_k], k, &desc->k, pages, false) &&
           (wanted[ATTN__PART_v].form == ATTN__PART_ABSENT ||
            take_part(taken, ATTN__PART_v, &wanted[ATTN__PART_v], v, &desc->v, pages, false)) &&
           take_scale(taken, ATTN__PART_k_scale, wanted, &desc->k_scale, pages) &&
           take_scale(taken, ATTN__PART_v_scale, wanted, &desc->v_scale, pages);
}

static bool take_tensors(struct attn__taken *taken, const struct attn__part *wanted)
{
    const struct attn_tensors *t = taken->run->tensors;
    const bool result = taken->run->status == ATTN_OK;

    return take_tensor(taken, ATTN__PART_q, wanted, &t->q) &&
           take_tensor(taken, ATTN__PART_q_rope, wanted, &t->q_rope) &&
           take_tensor(taken, ATTN__PART_k_new, wanted, &t->k_new) &&
           take_tensor(taken, ATTN__PART_v_new, wanted, &t->v_new) &&
           (!result || take_tensor(taken, ATTN__PART_out, wanted, &t->out)) &&
           (!result || take_tensor(taken, ATTN__PART_lse, wanted, &t->lse)) &&
           take_vector(taken, ATTN__PART_alibi_slopes, wanted, &t->alibi_slopes) &&
           take_vector(taken, ATTN__PART_sinks, wanted, &t->sinks) &&
           take_scale(taken, ATTN__PART_q_scale, wanted, &t->q_scale, NULL) &&
           take_scale(taken, ATTN__PART_k_new_scale, wanted, &t->k_new_scale, NULL) &&
           take_scale(taken, ATTN__PART_v_new_scale, wanted, &t->v_new_scale, NULL) &&
           take_scale(taken, ATTN__PART_out_scale, wanted, &t->out_scale, NULL);
}

/* ---------------------------------------------------------------- the call */

/* Whether memory is as the call left it, and can be waited for. */
static int32_t check_stream(struct attn__taken *taken)
{
    const struct attn__run *run = taken->run;
    const struct attn_cpu_executor *executor = is_host(taken) ? run->stream : NULL;

    if (executor != NULL && executor->kind == ATTN_EXECUTOR_TEAM)
        return attn__fail(taken->err, ATTN_E_UNSUPPORTED, 0, "stream",
                          "it was made by a team of threads, which go on while memory is read");
    if (run->batch->seqs == 0)
        return attn__fail(taken->err, ATTN_E_UNSUPPORTED, 0, "seqs", "its batch has no sequences");
    if (!is_host(taken) && run->plan->backend->entry->memory.stream_synchronize == NULL)
        return attn__fail(taken->err, ATTN_E_UNSUPPORTED, 0, "stream",
                          "%s offers no way to wait for a stream", run->plan->backend->entry->table.name);
    return attn_stream_synchronize(run->plan->backend, run->stream,
                                   taken->err); /* ATTN_E_STATE if captured */
}

int32_t attn__taken_fill(struct attn__taken *taken)
{
    const struct attn_problem *problem = &taken->run->plan->problem;
    struct attn__part wanted[ATTN__PARTS];
    struct attn__reach reach;
    int64_t *pages = NULL;
    int32_t status = check_stream(taken);

    if (status == ATTN_OK)
        status = attn__taken_fields(taken);
    if (status == ATTN_OK)
        status = attn__taken_batch(taken, &reach, &pages);
    if (status != ATTN_OK)
        return status;
    if (taken->run->tensors->q_rope.buffer.data != NULL) /* what q has to be depends on it */
        taken->call->parts[ATTN__PART_q_rope].form = ATTN__PART_BYTES;
    attn__parts_expect(problem, taken->call, &reach, wanted);
    if (!take_tensors(taken, wanted) || !take_cache(taken, wanted, pages))
        return taken->err->status;
    return attn__taken_mask(taken);
}
