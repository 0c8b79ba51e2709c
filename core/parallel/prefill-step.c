/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Begins a step of prefill whose query tokens are spread over ranks: checks it, chooses what is passed, and
 * plans its batches, which prefill-batches.c makes, for all layers. */
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

static uint64_t tokens_of(const struct attn__sharding *by, const struct attn_cp_step *step, uint32_t rank,
                          uint32_t seq)
{
    return (uint64_t)attn_cp_tokens(rank, by->size, by->interleave, step->q_lens[seq], step->kv_lens[seq],
                                    NULL, 0);
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
    const struct attn__sharding by = attn__sharding_of(cp);
    const uint32_t pages = attn__pages_of(&by, step, cp->net.rank, i);
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
static void measure(const struct attn__sharding *by, const struct attn_cp_step *step, uint32_t own,
                    struct attn__prefill_step *out)
{
    for (uint32_t rank = 0; rank < by->size; rank++) {
        uint64_t tokens = 0, pages = 0;
        for (uint32_t i = 0; i < step->seqs; i++) {
            tokens += tokens_of(by, step, rank, i);
            pages += attn__pages_of(by, step, rank, i);
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
static void choose(const struct attn__sharding *by, uint32_t wanted, struct attn__prefill_step *step)
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
    const struct attn__sharding by = {&resolved, size, interleave};
    measure(&by, &step, 0, &own);
    choose(&by, ATTN_CP_PASS_CHEAPER, &own);
    return attn__answer(out, &own.info, sizeof own.info, "out", err);
}

/* ---------------------------------------------------------------- beginning */

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
    const struct attn__sharding by = attn__sharding_of(cp);
    own->step = (struct attn__prefill_step){0};
    own->used = 0;
    measure(&by, &step, cp->net.rank, &own->step);
    choose(&by, own->pass, &own->step);
    if (own->step.block > 0) {
        attn__prefill_make_batches(cp, &step);
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
