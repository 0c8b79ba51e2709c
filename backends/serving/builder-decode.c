/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The fast path of adding a sequence: a decode of one token whose row shows its blocks already, as in most
 * adds of a server. Everything else, and everything that is wrong, is left to the general path and its
 * messages.
 */
#include "builder-add.h"

/* Whether the general path would accept the sequence, and would make the choices that add_fast assumes. */
static bool is_fast_path(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                         uint32_t row)
{
    const struct attn_blocks *blocks = a->blocks;
    const struct attn__group *group = b->group;

    if (b->flavour->pages || b->cross != NULL || b->params.groups != 1 || b->shard.world != 0 ||
        (group->params.given & ATTN_GIVEN_WINDOW) != 0)
        return false;
    if ((a->prompt | a->prefix_hit | a->encoder_len | a->map_count) != 0 || a->cross != NULL ||
        a->query_len != 1 || blocks == NULL || a->context_len >= INT32_MAX)
        return false;
    if (((a->given & ATTN_GIVEN_ROW) != 0 && a->row != row) || row >= b->params.max_seqs ||
        b->whole.step.queries >= b->params.max_seqs)
        return false;
    const struct attn__table_row *shown = &group->table.row[row];
    const uint32_t count = blocks->count;
    if (blocks->kind != ATTN_BLOCKS_LIST || blocks->blocks == NULL || count == 0 ||
        blocks->unchanged != count || (blocks->computed | blocks->window_blocks | blocks->seq_len) != 0 ||
        shown->filled != count || shown->start != 0)
        return false;
    return (uint64_t)count * group->params.block > a->context_len &&
           (uint64_t)b->whole.step.prefill_tokens + b->decode_tokens < b->params.max_tokens &&
           group->slots < b->params.max_tokens && group->seq_start + a->context_len < INT32_MAX;
}

static void add_fast(struct attn_builder_impl *b, const struct attn_builder_add_args *a, int64_t block,
                     uint32_t page)
{
    struct attn_step *step = &b->whole.step;
    struct attn__group *group = b->group;
    const struct attn_blocks *blocks = a->blocks;
    const uint32_t n = step->queries, seq_len = a->context_len + 1;
    int32_t *starts = attn__ints(&step->query_starts);

    group->members[n] = (struct attn__member){.blocks = blocks->blocks,
                                              .count = blocks->count,
                                              .unchanged = blocks->unchanged,
                                              .first = a->context_len,
                                              .slot = group->slots,
                                              .pages = page + 1,
                                              .shown = ATTN__SHOWN_LIST};
    attn__longs(&group->step->slots)[group->slots++] =
        attn__slot_of(block, a->context_len - page * group->params.block, group->params.block);
    group->longest = blocks->count > group->longest ? blocks->count : group->longest;
    group->step->max_decode_len =
        seq_len > group->step->max_decode_len ? seq_len : group->step->max_decode_len;
    group->seq_start += seq_len;
    attn__ints(&group->step->seq_lens_list)[n] = (int32_t)seq_len;
    attn__ints(&group->step->seq_lens)[n] = (int32_t)seq_len;
    attn__ints(&group->step->seq_starts)[n + 1] = (int32_t)group->seq_start;
    attn__ints(&step->context_lens)[n] = (int32_t)a->context_len;
    starts[n + 1] = starts[n] + 1;
    b->sequence[n] = (struct attn__sequence){seq_len, a->context_len, 1, 0};
    step->max_q = step->max_q > 1 ? step->max_q : 1;
    b->max_decode_q = b->max_decode_q > 1 ? b->max_decode_q : 1;
    b->decode_tokens++;
    step->queries++;
}

bool attn__add_decode(struct attn_builder_impl *b, const struct attn_builder_add_args *a)
{
    struct attn_step *step = &b->whole.step;
    const uint32_t first = step->queries > 0                  ? step->first_row
                           : (a->given & ATTN_GIVEN_ROW) != 0 ? a->row
                                                              : 0;

    if (!is_fast_path(b, a, first + step->queries))
        return false;
    const uint32_t page = a->context_len / b->group->params.block;
    const int64_t block = a->blocks->blocks[page];
    if (block > ATTN__BLOCK_NUMBER_MAX)
        return false;
    step->first_row = first;
    add_fast(b, a, block, page);
    return true;
}
