/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* FlashInfer: a step has lists of pages beside its block tables; here is what a builder writes of them. */
#include "flashinfer.h"
#include "fail.h"
#include "kv-handle.h"

const struct attn__flavour attn__flashinfer = {
    .number = ATTN_FLASHINFER,
    .name = "flashinfer",
    .original_name = "FLASHINFER",
    .module_name = "flashinfer",
    .pages = true,
    .empty_steps = true,
    .sampled = true,
};

/* [pages, 2, block, kv_heads, head_dim] */
int32_t attn__kv_shape_flashinfer(struct attn_backend_impl *backend, const struct attn_problem *problem,
                                  uint32_t pages, struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn__kv_shape(problem, pages, true, false, out, err);
}

static int32_t too_many(const struct attn__group *group, uint64_t blocks, struct attn_error *err)
{
    return attn__fail(err, ATTN_E_SIZE, 0, "max_indices",
                      "with this sequence the step has %llu max_indices; the builder was made for %u",
                      (unsigned long long)blocks, group->params.max_indices);
}

static void put_index(const struct attn_builder_impl *b, const struct attn__group *group, uint64_t i,
                      int64_t page)
{
    if (b->params.index_dtype == ATTN_INT64)
        attn__longs(&group->step->page_indices)[i] = page;
    else
        attn__ints(&group->step->page_indices)[i] = (int32_t)page;
}

int32_t attn__pages_check(const struct attn__group *group, const struct attn_blocks *blocks,
                          const struct attn__wanted *w, struct attn_error *err)
{
    const uint64_t total = group->total_blocks + blocks->count;

    if (blocks->count < w->pages)
        return attn__fail(err, ATTN_E_INVALID, 0, "blocks",
                          "the sequence has %u blocks of %u tokens; %u are needed", blocks->count,
                          group->params.block, w->pages);
    if (total > group->params.max_indices)
        return too_many(group, total, err);
    const uint32_t bad = blocks->blocks != NULL
                             ? attn__table_first_overflow(&group->table, blocks->blocks, w->pages)
                             : w->pages;
    if (bad < w->pages)
        return attn__fail(err, ATTN_E_INVALID, 0, "blocks",
                          "block %lld at index %u does not fit indices of i32; index_dtype i64 does",
                          (long long)blocks->blocks[bad], bad);
    return ATTN_OK;
}

void attn__pages_add(struct attn_builder_impl *b, struct attn__group *group, uint32_t row,
                     const struct attn_blocks *blocks, struct attn__member *member, uint32_t seq_len)
{
    const uint32_t i = group->paged, rest = seq_len % group->params.block;

    for (uint32_t p = 0; p < member->pages; p++) {
        const int64_t page =
            blocks->kind == ATTN_BLOCKS_ROW ? attn__table_get(&group->table, row, p) : blocks->blocks[p];
        put_index(b, group, group->indices + p, page);
    }
    member->page = group->indices;
    group->indices += member->pages;
    attn__ints(&group->step->page_starts)[i + 1] = (int32_t)group->indices;
    attn__ints(&group->step->last_page_lens)[i] = (int32_t)(rest != 0 ? rest : group->params.block);
    group->paged++;
    group->total_blocks += blocks->count;
}

int32_t attn__pages_check_change(const struct attn__group *group, const struct attn__member *member,
                                 uint32_t count, struct attn_error *err)
{
    const uint64_t total = group->total_blocks + (count - member->count);

    if (member->pages == 0 || total <= group->params.max_indices)
        return ATTN_OK;
    return attn__fail(err, ATTN_E_SIZE, 0, "max_indices",
                      "with the change the step has %llu blocks; the builder was made for %u",
                      (unsigned long long)total, group->params.max_indices);
}

void attn__pages_change(struct attn_builder_impl *b, struct attn__group *group,
                        const struct attn__member *member, const struct attn_builder_row_args *a,
                        uint32_t count)
{
    for (uint32_t i = 0; i < a->count && a->first + i < member->pages; i++)
        put_index(b, group, member->page + a->first + i, a->blocks[i]);
    group->total_blocks += count - member->count;
}

void attn__pages_end(const struct attn_builder_impl *b, struct attn__group *group, uint32_t pad)
{
    const uint64_t size = attn__index_size(b->params.index_dtype);
    int32_t *starts = attn__ints(&group->step->page_starts);
    int32_t *last = attn__ints(&group->step->last_page_lens);

    for (uint32_t i = group->paged; i < group->paged + pad; i++) {
        starts[i + 1] = starts[i];
        last[i] = 0;
    }
    /* The indices are as long as all blocks of the sequences. */
    if (group->total_blocks > group->indices)
        memset((char *)group->step->page_indices.host + group->indices * size, 0,
               (size_t)((group->total_blocks - group->indices) * size));
}
