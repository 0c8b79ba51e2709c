/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The batches of a step of prefill whose query tokens are spread over ranks: for each way to pass what is
 * passed, who attends with which rows to which pages. */
#include <string.h>

#include "parallel/prefill.h"

/* ---------------------------------------------------------------- arrays */

/* `count` elements, on the host and on the device. */
static int32_t *take(struct attn__prefill *own, uint64_t count, struct attn_buffer *device)
{
    int32_t *host = own->host + own->used;

    *device = attn__cp_at(&own->arrays, own->used * sizeof *host);
    own->used += (count + ATTN__CP_ALIGNMENT - 1) / ATTN__CP_ALIGNMENT * ATTN__CP_ALIGNMENT;
    return host;
}

/* What all batches have; arrays follow. */
static void open_batch(struct attn_cp *cp, uint32_t number, uint32_t seqs, uint64_t tokens, uint32_t rank)
{
    struct attn__prefill *own = cp->prefill;
    struct attn_batch *batch = &own->batches[number];

    ATTN_INIT(batch);
    ATTN_INIT(&own->hosts[number]);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = &own->hosts[number];
    batch->seqs = seqs;
    batch->num_tokens = (uint32_t)tokens;
    batch->max_q = (uint32_t)own->step.block;
    batch->max_kv = own->problem.max_kv;
    batch->table_width = own->width;
    batch->table_stride = (int64_t)own->width * (int64_t)sizeof(int32_t);
    if (own->step.plan != 0)
        return;
    batch->cp_rank = rank;
    batch->cp_world = cp->net.size;
    batch->cp_interleave = own->interleave;
}

/* Query tokens of rank `rank`, from row `row` on; those of sequence i of a batch are at number first + i. */
static uint64_t put_tokens(const struct attn_cp *cp, const struct attn_cp_step *step, uint32_t rank,
                           int32_t *q_offsets, int32_t *positions, uint64_t row)
{
    for (uint32_t i = 0; i < step->seqs; i++) {
        q_offsets[i] = (int32_t)row;
        row += (uint64_t)attn_cp_tokens(rank, cp->net.size, cp->prefill->interleave, step->q_lens[i],
                                        step->kv_lens[i], positions + row, INT32_MAX);
    }
    return row;
}

/* Keys and pages that rank `rank` has of each sequence: in this rank's cache, or in a slab. */
static void put_keys(const struct attn_cp *cp, const struct attn_cp_step *step, uint32_t rank,
                     int32_t *kv_lens, int32_t *table)
{
    const struct attn__sharding by = attn__sharding_of(cp);
    const uint32_t width = cp->prefill->width;
    int32_t next = 0;

    for (uint32_t i = 0; i < step->seqs; i++) {
        const uint32_t pages = attn__pages_of(&by, step, rank, i);
        kv_lens[i] = attn__keys_of(&by, step, rank, i);
        for (uint32_t j = 0; j < width; j++)
            table[i * width + j] = j >= pages             ? -1
                                   : rank == cp->net.rank ? step->table[(uint64_t)i * step->table_width + j]
                                                          : next + (int32_t)j;
        next += (int32_t)pages;
    }
}

/* The batch that packs this rank's keys: whole pages, of which those that are not full have tails that nobody
 * sees. */
static void pack(struct attn_cp *cp, const struct attn_cp_step *step)
{
    struct attn__prefill *own = cp->prefill;
    struct attn_batch *batch = &own->step.packed;
    const uint32_t block = own->problem.block;
    struct attn_batch_host *host = &own->step.packed_host;
    int32_t *offsets = take(own, (uint64_t)step->seqs + 1, &own->step.offsets);
    int32_t *lens = take(own, step->seqs, &batch->kv_lens);
    int32_t *table = take(own, (uint64_t)step->seqs * own->width, &batch->table);

    put_keys(cp, step, cp->net.rank, lens, table);
    offsets[0] = 0;
    for (uint32_t i = 0; i < step->seqs; i++) {
        lens[i] = (int32_t)(((uint32_t)lens[i] + block - 1) / block * block);
        offsets[i + 1] = offsets[i] + lens[i];
    }
    const struct attn_buffer kv_lens = batch->kv_lens, pages = batch->table;
    ATTN_INIT(batch);
    ATTN_INIT(host);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = host;
    batch->seqs = step->seqs;
    batch->max_kv = own->width * block;
    batch->kv_lens = kv_lens, host->kv_lens = lens;
    batch->table = pages, host->table = table;
    batch->table_width = own->width;
    batch->table_stride = (int64_t)own->width * (int64_t)sizeof *table;
}

/* ---------------------------------------------------------------- one pass each */

/* One batch for the keys of each rank, of this rank's queries. */
static void make_key_batches(struct attn_cp *cp, const struct attn_cp_step *step)
{
    struct attn__prefill *own = cp->prefill;
    struct attn_buffer offsets, positions, global, kv_lens, tables;
    int32_t *host_offsets = take(own, step->seqs + 1, &offsets);
    int32_t *host_positions = take(own, own->step.block, &positions);
    int32_t *host_global = take(own, step->seqs, &global);

    host_offsets[step->seqs] = (int32_t)put_tokens(cp, step, cp->net.rank, host_offsets, host_positions, 0);
    memcpy(host_global, step->kv_lens, step->seqs * sizeof *host_global);
    own->step.count = cp->net.size;
    for (uint32_t rank = 0; rank < cp->net.size; rank++) {
        struct attn_batch *batch = &own->batches[rank];
        struct attn_batch_host *host = &own->hosts[rank];
        int32_t *host_lens = take(own, step->seqs, &kv_lens);
        int32_t *host_table = take(own, (uint64_t)step->seqs * own->width, &tables);
        put_keys(cp, step, rank, host_lens, host_table);
        open_batch(cp, rank, step->seqs, own->step.tokens, rank);
        batch->q_offsets = offsets, host->q_offsets = host_offsets;
        batch->q_positions = positions, host->q_positions = host_positions;
        batch->kv_global_lens = global, host->kv_global_lens = host_global;
        batch->kv_lens = kv_lens, host->kv_lens = host_lens;
        batch->table = tables, host->table = host_table;
    }
}

/* One batch of the queries of all ranks, whose sequences follow each other rank by rank. Rows that a rank has
 * less than others belong to its last sequence. */
static void make_query_batch(struct attn_cp *cp, const struct attn_cp_step *step)
{
    struct attn__prefill *own = cp->prefill;
    struct attn_batch *batch = &own->batches[0];
    struct attn_batch_host *host = &own->hosts[0];
    const uint32_t seqs = step->seqs, size = cp->net.size, all = seqs * size;

    own->step.count = 1;
    open_batch(cp, 0, all, own->step.block * size, cp->net.rank);
    int32_t *q_offsets = take(own, (uint64_t)all + 1, &batch->q_offsets);
    int32_t *positions = take(own, own->step.block * size, &batch->q_positions);
    int32_t *global = take(own, all, &batch->kv_global_lens);
    int32_t *kv_lens = take(own, all, &batch->kv_lens);
    int32_t *table = take(own, (uint64_t)all * own->width, &batch->table);
    host->q_offsets = q_offsets, host->q_positions = positions, host->kv_global_lens = global;
    host->kv_lens = kv_lens, host->table = table;
    for (uint32_t rank = 0; rank < size; rank++) {
        const uint64_t first = rank * own->step.block;
        uint64_t end = put_tokens(cp, step, rank, q_offsets + rank * seqs, positions, first);
        for (; end < first + own->step.block; end++)
            positions[end] = 0;
        put_keys(cp, step, cp->net.rank, kv_lens + rank * seqs, table + (uint64_t)rank * seqs * own->width);
        memcpy(global + rank * seqs, step->kv_lens, seqs * sizeof *global);
    }
    q_offsets[all] = (int32_t)(own->step.block * size);
}

/* Pages of as many keys as a rank has in turn, in the slabs of all ranks, as they lie in what arrives: those
 * of each rank begin behind all heads of the rank before. */
static void put_pages(const struct attn_cp *cp, const struct attn_cp_step *step, int32_t *table,
                      uint32_t width)
{
    const struct attn__prefill *own = cp->prefill;
    const struct attn__sharding by = attn__sharding_of(cp);
    const uint32_t size = cp->net.size, part = own->interleave, pages = own->problem.block / part;
    const uint64_t apart = own->step.slab * (own->problem.kv_heads / size) / part;

    for (uint32_t rank = 0; rank < size; rank++) {
        uint64_t next = rank * apart;
        for (uint32_t i = 0; i < step->seqs; i++) {
            for (uint32_t j = rank; j < width; j += size)
                table[(uint64_t)i * width + j] =
                    (uint64_t)j * part < (uint32_t)step->kv_lens[i] ? (int32_t)(next + j / size) : -1;
            next += (uint64_t)attn__pages_of(&by, step, rank, i) * pages;
        }
    }
}

/* One batch for the queries of each rank, over the keys of all. */
static void make_head_batches(struct attn_cp *cp, const struct attn_cp_step *step)
{
    struct attn__prefill *own = cp->prefill;
    struct attn_buffer lens, pages;
    uint32_t width = 1;

    for (uint32_t i = 0; i < step->seqs; i++) {
        const uint32_t all = ((uint32_t)step->kv_lens[i] + own->interleave - 1) / own->interleave;
        width = all > width ? all : width;
    }
    int32_t *host_lens = take(own, step->seqs, &lens);
    int32_t *table = take(own, (uint64_t)step->seqs * width, &pages);
    memcpy(host_lens, step->kv_lens, step->seqs * sizeof *host_lens);
    put_pages(cp, step, table, width);
    own->step.count = cp->net.size;
    for (uint32_t rank = 0; rank < cp->net.size; rank++) {
        struct attn_batch *batch = &own->batches[rank];
        struct attn_batch_host *host = &own->hosts[rank];
        open_batch(cp, rank, step->seqs, 0, rank);
        int32_t *q_offsets = take(own, (uint64_t)step->seqs + 1, &batch->q_offsets);
        int32_t *positions = take(own, own->step.block, &batch->q_positions);
        host->q_offsets = q_offsets, host->q_positions = positions;
        batch->num_tokens = (uint32_t)put_tokens(cp, step, rank, q_offsets, positions, 0);
        q_offsets[step->seqs] = (int32_t)batch->num_tokens;
        batch->max_kv = own->max_kv;
        batch->table_width = width;
        batch->table_stride = width * (int64_t)sizeof *table;
        batch->kv_lens = lens, host->kv_lens = host_lens;
        batch->table = pages, host->table = table;
    }
}

void attn__prefill_make_batches(struct attn_cp *cp, const struct attn_cp_step *step)
{
    const uint32_t pass = cp->prefill->step.info.pass;

    cp->prefill->step.plan = pass == ATTN_CP_PASS_HEADS;
    if (pass == ATTN_CP_PASS_KEYS)
        make_key_batches(cp, step);
    else if (pass == ATTN_CP_PASS_QUERIES)
        make_query_batch(cp, step);
    else
        make_head_batches(cp, step);
    if (pass != ATTN_CP_PASS_QUERIES)
        pack(cp, step);
}
