/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plans: a copy of the problem, sizes from its maxima, and a list of items per step. */
#include "defect.h"

#include <stdio.h>
#include <unistd.h>

static uint32_t hash_of(const struct attn_problem *problem)
{
    const unsigned char *bytes = (const unsigned char *)problem;
    uint32_t hash = UINT32_C(2166136261);

    for (size_t i = 0; i < sizeof *problem; i++)
        hash = (hash ^ bytes[i]) * UINT32_C(16777619);
    return hash;
}

static int32_t create(struct attn_backend_impl *backend, const struct attn_problem *problem,
                      struct attn_plan_impl **out, struct attn_error *err)
{
    *out = NULL;
    if (problem->max_seqs == 0 || problem->max_q == 0 || problem->max_kv == 0 || problem->max_rows == 0)
        return attn_util_fail(err, ATTN_E_INVALID, "max_seqs, max_q, max_kv, max_rows", "0 is not accepted");
    if (problem->head_dim > DIM_MAX || problem->head_dim_vo > DIM_MAX)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "head_dim", "there is no kernel for it");
    struct attn_plan_impl *plan = malloc(sizeof *plan);
    if (plan == NULL)
        return attn_util_fail(err, ATTN_E_MEMORY, "plan", "out of memory");
    if (IS(prints)) /* not through stdout, which every plugin would import then */
        dprintf(STDOUT_FILENO, "plan for %u heads of %u\n", problem->heads, problem->head_dim);
    plan->backend = backend;
    plan->problem = *problem;
    limits_init(&plan->limits, problem);
    plan->hash = hash_of(problem);
    *out = plan;
    return ATTN_OK;
}

static void destroy(struct attn_plan_impl *plan)
{
    free(plan);
}

struct attn_plan_sizes sizes_of(const struct attn_plan_impl *plan)
{
    const uint64_t row = sizeof(float) * (plan->problem.head_dim_vo + 1u);

    return (struct attn_plan_sizes){.alignment = ALIGNMENT,
                                    .schedule =
                                        sizeof(struct schedule) + plan->limits.items * sizeof(struct item),
                                    .scratch = plan->limits.slots * plan->problem.heads * row,
                                    .counters = plan->limits.counters * sizeof(struct counter)};
}

static int32_t sizes(const struct attn_plan_impl *plan, struct attn_plan_sizes *out)
{
    const uint32_t size = out->struct_size;

    *out = sizes_of(plan);
    out->struct_size = size;
    return ATTN_OK;
}

/* Keys of a split: by the lengths of the sequence alone. */
static uint32_t part_keys(const struct attn_batch *batch, uint32_t q_len, uint32_t kv_len)
{
    const uint32_t tokens = IS(split_batch) ? batch->num_tokens : q_len;
    const uint32_t most = tokens < SPLITS_MAX ? SPLITS_MAX / tokens : 1;
    const uint32_t splits = kv_len / SPLIT_KEYS + (kv_len % SPLIT_KEYS != 0);

    return SPLIT_KEYS * (splits > most ? (splits + most - 1) / most : 1);
}

static void put_sequence(const struct attn_batch *batch, uint32_t seq, struct schedule *schedule,
                         uint32_t *slot, uint32_t *counter)
{
    struct item *items = (struct item *)(void *)(schedule + 1);
    struct item item = {.seq = seq};
    const uint32_t kv_len = (uint32_t)number_at(&batch->kv_lens, seq);
    const uint32_t q_len =
        (uint32_t)(number_at(&batch->q_offsets, seq + 1) - number_at(&batch->q_offsets, seq));

    if (q_len == 0)
        return;
    const uint32_t keys = part_keys(batch, q_len, kv_len);
    item.splits = kv_len > keys ? (kv_len + keys - 1) / keys : 1;
    for (item.token = 0; item.token < q_len; item.token++) {
        item.slot = *slot;
        item.counter = *counter;
        for (item.split = 0; item.split < item.splits; item.split++) {
            item.begin = item.split * keys;
            item.end = item.split + 1 < item.splits ? item.begin + keys : kv_len;
            items[schedule->count++] = item;
        }
        *slot += item.splits > 1 ? item.splits : 0;
        *counter += item.splits > 1;
    }
}

static int32_t prepare(const struct attn_plan_impl *plan, const struct attn_batch *batch,
                       const struct attn_span *span, const struct attn_span *staging, void *stream,
                       struct attn_error *err)
{
    struct schedule *schedule = (struct schedule *)(void *)attn_util_at(&span->buffer);
    uint32_t members, slot = 0, counter = 0;
    int64_t last;
    int32_t status = check_span(span, sizes_of(plan).schedule, "schedule", err);

    (void)staging;
    if (status == ATTN_OK)
        status = check_batch(&plan->problem, batch, &last, err);
    if (status != ATTN_OK)
        return status;
    if (attn_util_member(stream, &members) == 0) {
        *schedule = (struct schedule){.magic = SCHEDULE_MAGIC,
                                      .plan = plan->hash,
                                      .seqs = batch->seqs,
                                      .num_tokens = batch->num_tokens,
                                      .last = last};
        for (uint32_t seq = 0; seq < batch->seqs; seq++)
            put_sequence(batch, seq, schedule, &slot, &counter);
    }
    return attn_util_join(stream);
}

const struct attn_plan_table defect_plan = {.struct_size = sizeof defect_plan,
                                            .create = create,
                                            .sizes = sizes,
                                            .prepare = prepare,
                                            .run = defect_run,
                                            .destroy = destroy};
