/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn_builder_set_row: changes blocks in a row of a block table. If the row is of a sequence of this step
 * its slots and pages change too, as if it had been added with the new blocks.
 */
#include "builder-add.h"
#include "fail.h"
#include "flashinfer.h"

#define INVALID(err, field, ...) attn__fail((err), ATTN_E_INVALID, 0, (field), __VA_ARGS__)

/* The sequence of this step that has the row, or NULL. After an advance rows are only changed for later
 * steps. */
static struct attn__member *member_of(const struct attn_builder_impl *b, const struct attn__group *group,
                                      uint32_t row)
{
    const struct attn_step *step = &b->whole.step;

    return row >= step->first_row && row - step->first_row < step->queries && group != b->cross &&
                   !b->adds_stale && !b->on_device
               ? &group->members[row - step->first_row]
               : NULL;
}

static int32_t check_place(const struct attn_builder_impl *b, const struct attn_builder_row_args *a,
                           struct attn_error *err)
{
    const uint32_t groups = b->params.groups + (b->cross != NULL ? 1u : 0u);

    if (a->group >= groups || b->group[a->group].params.max_blocks == 0)
        return INVALID(err, "group", "group is %u; the builder has tables of %u groups%s", a->group,
                       b->params.groups, b->cross != NULL ? " and the cross group" : "");
    if (a->row >= b->params.max_seqs)
        return INVALID(err, "row", "row is %u; the block tables have %u rows", a->row, b->params.max_seqs);
    if (a->blocks == NULL && a->count > 0)
        return INVALID(err, "blocks", "blocks is NULL; %u are needed", a->count);
    for (uint32_t i = 0; i < a->count; i++)
        if (a->blocks[i] > ATTN__BLOCK_NUMBER_MAX)
            return INVALID(err, "blocks", "block %lld at index %u; at most %lld is accepted",
                           (long long)a->blocks[i], i, (long long)ATTN__BLOCK_NUMBER_MAX);
    const struct attn__table *table = &b->group[a->group].table;
    const uint32_t bad = attn__table_first_overflow(table, a->blocks, a->count);
    return bad == a->count
               ? ATTN_OK
               : INVALID(err, "blocks",
                         "block %lld at index %u does not fit a table of i32; index_dtype i64 does",
                         (long long)a->blocks[bad], bad);
}

/* The row after the change. */
struct change {
    uint32_t count; /* blocks of the sequence */
    uint32_t start;
    uint32_t cells;
};

static int32_t check_change(const struct attn_builder_impl *b, const struct attn_builder_row_args *a,
                            const struct attn__member *member, struct change *out, struct attn_error *err)
{
    const struct attn__group *group = &b->group[a->group];
    const struct attn__table_row *state = &group->table.row[a->row];
    const uint32_t have = member != NULL ? member->count : state->start + state->filled;
    const uint64_t end = (uint64_t)a->first + a->count;

    if (a->first > have)
        return INVALID(err, "first", "first is %u; the sequence has %u blocks", a->first, have);
    out->count = end > have ? (uint32_t)end : have;
    out->start = state->start;
    if (member != NULL && member->window_blocks != 0)
        out->start = out->count > member->window_blocks ? out->count - member->window_blocks : 0;
    out->cells = out->count - out->start;
    if (member != NULL && member->shown != ATTN__SHOWN_LIST)
        out->cells = state->filled; /* the row shows no blocks, or only those computed before */
    if (end > UINT32_MAX || out->cells > group->params.max_blocks)
        return attn__fail(err, ATTN_E_SIZE, 0, "max_blocks",
                          "with the change the row has %llu blocks; the builder was made for %u",
                          (unsigned long long)(end > UINT32_MAX ? end : out->cells),
                          group->params.max_blocks);
    return member != NULL && b->flavour->pages ? attn__pages_check_change(group, member, out->count, err)
                                               : ATTN_OK;
}

/* Shifts the row to its new first block and writes those new blocks that it shows. */
static void change_row(struct attn__table *table, const struct attn_builder_row_args *a,
                       const struct change *change)
{
    struct attn__table_row *state = &table->row[a->row];
    const uint32_t moved = change->start - state->start;

    if (moved > 0)
        attn__table_shift(table, a->row, moved < state->filled ? moved : state->filled);
    state->start = change->start;
    const uint32_t from = a->first > change->start ? a->first : change->start;
    uint32_t end = a->first + a->count;
    end = end < change->start + change->cells ? end : change->start + change->cells;
    if (from < end)
        attn__table_write(table, a->row, from - change->start, a->blocks + (from - a->first), end - from);
}

/* Writes the slots of new tokens in changed blocks. */
static void change_slots(struct attn_builder_impl *b, struct attn__group *group, uint32_t n,
                         const struct attn_builder_row_args *a)
{
    const struct attn__member *member = &group->members[n];
    const struct attn__sequence *sequence = &b->sequence[n];
    int64_t *slots = attn__longs(&group->step->slots) + member->slot;
    const int64_t block = group->params.block, keys = attn__cp_count(&b->shard, sequence->seq_len);
    const int64_t before = attn__cp_count(&b->shard, member->first);
    const int64_t from = a->first * block, end = ((int64_t)a->first + a->count) * block;

    for (int64_t key = before > from ? before : from; key < keys && key < end; key++) {
        const int64_t number = a->blocks[key / block - a->first];
        slots[attn__cp_position(&b->shard, key) - sequence->context_len] =
            attn__slot_of(number, key % block, block);
    }
}

int32_t attn__builder_set_row(struct attn_builder_impl *b, const struct attn_builder_row_args *a,
                              struct attn_error *err)
{
    struct change change = {0};
    int32_t status = check_place(b, a, err);

    if (status != ATTN_OK)
        return status;
    struct attn__group *group = &b->group[a->group];
    struct attn__member *member = member_of(b, group, a->row);
    if (member != NULL && member->profile)
        return INVALID(err, "row", "the sequence of row %u has no table", a->row);
    if (member != NULL && member->shown == ATTN__SHOWN_ON_PREFIX_HIT)
        return INVALID(err, "row", "row %u of a prompt shows no blocks; only its list can be changed",
                       a->row);
    status = check_change(b, a, member, &change, err);
    if (status != ATTN_OK || a->count == 0)
        return status;
    change_row(&group->table, a, &change);
    if (member == NULL)
        return ATTN_OK;
    change_slots(b, group, a->row - b->whole.step.first_row, a);
    if (b->flavour->pages)
        attn__pages_change(b, group, member, a, change.count);
    member->count = change.count;
    group->longest = change.cells > group->longest ? change.cells : group->longest;
    return ATTN_OK;
}
