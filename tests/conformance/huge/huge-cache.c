/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Moves a cache: pages, tokens or heads far apart, or pages and tokens of large numbers. */
#include "huge.h"

static struct attn_buffer place_array(struct huge_step *huge, const char *name, const void *from, size_t size,
                                      struct rng *rng)
{
    struct attn_buffer buffer = {NULL, 0};
    struct area *area = huge_area(huge, name, size + 8, 0xff, rng, &buffer);

    if (area != NULL && size > 0)
        memcpy(area_commit(area, buffer.byte_offset, size), from, size);
    return buffer;
}

static int32_t renumber(const struct huge_step *huge, int64_t page)
{
    return (int32_t)(page < 0 ? page : huge->page_first + page * huge->page_gap);
}

/* Rows of a table far apart, with the new numbers. What lies behind a row does not exist. */
static bool place_table(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const struct attn_batch *from = &original->batch;
    struct attn_batch *to = &huge->step.batch;
    struct grid grid = {
        .counts = {1, 1, original->seqs}, .bytes = (uint64_t)from->table_width * 4, .unit = 4};

    grid_spread(&grid, rng);
    struct area *area = huge_area(huge, "table", grid.size, 0xff, rng, &to->table);
    if (area == NULL)
        return false;
    to->table_stride = grid.strides[2];
    for (uint32_t n = 0; n < original->seqs; n++) {
        const struct sequence *s =
            original->source[n] < 0 ? NULL : &original->the_case->sequences[original->source[n]];
        const char *row = (const char *)oracle_address(&from->table) + (int64_t)n * from->table_stride;
        for (uint32_t b = 0; s != NULL && b < s->pages; b++) {
            uint64_t at = to->table.byte_offset + n * (uint64_t)to->table_stride + b * UINT64_C(4);
            int32_t page;
            memcpy(&page, row + (size_t)b * 4, 4);
            page = renumber(huge, page);
            memcpy(area_commit(area, at, 4), &page, 4);
        }
    }
    huge->step.host.table = (const int32_t *)oracle_address(&to->table);
    return true;
}

static bool place_indices(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const int32_t *indptr = (const int32_t *)(const void *)oracle_address(&original->batch.csr_indptr);
    bool wide = original->problem.index_dtype == ATTN_INT64;
    size_t size = wide ? 8 : 4;
    struct attn_buffer *to = &huge->step.batch.csr_indices;
    uint32_t count = (uint32_t)indptr[original->seqs];
    struct area *area = huge_area(huge, "csr_indices", (count + 1) * size, 0xff, rng, to);

    if (area == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        int64_t page =
            renumber(huge, oracle_element(&original->batch.csr_indices, i, original->problem.index_dtype));
        unsigned char *at = area_commit(area, to->byte_offset + i * size, size);
        int32_t narrow = (int32_t)page;
        memcpy(at, wide ? (const void *)&page : &narrow, size);
    }
    huge->step.host.csr_indices = oracle_address(to);
    return true;
}

static bool place_starts(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    int32_t starts[STEP_SEQS + 1];
    struct attn_buffer *to = &huge->step.batch.kv_offsets;

    memcpy(starts, oracle_address(&original->batch.kv_offsets), (original->seqs + 1) * sizeof *starts);
    for (uint32_t n = 0; n <= original->seqs; n++)
        starts[n] += (int32_t)huge->token_first;
    *to = place_array(huge, "kv_offsets", starts, (original->seqs + 1) * sizeof *starts, rng);
    huge->step.host.kv_offsets = (const int32_t *)oracle_address(to);
    return to->data != NULL;
}

/* Keys or values, vector by vector, or head by head where a page is in chunks. */
static bool place_half(struct huge_step *huge, const struct step *original, bool values, struct rng *rng)
{
    const struct attn_kv_desc *from = &original->kv;
    struct attn_kv_desc *to = &huge->step.kv;
    bool chunks = from->layout == ATTN_PAGED_X, numbered = huge->page_gap > 1 || huge->token_first > 0;
    uint32_t element = oracle_size(values ? from->v_dtype : from->k_dtype);
    uint64_t dim = values ? from->head_dim_vo : from->head_dim, tokens = chunks ? 1 : from->block;
    struct grid grid = {.counts = {to->pages, chunks ? 1 : to->block, from->kv_heads}};

    grid.bytes = dim * element * (chunks ? from->block : 1);
    grid.unit = element > huge->step.layout.stride_multiple ? element : huge->step.layout.stride_multiple;
    if (numbered)
        grid_pack(&grid);
    else
        grid_spread(&grid, rng);
    struct area *area = huge_area(huge, values ? "value cache" : "key cache", grid.size,
                                  case_poison(original->the_case, values ? from->v_dtype : from->k_dtype),
                                  rng, values ? &to->v : &to->k);
    if (area == NULL)
        return false;
    int64_t *const strides[3] = {values ? &to->v_page_stride : &to->k_page_stride,
                                 values ? &to->v_token_stride : &to->k_token_stride,
                                 values ? &to->v_head_stride : &to->k_head_stride};
    for (uint32_t i = 0; i < 3; i++)
        *strides[i] = chunks && i == 1 ? *strides[i] : grid.strides[i];
    for (uint32_t page = 0; page < from->pages; page++) {
        for (uint32_t token = 0; token < tokens; token++) {
            for (uint32_t head = 0; head < from->kv_heads; head++) {
                int64_t far_page = huge->page_first + page * huge->page_gap, far = huge->token_first + token;
                const unsigned char *source =
                    values ? value_at(from, page, token, head) : key_at(from, page, token, head);
                unsigned char *target =
                    values ? value_at(to, far_page, far, head) : key_at(to, far_page, far, head);
                area_commit(area, (uint64_t)(target - area->memory->data), grid.bytes);
                memcpy(target, source, grid.bytes);
            }
        }
    }
    return true;
}

/* Large numbers where the indices can hold them; their product with a stride must stay addressable. */
static void pick_numbers(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const struct attn_kv_desc *kv = &original->kv;
    uint64_t vector =
        (uint64_t)(kv->head_dim > kv->head_dim_vo ? kv->head_dim : kv->head_dim_vo) * 8 * kv->kv_heads;
    uint64_t most = (UINT64_C(1) << 41) / vector;

    if (!rng_chance(rng, 50))
        return;
    if (original->problem.addressing == ATTN_DENSE) {
        most = most < INT32_MAX - 100000 ? most : INT32_MAX - 100000;
        /* The chunks of paged-x lie as far apart as a page is long. */
        if (original->batch.kv_offsets.data != NULL && kv->layout != ATTN_PAGED_X)
            huge->token_first = (int64_t)(most - rng_below(rng, 1000));
        huge->step.kv.block += (uint32_t)huge->token_first;
        return;
    }
    most /= kv->block;
    most = most < INT32_MAX - 100000 ? most : INT32_MAX - 100000;
    if (most < 4 * (uint64_t)kv->pages)
        return;
    huge->page_gap = (int64_t)(most / kv->pages) - (int64_t)rng_below(rng, 2);
    huge->page_first = (int64_t)rng_below(rng, 3);
    huge->step.kv.pages = (uint32_t)(huge->page_first + (kv->pages - 1) * huge->page_gap + 1);
}

bool huge_place_cache(struct huge_step *huge, const struct step *original, struct rng *rng)
{
    const struct attn_kv_desc *kv = &original->kv;
    const uint64_t counts[3] = {kv->pages, kv->block, kv->kv_heads};
    bool good = true;

    if (kv->pages == 0 || kv->block == 0)
        return true;
    pick_numbers(huge, original, rng);
    if (huge->step.batch.pages != 0)
        huge->step.batch.pages = huge->step.kv.pages;
    if (original->problem.addressing == ATTN_TABLE && original->seqs > 0)
        good = place_table(huge, original, rng);
    if (original->problem.addressing == ATTN_CSR && original->seqs > 0)
        good = place_indices(huge, original, rng);
    if (huge->token_first > 0)
        good = good && place_starts(huge, original, rng);
    return good && place_half(huge, original, false, rng) &&
           (kv->v.data == NULL || place_half(huge, original, true, rng)) &&
           huge_place_scale(huge, &huge->step.kv.k_scale, counts, true, rng) &&
           huge_place_scale(huge, &huge->step.kv.v_scale, counts, true, rng);
}
