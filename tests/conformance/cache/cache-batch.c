/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cases of operations that follow a batch: slots of new tokens, and keys gathered into rows. */
#include "cache.h"

#include "need.h"

enum { MOST_KEYS = 300 };

/* Lengths of sequences, and which of their keys are new. */
struct lengths {
    int32_t q_offsets[MAX_SEQS + 1];
    int32_t kv_lens[MAX_SEQS];
    int32_t kv_offsets[MAX_SEQS + 1];
};

static void pick_lengths(struct cache_case *c, struct lengths *l, uint32_t most)
{
    memset(l, 0, sizeof *l);
    for (uint32_t n = 0; n < c->batch.seqs; n++) {
        uint32_t kv = rng_chance(&c->rng, 15) ? 0 : rng_below(&c->rng, most + 1);
        uint32_t q = rng_chance(&c->rng, 30) ? kv > 0 : rng_below(&c->rng, kv + 1);
        l->kv_lens[n] = (int32_t)kv;
        l->q_offsets[n + 1] = l->q_offsets[n] + (int32_t)q;
        l->kv_offsets[n + 1] = l->kv_offsets[n] + (int32_t)kv + (int32_t)rng_below(&c->rng, 3);
        c->batch.max_q = q > c->batch.max_q ? q : c->batch.max_q;
        c->batch.max_kv = kv > c->batch.max_kv ? kv : c->batch.max_kv;
    }
    c->batch.num_tokens = (uint32_t)l->q_offsets[c->batch.seqs];
}

static int64_t pick_page(struct cache_case *c, uint64_t pages)
{
    return rng_chance(&c->rng, 15) ? -1 - (int64_t)rng_below(&c->rng, 5)
                                   : (int64_t)(rng_next(&c->rng) % pages);
}

static void place_table(struct cache_case *c, uint64_t pages)
{
    uint32_t width = c->batch.max_kv / c->problem.block + 1 + rng_below(&c->rng, 3);
    uint32_t stride = width + rng_below(&c->rng, 3);
    int32_t *table = need(calloc((size_t)stride * c->batch.seqs + 1, sizeof *table));

    for (uint32_t i = 0; i < stride * c->batch.seqs; i++)
        table[i] = (int32_t)pick_page(c, pages < INT32_MAX ? pages : INT32_MAX);
    c->batch.table_width = width;
    c->batch.table_stride = (int64_t)(stride * sizeof *table);
    c->batch.table = cache_array(c, "table", table, (size_t)stride * c->batch.seqs * sizeof *table, 4);
    free(table);
}

static void place_csr(struct cache_case *c, const struct lengths *l, uint64_t pages)
{
    int32_t indptr[MAX_SEQS + 1] = {(int32_t)rng_below(&c->rng, 3)};
    bool wide = c->problem.index_dtype == ATTN_INT64;

    for (uint32_t n = 0; n < c->batch.seqs; n++) {
        uint32_t needed = ((uint32_t)l->kv_lens[n] + c->problem.block - 1) / c->problem.block;
        indptr[n + 1] = indptr[n] + (int32_t)(needed + rng_below(&c->rng, 2));
    }
    uint32_t count = (uint32_t)indptr[c->batch.seqs];
    int64_t *wides = need(calloc((size_t)count + 1, sizeof *wides));
    int32_t *narrow = need(calloc((size_t)count + 1, sizeof *narrow));
    for (uint32_t i = 0; i < count; i++) {
        wides[i] = pick_page(c, pages < INT32_MAX || wide ? pages : INT32_MAX);
        narrow[i] = (int32_t)wides[i];
    }
    c->batch.csr_indptr = cache_array(c, "csr_indptr", indptr, (c->batch.seqs + 1) * sizeof *indptr, 4);
    c->batch.csr_indices = wide ? cache_array(c, "csr_indices", wides, (size_t)count * sizeof *wides, 8)
                                : cache_array(c, "csr_indices", narrow, (size_t)count * sizeof *narrow, 4);
    free(wides);
    free(narrow);
}

/* Sequences over `pages` pages of a cache, or (dense) over its pages or its first one. */
static void place_batch(struct cache_case *c, uint32_t block, uint64_t pages, bool queries)
{
    struct lengths l;
    uint32_t most = rng_chance(&c->rng, 30) ? 3 * block + 2 : 40;

    ATTN_INIT(&c->batch);
    ATTN_INIT(&c->problem);
    c->problem.addressing = 1 + rng_below(&c->rng, 3);
    c->problem.index_dtype = rng_chance(&c->rng, 50) ? ATTN_INT64 : ATTN_INT32;
    c->problem.block = block;
    c->problem.kv_source = ATTN_KV_CACHE;
    c->batch.seqs = rng_below(&c->rng, MAX_SEQS + 1);
    bool dense = c->problem.addressing == ATTN_DENSE, run = dense && rng_chance(&c->rng, 50);
    if (dense && !run && c->batch.seqs > pages)
        c->batch.seqs = (uint32_t)pages;
    if (dense)
        most = run ? block / (c->batch.seqs + 1) : block;
    most = most < MOST_KEYS ? most : MOST_KEYS;
    pick_lengths(c, &l, most);
    while (run && c->batch.seqs > 0 && (uint32_t)l.kv_offsets[c->batch.seqs] > block)
        l.kv_offsets[c->batch.seqs--] = 0;
    c->batch.num_tokens = (uint32_t)l.q_offsets[c->batch.seqs];
    size_t n = c->batch.seqs;
    if (queries)
        c->batch.q_offsets = cache_array(c, "q_offsets", l.q_offsets, (n + 1) * 4, 4);
    c->batch.kv_lens = cache_array(c, "kv_lens", l.kv_lens, n * 4, 4);
    if (run)
        c->batch.kv_offsets = cache_array(c, "kv_offsets", l.kv_offsets, (n + 1) * 4, 4);
    if (c->problem.addressing == ATTN_TABLE)
        place_table(c, pages);
    if (c->problem.addressing == ATTN_CSR)
        place_csr(c, &l, pages);
    for (uint32_t i = 0; i < n; i++) {
        c->keys[i] = (struct oracle_sequence){.problem = &c->problem,
                                              .batch = &c->batch,
                                              .index = i,
                                              .first_row = (uint32_t)l.q_offsets[i],
                                              .q_len = (uint32_t)(l.q_offsets[i + 1] - l.q_offsets[i]),
                                              .kv_len = (uint32_t)l.kv_lens[i],
                                              .all_keys = (uint32_t)l.kv_lens[i],
                                              .source = ATTN_KV_CACHE};
    }
}

/* ---------------------------------------------------------------- slot mapping */

static void init_mapping(struct cache_case *c)
{
    static const uint32_t blocks[] = {1, 3, 16, 16, 32, 100, 1u << 20};
    struct attn_kv_slot_mapping_args *args = &c->args.slot_mapping;
    uint32_t block = rng_pick(&c->rng, blocks);

    /* No cache is at hand: page numbers may be as large as they like. */
    place_batch(c, block, rng_chance(&c->rng, 50) ? 64 : (uint64_t)1 << 40, true);
    struct guarded *slots =
        arena_add(&c->arena, "slots", (size_t)(c->batch.num_tokens + rng_below(&c->rng, 3)) * 8, 8, 0x5a);
    cache_track(c, slots);
    args->addressing = c->problem.addressing;
    args->index_dtype = c->problem.index_dtype;
    args->block = block;
    args->batch = &c->batch;
    args->slots = buffer_at(slots->data, &c->rng);
}

static int32_t call_mapping(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;

    return attn_kv_slot_mapping(c->backend, &c->args.slot_mapping, stream, err);
}

static void reference_mapping(struct cache_case *c)
{
    unsigned char *slots =
        (unsigned char *)c->args.slot_mapping.slots.data + c->args.slot_mapping.slots.byte_offset;

    for (uint32_t n = 0; n < c->batch.seqs; n++) {
        const struct oracle_sequence *s = &c->keys[n];
        for (uint32_t i = 0; i < s->q_len; i++) {
            struct oracle_place place;
            int64_t slot = -1;
            if (oracle_locate(s, s->kv_len - s->q_len + i, &place))
                slot = place.page * (int64_t)c->problem.block + place.token;
            memcpy(cache_mirror(c, slots + 8 * ((size_t)s->first_row + i)), &slot, sizeof slot);
        }
    }
}

const struct cache_operation cache_slot_mapping = {"slot_mapping", init_mapping, call_mapping,
                                                   reference_mapping};

/* ---------------------------------------------------------------- gather */

/* Where one half goes, and its scales if they are wanted. */
static void place_output(struct cache_case *c, uint32_t half)
{
    static const uint32_t wide[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    struct attn_kv_gather_args *args = &c->args.gather;
    const struct box *box = &c->boxes[0];
    uint32_t own = box_dtype(box, half), dtype = rng_chance(&c->rng, 35) ? own : rng_pick(&c->rng, wide);
    const uint32_t shape[3] = {args->tokens, box->desc.kv_heads, box_dim(box, half)};
    const uint32_t scales[3] = {args->tokens, box->desc.kv_heads, 1};

    cache_track(c, tensor_init(half == 0 ? &args->k : &args->v, &c->arena, half == 0 ? "k" : "v", shape,
                               oracle_size(dtype), &c->layout, &c->rng, 0x5a));
    *(half == 0 ? &args->k_dtype : &args->v_dtype) = dtype;
    if (oracle_is_8bit(dtype) && rng_chance(&c->rng, 60))
        cache_track(c, tensor_init(half == 0 ? &args->k_scales : &args->v_scales, &c->arena, "row scales",
                                   scales, 4, &c->layout, &c->rng, 0x5a));
}

static void init_gather(struct cache_case *c)
{
    struct attn_kv_gather_args *args = &c->args.gather;
    const struct box *box = box_add(c, NULL);
    int32_t row = (int32_t)rng_below(&c->rng, 2);
    bool started = rng_chance(&c->rng, 60);

    place_batch(c, box->desc.block, box->desc.pages, false);
    c->offsets[0] = row;
    for (uint32_t n = 0; n < c->batch.seqs; n++) {
        uint32_t kv = c->keys[n].kv_len;
        c->starts[n] = started ? (int32_t)rng_below(&c->rng, kv + 1) : 0;
        uint32_t left = kv - (uint32_t)c->starts[n];
        row += (int32_t)(rng_chance(&c->rng, 60) ? left : rng_below(&c->rng, left + 1));
        c->offsets[n + 1] = row;
    }
    args->tokens = (uint32_t)row + rng_below(&c->rng, 3);
    args->addressing = c->problem.addressing;
    args->index_dtype = c->problem.index_dtype;
    args->batch = &c->batch;
    args->offsets = cache_array(c, "offsets", c->offsets, ((size_t)c->batch.seqs + 1) * 4, 4);
    if (started)
        args->starts = cache_array(c, "starts", c->starts, (size_t)c->batch.seqs * 4, 4);
    uint32_t left_out = rng_below(&c->rng, 8);
    bool mla = box_halves(box) == 1;
    if (mla || left_out != 0)
        place_output(c, 0);
    if (!mla && left_out != 1)
        place_output(c, 1);
}

static int32_t call_gather(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;
    struct attn_kv_gather_args args = c->args.gather;

    args.kv = c->boxes[0].kv;
    args.kv_desc = args.kv != NULL ? NULL : &c->boxes[0].desc;
    return attn_kv_gather(c->backend, &args, stream, err);
}

/* One key of one head to its row; `place` NULL is a hole. */
static void gather_vector(struct cache_case *c, uint32_t half, const int64_t *place, uint32_t row,
                          uint32_t head)
{
    const struct attn_kv_gather_args *args = &c->args.gather;
    const struct box *box = &c->boxes[0];
    const struct attn_tensor *scales = half == 0 ? &args->k_scales : &args->v_scales;
    uint32_t dtype = half == 0 ? args->k_dtype : args->v_dtype, size = oracle_size(dtype);
    unsigned char *to = tensor_at(half == 0 ? &args->k : &args->v, row, head);
    double values[1024];
    float scale = 1;

    if (place != NULL)
        reference_load(c, box, half, place, head, values);
    for (uint32_t d = 0; d < box_dim(box, half); d++) {
        unsigned char *at = to + (size_t)d * size;
        if (place == NULL)
            memset(cache_mirror(c, at), 0, size);
        else if (dtype == box_dtype(box, half))
            memcpy(cache_mirror(c, at), cache_mirror(c, box_element(box, half, place[0], place[1], head, d)),
                   size);
        else
            reference_put(c, dtype, values[d], at);
    }
    if (scales->buffer.data == NULL)
        return;
    if (place != NULL && box_scale_at(box, half, place[0], place[1], head) != NULL)
        memcpy(&scale, cache_mirror(c, box_scale_at(box, half, place[0], place[1], head)), sizeof scale);
    memcpy(cache_mirror(c, tensor_at(scales, row, head)), &scale, sizeof scale);
}

static void reference_gather(struct cache_case *c)
{
    for (uint32_t n = 0; n < c->batch.seqs; n++) {
        for (int32_t row = c->offsets[n]; row < c->offsets[n + 1]; row++) {
            struct oracle_place found = {0};
            bool there = oracle_locate(&c->keys[n], (uint32_t)(c->starts[n] + row - c->offsets[n]), &found);
            const int64_t place[] = {found.page, found.token};
            for (uint32_t head = 0; head < c->boxes[0].desc.kv_heads; head++) {
                if (c->args.gather.k.buffer.data != NULL)
                    gather_vector(c, 0, there ? place : NULL, (uint32_t)row, head);
                if (c->args.gather.v.buffer.data != NULL)
                    gather_vector(c, 1, there ? place : NULL, (uint32_t)row, head);
            }
        }
    }
}

const struct cache_operation cache_gather = {"gather", init_gather, call_gather, reference_gather};
