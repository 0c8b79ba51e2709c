/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Adding a sequence to a step. Everything is checked before anything is written, so that a refused sequence
 * leaves the step as it was.
 */
#include "builder-add.h"
#include "fail.h"
#include "flashinfer.h"

#define INVALID(err, field, ...) attn__fail((err), ATTN_E_INVALID, 0, (field), __VA_ARGS__)

static int32_t too_many(const char *field, uint64_t have, uint64_t room, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_SIZE, 0, field,
                      "with this sequence the step has %llu %s; the builder was made for %llu",
                      (unsigned long long)have, field, (unsigned long long)room);
}

static int32_t check_lengths(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                             struct attn_error *err)
{
    const struct attn_step *step = &b->whole.step;
    const uint64_t seq_len = (uint64_t)a->context_len + a->query_len;

    if (a->prompt > 1 || a->prefix_hit > a->prompt)
        return INVALID(err, a->prompt > 1 ? "prompt" : "prefix_hit",
                       "prompt is %u and prefix_hit %u; 0 and 1 are accepted, prefix hits of prompts only",
                       a->prompt, a->prefix_hit);
    if (seq_len > INT32_MAX)
        return INVALID(err, "context_len", "context_len + query_len is %llu; at most %d is accepted",
                       (unsigned long long)seq_len, INT32_MAX);
    if (a->prompt == 1 && step->queries > step->prefills)
        return INVALID(err, "prompt", "a prompt stands behind decodes; prompts come first");
    if (a->prompt == 0 && !b->flavour->drafts && a->query_len != 1)
        return INVALID(
            err, "query_len",
            "seq_len: %u, context_len: %u, query_len: %u; a decode of this flavour has query_len 1",
            a->blocks[0].seq_len != 0 ? a->blocks[0].seq_len : (uint32_t)seq_len, a->context_len,
            a->query_len);
    if (step->queries == b->params.max_seqs)
        return too_many("max_seqs", (uint64_t)step->queries + 1, b->params.max_seqs, err);
    if ((uint64_t)step->prefill_tokens + b->decode_tokens + a->query_len > b->params.max_tokens)
        return too_many("max_tokens", (uint64_t)step->prefill_tokens + b->decode_tokens + a->query_len,
                        b->params.max_tokens, err);
    return ATTN_OK;
}

static int32_t check_row(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                         struct attn_error *err)
{
    const struct attn_step *step = &b->whole.step;
    const uint32_t next = step->queries == 0 ? 0 : step->first_row + step->queries;

    if ((a->given & ATTN_GIVEN_ROW) != 0 && step->queries > 0 && a->row != next)
        return INVALID(err, "row", "row is %u; the rows of a step follow one another, and the next is %u",
                       a->row, next);
    if ((a->given & ATTN_GIVEN_ROW) != 0 && a->row >= b->params.max_seqs)
        return INVALID(err, "row", "row is %u; the block tables have %u rows", a->row, b->params.max_seqs);
    return next < b->params.max_seqs
               ? ATTN_OK
               : attn__fail(err, ATTN_E_SIZE, 0, "row", "the step has reached row %u; there are %u", next,
                            b->params.max_seqs);
}

/* Chooses the part of the list that the row of a sequence shows. */
static void choose_row(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                       const struct attn_blocks *blocks, struct attn__wanted *w)
{
    w->row_start = 0;
    w->row_count = 0;
    w->shown = ATTN__SHOWN_LIST;
    if (a->prefix_hit == 1) {
        w->row_count = b->flavour->pages ? blocks->computed : blocks->count;
        w->shown = b->flavour->pages ? ATTN__SHOWN_COMPUTED : ATTN__SHOWN_LIST;
    } else if (b->params.chunked != 0 || a->prompt == 0) {
        const uint32_t shown = blocks->window_blocks;
        w->row_count = shown != 0 && shown < blocks->count ? shown : blocks->count;
        w->row_start = blocks->count - w->row_count;
    } else {
        w->shown = b->flavour->hit_shows_all ? ATTN__SHOWN_ON_PREFIX_HIT : ATTN__SHOWN_NONE;
    }
}

/* Checks the list that the row and the slots are written from. */
static int32_t check_list(const struct attn__group *group, const struct attn_blocks *blocks, uint32_t row,
                          uint32_t needed, const struct attn__wanted *w, struct attn_error *err)
{
    const struct attn__table_row *state = &group->table.row[row];

    if (blocks->kind == ATTN_BLOCKS_ROW) {
        if (blocks->count > state->filled || state->start != 0 || w->row_start != 0 ||
            w->row_count != blocks->count)
            return INVALID(
                err, "count",
                "the row as it stands is to have %u blocks from block 0 on; row %u has %u from %u on",
                blocks->count, row, state->filled, state->start);
    } else if (blocks->blocks == NULL && blocks->count > 0) {
        return INVALID(err, "blocks", "blocks is NULL; %u are needed", blocks->count);
    }
    if (blocks->count < needed)
        return INVALID(err, "blocks", "the sequence has %u blocks of %u tokens; %u are needed", blocks->count,
                       group->params.block, needed);
    if (blocks->unchanged > blocks->count || blocks->computed > blocks->count)
        return INVALID(err, blocks->unchanged > blocks->count ? "unchanged" : "computed",
                       "unchanged is %u and computed %u; the list has %u blocks", blocks->unchanged,
                       blocks->computed, blocks->count);
    for (uint32_t p = w->page; blocks->blocks != NULL && p < needed; p++)
        if (blocks->blocks[p] > ATTN__BLOCK_NUMBER_MAX)
            return INVALID(err, "blocks", "block %lld at index %u; at most %lld is accepted",
                           (long long)blocks->blocks[p], p, (long long)ATTN__BLOCK_NUMBER_MAX);
    if (w->row_count > group->params.max_blocks)
        return too_many("max_blocks", w->row_count, group->params.max_blocks, err);
    if (blocks->kind == ATTN_BLOCKS_ROW || w->row_count == 0)
        return ATTN_OK;
    const uint32_t kept = attn__table_kept(state, w->row_start, w->row_count, blocks->unchanged);
    if (kept == w->row_count)
        return ATTN_OK;
    const int64_t *from = blocks->blocks + w->row_start + kept;
    const uint32_t bad = attn__table_first_overflow(&group->table, from, w->row_count - kept);
    if (bad < w->row_count - kept)
        return INVALID(err, "blocks",
                       "block %lld at index %u does not fit a table of i32; index_dtype i64 does",
                       (long long)from[bad], w->row_start + kept + bad);
    return ATTN_OK;
}

/* What a builder with ranks does not serve. */
static int32_t check_ranks(const struct attn_builder_impl *b, const struct attn_blocks *blocks,
                           uint32_t seq_len, struct attn_error *err)
{
    if (b->shard.world == 0)
        return ATTN_OK;
    if (blocks->kind == 0 || blocks->kind == ATTN_BLOCKS_NULL)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "kind",
                          "kind is %u and cp_world %u; with ranks keys are read from the caches alone: "
                          "ATTN_BLOCKS_LIST and ATTN_BLOCKS_ROW are accepted",
                          blocks->kind, b->params.cp_world);
    if (blocks->window_blocks != 0)
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "window_blocks",
            "window_blocks is %u and cp_world %u; with ranks no rows are trimmed to a window: 0 "
            "is accepted",
            blocks->window_blocks, b->params.cp_world);
    return blocks->seq_len == 0 || blocks->seq_len == seq_len
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "seq_len",
                            "seq_len is %u and cp_world %u; with ranks no lengths are trimmed to a window: "
                            "0 and %u are accepted",
                            blocks->seq_len, b->params.cp_world, seq_len);
}

static int32_t check_group(const struct attn_builder_impl *b, uint32_t g,
                           const struct attn_builder_add_args *a, uint32_t row, struct attn__wanted *w,
                           struct attn_error *err)
{
    const struct attn__group *group = &b->group[g];
    const struct attn_blocks *blocks = &a->blocks[g];
    const uint32_t seq_len = a->context_len + a->query_len, block = group->params.block;

    w->seq_len = blocks->seq_len != 0 ? blocks->seq_len : seq_len;
    w->profile = blocks->kind == 0 || blocks->kind == ATTN_BLOCKS_NULL;
    if (blocks->kind > ATTN_BLOCKS_ROW)
        return INVALID(err, "kind", "kind is %u; enum attn_blocks_kind is accepted", blocks->kind);
    if (w->seq_len > seq_len)
        return INVALID(err, "seq_len", "seq_len is %u; a sequence of %u tokens is not trimmed to more",
                       w->seq_len, seq_len);
    const int32_t ranks = check_ranks(b, blocks, seq_len, err);
    if (ranks != ATTN_OK)
        return ranks;
    const int64_t sum = group->seq_start + w->seq_len;
    if (sum > INT32_MAX)
        return INVALID(err, "seq_len", "seq_start_loc would be %lld; at most %d is accepted", (long long)sum,
                       INT32_MAX);
    choose_row(b, a, blocks, w);
    const int64_t window =
        (group->params.given & ATTN_GIVEN_WINDOW) != 0 ? (int64_t)group->params.window : -1;
    w->start = (uint32_t)attn_input_start(a->prompt == 1, a->query_len, window);
    w->slots = w->profile ? seq_len : a->query_len;
    w->first = w->start > a->context_len ? w->start : a->context_len;
    /* Keys that are here: those before the first slot, and all. */
    const uint32_t before = (uint32_t)attn__cp_count(&b->shard, w->first);
    const uint32_t keys = (uint32_t)attn__cp_count(&b->shard, seq_len);
    const uint32_t last = keys > 0 ? (keys - 1) / block : 0;
    w->page = before + 1 == keys ? last : before / block; /* for a decode, the last one, without a division */
    w->pages = w->profile || keys == 0 ? 0 : last + 1;
    if ((uint64_t)group->slots + w->slots > b->params.max_tokens)
        return too_many("max_tokens", (uint64_t)group->slots + w->slots, b->params.max_tokens, err);
    if (w->profile) {
        if (a->prefix_hit == 1 ||
            (blocks->kind == ATTN_BLOCKS_NULL && !(a->prompt == 1 && b->params.chunked == 0)))
            return INVALID(err, "kind", "the table of the sequence is null, but its row is wanted (%s)",
                           a->prefix_hit == 1 ? "prefix_hit"
                           : a->prompt == 1   ? "chunked"
                                              : "decode");
        w->row_start = w->row_count = 0;
        w->shown = ATTN__SHOWN_NONE;
        return ATTN_OK;
    }
    const uint32_t needed = w->first < seq_len ? w->pages : 0;
    const int32_t status = check_list(group, blocks, row, needed, w, err);
    return status == ATTN_OK && b->flavour->pages ? attn__pages_check(group, blocks, w, err) : status;
}

/* From the caller's list, or from the row if that is left as it is. */
static void write_slots(const struct attn_builder_impl *b, const struct attn__group *group,
                        const struct attn_blocks *blocks, uint32_t row, const struct attn_builder_add_args *a,
                        const struct attn__wanted *w, int64_t *slots)
{
    const struct attn__table *table = &group->table;
    const uint32_t seq_len = a->context_len + a->query_len, block = group->params.block;
    const bool list = blocks->kind == ATTN_BLOCKS_LIST;

    if (list && w->slots == 1 && w->first + 1 == seq_len && b->shard.world == 0) { /* a usual decode */
        *slots = attn__slot_of(blocks->blocks[w->page], w->first - w->page * block, block);
        return;
    }
    struct attn_slots all =
        attn__slots_unchecked(list ? (const void *)blocks->blocks : attn__table_cells(table, row),
                              list || table->dtype == ATTN_INT64, block, a->context_len, w->start, seq_len);
    all.shard = b->shard;
    attn__slots_write(&all, slots);
}

static void commit_group(struct attn_builder_impl *b, uint32_t g, const struct attn_builder_add_args *a,
                         uint32_t row, const struct attn__wanted *w)
{
    struct attn_step *step = &b->whole.step;
    struct attn__group *group = &b->group[g];
    const struct attn_blocks *blocks = &a->blocks[g];
    struct attn__member *member = &group->members[step->queries];
    int64_t *slots = attn__longs(&group->step->slots) + group->slots;
    const uint32_t seq_len = a->context_len + a->query_len;

    *member = (struct attn__member){.blocks = blocks->kind == ATTN_BLOCKS_LIST ? blocks->blocks : NULL,
                                    .count = blocks->count,
                                    .unchanged = blocks->unchanged,
                                    .first = w->first,
                                    .slot = group->slots,
                                    .pages = w->pages,
                                    .window_blocks = a->prefix_hit == 1 ? 0 : blocks->window_blocks,
                                    .shown = w->shown,
                                    .profile = w->profile};
    if (w->profile)
        attn__slots_none(slots, w->slots);
    else
        write_slots(b, group, blocks, row, a, w, slots);
    group->slots += w->slots;
    if (b->flavour->pages && !w->profile)
        attn__pages_add(b, group, row, blocks, member, seq_len);
    if (attn__table_shows(&group->table.row[row], w->row_start, w->row_count, blocks->unchanged)) {
        /* nothing to write, which is usual for decodes */
    } else if (blocks->kind == ATTN_BLOCKS_LIST && w->row_count > 0)
        attn__table_set(&group->table, row, blocks->blocks, w->row_start, w->row_count, blocks->unchanged);
    else
        attn__table_truncate(&group->table, row, w->row_count);
    if (w->row_count > group->longest)
        group->longest = w->row_count;
    if (a->prompt == 0 && w->seq_len > group->step->max_decode_len)
        group->step->max_decode_len = w->seq_len;
    group->seq_start += w->seq_len;
    attn__ints(&group->step->seq_lens_list)[step->queries] = (int32_t)w->seq_len;
    attn__ints(&group->step->seq_lens)[step->queries] = (int32_t)w->seq_len;
    attn__ints(&group->step->seq_starts)[step->queries + 1] = (int32_t)group->seq_start;
    if (b->shard.world != 0)
        attn__ints(&group->step->rank_lens)[step->queries] = (int32_t)attn__cp_count(&b->shard, w->seq_len);
    step->profile = step->profile != 0 || w->profile;
}

static void commit_sequence(struct attn_builder_impl *b, const struct attn_builder_add_args *a)
{
    struct attn_step *step = &b->whole.step;
    int32_t *starts = attn__ints(&step->query_starts);
    const uint32_t n = step->queries, seq_len = a->context_len + a->query_len;

    attn__ints(&step->context_lens)[n] = (int32_t)a->context_len;
    starts[n + 1] = starts[n] + (int32_t)a->query_len;
    b->sequence[n] = (struct attn__sequence){seq_len, a->context_len, a->query_len, a->prompt};
    step->max_q = a->query_len > step->max_q ? a->query_len : step->max_q;
    b->hit = b->hit || a->prefix_hit == 1;
    if (a->prompt == 1) {
        step->prefills++;
        step->prefill_tokens += a->query_len;
        step->max_prefill_len = seq_len > step->max_prefill_len ? seq_len : step->max_prefill_len;
    } else {
        b->decode_tokens += a->query_len;
        b->max_decode_q = a->query_len > b->max_decode_q ? a->query_len : b->max_decode_q;
    }
    step->queries++;
}

int32_t attn__builder_add(struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                          struct attn_error *err)
{
    struct attn_step *step = &b->whole.step;
    struct attn__wanted wanted[ATTN__GROUPS_MAX];
    int32_t status;

    if (attn__add_decode(b, a))
        return ATTN_OK;
    if (a->blocks == NULL)
        return INVALID(err, "blocks", "blocks is NULL; one list for each of %u cache groups is needed",
                       b->params.groups);
    status = check_lengths(b, a, err);
    if (status == ATTN_OK)
        status = check_row(b, a, err);
    const uint32_t first = step->queries > 0                  ? step->first_row
                           : (a->given & ATTN_GIVEN_ROW) != 0 ? a->row
                                                              : 0;
    for (uint32_t g = 0; g < b->params.groups && status == ATTN_OK; g++)
        status = check_group(b, g, a, first + step->queries, &wanted[g], err);
    const bool extras = b->cross != NULL || a->cross != NULL || a->encoder_len != 0 || a->map_count != 0;
    if (status == ATTN_OK && extras)
        status = attn__add_check_extras(b, a, first + step->queries, err);
    if (status != ATTN_OK)
        return status;
    step->first_row = first;
    for (uint32_t g = 0; g < b->params.groups; g++)
        commit_group(b, g, a, first + step->queries, &wanted[g]);
    if (extras)
        attn__add_extras(b, a, first + step->queries);
    commit_sequence(b, a);
    return ATTN_OK;
}
