/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Capture buffers: lays them out, fills them for the first time, and makes the metadata of a captured size.
 */
#include "flashinfer.h"

enum { ALIGNMENT = 64 };

bool attn__capture_place_array(struct attn__capture_array *array, uint64_t elements, uint32_t size,
                               uint64_t *bytes)
{
    uint64_t all, end;

    *array = (struct attn__capture_array){.offset = *bytes, .elements = elements, .size = size};
    if (__builtin_mul_overflow(elements, size, &all) || __builtin_add_overflow(*bytes, all, &end) ||
        end > INT64_MAX - ALIGNMENT)
        return false;
    *bytes = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return true;
}

/* Places the columns of one table in the rows, which all tables share. */
static bool place_columns(struct attn__capture_array *array, uint64_t batch, uint64_t width, uint64_t *row)
{
    *array = (struct attn__capture_array){.offset = *row, .elements = batch * width, .size = 4};
    return !__builtin_add_overflow(*row, (width * 4 + 15) / 16 * 16, row);
}

static bool place_rows(struct attn__capture_layout *l)
{
    uint64_t row = 0, all;
    bool fits = true;

    l->rows = l->bytes;
    for (uint32_t g = 0; g < l->groups && fits && !l->flavour->pages; g++)
        fits = place_columns(&l->group[g].table, l->max_batch, l->group[g].width, &row);
    if (fits && l->cross_width > 0)
        fits = place_columns(&l->cross_table, l->max_batch, l->cross_width, &row);
    l->row_stride = row;
    for (uint32_t g = 0; g < l->groups && !l->flavour->pages; g++)
        l->group[g].table.offset += l->rows;
    l->cross_table.offset += l->rows;
    if (!fits || __builtin_mul_overflow(row, l->max_batch, &all) ||
        all > (uint64_t)INT64_MAX - l->bytes - ALIGNMENT)
        return false;
    l->bytes = (l->bytes + all + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return true;
}

/* What no step changes: query offsets, and the block tables of flavours whose kernels read pages instead. */
static bool place_constants(struct attn__capture_layout *l)
{
    bool fits =
        attn__capture_place_array(&l->starts, l->max_tokens * (l->max_batch + UINT64_C(1)), 4, &l->bytes);

    for (uint32_t g = 0; g < l->groups && fits && l->flavour->pages; g++)
        fits = attn__capture_place_array(&l->group[g].table, (uint64_t)l->max_batch * l->group[g].width, 4,
                                         &l->bytes);
    l->first = l->bytes;
    return fits;
}

bool attn__capture_layout(struct attn__capture_layout *l)
{
    const uint64_t batch = l->max_batch, uniform = batch * l->max_tokens;
    const uint64_t slots = uniform > l->max_mixed ? uniform : l->max_mixed;
    bool fits = place_constants(l);

    if (fits && l->max_mixed > 0)
        fits = attn__capture_place_array(&l->mixed_starts, batch + 1, 4, &l->bytes);
    for (uint32_t g = 0; g < l->groups && fits; g++) {
        struct attn__capture_group *group = &l->group[g];
        fits = attn__capture_place_array(&group->slots, slots, 8, &l->bytes) &&
               attn__capture_place_array(&l->lens[g], batch, 4, &l->bytes);
        if (fits && l->shard.world != 0)
            fits = attn__capture_place_array(&group->rank_lens, batch, 4, &l->bytes);
        if (fits && l->flavour->pages)
            fits = attn__pages_lay_out_small(l, g);
    }
    if (fits && l->cross_width > 0)
        fits = attn__capture_place_array(&l->encoder_lens, batch, 4, &l->bytes);
    fits = fits && place_rows(l);
    return fits && l->flavour->pages ? attn__pages_lay_out_indices(l) : fits;
}

void attn__capture_fill_i32(char *image, const struct attn__capture_array *array, uint64_t count,
                            int32_t first, int32_t step)
{
    int32_t *at = (int32_t *)(void *)(image + array->offset);

    for (uint64_t i = 0; i < count; i++)
        at[i] = first + (int32_t)i * step;
}

void attn__capture_fill(const struct attn__capture_layout *l, char *image)
{
    const uint64_t batch = l->max_batch;

    for (uint32_t tokens = 1; tokens <= l->max_tokens; tokens++) {
        const struct attn__capture_array starts = attn__capture_starts(l, tokens);
        attn__capture_fill_i32(image, &starts, batch + 1, 0, (int32_t)tokens);
    }
    if (l->max_mixed > 0) { /* only the first sequence, which every size has, gets a query token */
        attn__capture_fill_i32(image, &l->mixed_starts, batch + 1, 1, 0);
        attn__capture_fill_i32(image, &l->mixed_starts, 1, 0, 0);
    }
    for (uint32_t g = 0; g < l->groups; g++) {
        const struct attn__capture_group *group = &l->group[g];
        memset(image + group->slots.offset, 0xff, group->slots.elements * sizeof(int64_t));
        /* Graphs are captured with one full page of each sequence, or with as many tokens as queries. */
        attn__capture_fill_i32(image, &l->lens[g], batch,
                               (int32_t)(l->flavour->pages ? group->block : l->max_tokens), 0);
        if (l->flavour->pages)
            attn__pages_fill(l, g, image);
        if (l->shard.world != 0)
            attn__capture_fill_i32(image, &group->rank_lens, batch,
                                   (int32_t)attn__cp_count(&l->shard, l->max_tokens), 0);
    }
    if (l->cross_width == 0)
        return;
    attn__capture_fill_i32(image, &l->encoder_lens, batch, 1, 0);
    for (uint64_t row = 0; row < batch; row++) {
        const struct attn__capture_array cells = {.offset = l->cross_table.offset + row * l->row_stride};
        attn__capture_fill_i32(image, &cells, l->cross_width, 1, 0);
    }
}

/* ---------------------------------------------------------------- metadata */

/* The first `count` elements of an array. */
static struct attn_step_array show_array(const struct attn__capture_array *array,
                                         const struct attn__capture_place *place, uint64_t count)
{
    return (struct attn_step_array){
        .dtype = array->size == 8 ? ATTN_INT64 : ATTN_INT32,
        .count = count,
        .host = place->host + array->offset,
        .device = {place->device.data, place->device.byte_offset + array->offset}};
}

/* Rows of a table. */
static struct attn_step_array show_table(const struct attn__capture_array *array,
                                         const struct attn__capture_place *place, uint32_t rows,
                                         uint32_t width, uint64_t stride)
{
    struct attn_step_array table = show_array(array, place, rows);

    table.width = width;
    table.stride = (int64_t)stride;
    return table;
}

static void show_group(const struct attn__capture_layout *l, const struct attn__capture_place *place,
                       uint32_t batch, uint32_t num_tokens, uint32_t g, struct attn_step_group *out)
{
    const struct attn__capture_group *group = &l->group[g];

    out->block = group->block;
    out->max_decode_len = l->max_len;
    out->slots = show_array(&group->slots, place, num_tokens);
    if (!l->flavour->pages) {
        out->seq_lens = show_array(&l->lens[g], place, batch);
        if (l->shard.world != 0)
            out->rank_lens = show_array(&group->rank_lens, place, batch);
        out->table = show_table(&group->table, place, batch, group->width, l->row_stride);
        return;
    }
    out->table = show_table(&group->table, place, l->max_batch, group->width, group->width * UINT64_C(4));
    out->page_starts = show_array(&group->indptr, place, (uint64_t)batch + 1);
    out->page_indices = show_array(&l->indices, place, batch);
    out->last_page_lens = show_array(&group->last_page_lens, place, batch);
}

static void show_encoder(const struct attn__capture_layout *l, const struct attn__capture_place *place,
                         uint32_t batch, struct attn_step_encoder *out)
{
    out->seq_lens = out->seq_lens_list = show_array(&l->encoder_lens, place, batch);
    out->slots = show_array(&l->encoder_lens, place, 0);
    out->table = show_table(&l->cross_table, place, batch, l->cross_width, l->row_stride);
    out->max_len = l->max_len;
    out->num_tokens = 0;
}

void attn__capture_step(const struct attn__capture_layout *l, const struct attn__capture_place *place,
                        const struct attn_problem *problem, uint32_t tokens, bool cross,
                        struct attn_step *step)
{
    const struct attn__capture_array starts = attn__capture_starts(l, tokens);
    const uint32_t batch = step->seqs;
    struct attn_step_group *groups = step->group;

    *step = (struct attn_step){.groups = l->groups,
                               .modalities = 1, /* without index maps */
                               .seqs = batch,
                               .queries = batch,
                               .num_tokens = step->num_tokens,
                               .decode_tokens = step->num_tokens,
                               .graph = 1,
                               .max_q = step->max_q,
                               .max_decode_q = step->max_q,
                               .heads = problem->heads,
                               .kv_heads = problem->kv_heads,
                               .head_dim = problem->head_dim,
                               .kv_dtype = problem->k_dtype,
                               .q_dtype = problem->q_dtype,
                               .cp_rank = (uint32_t)l->shard.rank,
                               .cp_world = (uint32_t)l->shard.world,
                               .cp_interleave = (uint32_t)l->shard.interleave,
                               .encoder = {.max_len = ATTN_STEP_NONE, .num_tokens = ATTN_STEP_NONE},
                               .group = groups,
                               .map = step->map};
    for (uint32_t g = 0; g < l->groups; g++)
        show_group(l, place, batch, step->num_tokens, g, &groups[g]);
    if (l->flavour->pages || tokens == 0)
        step->query_starts = show_array(&starts, place, (uint64_t)batch + 1);
    if (cross)
        show_encoder(l, place, batch, &step->encoder);
}
