/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Lays a record out in memory: strides and alignment are those that the program had. */
#include <stdlib.h>
#include <string.h>

#include "attn/device.h"
#include "output.h"
#include "replay.h"

static bool is_output(uint32_t kind)
{
    return kind == ATTN__PART_out || kind == ATTN__PART_lse;
}

unsigned char *image_at(const struct image *image, uint64_t i, uint64_t j, uint64_t k)
{
    const int64_t *stride = image->part.stride;

    return image->host.data + image->first + (int64_t)i * stride[0] + (int64_t)j * stride[1] +
           (int64_t)k * stride[2];
}

void image_fill(const struct image *image, const unsigned char *packed)
{
    const struct attn__part *part = &image->part;

    for (uint64_t i = 0; i < part->count[0]; i++)
        for (uint64_t j = 0; j < part->count[1]; j++)
            for (uint64_t k = 0; k < part->count[2]; k++, packed += part->row)
                memcpy(image_at(image, i, j, k), packed, part->row);
}

int32_t image_copy(struct rerun *rerun, uint32_t kind, uint32_t direction, struct attn_error *err)
{
    struct image *image = &rerun->images[kind];
    const struct attn_buffer host = {image->host.data, 0};
    const struct attn_buffer device = {image->block.data, image->block.byte_offset + image->lead};
    const bool back = direction == ATTN_COPY_TO_HOST;

    return attn_memory_copy(rerun->backend, back ? &host : &device, back ? &device : &host, image->host.size,
                            direction, rerun->stream, err);
}

/* Memory of an array, so that its first vector is aligned as it was. */
static int32_t image_make(struct rerun *rerun, uint32_t kind, struct attn_error *err)
{
    struct image *image = &rerun->images[kind];
    const uint32_t align = ATTN__RECORD_ALIGN;
    uint64_t bytes = 0;

    if (image->part.form == ATTN__PART_ABSENT)
        return ATTN_OK;
    (void)attn__part_extent(&image->part, &bytes, &image->first); /* a record has no others */
    image->lead = (image->part.align - image->first % align + align) % align;
    image->allocation = need_memory(NULL, bytes + 2 * (uint64_t)align, 1);
    const uintptr_t base = ((uintptr_t)image->allocation + align - 1) / align * align;
    image->host.data = (unsigned char *)base + image->lead;
    image->host.size = bytes;
    memset(image->host.data, 0, bytes);
    int32_t status = attn_memory_alloc(rerun->backend, bytes + align, &image->block, err);
    if (status != ATTN_OK)
        return status;
    if (is_output(kind)) {
        pattern_fill(&image->host);
    } else {
        unsigned char *contents = record_contents(rerun->record, kind);
        image_fill(image, contents);
        free(contents);
    }
    status = image_copy(rerun, kind, ATTN_COPY_TO_DEVICE, err);
    return status == ATTN_OK ? attn_stream_synchronize(rerun->backend, rerun->stream, err) : status;
}

/* ---------------------------------------------------------------- structs that point into it */

static struct attn_buffer buffer_of(const struct rerun *rerun, const struct view *view, uint32_t kind)
{
    const struct image *image = &rerun->images[kind];

    if (image->part.form == ATTN__PART_ABSENT)
        return (struct attn_buffer){NULL, 0};
    if (view == &rerun->host)
        return (struct attn_buffer){image->host.data + image->first, 0};
    return (struct attn_buffer){image->block.data, image->block.byte_offset + image->lead + image->first};
}

static struct attn_tensor tensor_of(const struct rerun *rerun, const struct view *view, uint32_t kind)
{
    const struct attn__part *part = &rerun->images[kind].part;

    return (struct attn_tensor){.buffer = buffer_of(rerun, view, kind),
                                .token_stride = part->stride[0],
                                .head_stride = part->stride[1]};
}

static struct attn_scale scale_of(const struct rerun *rerun, const struct view *view, uint32_t kind,
                                  uint32_t granularity)
{
    const struct attn__part *part = &rerun->images[kind].part;
    const bool there = part->form != ATTN__PART_ABSENT;

    if (granularity == ATTN_SCALES_UNIT)
        return (struct attn_scale){.kind = ATTN_SCALE_UNIT, .granularity = granularity};
    return (struct attn_scale){
        .kind = part->place,
        .granularity = there ? granularity : 0,
        .buffer = buffer_of(rerun, part->place == ATTN_SCALE_HOST ? &rerun->host : view, kind),
        .outer_stride = part->stride[0],
        .token_stride = part->stride[1],
        .head_stride = part->stride[2]};
}

static void point_batch(struct rerun *rerun, struct view *view)
{
    struct attn_batch *batch = &view->batch;

    attn__call_batch(&rerun->record->call, batch, &rerun->copies);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = &rerun->copies;
    batch->q_offsets = buffer_of(rerun, view, ATTN__PART_q_offsets);
    batch->kv_lens = buffer_of(rerun, view, ATTN__PART_kv_lens);
    batch->kv_offsets = buffer_of(rerun, view, ATTN__PART_kv_offsets);
    batch->table = buffer_of(rerun, view, ATTN__PART_table);
    batch->csr_indptr = buffer_of(rerun, view, ATTN__PART_csr_indptr);
    batch->csr_indices = buffer_of(rerun, view, ATTN__PART_csr_indices);
    batch->last_page_lens = buffer_of(rerun, view, ATTN__PART_last_page_lens);
    batch->q_positions = buffer_of(rerun, view, ATTN__PART_q_positions);
    batch->seq_causal = buffer_of(rerun, view, ATTN__PART_seq_causal);
    batch->kv_global_lens = buffer_of(rerun, view, ATTN__PART_kv_global_lens);
}

static void point_cache(struct rerun *rerun, struct view *view)
{
    const struct attn_problem *problem = &rerun->record->problem;
    const struct attn__call *call = &rerun->record->call;
    const struct attn__part *k = &rerun->images[ATTN__PART_k].part, *v = &rerun->images[ATTN__PART_v].part;
    struct attn_kv_desc *desc = &view->desc;

    ATTN_INIT(desc);
    desc->k_dtype = problem->k_dtype;
    desc->v_dtype = problem->mla != 0 ? 0 : problem->v_dtype;
    desc->layout = problem->layout;
    desc->pages = (uint32_t)call->kv_pages;
    desc->block = (uint32_t)call->kv_block;
    desc->kv_heads = problem->kv_heads;
    desc->head_dim = problem->head_dim;
    desc->head_dim_vo = problem->head_dim_vo;
    desc->k = buffer_of(rerun, view, ATTN__PART_k);
    desc->v = buffer_of(rerun, view, ATTN__PART_v);
    desc->k_page_stride = k->stride[0];
    desc->k_token_stride = k->stride[1];
    desc->k_head_stride = k->stride[2];
    desc->v_page_stride = v->stride[0];
    desc->v_token_stride = v->stride[1];
    desc->v_head_stride = v->stride[2];
    desc->k_scale = scale_of(rerun, view, ATTN__PART_k_scale, problem->k_scale);
    if (problem->mla == 0)
        desc->v_scale = scale_of(rerun, view, ATTN__PART_v_scale, problem->v_scale);
}

static void point_tensors(struct rerun *rerun, struct view *view)
{
    const struct attn_problem *problem = &rerun->record->problem;
    const struct attn__call *call = &rerun->record->call;
    const uint32_t scale = (uint32_t)call->softmax_scale;
    struct attn_tensors *tensors = &view->tensors;

    ATTN_INIT(tensors);
    memcpy(&tensors->softmax_scale, &scale, sizeof scale);
    tensors->q = tensor_of(rerun, view, ATTN__PART_q);
    tensors->q_rope = tensor_of(rerun, view, ATTN__PART_q_rope);
    tensors->k_new = tensor_of(rerun, view, ATTN__PART_k_new);
    tensors->v_new = tensor_of(rerun, view, ATTN__PART_v_new);
    tensors->out = tensor_of(rerun, view, ATTN__PART_out);
    tensors->lse = tensor_of(rerun, view, ATTN__PART_lse);
    tensors->alibi_slopes = buffer_of(rerun, view, ATTN__PART_alibi_slopes);
    tensors->sinks = buffer_of(rerun, view, ATTN__PART_sinks);
    tensors->sinks_dtype = (uint32_t)call->sinks_dtype;
    tensors->mask_packed = (uint32_t)call->mask_packed;
    tensors->mask = buffer_of(rerun, view, ATTN__PART_mask);
    tensors->mask_starts = buffer_of(rerun, view, ATTN__PART_mask_starts);
    tensors->mask_head_stride = (int64_t)call->mask_head_stride;
    tensors->mask_row_stride = (int64_t)call->mask_row_stride;
    tensors->q_scale = scale_of(rerun, view, ATTN__PART_q_scale, problem->q_scale);
    tensors->out_scale = scale_of(rerun, view, ATTN__PART_out_scale, problem->out_scale);
    if (problem->kv_source == ATTN_KV_CACHE)
        return;
    tensors->k_new_scale = scale_of(rerun, view, ATTN__PART_k_new_scale, problem->k_scale);
    if (problem->mla == 0)
        tensors->v_new_scale = scale_of(rerun, view, ATTN__PART_v_new_scale, problem->v_scale);
}

/* A call that failed left no outputs: they get memory without gaps. */
static void add_outputs(struct rerun *rerun)
{
    const struct record *record = rerun->record;
    const uint32_t kinds[] = {ATTN__PART_out, ATTN__PART_lse};
    struct attn__part wanted[ATTN__PARTS];
    const struct attn__reach reach = {0};

    attn__parts_expect(&record->problem, &record->call, &reach, wanted);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && record->failed; i++) {
        rerun->images[kinds[i]].part = wanted[kinds[i]];
        attn__part_pack(&rerun->images[kinds[i]].part);
    }
}

int32_t layout_make(struct rerun *rerun, struct attn_error *err)
{
    int32_t status = ATTN_OK;

    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++)
        rerun->images[kind].part = rerun->record->call.parts[kind];
    add_outputs(rerun);
    for (uint32_t kind = 0; kind < ATTN__PARTS && status == ATTN_OK; kind++)
        status = image_make(rerun, kind, err);
    struct view *const views[] = {&rerun->device, &rerun->host};
    for (size_t i = 0; i < sizeof views / sizeof views[0] && status == ATTN_OK; i++) {
        point_batch(rerun, views[i]);
        point_tensors(rerun, views[i]);
        if (rerun->record->problem.kv_source != ATTN_KV_NEW)
            point_cache(rerun, views[i]);
    }
    return status;
}

void layout_free(struct rerun *rerun)
{
    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++) {
        free(rerun->images[kind].allocation);
        attn_memory_free(rerun->backend, &rerun->images[kind].block);
    }
}
