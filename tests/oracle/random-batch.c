/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The batch of a random case: lengths, positions, tables. */
#include "random-case.h"

/* How many of `keys` keys dealt out in turns fall to this rank. */
static int32_t dealt(const struct attn_batch *batch, int32_t keys)
{
    int32_t own = 0;

    for (int32_t j = 0; j < keys; j++)
        own += (uint32_t)j / batch->cp_interleave % batch->cp_world == batch->cp_rank;
    return own;
}

static void lay_out_ranks(struct random_case *c, struct rng *rng)
{
    struct attn_batch *batch = &c->batch;

    batch->cp_world = 1 + pick(rng, 3);
    batch->cp_rank = pick(rng, batch->cp_world);
    batch->cp_interleave = UINT32_C(1) << pick(rng, 3);
    while (c->problem.block % batch->cp_interleave != 0)
        batch->cp_interleave /= 2;
    batch->kv_global_lens.data = c->kv_global_lens;
}

static void lay_out_lengths(struct random_case *c, struct rng *rng)
{
    const struct attn_problem *p = &c->problem;
    bool own_rows = p->kv_source == ATTN_KV_NEW && pick(rng, 2);
    bool run = (p->addressing == ATTN_DENSE && p->kv_source == ATTN_KV_CACHE && pick(rng, 2)) ||
               (p->kv_source == ATTN_KV_NEW && !own_rows);

    for (uint32_t n = 0; n < c->batch.seqs; n++) {
        int32_t queries = (int32_t)pick(rng, MOST_Q + 1), keys = (int32_t)pick(rng, MOST_K / 2);
        if (pick(rng, 4) == 0)
            keys = queries;
        if (own_rows)
            keys = queries;
        if (p->kv_source == ATTN_KV_CACHE_NEW)
            keys += queries;
        c->q_offsets[n + 1] = c->q_offsets[n] + queries;
        c->kv_global_lens[n] = keys;
        c->kv_lens[n] = p->cp ? dealt(&c->batch, keys) : keys;
        c->kv_offsets[n + 1] = c->kv_offsets[n] + c->kv_lens[n] + (int32_t)(run ? pick(rng, 3) : 0);
    }
    c->batch.q_offsets.data = c->q_offsets;
    c->batch.num_tokens = (uint32_t)c->q_offsets[c->batch.seqs];
    if (run)
        c->batch.kv_offsets.data = c->kv_offsets;
    if (p->kv_source != ATTN_KV_NEW || (!own_rows && pick(rng, 2)))
        c->batch.kv_lens.data = c->kv_lens;
}

static void lay_out_pages(struct random_case *c, struct rng *rng)
{
    struct attn_batch *batch = &c->batch;
    int32_t *narrow = c->csr_narrow;

    batch->table.data = c->table;
    batch->table_stride = sizeof c->table[0];
    if (pick(rng, 4) == 0) { /* rows in opposite order */
        batch->table.byte_offset = (MOST_SEQS - 1) * sizeof c->table[0];
        batch->table_stride = -batch->table_stride;
    }
    batch->table_width = MOST_K;
    for (uint32_t n = 0; n < MOST_SEQS; n++)
        for (uint32_t b = 0; b < MOST_K; b++)
            c->table[n][b] = pick(rng, 8) ? (int32_t)pick(rng, CASE_PAGES) : -1 - (int32_t)pick(rng, 9);
    c->csr_indptr[0] = (int32_t)pick(rng, 3);
    for (uint32_t n = 0; n < batch->seqs; n++)
        c->csr_indptr[n + 1] =
            c->csr_indptr[n] + (c->kv_lens[n] + (int32_t)c->problem.block - 1) / (int32_t)c->problem.block;
    for (int b = 0; b < MOST_SEQS * MOST_K; b++)
        c->csr_wide[b] = narrow[b] = (&c->table[0][0])[b];
    batch->csr_indptr.data = c->csr_indptr;
    batch->csr_indices.data = c->csr_narrow;
    if (c->problem.index_dtype == ATTN_INT64)
        batch->csr_indices.data = c->csr_wide;
}

static void lay_out_positions(struct random_case *c, struct rng *rng)
{
    for (uint32_t row = 0; row < MOST_ROWS; row++) {
        c->narrow_positions[row] = (int32_t)pick(rng, MOST_K / 2);
        c->wide_positions[row] = c->narrow_positions[row];
    }
    c->batch.q_positions.data = c->narrow_positions;
    if (pick(rng, 2)) {
        c->batch.q_positions.data = c->wide_positions;
        c->batch.position_dtype = ATTN_INT64;
    }
    for (uint32_t n = 0; n < MOST_SEQS; n++)
        c->seq_causal[n] = (uint8_t)pick(rng, 2);
    c->batch.seq_causal.data = c->seq_causal;
}

void lay_out_batch(struct random_case *c, struct rng *rng)
{
    c->batch.seqs = pick(rng, MOST_SEQS + 1);
    if (c->problem.cp)
        lay_out_ranks(c, rng);
    lay_out_lengths(c, rng);
    lay_out_pages(c, rng);
    lay_out_positions(c, rng);
}
