/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step of attention: its metadata, each layer of it, and the graphs that do the same. */
#include "attention-impl.h"
#include "ranks.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- one layer */

uint64_t attention_q_count(const struct attention *a, uint32_t num_tokens)
{
    return (uint64_t)num_tokens * a->shape.heads * a->shape.head_dim;
}

uint64_t attention_kv_count(const struct attention *a, uint32_t num_tokens)
{
    return (uint64_t)num_tokens * a->shape.kv_heads * a->shape.head_dim;
}

/*
 * One layer over the tensors of the step that was begun with state and metadata, from the copy that brings
 * them to the one that takes the output back.
 */
static int run_layer(struct attention *a, struct attn_state *state, const struct attn_metadata *metadata,
                     uint32_t layer, struct failure *err)
{
    const struct attention_shape *s = &a->shape;
    const struct device_tensors *t = &a->tensors;
    struct attn_layer_tensors tensors;
    struct attn_error error;
    ATTN_INIT(&tensors);
    ATTN_INIT(&error);
    tensors.q = device_view(t, t->d_up, 0, s->heads, s->head_dim);
    tensors.k_new = device_view(t, t->d_up, t->k, s->kv_heads, s->head_dim);
    tensors.v_new = device_view(t, t->d_up, t->v, s->kv_heads, s->head_dim);
    tensors.out = device_view(t, t->d_down, 0, s->heads, s->head_dim);
    if (device_tensors_upload(&a->device, t, err) < 0)
        return -1;
    if (attn_layer_forward(a->groups[attention_group_of(a, layer)].layer, state, metadata,
                           a->caches[layer].kv, &tensors, a->device.stream, &error) < 0)
        return device_fail(err, "layer", &error);
    return device_tensors_download(&a->device, t, err);
}

static int launch(struct attention *a, uint32_t layer, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_graph_launch(a->size->layers[layer], a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    return 0;
}

struct forward_args {
    uint32_t layer;
    const float *q, *k, *v;
    float *out;
};

static int forward_here(struct attention *a, const void *args, struct failure *err)
{
    const struct forward_args *f = args;
    const uint64_t count = attention_q_count(a, a->num_tokens);
    device_tensors_fill(&a->tensors, f->q, count, f->k, f->v, attention_kv_count(a, a->num_tokens));
    if ((a->size ? launch(a, f->layer, err) : run_layer(a, a->state, a->metadata, f->layer, err)) < 0 ||
        device_wait(&a->device, err) < 0)
        return -1;
    if (a->net.rank == 0) /* all ranks have the same */
        device_tensors_take(&a->tensors, f->out, count);
    return 0;
}

int attention_forward(struct attention *a, uint32_t layer, const float *q, const float *k, const float *v,
                      float *out, struct failure *err)
{
    const struct forward_args args = {layer, q, k, v, out};
    return ranks_call(a, forward_here, &args, err);
}

/* ---------------------------------------------------------------- graphs */

/*
 * The attention of decode steps is captured for a ladder of sizes. The products between layers are the
 * host's, so that there is one graph for each layer and size: the copy of its tensors to the backend, the
 * cache write, the attention and the copy of the output back. A step of fewer sequences is padded to the next
 * size.
 */

/* 1, 2, 4, 8, 16, 24 …: small batches are padded by no more than they have, larger ones by less than 8. */
static uint32_t next_size(uint32_t size)
{
    return size < 8 ? 2 * size : size + 8;
}

static int make_sizes(struct attention *a, struct failure *err)
{
    uint32_t most = a->options.max_seqs;
    uint32_t count = 1;
    for (uint32_t size = 1; size < most; size = next_size(size))
        count++;
    a->sizes = calloc(count, sizeof *a->sizes);
    if (!a->sizes)
        return failure_set(err, "no memory for graphs of %" PRIu32 " sizes", count);
    for (uint32_t size = 1; a->size_count < count; size = next_size(size)) {
        struct attention_size *s = &a->sizes[a->size_count++];
        s->seqs = size < most ? size : most;
        s->layers = calloc(a->shape.layers, sizeof(struct attn_graph *));
        if (!s->layers)
            return failure_set(err, "no memory for graphs of %" PRIu32 " layers", a->shape.layers);
    }
    return 0;
}

static int refuse(const struct attention *a, const char *why, struct failure *err)
{
    return failure_set(err, "graph is on, and backend %s has no graphs: %.300s; accepted is off",
                       attn_backend_get_name(a->backend), why);
}

static int capture_layer(struct attention *a, struct attention_size *size,
                         const struct attn_metadata *metadata, uint32_t layer, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    int32_t begun = attn_graph_begin(a->backend, a->device.stream, &size->layers[layer], &error);
    if (begun < 0)
        return begun == ATTN_E_UNSUPPORTED ? refuse(a, error.message, err)
                                           : device_fail(err, "graph", &error);
    int status = run_layer(a, size->state, metadata, layer, err);
    if (attn_graph_end(size->layers[layer], &error) < 0 && status == 0)
        status = device_fail(err, "graph", &error);
    return status;
}

static int capture_size(struct attention *a, struct attention_size *size, struct failure *err)
{
    struct attn_state_capture_args args;
    struct attn_metadata *metadata = NULL;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    args.batch = size->seqs;
    device_tensors_place(&a->tensors, attention_q_count(a, size->seqs), attention_kv_count(a, size->seqs));
    if (attn_state_get_capture_metadata(a->state, &args, a->device.stream, &metadata, &error) < 0 ||
        attn_state_clone(a->state, size->seqs, &size->state, &error) < 0 ||
        attn_state_begin_forward(size->state, metadata, a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    for (uint32_t i = 0; i < a->shape.layers; i++)
        if (run_layer(a, size->state, metadata, i, err) < 0 || /* warm-up */
            capture_layer(a, size, metadata, i, err) < 0)
            return -1;
    return 0;
}

/* From large to small, so that what the first one takes is enough for the others. */
static int capture_all(struct attention *a, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_state_begin_capture(a->state, a->options.max_seqs, a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    int status = 0;
    for (uint32_t i = a->size_count; status == 0 && i-- > 0;)
        status = capture_size(a, &a->sizes[i], err);
    if (attn_state_end_capture(a->state, &error) < 0 && status == 0)
        status = device_fail(err, "graph", &error);
    return status;
}

int attention_capture(struct attention *a, struct failure *err)
{
    if (!a->device.stream)
        return refuse(a, "it has no streams that could be captured", err);
    return make_sizes(a, err) < 0 ? -1 : capture_all(a, err);
}

/* The smallest captured size for so many sequences; NULL: none. */
static const struct attention_size *find_size(const struct attention *a, uint32_t seqs)
{
    for (uint32_t i = 0; i < a->size_count; i++)
        if (a->sizes[i].seqs >= seqs)
            return &a->sizes[i];
    return NULL;
}

void attention_free_graphs(struct attention *a)
{
    for (uint32_t i = 0; i < a->size_count; i++) {
        for (uint32_t k = 0; a->sizes[i].layers && k < a->shape.layers; k++)
            attn_graph_destroy(a->sizes[i].layers[k]);
        attn_state_destroy(a->sizes[i].state);
        free(a->sizes[i].layers);
    }
    free(a->sizes);
}

/* ---------------------------------------------------------------- steps */

static uint32_t blocks_for(const struct attention *a, const struct attention_part *p)
{
    return (p->past + p->count - 1) / attention_block_tokens(&a->options) + 1;
}

static int check_part(const struct attention *a, const struct attention_part *p, uint32_t index,
                      uint32_t count, struct failure *err)
{
    const struct attention_options *o = &a->options;
    if ((!p->blocks[0] && count > 1) || p->count == 0 || p->count > o->max_chunk || p->past > o->max_tokens ||
        p->count > o->max_tokens - p->past)
        return failure_set(err,
                           "part %" PRIu32 ": %" PRIu32 " tokens behind %" PRIu32
                           " %s blocks; accepted are steps of 1 to %" PRIu32 " tokens, %" PRIu32
                           " tokens in all, and no blocks for a part that is alone",
                           index, p->count, p->past, p->blocks[0] ? "with" : "without", o->max_chunk,
                           o->max_tokens);
    if (p->batch_slot >= o->max_seqs || (p->held && p->held < blocks_for(a, p)) || p->unchanged > a->width)
        return failure_set(err,
                           "part %" PRIu32 ": batch slot %" PRIu32 ", %" PRIu32 " blocks, %" PRIu32
                           " of them unchanged; accepted are batch slots below %" PRIu32
                           " and at least %" PRIu32 " blocks",
                           index, p->batch_slot, p->held, p->unchanged, o->max_seqs, blocks_for(a, p));
    return 0;
}

static int check_parts(const struct attention *a, const struct attention_part *parts, uint32_t count,
                       struct failure *err)
{
    const struct attention_options *o = &a->options;
    uint64_t num_tokens = 0;
    if (count == 0 || count > o->max_seqs)
        return failure_set(err, "a step of %" PRIu32 " sequences; accepted are 1 to %" PRIu32, count,
                           o->max_seqs);
    for (uint32_t i = 0; i < count; i++) {
        if (check_part(a, &parts[i], i, count, err) < 0)
            return -1;
        num_tokens += parts[i].count;
    }
    if (num_tokens > o->max_batch_tokens)
        return failure_set(err, "a step of %" PRIu64 " tokens; accepted are 1 to %" PRIu32, num_tokens,
                           o->max_batch_tokens);
    return 0;
}

/* Writes the pages of a batch slot's sequence; the unchanged ones in front are still there. */
static void fill_blocks(struct attention *a, uint32_t group, const struct attention_part *p, uint32_t held)
{
    struct attention_group *g = &a->groups[group];
    int64_t *to = g->blocks + (size_t)p->batch_slot * a->width;
    const int32_t *from = p->blocks[group];
    for (uint32_t i = p->unchanged; i < held; i++) {
        int32_t block = from ? from[i] : (int32_t)i;
        to[i] = block < 0 ? -1 : g->page[block];
    }
}

/* A row keeps its cells from step to step: they are this sequence's if it was the last one to write them. */
static uint32_t unchanged(const struct attention *a, uint32_t row, const struct attention_part *p)
{
    const struct attention_row *r = &a->row[row];
    bool own = r->batch_slot == p->batch_slot && r->step == a->slot_step[p->batch_slot];
    return own ? p->unchanged : 0;
}

static int add(struct attention *a, uint32_t row, const struct attention_part *p, bool prompt,
               struct failure *err)
{
    struct attn_blocks blocks[SCHEDULER_GROUPS] = {0};
    struct attn_builder_add_args args;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    uint32_t held = p->held ? p->held : blocks_for(a, p);
    held = held < a->width ? held : a->width;
    for (uint32_t g = 0; g < a->shape.groups; g++) {
        fill_blocks(a, g, p, held);
        blocks[g].kind = ATTN_BLOCKS_LIST;
        blocks[g].blocks = a->groups[g].blocks + (size_t)p->batch_slot * a->width;
        blocks[g].count = held;
        blocks[g].unchanged = unchanged(a, row, p);
    }
    args.prompt = prompt;
    args.context_len = p->past;
    args.query_len = p->count;
    args.blocks = blocks;
    if (attn_builder_add(a->builder, &args, &error) < 0)
        return device_fail(err, "builder", &error);
    a->row[row] = (struct attention_row){p->batch_slot, a->step};
    a->slot_step[p->batch_slot] = a->step;
    return 0;
}

/* A graph copies its padding too. */
static void place_tensors(struct attention *a)
{
    uint32_t num_tokens = a->size ? a->size->seqs : a->num_tokens;
    device_tensors_place(&a->tensors, attention_q_count(a, num_tokens), attention_kv_count(a, num_tokens));
}

/* The metadata is planned for all layer classes; for graphs it goes to the buffers that they read. */
static int begin(struct attention *a, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (a->size && attn_state_prepare(a->state, a->metadata, a->device.stream, &error) < 0)
        return device_fail(err, "graph", &error);
    if (attn_state_begin_forward(a->state, a->metadata, a->device.stream, &error) < 0)
        return device_fail(err, "state", &error);
    a->replayed += a->size != NULL;
    return 0;
}

struct begin_args {
    const struct attention_part *parts;
    uint32_t count;
};

static int begin_here(struct attention *a, const void *args, struct failure *err)
{
    const struct attention_part *parts = ((const struct begin_args *)args)->parts;
    const uint32_t count = ((const struct begin_args *)args)->count;
    struct attn_builder_build_args build;
    struct attn_error error;
    uint32_t prompts = 0;
    ATTN_INIT(&build);
    ATTN_INIT(&error);
    if (check_parts(a, parts, count, err) < 0)
        return -1;
    if (attn_builder_reset(a->builder, &error) < 0)
        return device_fail(err, "builder", &error);
    a->metadata = NULL;
    a->num_tokens = 0;
    a->step++;
    /* One token behind others is a decode. Decodes before the last prompt are added as prompts of one token,
     * which computes the same. */
    for (uint32_t i = 0; i < count; i++)
        prompts = parts[i].count > 1 || parts[i].past == 0 ? i + 1 : prompts;
    for (uint32_t i = 0; i < count; a->num_tokens += parts[i++].count)
        if (add(a, i, &parts[i], i < prompts, err) < 0)
            return -1;
    a->seqs = count;
    a->decodes = prompts == 0;
    a->size = a->decodes ? find_size(a, count) : NULL;
    place_tensors(a);
    build.graph = a->size != NULL;
    build.pad = a->size ? a->size->seqs - count : 0;
    if (attn_builder_build(a->builder, &build, a->device.stream, &a->metadata, &error) < 0)
        return device_fail(err, "builder", &error);
    return begin(a, err);
}

int attention_begin(struct attention *a, const struct attention_part *parts, uint32_t count,
                    struct failure *err)
{
    const struct begin_args args = {parts, count};
    return ranks_call(a, begin_here, &args, err);
}

static int advance_here(struct attention *a, const void *arg, struct failure *err)
{
    const int32_t *tokens = arg;
    int64_t *next = a->tokens.memory; /* every layer of the step before was waited for */
    struct attn_advance_args args;
    struct attn_error error;
    ATTN_INIT(&args);
    ATTN_INIT(&error);
    if (!a->metadata || !a->decodes)
        return failure_set(err, "the step before was no step of one token for each sequence");
    for (uint32_t i = 0; i < a->seqs; i++)
        next[i] = tokens[i];
    if (device_put(&a->device, &a->d_tokens, next, a->seqs * sizeof *next, err) < 0)
        return -1;
    args.seqs = a->size ? a->size->seqs : a->seqs;
    args.queries = a->seqs;
    args.sampled = a->d_tokens;
    args.tokens = a->d_tokens;
    if (attn_metadata_advance_step(a->metadata, &args, a->device.stream, &error) < 0)
        return device_fail(err, "advance", &error);
    a->advanced++;
    return begin(a, err);
}

int attention_advance(struct attention *a, const int32_t *tokens, struct failure *err)
{
    return ranks_call(a, advance_here, tokens, err);
}
