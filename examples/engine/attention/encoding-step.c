/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One step through the attention of a model with an encoder: metadata once, then layer after layer. */
#include "encoding-impl.h"

#include <inttypes.h>

static int check_parts(const struct encoding *e, const struct encoding_part *parts, uint32_t count,
                       struct failure *err)
{
    const struct encoding_options *o = &e->options;
    if (count == 0 || count > o->max_seqs)
        return failure_set(err, "a step of %" PRIu32 " sequences; accepted are 1 to %" PRIu32, count,
                           o->max_seqs);
    for (uint32_t i = 0; i < count; i++) {
        const struct encoding_part *p = &parts[i];
        if (p->batch_slot >= o->max_seqs || p->count == 0 || p->past > o->max_tokens ||
            p->count > o->max_tokens - p->past || p->encoder > o->max_encoder ||
            (p->past == 0 && i > 0 && parts[i - 1].past > 0))
            return failure_set(err,
                               "part %" PRIu32 ": batch slot %" PRIu32 ", %" PRIu32 " tokens behind %" PRIu32
                               ", %" PRIu32 " encoder tokens; accepted are %" PRIu32 " batch slots, %" PRIu32
                               " tokens, %" PRIu32 " encoder tokens, and prompts before decodes",
                               i, p->batch_slot, p->count, p->past, p->encoder, o->max_seqs, o->max_tokens,
                               o->max_encoder);
    }
    return 0;
}

/* Blocks of a batch slot, as many as the tokens need. */
static struct attn_blocks slot_blocks(const struct encoding *e, const struct encoding_slots *slots,
                                      uint32_t batch_slot, uint32_t tokens)
{
    return (struct attn_blocks){.kind = ATTN_BLOCKS_LIST,
                                .count = (tokens + e->options.block - 1) / e->options.block,
                                .blocks = slots->page + (size_t)batch_slot * slots->width};
}

static int add(struct encoding *e, const struct encoding_part *part, struct failure *err)
{
    struct attn_builder_add_args args;
    struct attn_blocks blocks = slot_blocks(e, &e->self, part->batch_slot, part->past + part->count);
    struct attn_blocks cross = slot_blocks(e, &e->cross, part->batch_slot, part->encoder);
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    args.prompt = part->past == 0;
    args.context_len = part->past;
    args.query_len = part->count;
    args.encoder_len = part->encoder;
    args.blocks = &blocks;
    args.cross = &cross;
    return attn_builder_add(e->builder, &args, &error) < 0 ? device_fail(err, "builder", &error) : 0;
}

int encoding_begin(struct encoding *e, const struct encoding_part *parts, uint32_t count, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (check_parts(e, parts, count, err) < 0)
        return -1;
    if (attn_builder_reset(e->builder, &error) < 0)
        return device_fail(err, "builder", &error);
    e->num_tokens = 0;
    e->encoder_tokens = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (add(e, &parts[i], err) < 0)
            return -1;
        e->num_tokens += parts[i].count;
        e->encoder_tokens += parts[i].past == 0 ? parts[i].encoder : 0;
    }
    if (attn_builder_build(e->builder, NULL, e->device.stream, &e->metadata, &error) < 0)
        return device_fail(err, "builder", &error);
    if (attn_state_begin_forward(e->state, e->metadata, e->device.stream, &error) < 0)
        return device_fail(err, "state", &error);
    return 0;
}

static int forward(struct encoding *e, enum encoding_class class, uint32_t layer, bool new_kv,
                   struct failure *err)
{
    const struct encoding_slots *slots = class == ENCODING_SELF    ? &e->self
                                         : class == ENCODING_CROSS ? &e->cross
                                                                   : NULL;
    const struct encoding_shape *s = &e->shape;
    const struct device_tensors *t = &e->tensors;
    struct attn_layer_tensors tensors;
    struct attn_error error;
    ATTN_INIT(&tensors);
    ATTN_INIT(&error);
    tensors.q = device_view(t, t->d_up, 0, s->heads, s->head_dim);
    tensors.out = device_view(t, t->d_down, 0, s->heads, s->head_dim);
    if (new_kv) {
        tensors.k_new = device_view(t, t->d_up, t->k, s->heads, s->head_dim);
        tensors.v_new = device_view(t, t->d_up, t->v, s->heads, s->head_dim);
    }
    if (attn_layer_forward(e->layers[class], e->state, e->metadata, slots ? slots->caches[layer].kv : NULL,
                           &tensors, e->device.stream, &error) < 0)
        return device_fail(err, "layer", &error);
    return 0;
}

int encoding_run(struct encoding *e, enum encoding_class class, uint32_t layer, const float *q,
                 const float *k, const float *v, float *out, struct failure *err)
{
    const uint64_t row = (uint64_t)e->shape.heads * e->shape.head_dim;
    const uint32_t num_tokens = class == ENCODING_ENCODER ? e->encoder_tokens : e->num_tokens;
    const uint64_t kv_count = k ? row * (class == ENCODING_CROSS ? e->encoder_tokens : num_tokens) : 0;
    device_tensors_place(&e->tensors, num_tokens * row, kv_count);
    device_tensors_fill(&e->tensors, q, num_tokens * row, k, v, kv_count);
    if (device_tensors_upload(&e->device, &e->tensors, err) < 0 ||
        forward(e, class, layer, k != NULL, err) < 0 ||
        device_tensors_download(&e->device, &e->tensors, err) < 0 || device_wait(&e->device, err) < 0)
        return -1;
    device_tensors_take(&e->tensors, out, num_tokens * row);
    return 0;
}
