/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Copies the keys of one rank out of a step's cache, by steps of one key, into pages in order. */
#include "shard.h"

#include <stdlib.h>

#include "need.h"

/* Rank and interleave of a shard under construction. */
struct share {
    struct step *step;
    uint32_t rank, world, interleave;
};

bool shard_allows(const struct conform_case *the_case, uint32_t interleave)
{
    const uint32_t block = the_case->problem.block;

    if (block % interleave != 0)
        return false;
    for (uint32_t i = 0; i < the_case->page_entries && interleave != block; i++)
        if (the_case->pages[i] < 0)
            return false;
    return true;
}

static bool is_own(const struct share *share, uint32_t key)
{
    return key / share->interleave % share->world == share->rank;
}

/* Keys that the rank has of the first `keys` of a sequence. */
static uint32_t count_own(const struct share *share, uint32_t keys)
{
    uint32_t own = 0;

    for (uint32_t j = 0; j < keys; j++)
        own += is_own(share, j);
    return own;
}

/* Scales of tokens move with their keys. Of others the case has one value for a head (see check_case in
 * cp.c). */
static bool moves(const struct attn_scale *scale)
{
    return scale->granularity == ATTN_SCALES_TOKEN_HEAD;
}

static void place_scale(struct shard *shard, const struct step *step, uint32_t what)
{
    const struct attn_kv_desc *kv = &shard->kv;
    struct attn_scale *scale = what == SCALED_K ? &shard->kv.k_scale : &shard->kv.v_scale;
    const size_t count = (size_t)(moves(scale) ? kv->pages * kv->block : 1) * kv->kv_heads;

    if (scale->granularity < ATTN_SCALES_HEAD)
        return;
    float *values = (float *)(void *)arena_add(&shard->arena, "shard scales", count * sizeof *values,
                                               sizeof *values, 0xff)
                        ->data;
    for (uint32_t head = 0; head < kv->kv_heads && !moves(scale); head++)
        values[head] = (float)case_scale_value(step->the_case, what, &(struct scale_place){.head = head});
    scale->kind = ATTN_SCALE_DEVICE;
    scale->buffer = (struct attn_buffer){values, 0};
    scale->head_stride = sizeof *values;
    scale->token_stride = moves(scale) ? kv->kv_heads * scale->head_stride : 0;
    scale->outer_stride = kv->block * scale->token_stride;
}

/* One block of memory for keys or values; strides as the target wants them. */
static struct attn_buffer place_vectors(struct shard *shard, const struct step *step, const char *name,
                                        uint32_t dtype, uint32_t dim, int64_t strides[3])
{
    const uint64_t least = oracle_row_bytes(dtype, dim);
    const uint32_t element = oracle_size(dtype) > 0 ? oracle_size(dtype) : 1;
    struct rng rng = {mix(step->the_case->seed, 92)};
    const struct attn_kv_desc *kv = &shard->kv;

    strides[2] = stride_padded(least, element, &step->layout, &rng);
    strides[1] = strides[2] * kv->kv_heads;
    strides[0] = strides[1] * kv->block;
    struct guarded *memory = arena_add(&shard->arena, name, (size_t)strides[0] * kv->pages,
                                       step->layout.alignment > element ? step->layout.alignment : element,
                                       case_poison(step->the_case, dtype));
    return (struct attn_buffer){memory->data, 0};
}

static void place_cache(struct shard *shard, const struct step *step, uint32_t pages)
{
    struct attn_kv_desc *kv = &shard->kv;
    int64_t k[3], v[3];

    *kv = step->kv;
    kv->pages = pages > 0 ? pages : 1;
    kv->k = place_vectors(shard, step, "shard keys", kv->k_dtype, kv->head_dim, k);
    kv->k_page_stride = k[0], kv->k_token_stride = k[1], kv->k_head_stride = k[2];
    place_scale(shard, step, SCALED_K);
    if (step->problem.mla != 0)
        return;
    kv->v = place_vectors(shard, step, "shard values", kv->v_dtype, kv->head_dim_vo, v);
    kv->v_page_stride = v[0], kv->v_token_stride = v[1], kv->v_head_stride = v[2];
    place_scale(shard, step, SCALED_V);
}

static void copy_scale(const struct shard *shard, struct step *step, uint32_t what, const int64_t from[2],
                       const int64_t to[2], uint32_t head)
{
    const struct attn_scale *scale = what == SCALED_K ? &shard->kv.k_scale : &shard->kv.v_scale;

    if (moves(scale))
        memcpy((unsigned char *)scale->buffer.data + to[0] * scale->outer_stride +
                   to[1] * scale->token_stride + head * scale->head_stride,
               step_scale_at(step, what, from[0], from[1], head), sizeof(float));
}

static void copy_key(const struct shard *shard, struct step *step, const int64_t from[2], const int64_t to[2])
{
    const struct attn_kv_desc *kv = &shard->kv;

    for (uint32_t head = 0; head < kv->kv_heads; head++) {
        memcpy(key_at(kv, to[0], to[1], head), key_at(&step->kv, from[0], from[1], head),
               oracle_row_bytes(kv->k_dtype, kv->head_dim));
        copy_scale(shard, step, SCALED_K, from, to, head);
        if (step->problem.mla != 0)
            continue;
        memcpy(value_at(kv, to[0], to[1], head), value_at(&step->kv, from[0], from[1], head),
               oracle_row_bytes(kv->v_dtype, kv->head_dim_vo));
        copy_scale(shard, step, SCALED_V, from, to, head);
    }
}

/* The pages of one sequence, from page `page` on; entries of its row of the table. Returns the next page. */
static int32_t copy_sequence(const struct shard *shard, const struct share *share, uint32_t n, int32_t page,
                             int32_t *row)
{
    struct step *step = share->step;
    const uint32_t block = shard->kv.block, keys = (uint32_t)step->host.kv_lens[n];
    uint32_t own = 0;

    for (uint32_t j = 0; j < keys; j++) {
        int64_t from[2];
        if (!is_own(share, j))
            continue;
        step_place(step, n, j, &from[0], &from[1]);
        if (own % block == 0)
            row[own / block] = from[0] < 0 ? -1 : page++;
        const int64_t to[2] = {row[own / block], own % block};
        if (from[0] >= 0)
            copy_key(shard, step, from, to);
        own++;
    }
    return page;
}

static struct attn_buffer keep(struct shard *shard, const char *name, const void *from, size_t bytes)
{
    struct guarded *memory = arena_add(&shard->arena, name, bytes, sizeof(int32_t), 0xff);

    memcpy(memory->data, from, bytes);
    guarded_protect(memory);
    return (struct attn_buffer){memory->data, 0};
}

static void place_batch(struct shard *shard, const struct share *share, const int32_t *table, uint32_t width,
                        const int32_t *lens)
{
    const struct step *step = share->step;
    struct attn_batch *batch = &shard->batch;
    int32_t all[STEP_SEQS];

    *batch = step->batch;
    for (uint32_t n = 0; n < step->seqs; n++)
        all[n] = step->host.kv_lens[n];
    batch->kv_lens = keep(shard, "shard kv_lens", lens, step->seqs * sizeof *lens);
    batch->kv_global_lens = keep(shard, "shard kv_global_lens", all, step->seqs * sizeof *all);
    batch->table = keep(shard, "shard table", table, (size_t)step->seqs * width * sizeof *table);
    batch->table_width = width;
    batch->table_stride = width * (int64_t)sizeof *table;
    batch->pages = shard->kv.pages;
    batch->cp_rank = share->rank;
    batch->cp_world = share->world;
    batch->cp_interleave = share->interleave;
    shard->host = step->host;
    shard->host.kv_lens = batch->kv_lens.data;
    shard->host.kv_global_lens = batch->kv_global_lens.data;
    shard->host.table = batch->table.data;
    if (batch->host != NULL)
        batch->host = &shard->host;
}

void shard_init(struct shard *shard, struct step *step, uint32_t rank, uint32_t world, uint32_t interleave)
{
    const struct share share = {step, rank, world, interleave};
    const uint32_t block = step->problem.block;
    uint32_t pages = 0, width = 1;
    int32_t lens[STEP_SEQS] = {0}, page = 0;

    memset(shard, 0, sizeof *shard);
    arena_init(&shard->arena, step->layout.before);
    for (uint32_t n = 0; n < step->seqs; n++) {
        lens[n] = (int32_t)count_own(&share, (uint32_t)step->host.kv_lens[n]);
        const uint32_t used = ((uint32_t)lens[n] + block - 1) / block;
        pages += used;
        width = used > width ? used : width;
    }
    place_cache(shard, step, pages);
    int32_t *table = need(malloc((size_t)step->seqs * width * sizeof *table + 1));
    memset(table, 0xff, (size_t)step->seqs * width * sizeof *table);
    for (uint32_t n = 0; n < step->seqs; n++)
        page = copy_sequence(shard, &share, n, page, table + (size_t)n * width);
    place_batch(shard, &share, table, width, lens);
    free(table);
    shard->tensors = step->tensors;
    shard->tensors.kv = NULL;
    shard->tensors.kv_desc = &shard->kv;
}

void shard_finish(struct shard *shard)
{
    arena_finish(&shard->arena);
}
