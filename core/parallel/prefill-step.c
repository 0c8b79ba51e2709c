/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Begins a step of prefill whose query tokens are spread over ranks: chooses what is passed, makes the
 * batches and plans them for all layers. */
#include <string.h>

#include "parallel/prefill.h"
#include "visible.h"

/*
 * What a collective takes beside its bytes, in bytes: some 5 us of a link of 200 GB/s. Both ways compute the
 * same, so that what is moved decides.
 */
#define CALL_BYTES (UINT64_C(1) << 20)

/* ---------------------------------------------------------------- who has which tokens */

int64_t attn_cp_tokens(uint32_t rank, uint32_t size, uint32_t interleave, int32_t q_len, int32_t kv_len,
                       int32_t *positions, int64_t capacity)
{
    const struct attn_cp_shard shard = {rank, size, interleave};

    if (rank >= size || interleave == 0 || q_len < 0 || kv_len < q_len)
        return -1;
    const int64_t first = attn__cp_count(&shard, kv_len - q_len),
                  count = attn__cp_count(&shard, kv_len) - first;
    for (int64_t i = 0; i < count && i < capacity && positions != NULL; i++)
        positions[i] = (int32_t)attn__cp_position(&shard, first + i);
    return count;
}

/* How keys are sharded. */
struct sharding {
    const struct attn_problem *problem;
    uint32_t size, interleave;
};

static struct sharding sharding_of(const struct attn_cp *cp)
{
    return (struct sharding){&cp->prefill->problem, cp->net.size, cp->prefill->interleave};
}

static uint64_t tokens_of(const struct sharding *by, const struct attn_cp_step *step, uint32_t rank,
                          uint32_t seq)
{
    return (uint64_t)attn_cp_tokens(rank, by->size, by->interleave, step->q_lens[seq], step->kv_lens[seq],
                                    NULL, 0);
}

static int32_t keys_of(const struct sharding *by, const struct attn_cp_step *step, uint32_t rank,
                       uint32_t seq)
{
    return (int32_t)attn_cp_count(rank, by->size, by->interleave, step->kv_lens[seq]);
}

static uint32_t pages_of(const struct sharding *by, const struct attn_cp_step *step, uint32_t rank,
                         uint32_t seq)
{
    return ((uint32_t)keys_of(by, step, rank, seq) + by->problem->block - 1) / by->problem->block;
}

/* ---------------------------------------------------------------- checks */

static int32_t check_sequence(const struct attn_cp *cp, const struct attn_cp_step *step, uint32_t i,
                              struct attn_error *err)
{
    const struct attn__prefill *own = cp->prefill;
    const int32_t q = step->q_lens[i], kv = step->kv_lens[i];

    if (q < 0 || q > kv || (uint32_t)q > own->max_q)
        return attn__fail(err, q > kv || q < 0 ? ATTN_E_INVALID : ATTN_E_SIZE, 0, "q_lens",
                          "q_lens[%u] is %d; accepted: 0 to kv_lens[%u]=%d, at most max_q=%u", i, q, i, kv,
                          own->max_q);
    if ((uint32_t)kv > own->max_kv)
        return attn__fail(err, ATTN_E_SIZE, 0, "kv_lens",
                          "kv_lens[%u] is %d; this rank was made for max_kv=%u", i, kv, own->max_kv);
    const struct sharding by = sharding_of(cp);
    const uint32_t pages = pages_of(&by, step, cp->net.rank, i);
    if (pages > step->table_width)
        return attn__fail(err, ATTN_E_INVALID, 0, "table_width",
                          "table_width is %u; this rank's keys of sequence %u have %u pages",
                          step->table_width, i, pages);
    for (uint32_t j = 0; j < pages; j++)
        if (step->table[(uint64_t)i * step->table_width + j] < 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "table",
                              "page %u of sequence %u is %d; other ranks see this rank's keys without its "
                              "table, so that 0 and more are accepted",
                              j, i, step->table[(uint64_t)i * step->table_width + j]);
    return ATTN_OK;
}

static int32_t check_step(const struct attn_cp *cp, const struct attn_cp_step *step, struct attn_error *err)
{
    const struct attn__prefill *own = cp->prefill;
    uint64_t rows = 0, keys = 0;

    if (step->seqs > own->max_seqs)
        return attn__fail(err, ATTN_E_SIZE, 0, "seqs", "seqs is %u; this rank was made for max_seqs=%u",
                          step->seqs, own->max_seqs);
    if (step->seqs > 0 && (step->q_lens == NULL || step->kv_lens == NULL || step->table == NULL))
        return attn__fail(err, ATTN_E_INVALID, 0,
                          step->q_lens == NULL    ? "q_lens"
                          : step->kv_lens == NULL ? "kv_lens"
                                                  : "table",
                          "q_lens, kv_lens or table is NULL; arrays of %u sequences are accepted",
                          step->seqs);
    for (uint32_t i = 0; i < step->seqs; i++) {
        const int32_t status = check_sequence(cp, step, i, err);
        if (status != ATTN_OK)
            return status;
        rows += (uint32_t)step->q_lens[i];
        keys += (uint32_t)step->kv_lens[i];
    }
    if (rows > own->max_rows)
        return attn__fail(err, ATTN_E_SIZE, 0, "q_lens",
                          "q_lens have %llu query tokens; this rank was made for max_rows=%llu",
                          (unsigned long long)rows, (unsigned long long)own->max_rows);
    return keys <= own->max_keys ? ATTN_OK
                                 : attn__fail(err, ATTN_E_SIZE, 0, "kv_lens",
                                              "kv_lens have %llu keys; this rank was made for max_keys=%llu",
                                              (unsigned long long)keys, (unsigned long long)own->max_keys);
}

/* ---------------------------------------------------------------- what is passed */

/* Tokens of rank `own`; tokens and keys of the ranks that have most. */
static void measure(const struct sharding *by, const struct attn_cp_step *step, uint32_t own,
                    struct attn__prefill_step *out)
{
    for (uint32_t rank = 0; rank < by->size; rank++) {
        uint64_t tokens = 0, pages = 0;
        for (uint32_t i = 0; i < step->seqs; i++) {
            tokens += tokens_of(by, step, rank, i);
            pages += pages_of(by, step, rank, i);
        }
        if (rank == own)
            out->tokens = tokens;
        if (tokens > out->block)
            out->block = tokens;
        if (pages * by->problem->block > out->slab)
            out->slab = pages * by->problem->block;
    }
}

static uint32_t cheapest(const struct attn_problem *p, uint64_t others,
                         const struct attn_cp_prefill_info *info)
{
    const uint64_t scales =
        (p->k_scale == ATTN_SCALES_TOKEN_HEAD) + (uint64_t)(p->v_scale == ATTN_SCALES_TOKEN_HEAD);
    const uint64_t costs[] = {
        [ATTN_CP_PASS_CHEAPER] = UINT64_MAX,
        [ATTN_CP_PASS_KEYS] = attn__keys_can_be(p) ? info->keys_bytes + others * CALL_BYTES : UINT64_MAX,
        [ATTN_CP_PASS_QUERIES] = info->queries_bytes + 2 * CALL_BYTES,
        [ATTN_CP_PASS_HEADS] =
            info->heads_bytes > 0 ? info->heads_bytes + (4 + scales) * CALL_BYTES : UINT64_MAX};
    uint32_t best = ATTN_CP_PASS_KEYS;

    for (uint32_t i = ATTN_CP_PASS_QUERIES; i <= ATTN_CP_PASS_HEADS; i++)
        if (costs[i] < costs[best])
            best = i;
    return best;
}

/* `wanted`: enum attn_cp_pass. */
static void choose(const struct sharding *by, uint32_t wanted, struct attn__prefill_step *step)
{
    const struct attn_problem *p = by->problem;
    const uint64_t others = by->size - 1;
    struct attn_cp_prefill_info *info = &step->info;

    ATTN_INIT(info);
    info->tokens = step->tokens;
    info->call_bytes = CALL_BYTES;
    if (attn__keys_can_be(p))
        info->keys_bytes = others * attn__slab_of(p, step->slab).bytes;
    info->queries_bytes = others * step->block * (attn__prefill_query_bytes(p) + attn__prefill_part_bytes(p));
    if (attn__heads_can_be(p, by->size))
        info->heads_bytes = (info->keys_bytes + info->queries_bytes) / by->size;
    info->pass = wanted;
    if (wanted == ATTN_CP_PASS_CHEAPER)
        info->pass = cheapest(p, others, info);
}

int32_t attn_cp_estimate(const struct attn_problem *problem, uint32_t size, uint32_t interleave,
                         const struct attn_cp_step *given, struct attn_cp_prefill_info *out,
                         struct attn_error *err)
{
    struct attn__prefill_step own = {0};
    struct attn_problem resolved;
    struct attn_cp_step step;
    int32_t status = attn_problem_resolve(problem, &resolved, err);

    if (status == ATTN_OK)
        status = attn__take(&step, sizeof step, given, sizeof step, "step", err);
    if (status != ATTN_OK)
        return status;
    if (size == 0 || interleave == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, size == 0 ? "size" : "interleave",
                          "%s is 0; accepted: 1 and more", size == 0 ? "size" : "interleave");
    if (step.seqs > 0 && (step.q_lens == NULL || step.kv_lens == NULL))
        return attn__fail(err, ATTN_E_INVALID, 0, step.q_lens == NULL ? "q_lens" : "kv_lens",
                          "q_lens or kv_lens is NULL; arrays of %u sequences are accepted", step.seqs);
    for (uint32_t i = 0; i < step.seqs; i++)
        if (step.q_lens[i] < 0 || step.q_lens[i] > step.kv_lens[i])
            return attn__fail(err, ATTN_E_INVALID, 0, "q_lens",
                              "q_lens[%u] is %d; accepted: 0 to kv_lens[%u]=%d", i, step.q_lens[i], i,
                              step.kv_lens[i]);
    const struct sharding by = {&resolved, size, interleave};
    measure(&by, &step, 0, &own);
    choose(&by, ATTN_CP_PASS_CHEAPER, &own);
    return attn__answer(out, &own.info, sizeof own.info, "out", err);
}

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
    const struct sharding by = sharding_of(cp);
    const uint32_t width = cp->prefill->width;
    int32_t next = 0;

    for (uint32_t i = 0; i < step->seqs; i++) {
        const uint32_t pages = pages_of(&by, step, rank, i);
        kv_lens[i] = keys_of(&by, step, rank, i);
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
    const struct sharding by = sharding_of(cp);
    const uint32_t size = cp->net.size, part = own->interleave, pages = own->problem.block / part;
    const uint64_t apart = own->step.slab * (own->problem.kv_heads / size) / part;

    for (uint32_t rank = 0; rank < size; rank++) {
        uint64_t next = rank * apart;
        for (uint32_t i = 0; i < step->seqs; i++) {
            for (uint32_t j = rank; j < width; j += size)
                table[(uint64_t)i * width + j] =
                    (uint64_t)j * part < (uint32_t)step->kv_lens[i] ? (int32_t)(next + j / size) : -1;
            next += (uint64_t)pages_of(&by, step, rank, i) * pages;
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

/* ---------------------------------------------------------------- beginning */

static void make_batches(struct attn_cp *cp, const struct attn_cp_step *step)
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

static int32_t plan_batches(struct attn_cp *cp, void *stream, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const struct attn_buffer host = {own->host, 0};
    int32_t status = attn_memory_copy(cp->backend, &own->arrays, &host, own->used * sizeof *own->host,
                                      ATTN_COPY_TO_DEVICE, stream, err);

    const struct attn__prefill_plan *plan = &own->plans[own->step.plan];
    for (uint32_t i = 0; i < own->step.count && status == ATTN_OK; i++) {
        const struct attn_span staging = {attn__cp_at(&own->staging, i * own->staging_step),
                                          plan->sizes.staging};
        status = attn_plan_prepare(plan->plan, &own->batches[i], &plan->schedules[i], &staging, stream, err);
    }
    return status == ATTN_OK && own->copied != NULL ? attn_event_record(cp->backend, own->copied, stream, err)
                                                    : status;
}

int32_t attn__prefill_take(const struct attn_cp *cp, const char *what, bool begun, struct attn_error *err)
{
    if (cp == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp", "%s: the handle is NULL", what);
    if (cp->prefill == NULL)
        return attn__fail(err, ATTN_E_STATE, 0, "cp", "%s: the rank was not made with ATTN_CP_TOKENS", what);
    return !begun || cp->prefill->step.begun
               ? ATTN_OK
               : attn__fail(err, ATTN_E_STATE, 0, "cp",
                            "%s: no step was begun; attn_cp_prefill_begin comes first", what);
}

int32_t attn_cp_prefill_begin(struct attn_cp *cp, const struct attn_cp_step *given, void *stream,
                              struct attn_error *err)
{
    struct attn_cp_step step;

    int32_t status = attn__prefill_take(cp, "attn_cp_prefill_begin", false, err);
    if (status != ATTN_OK)
        return status;
    struct attn__prefill *own = cp->prefill;
    status = attn__take(&step, sizeof step, given, sizeof step, "step", err);
    if (status == ATTN_OK)
        status = check_step(cp, &step, err);
    if (status == ATTN_OK && own->copied != NULL)
        status = attn_event_synchronize(cp->backend, own->copied, err);
    if (status != ATTN_OK)
        return status;
    const struct sharding by = sharding_of(cp);
    own->step = (struct attn__prefill_step){0};
    own->used = 0;
    measure(&by, &step, cp->net.rank, &own->step);
    choose(&by, own->pass, &own->step);
    if (own->step.block > 0) {
        make_batches(cp, &step);
        status = plan_batches(cp, stream, err);
    }
    own->step.begun = status == ATTN_OK;
    return status;
}

int32_t attn_cp_prefill_get_info(const struct attn_cp *cp, struct attn_cp_prefill_info *out,
                                 struct attn_error *err)
{
    const int32_t status = attn__prefill_take(cp, "attn_cp_prefill_get_info", true, err);

    if (status != ATTN_OK)
        return status;
    return attn__answer(out, &cp->prefill->step.info, sizeof cp->prefill->step.info, "out", err);
}
