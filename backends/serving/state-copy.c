/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks the arrays of a step against the capture buffers of its graph, and copies them there. */
#include "state-copy.h"
#include "fail.h"
#include "flashinfer.h"

/* One array or table of the step, and its place in the buffers. */
struct input {
    const char *name;
    const struct attn_step_array *from;
    const struct attn__capture_array *to;
    uint64_t rows;  /* of a table; 1 of an array */
    uint64_t bytes; /* of a row */
};

static struct input array_input(const char *name, const struct attn_step_array *from,
                                const struct attn__capture_array *to, uint64_t count)
{
    return (struct input){.name = name, .from = from, .to = to, .rows = 1, .bytes = count * to->size};
}

static struct input table_input(const char *name, const struct attn_step_array *from,
                                const struct attn__capture_array *to, uint64_t rows, uint32_t width)
{
    return (struct input){
        .name = name, .from = from, .to = to, .rows = rows, .bytes = width * (uint64_t)to->size};
}

/* ---------------------------------------------------------------- checks */

static int32_t fail_shape(const char *name, const struct attn_step_array *array, uint64_t rows,
                          uint64_t columns, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_INVALID, 0, name,
                      "%s of the step is [%llu, %u]; the graph's is [%llu, %llu]", name,
                      (unsigned long long)(array->dtype != 0 ? array->count : 0), array->width,
                      (unsigned long long)rows, (unsigned long long)columns);
}

int32_t attn__copy_check_shape(const char *name, const struct attn_step_array *array, uint64_t count,
                               uint32_t size, struct attn_error *err)
{
    return array->dtype != 0 && array->count == count && attn__index_size(array->dtype) == size
               ? ATTN_OK
               : fail_shape(name, array, count, 0, err);
}

static int32_t check_array(struct attn__step_copy *copy, const struct input *in, struct attn_error *err)
{
    copy->on_host = copy->on_host && in->from->host != NULL;
    return attn__copy_check_shape(in->name, in->from, in->bytes / in->to->size, in->to->size, err);
}

static int32_t check_table(struct attn__step_copy *copy, const struct input *in, struct attn_error *err)
{
    const uint64_t width = in->bytes / in->to->size;
    /* Some builders have a row for each token of a graph. */
    const bool more = copy->clone->tokens == 0 && in->from->count > in->rows;

    copy->on_host = copy->on_host && in->from->host != NULL;
    return attn__copy_check_shape(in->name, in->from, more ? in->from->count : in->rows, in->to->size,
                                  NULL) == ATTN_OK &&
                   in->from->width == width
               ? ATTN_OK
               : fail_shape(in->name, in->from, in->rows, width, err);
}

/* Captured kernels are launched for sequences of up to this length. */
static int32_t check_lens(const char *name, const struct attn_step_array *array, uint64_t limit,
                          struct attn_error *err)
{
    const int32_t *lens = attn__ints(array);

    for (uint32_t i = 0; lens != NULL && i < array->count; i++)
        if (lens[i] < 0 || (uint64_t)lens[i] > limit)
            return attn__fail(err, ATTN_E_SIZE, 0, name,
                              "%s[%u] is %d; graphs were captured for 0 to %llu tokens", name, i, lens[i],
                              (unsigned long long)limit);
    return ATTN_OK;
}

static uint64_t token_limit(const struct attn__capture_layout *l, uint32_t width, uint32_t block)
{
    const uint64_t room = (uint64_t)width * block;

    return room < l->max_len ? room : l->max_len;
}

/* ---------------------------------------------------------------- copies */

static int32_t copy_input(const struct attn__step_copy *copy, const struct input *in, struct attn_error *err)
{
    const struct attn__capture *capture = copy->clone->capture;
    const struct attn_serving_host *host = &capture->core->host;
    const uint64_t stride = capture->layout.row_stride;
    struct attn_buffer from = in->from->device, to = capture->place.device;
    int32_t status = ATTN_OK;

    if (in->bytes == 0)
        return ATTN_OK;
    if (copy->image != NULL) {
        for (uint64_t i = 0; i < in->rows; i++)
            memcpy(copy->image + in->to->offset + i * stride,
                   (const char *)in->from->host + (int64_t)i * in->from->stride, in->bytes);
        return ATTN_OK;
    }
    to.byte_offset += in->to->offset;
    for (uint64_t i = 0; i < in->rows && status == ATTN_OK; i++) {
        status =
            host->memory_copy(host->backend, &to, &from, in->bytes, ATTN_COPY_ON_DEVICE, copy->stream, err);
        to.byte_offset += stride;
        from.byte_offset += (uint64_t)in->from->stride;
    }
    return status;
}

/* ---------------------------------------------------------------- arrays of a step */

/* What a cache group has in the buffers: slots, and where kernels read block tables, lengths and table; with
 * ranks, lengths of this one. */
struct group_inputs {
    struct input slots, lens, rank_lens, table;
};

static struct group_inputs group_inputs(const struct attn__step_copy *copy, uint32_t g)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct attn_step_group *from = &copy->step->group[g];
    const struct attn__capture_group *to = &l->group[g];
    return (struct group_inputs){
        .slots = array_input("slot_mapping", &from->slots, &to->slots, copy->num_tokens),
        .lens = array_input("seq_lens_tensor", &from->seq_lens, &l->lens[g], copy->seqs),
        .rank_lens = array_input("kv_lens", &from->rank_lens, &to->rank_lens, copy->seqs),
        .table = table_input("block_tables", &from->table, &to->table, copy->seqs, to->width)};
}

/* The same of cross-attention, whose slots nothing captured reads. */
static struct group_inputs cross_inputs(const struct attn__step_copy *copy)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct attn_step_encoder *from = &copy->step->encoder;

    return (struct group_inputs){
        .lens = array_input("encoder_seq_lens_tensor", &from->seq_lens, &l->encoder_lens, copy->seqs),
        .table =
            table_input("cross_block_tables", &from->table, &l->cross_table, copy->seqs, l->cross_width)};
}

static int32_t check_rows(struct attn__step_copy *copy, const struct group_inputs *in, uint64_t limit,
                          struct attn_error *err)
{
    int32_t status = check_array(copy, &in->lens, err);

    if (status == ATTN_OK)
        status = check_lens(in->lens.name, in->lens.from, limit, err);
    return status == ATTN_OK ? check_table(copy, &in->table, err) : status;
}

static int32_t check_group(struct attn__step_copy *copy, uint32_t g, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const struct group_inputs in = group_inputs(copy, g);
    const uint64_t limit = token_limit(l, l->group[g].width, l->group[g].block);
    int32_t status = check_array(copy, &in.slots, err);

    if (status != ATTN_OK)
        return status;
    if (copy->clone->core->flavour->pages)
        return attn__pages_check_copy(copy, g, err);
    if (l->shard.world == 0)
        return check_rows(copy, &in, limit, err);
    status = check_array(copy, &in.rank_lens, err);
    if (status == ATTN_OK)
        status = check_lens(in.rank_lens.name, in.rank_lens.from, limit, err);
    return status == ATTN_OK ? check_rows(copy, &in, l->max_len, err) : status;
}

/* A step of one token each is as large as its graph. */
static void set_size(struct attn__step_copy *copy)
{
    const struct attn_state_impl *clone = copy->clone;
    const struct attn_step *step = copy->step;

    copy->seqs = clone->tokens == 0   ? step->seqs
                 : clone->tokens == 1 ? clone->batch
                                      : step->decode_tokens / clone->tokens;
    copy->num_tokens = clone->tokens == 0 ? step->num_tokens : copy->seqs * clone->tokens;
}

int32_t attn__step_copy_check(struct attn__step_copy *copy, struct attn_error *err)
{
    const struct attn_state_impl *clone = copy->clone;
    const struct attn__capture_layout *l = &clone->capture->layout;
    int32_t status = ATTN_OK;

    set_size(copy);
    copy->on_host = true;
    for (uint32_t g = 0; g < l->groups && status == ATTN_OK; g++)
        status = check_group(copy, g, err);
    if (status == ATTN_OK && clone->cross) {
        const struct group_inputs in = cross_inputs(copy);
        status = check_rows(copy, &in, token_limit(l, l->cross_width, clone->core->cross_block), err);
    }
    if (status == ATTN_OK && clone->tokens == 0)
        return attn__mix_check_step(copy, err);
    if (status != ATTN_OK || copy->on_host || copy->seqs == clone->batch)
        return status;
    return attn__fail(
        err, ATTN_E_UNSUPPORTED, 0, "num_decode_tokens",
        "the step has %u sequences and is known to the device alone; the graph's %u are accepted", copy->seqs,
        clone->batch);
}

/*
 * Sequences of the graph that the step does not have: they write no cache, and see the first tokens of block
 * 0. Those of a graph of any mix have no query tokens, and no keys.
 */
static void pad_image(const struct attn__step_copy *copy)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    const uint64_t seqs = copy->seqs, batch = copy->clone->batch;
    const uint64_t tokens = copy->num_tokens, all = copy->clone->fields.step.num_tokens;

    for (uint32_t g = 0; g < l->groups; g++) {
        int32_t *lens = (int32_t *)(void *)(copy->image + l->lens[g].offset);
        memset(copy->image + l->group[g].slots.offset + tokens * sizeof(int64_t), 0xff,
               (all - tokens) * sizeof(int64_t));
        for (uint64_t i = seqs; i < batch; i++)
            lens[i] = (int32_t)copy->clone->tokens;
        lens = (int32_t *)(void *)(copy->image + l->group[g].rank_lens.offset);
        for (uint64_t i = seqs; i < batch && l->shard.world != 0; i++)
            lens[i] = (int32_t)attn__cp_count(&l->shard, copy->clone->tokens);
    }
    if (seqs < batch) /* rows of block tables */
        memset(copy->image + l->rows + seqs * l->row_stride, 0, (batch - seqs) * l->row_stride);
    if (copy->clone->tokens == 0)
        attn__mix_copy(copy);
}

static int32_t copy_rows(const struct attn__step_copy *copy, const struct group_inputs *in,
                         struct attn_error *err)
{
    int32_t status = copy_input(copy, &in->lens, err);

    if (status == ATTN_OK && in->rank_lens.bytes != 0)
        status = copy_input(copy, &in->rank_lens, err);
    return status == ATTN_OK ? copy_input(copy, &in->table, err) : status;
}

int32_t attn__step_copy_run(struct attn__step_copy *copy, struct attn_error *err)
{
    const struct attn__capture_layout *l = &copy->clone->capture->layout;
    int32_t status = ATTN_OK;

    copy->end = l->rows + copy->clone->batch * l->row_stride;
    copy->indices = 0;
    for (uint32_t g = 0; g < l->groups && status == ATTN_OK; g++) {
        const struct group_inputs in = group_inputs(copy, g);
        status = copy_input(copy, &in.slots, err);
        if (status == ATTN_OK && copy->clone->core->flavour->pages)
            attn__pages_copy(copy, g);
        else if (status == ATTN_OK)
            status = copy_rows(copy, &in, err);
    }
    if (status == ATTN_OK && copy->clone->cross) {
        const struct group_inputs in = cross_inputs(copy);
        status = copy_rows(copy, &in, err);
    }
    if (status == ATTN_OK && copy->image != NULL)
        pad_image(copy);
    return status;
}
