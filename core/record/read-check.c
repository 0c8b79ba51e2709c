/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks a record that was read against its own problem: which arrays there are, and how large they are. */
#include <inttypes.h>

#include "check.h"
#include "record/record.h"

int32_t attn__record_refuse(struct attn_error *err, const char *field, uint64_t value, const char *accepted,
                            uint64_t number)
{
    return attn__fail(err, ATTN_E_INVALID, 0, field, "the record's %s is %" PRIu64 "; accepted: %s %" PRIu64,
                      field, value, accepted, number);
}

/* Arrays that a batch may have or not. */
static bool is_optional(uint32_t kind)
{
    return kind == ATTN__PART_kv_lens || kind == ATTN__PART_kv_offsets || kind == ATTN__PART_last_page_lens ||
           kind == ATTN__PART_q_rope;
}

static bool is_scale(uint32_t kind)
{
    return kind >= ATTN__PART_q_scale && kind <= ATTN__PART_out_scale;
}

static bool is_result(uint32_t kind)
{
    return kind == ATTN__PART_out || kind == ATTN__PART_lse;
}

/* Scales are broadcast where they have one value. */
static bool fits(uint32_t kind, const struct attn__part *part, const struct attn__part *wanted)
{
    for (int i = 0; i < 3; i++)
        if (part->count[i] != wanted->count[i] && !(is_scale(kind) && part->count[i] == 1))
            return false;
    return part->row == wanted->row;
}

static int32_t check_part(uint32_t kind, const struct attn__part *part, const struct attn__part *wanted,
                          bool result, struct attn_error *err)
{
    const char *name = attn__part_name(kind);
    const bool given = part->form != ATTN__PART_ABSENT;
    const bool needed = wanted->form != ATTN__PART_ABSENT && (result || !is_result(kind));

    if (given != needed && !(needed && is_optional(kind)))
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "the record has %s %s, but its problem and batch %s it; accepted: %s",
                          given ? "an array" : "no array", name, needed ? "need" : "do not use",
                          needed ? "one" : "none");
    if (!given)
        return ATTN_OK;
    if (is_scale(kind) ? part->place != ATTN_SCALE_HOST && part->place != ATTN_SCALE_DEVICE
                       : part->place != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s of the record has place %u; accepted: %s", name,
                          part->place, is_scale(kind) ? "2 or 3" : "0");
    return fits(kind, part, wanted)
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name,
                            "%s of the record has [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "] vectors of %" PRIu64
                            " bytes; accepted: [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "] of %" PRIu64,
                            name, part->count[0], part->count[1], part->count[2], part->row, wanted->count[0],
                            wanted->count[1], wanted->count[2], wanted->row);
}

/* Fields that counts are made of, before an array is looked at. */
static int32_t check_fields(const struct attn__call *call, const struct attn_problem *problem,
                            struct attn_error *err)
{
    const bool cached = problem->kv_source != ATTN_KV_NEW;
    const struct {
        const char *name;
        uint64_t value, least, most;
    } limits[] = {{"seqs", call->seqs, 0, problem->max_seqs},
                  {"num_tokens", call->num_tokens, 0, problem->max_rows},
                  {"max_q", call->max_q, 0, problem->max_q},
                  {"max_kv", call->max_kv, 0, problem->max_kv},
                  {"kv_pages", call->kv_pages, cached, cached ? INT32_MAX : 0},
                  {"kv_block", call->kv_block, cached, cached ? INT32_MAX : 0}};

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (limits[i].value < limits[i].least || limits[i].value > limits[i].most)
            return attn__fail(err, ATTN_E_INVALID, 0, limits[i].name,
                              "the record's %s is %" PRIu64 "; accepted: %" PRIu64 " to %" PRIu64,
                              limits[i].name, limits[i].value, limits[i].least, limits[i].most);
    if (cached && problem->addressing != ATTN_DENSE && call->kv_block != problem->block)
        return attn__record_refuse(err, "kv_block", call->kv_block, "block of its problem,", problem->block);
    if (problem->cp != 0 &&
        (call->cp_world == 0 || call->cp_rank >= call->cp_world || call->cp_interleave == 0))
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_rank",
                          "the record's cp_rank is %" PRIu64 " of cp_world %" PRIu64 " with cp_interleave "
                          "%" PRIu64 "; accepted: rank < world, interleave 1 or more",
                          call->cp_rank, call->cp_world, call->cp_interleave);
    return ATTN_OK;
}

/* The arrays of the batch have as many members as their contents are then read for. */
static int32_t check_batch(const struct attn__call *call, const struct attn_problem *problem,
                           struct attn__reach *reach, struct attn_error *err)
{
    struct attn__part wanted[ATTN__PARTS];
    struct attn_batch batch;
    struct attn_batch_host host;
    int32_t status = ATTN_OK;

    /* Entries of CSR rows are counted by lengths and row pointers, which come first. */
    reach->entries = call->parts[ATTN__PART_csr_indices].count[0];
    attn__parts_expect(problem, call, reach, wanted);
    for (uint32_t kind = 0; kind <= ATTN__PART_kv_global_lens && status == ATTN_OK; kind++)
        status = check_part(kind, &call->parts[kind], &wanted[kind], true, err);
    if (status != ATTN_OK)
        return status;
    attn__call_batch(call, &batch, &host);
    if (host.csr_indptr != NULL && (uint64_t)host.csr_indptr[call->seqs] > reach->entries)
        return attn__record_refuse(err, "csr_indptr", (uint64_t)host.csr_indptr[call->seqs],
                                   "up to the entries of csr_indices,", reach->entries);
    if (problem->kv_source != ATTN_KV_NEW && host.kv_lens == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_lens",
                          "the record has no array kv_lens, but its problem reads a cache; one is needed");
    return attn__reach_find(problem, &batch, &host, reach, err);
}

/* Every sequence's keys lie within the pages of a dense cache. */
static int32_t check_dense(const struct attn__call *call, const struct attn_problem *problem,
                           const struct attn__reach *reach, struct attn_error *err)
{
    if (problem->kv_source == ATTN_KV_NEW || problem->addressing != ATTN_DENSE)
        return ATTN_OK;
    if (reach->last_token > call->kv_block)
        return attn__record_refuse(err, "kv_block", call->kv_block, "at least the tokens that are read,",
                                   reach->last_token);
    if (call->parts[ATTN__PART_kv_offsets].form == ATTN__PART_ABSENT && call->kv_pages < call->seqs)
        return attn__record_refuse(err, "kv_pages", call->kv_pages, "a page for each sequence,", call->seqs);
    return ATTN_OK;
}

static int32_t check_mask(const struct attn__call *call, const struct attn_problem *problem,
                          struct attn_error *err)
{
    struct attn_batch batch;
    struct attn_batch_host host;
    uint64_t end = 0;

    if (problem->mask == ATTN_MASK_NONE)
        return ATTN_OK;
    attn__call_batch(call, &batch, &host);
    const int64_t *starts = (const int64_t *)(const void *)call->parts[ATTN__PART_mask_starts].bytes;
    for (uint32_t i = 0; i < batch.seqs; i++) {
        struct attn__mask_rows rows;
        if (starts[i] == -1)
            continue;
        if ((uint64_t)starts[i] != end || !attn__mask_rows(problem, call, &host, i, &rows) ||
            rows.extent > call->parts[ATTN__PART_mask].count[0] - end)
            return attn__fail(err, ATTN_E_INVALID, 0, "mask_starts",
                              "mask_starts[%u] of the record is %" PRId64 "; accepted: -1, or %" PRIu64
                              " with a mask that ends within the %" PRIu64 " bytes there are",
                              i, starts[i], end, call->parts[ATTN__PART_mask].count[0]);
        end += (rows.extent + 7) / 8 * 8;
        end = end < call->parts[ATTN__PART_mask].count[0] ? end : call->parts[ATTN__PART_mask].count[0];
    }
    return ATTN_OK;
}

int32_t attn__call_check(const struct attn__call *call, const struct attn_problem *problem,
                         struct attn_error *err)
{
    struct attn__part wanted[ATTN__PARTS];
    struct attn__reach reach = {0};
    int32_t status = check_fields(call, problem, err);

    if (status == ATTN_OK)
        status = check_batch(call, problem, &reach, err);
    if (status == ATTN_OK)
        status = check_dense(call, problem, &reach, err);
    if (status != ATTN_OK)
        return status;
    attn__parts_expect(problem, call, &reach, wanted);
    for (uint32_t kind = 0; kind < ATTN__PARTS && status == ATTN_OK; kind++)
        status =
            check_part(kind, &call->parts[kind], &wanted[kind], strcmp(call->status, "ATTN_OK") == 0, err);
    return status == ATTN_OK ? check_mask(call, problem, err) : status;
}
