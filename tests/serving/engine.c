/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The make-believe engine: random steps, and the comparison. */
#include <stdio.h>

#include "engine.h"

uint64_t engine_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void engine_init(struct engine *e, uint64_t seed, uint32_t flavour)
{
    memset(e, 0, sizeof *e);
    e->seed = seed;
    ATTN_INIT(&e->params);
    e->params.flavour = flavour;
    e->params.groups = 1 + engine_below(&e->seed, ENGINE_GROUPS);
    e->params.chunked = engine_below(&e->seed, 2);
    e->params.group = e->group;
    e->params.max_seqs = ENGINE_ROWS;
    e->params.max_tokens = 1024;
    e->params.index_dtype = engine_below(&e->seed, 2) != 0 ? ATTN_INT64 : ATTN_INT32;
    for (uint32_t g = 0; g < ENGINE_GROUPS; g++) {
        e->group[g].block = (uint32_t[]){1, 8, 16, 5}[engine_below(&e->seed, 4)];
        e->group[g].max_blocks = ENGINE_BLOCKS;
        e->group[g].graph_blocks = 1 + engine_below(&e->seed, ENGINE_BLOCKS);
        if (engine_below(&e->seed, 2) != 0) {
            e->group[g].given = ATTN_GIVEN_WINDOW;
            e->group[g].window = engine_below(&e->seed, 20);
        }
    }
}

static int64_t random_block(struct engine *e)
{
    const uint32_t kind = engine_below(&e->seed, 20);

    if (kind == 0)
        return -1 - (int64_t)engine_below(&e->seed, 3);
    return e->params.index_dtype == ATTN_INT64
               ? (int64_t)(engine_random(&e->seed) & ((UINT64_C(1) << 40) - 1)) + (kind == 1)
               : (int64_t)engine_below(&e->seed, UINT32_C(0x7fffffff));
}

/* The list of a row goes on, or belongs to another sequence now. */
static void change_list(struct engine *e, struct engine_list *list, uint32_t least)
{
    const uint32_t fate = engine_below(&e->seed, 6);

    if (fate == 0)
        list->count = 0;
    else if (fate == 1 && list->count > 0)
        list->blocks[engine_below(&e->seed, list->count)] = random_block(e);
    else if (fate == 2 && list->count > least)
        list->count--;
    const uint32_t more = engine_below(&e->seed, 2);
    const uint32_t most = list->count + more < ENGINE_BLOCKS ? list->count + more : ENGINE_BLOCKS;
    while (list->count < (most > least ? most : least))
        list->blocks[list->count++] = random_block(e);
}

static void fill_blocks(struct engine *e, uint32_t n, uint32_t g)
{
    const struct attn_builder_add_args *add = &e->add[n];
    struct engine_list *list = &e->lists[e->first_row + n][g];
    struct attn_blocks *blocks = &e->blocks[n][g];
    const uint32_t seq_len = add->context_len + add->query_len, block = e->group[g].block;

    change_list(e, list, (seq_len + block - 1) / block);
    *blocks = (struct attn_blocks){.kind = ATTN_BLOCKS_LIST, .count = list->count, .blocks = list->blocks};
    if (add->prefix_hit != 0)
        blocks->computed = engine_below(&e->seed, list->count + 1);
    if (add->prompt == 0 && engine_below(&e->seed, 2) != 0) {
        blocks->window_blocks = 1 + engine_below(&e->seed, 4);
        blocks->seq_len = 1 + engine_below(&e->seed, seq_len);
    }
}

void engine_step(struct engine *e)
{
    const uint32_t graph = engine_below(&e->seed, 3) == 0;
    const uint32_t prompts = engine_below(&e->seed, 4);
    uint32_t shortest = 1024;

    for (uint32_t g = 0; g < e->params.groups; g++)
        shortest = e->group[g].block < shortest ? e->group[g].block : shortest;
    e->seqs = 1 + engine_below(&e->seed, ENGINE_ROWS);
    e->first_row = graph != 0 ? 0 : engine_below(&e->seed, ENGINE_ROWS - e->seqs + 1);
    ATTN_INIT(&e->build);
    e->build.graph = graph;
    e->build.pad = graph != 0 ? engine_below(&e->seed, ENGINE_ROWS - e->seqs + 1) : 0;
    for (uint32_t n = 0; n < e->seqs; n++) {
        struct attn_builder_add_args *add = &e->add[n];
        const uint32_t longest = shortest * ENGINE_BLOCKS;
        ATTN_INIT(add);
        add->given = ATTN_GIVEN_ROW;
        add->row = e->first_row + n;
        add->prompt = n < prompts;
        add->query_len = add->prompt != 0 || e->params.flavour == ATTN_FLASH_ATTN
                             ? 1 + engine_below(&e->seed, longest)
                             : 1;
        add->context_len = engine_below(&e->seed, longest - add->query_len + 1);
        add->prefix_hit = add->prompt != 0 && engine_below(&e->seed, 4) == 0;
        add->blocks = e->blocks[n];
        for (uint32_t g = 0; g < e->params.groups; g++)
            fill_blocks(e, n, g);
    }
}

void engine_say_unchanged(struct engine *e)
{
    for (uint32_t n = 0; n < e->seqs; n++)
        for (uint32_t g = 0; g < e->params.groups; g++) {
            struct engine_list *list = &e->lists[e->first_row + n][g];
            uint32_t same = 0;
            while (same < list->count && same < list->added_count && list->blocks[same] == list->added[same])
                same++;
            e->blocks[n][g].unchanged = same;
            memcpy(list->added, list->blocks, sizeof list->added);
            list->added_count = list->count;
        }
}

int32_t engine_run(const struct engine *e, struct attn_builder_impl *builder, struct attn_metadata_impl **out,
                   struct attn_error *err)
{
    int32_t status = attn_serving_builder.reset(builder, err);

    for (uint32_t n = 0; n < e->seqs && status == ATTN_OK; n++)
        status = attn_serving_builder.add(builder, &e->add[n], err);
    return status == ATTN_OK ? attn_serving_builder.build(builder, &e->build, NULL, out, err) : status;
}

static int equal_values(const struct attn_view *a, const struct attn_view *b, const char *name, int device)
{
    const uint64_t size = a->dtype == ATTN_INT64 ? 8 : 4, rows = a->rank == 2 ? a->shape[0] : 1;
    const uint64_t row = a->rank == 2 ? a->shape[1] * size : a->shape[0] * size;
    const char *other = device != 0 && b->kind == ATTN_VIEW_ARRAY
                            ? (const char *)b->device.data + b->device.byte_offset
                            : (const char *)b->host;

    for (uint64_t i = 0; i < rows && row > 0; i++)
        if (memcmp((const char *)a->host + (int64_t)i * a->stride, other + (int64_t)i * b->stride, row) !=
            0) {
            printf("# %s differs in row %llu\n", name, (unsigned long long)i);
            return 0;
        }
    return 1;
}

static struct attn_view view_of(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index)
{
    struct attn_view view;
    struct attn_error err;

    ATTN_INIT(&view);
    ATTN_INIT(&err);
    (void)attn_serving_builder.get(metadata, field, index, &view, &err);
    return view;
}

int engine_equal(const struct attn_metadata_impl *a, const struct attn_metadata_impl *b, int device)
{
    for (uint32_t f = 1; f < ATTN_FIELDS; f++)
        for (uint32_t g = 0; g < attn__field_count(&a->step, f); g++) {
            const struct attn_view x = view_of(a, f, g), y = view_of(b, f, g);
            const char *name = attn__field_name(f);
            if (x.kind != y.kind || x.dtype != y.dtype || x.rank != y.rank || x.value != y.value ||
                (x.kind > ATTN_VIEW_NUMBER && x.shape[0] != y.shape[0]) ||
                (x.rank == 2 && x.shape[1] != y.shape[1])) {
                printf("# %s[%u]: %u %lld [%llu, %llu], %u %lld [%llu, %llu]\n", name, g, x.kind,
                       (long long)x.value, (unsigned long long)x.shape[0], (unsigned long long)x.shape[1],
                       y.kind, (long long)y.value, (unsigned long long)y.shape[0],
                       (unsigned long long)y.shape[1]);
                return 0;
            }
            if (x.kind > ATTN_VIEW_NUMBER && !equal_values(&x, &y, name, device))
                return 0;
        }
    return 1;
}

int engine_equal_late(const struct attn_metadata_impl *want, const struct attn_builder_impl *builder)
{
    for (uint32_t f = 1; f < ATTN_FIELDS; f++)
        for (uint32_t g = 0; g < attn__field_count(&want->step, f); g++) {
            const struct attn_view x = view_of(want, f, g);
            struct attn_view y = x;
            if (x.kind != ATTN_VIEW_ARRAY)
                continue;
            y.device = view_of(&builder->whole, f, g).device;
            if (f == ATTN_FIELD_BLOCK_TABLES) {
                const struct attn__table *table = &builder->group[g].table;
                y.device = table->device;
                y.device.byte_offset += (uint64_t)want->step.first_row * (uint64_t)table->device_stride;
                y.stride = table->device_stride;
            }
            if (!equal_values(&x, &y, attn__field_name(f), 1))
                return 0;
        }
    return 1;
}

int engine_is_clean(const struct engine *e, const struct attn_metadata_impl *built)
{
    for (uint32_t g = 0; g < e->params.groups; g++) {
        const struct attn_step_array *table = &built->step.group[g].table;
        for (uint64_t row = 0; row < table->count; row++) {
            const char *at = (const char *)table->host + (int64_t)row * table->stride;
            const uint64_t own = row < e->seqs ? e->blocks[row][g].count : 0;
            for (uint64_t i = own; i < table->width; i++) {
                const int64_t cell = table->dtype == ATTN_INT64 ? ((const int64_t *)(const void *)at)[i]
                                                                : ((const int32_t *)(const void *)at)[i];
                if (cell != 0) {
                    printf("# block_tables[%llu][%llu] is not 0\n", (unsigned long long)row,
                           (unsigned long long)i);
                    return 0;
                }
            }
        }
    }
    return 1;
}
