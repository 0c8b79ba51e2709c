/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Adds what only some sequences have: an encoder length, blocks of cross-attention, and index maps. */
#include "builder-add.h"
#include "fail.h"

#define INVALID(err, field, ...) attn__fail((err), ATTN_E_INVALID, 0, (field), __VA_ARGS__)

static int32_t check_map(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                         const struct attn_index_map *map, struct attn_error *err)
{
    if (map->modality >= b->params.modality_count)
        return INVALID(err, "modality", "modality is %u; the builder was made for %u", map->modality,
                       b->params.modality_count);
    if (map->count > 0 && (map->sources == NULL || map->destinations == NULL))
        return INVALID(err, "maps", "a map of %u pairs needs sources and destinations", map->count);
    if (map->rows > INT64_MAX - b->map_rows[map->modality])
        return INVALID(err, "rows", "rows is %llu; the step's embeddings do not fit 63 bits",
                       (unsigned long long)map->rows);
    for (uint32_t i = 0; i < map->count; i++)
        if (map->sources[i] < 0 || (uint64_t)map->sources[i] >= map->rows || map->destinations[i] < 0 ||
            map->destinations[i] >= (int64_t)a->query_len)
            return INVALID(
                err, "maps",
                "pair %u of modality %s is %lld to %lld; the sequence brings %llu embeddings and %u "
                "tokens",
                i, b->params.modalities[map->modality], (long long)map->sources[i],
                (long long)map->destinations[i], (unsigned long long)map->rows, a->query_len);
    return ATTN_OK;
}

static int32_t check_maps(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                          struct attn_error *err)
{
    int32_t status = ATTN_OK;

    if (a->map_count > 0 && (a->maps == NULL || a->prompt == 0))
        return INVALID(err, "maps", "map_count is %u; maps %s", a->map_count,
                       a->maps == NULL ? "is NULL" : "belong to prompts");
    for (uint32_t i = 0; i < a->map_count && status == ATTN_OK; i++) {
        const struct attn_index_map *map = &a->maps[i];
        uint64_t pairs = 0;
        status = check_map(b, a, map, err);
        for (uint32_t j = 0; j <= i && status == ATTN_OK; j++) {
            pairs += a->maps[j].modality == map->modality ? a->maps[j].count : 0;
            if (j < i && a->maps[j].modality == map->modality)
                status =
                    INVALID(err, "maps", "modality %s has two maps", b->params.modalities[map->modality]);
        }
        if (status == ATTN_OK && b->whole.step.map[map->modality].sources.count + pairs > b->params.max_map)
            status = attn__fail(err, ATTN_E_SIZE, 0, "max_map",
                                "with this sequence modality %s has %llu pairs; the builder was made "
                                "for %u",
                                b->params.modalities[map->modality],
                                (unsigned long long)(b->whole.step.map[map->modality].sources.count + pairs),
                                b->params.max_map);
    }
    return status;
}

/* Checks the blocks of cross-attention, which have the encoder's keys from position 0 on. */
static int32_t check_cross(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                           uint32_t row, struct attn_error *err)
{
    const struct attn__group *group = b->cross;
    const struct attn_blocks *cross = a->cross;

    if (group->params.max_blocks == 0)
        return INVALID(err, "cross", "cross is given; the builder was made without a cross group");
    if (cross->kind > ATTN_BLOCKS_NULL)
        return INVALID(err, "cross",
                       "kind of cross is %u; ATTN_BLOCKS_LIST and ATTN_BLOCKS_NULL are accepted",
                       cross->kind);
    if (cross->kind != ATTN_BLOCKS_LIST)
        return ATTN_OK;
    if (cross->blocks == NULL && cross->count > 0)
        return INVALID(err, "cross", "blocks of cross is NULL; %u are needed", cross->count);
    if (cross->count > group->params.max_blocks)
        return attn__fail(err, ATTN_E_SIZE, 0, "cross",
                          "the cross table has %u blocks; the builder was made for %u", cross->count,
                          group->params.max_blocks);
    const uint64_t room = (uint64_t)cross->count * group->params.block;
    if (room < a->encoder_len)
        return INVALID(err, "cross", "the cross table has %u blocks of %u tokens; encoder_len is %u",
                       cross->count, group->params.block, a->encoder_len);
    if (cross->unchanged > cross->count)
        return INVALID(err, "cross", "unchanged of cross is %u of %u blocks", cross->unchanged, cross->count);
    const uint32_t kept = attn__table_kept(&group->table.row[row], 0, cross->count, cross->unchanged);
    const uint32_t rest = cross->count - kept,
                   bad = attn__table_first_overflow(&group->table, cross->blocks + kept, rest);
    if (bad < rest)
        return INVALID(err, "cross", "block %lld at index %u does not fit a table of i32",
                       (long long)cross->blocks[kept + bad], kept + bad);
    for (uint32_t i = kept; i < cross->count; i++)
        if (cross->blocks[i] > ATTN__BLOCK_NUMBER_MAX)
            return INVALID(err, "cross", "block %lld at index %u; at most %lld is accepted",
                           (long long)cross->blocks[i], i, (long long)ATTN__BLOCK_NUMBER_MAX);
    return ATTN_OK;
}

int32_t attn__add_check_extras(const struct attn_builder_impl *b, const struct attn_builder_add_args *a,
                               uint32_t row, struct attn_error *err)
{
    if (a->map_count > 0) {
        const int32_t status = check_maps(b, a, err);
        if (status != ATTN_OK)
            return status;
    }
    if (b->cross == NULL)
        return a->encoder_len == 0 && a->cross == NULL
                   ? ATTN_OK
                   : INVALID(
                         err, "encoder_len",
                         "encoder_len is %u; the builder was made without an encoder (max_encoder_tokens)",
                         a->encoder_len);
    const uint64_t tokens = (uint64_t)b->encoder_tokens + a->encoder_len;
    if (tokens > b->params.max_encoder_tokens)
        return attn__fail(err, ATTN_E_SIZE, 0, "max_encoder_tokens",
                          "with this sequence the step has %llu encoder tokens; the builder was made "
                          "for %u",
                          (unsigned long long)tokens, b->params.max_encoder_tokens);
    return a->cross != NULL ? check_cross(b, a, row, err) : ATTN_OK;
}

static void add_map(struct attn_builder_impl *b, const struct attn_index_map *map)
{
    struct attn_step_map *to = &b->whole.step.map[map->modality];
    int64_t *sources = attn__longs(&to->sources), *destinations = attn__longs(&to->destinations);
    const uint64_t at = to->sources.count;

    for (uint32_t i = 0; i < map->count; i++) {
        sources[at + i] = (int64_t)b->map_rows[map->modality] + map->sources[i];
        destinations[at + i] = (int64_t)b->whole.step.prefill_tokens + map->destinations[i];
    }
    to->sources.count = to->destinations.count = at + map->count;
    b->map_rows[map->modality] += map->rows;
}

void attn__add_extras(struct attn_builder_impl *b, const struct attn_builder_add_args *a, uint32_t row)
{
    const struct attn_step *step = &b->whole.step;

    for (uint32_t i = 0; i < a->map_count; i++)
        add_map(b, &a->maps[i]);
    if (b->cross == NULL)
        return;
    struct attn__group *group = b->cross;
    const struct attn_blocks *cross = a->cross;
    const bool list = cross != NULL && cross->kind == ATTN_BLOCKS_LIST;
    int32_t *starts = attn__ints(&step->encoder.seq_starts);

    attn__ints(&step->encoder.seq_lens_list)[step->queries] = (int32_t)a->encoder_len;
    attn__ints(&step->encoder.seq_lens)[step->queries] = (int32_t)a->encoder_len;
    starts[step->queries + 1] = starts[step->queries] + (int32_t)a->encoder_len;
    b->encoder_tokens += a->encoder_len;
    b->max_encoder = a->encoder_len > b->max_encoder ? a->encoder_len : b->max_encoder;
    if (group->params.max_blocks == 0)
        return;
    if (a->prompt == 1) {
        int64_t *slots = attn__longs(&step->encoder.slots) + group->slots;
        const struct attn_slots all =
            list ? attn__slots_unchecked(cross->blocks, true, group->params.block, 0, 0, a->encoder_len)
                 : (struct attn_slots){.masked = a->encoder_len};
        attn__slots_write(&all, slots);
        group->slots += a->encoder_len;
    }
    if (list)
        attn__table_set(&group->table, row, cross->blocks, 0, cross->count, cross->unchanged);
    else
        attn__table_truncate(&group->table, row, 0);
    if (a->prompt == 0 && list && cross->count > group->longest)
        group->longest = cross->count;
}
