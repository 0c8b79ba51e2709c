/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Properties of builders over random steps: rows that outlive steps, rows that were changed cell by cell, and
 * arrays on a device all give what building anew in host memory gives. argv[1]: steps; argv[2]: seed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static struct attn_error err;

/* Tables of the engine's own on the device, with rows further apart than they have to be. */
struct tables {
    struct attn_buffer buffer[ENGINE_GROUPS];
};

static void make_tables(struct engine *e, struct tables *tables, struct attn_builder_group *group)
{
    const uint64_t cell = e->params.index_dtype == ATTN_INT64 ? 8 : 4;

    for (uint32_t g = 0; g < e->params.groups; g++) {
        const uint64_t row = group[g].max_blocks * cell, stride = row + cell * engine_below(&e->seed, 4);
        group[g].table_stride = (int64_t)stride;
        group[g].table.size = stride * (e->params.max_seqs - 1) + row;
        if (engine_memory.alloc(NULL, group[g].table.size, &tables->buffer[g], &err) != ATTN_OK)
            exit(1);
        group[g].table.buffer = tables->buffer[g];
    }
}

static void free_tables(const struct engine *e, const struct tables *tables)
{
    for (uint32_t g = 0; g < e->params.groups; g++)
        if (tables->buffer[g].data != NULL)
            engine_memory.free(NULL, &tables->buffer[g]);
}

/* With `tables` the builder adopts those that are made there. */
static struct attn_builder_impl *create(struct engine *e, const struct attn_memory_table *memory,
                                        uint32_t device, uint32_t steps, struct tables *tables)
{
    struct attn_builder_params params = e->params;
    struct attn_builder_group group[ENGINE_GROUPS];
    struct attn_builder_impl *builder;

    params.steps = steps;
    memcpy(group, e->group, sizeof group);
    params.group = group;
    if (tables != NULL)
        make_tables(e, tables, group);
    const struct attn_serving_host host = {
        .struct_size = sizeof host, .device_type = device, .memory = memory};
    if (attn_serving_builder.create(&host, &params, &builder, &err) != ATTN_OK) {
        printf("Bail out! create: %s\n", err.message);
        exit(1);
    }
    return builder;
}

/* The step with lists that lack blocks, and have some wrong ones, until set_row says better. */
static int32_t run_changed(struct engine *e, struct attn_builder_impl *builder,
                           struct attn_metadata_impl **out)
{
    int64_t wrong[ENGINE_ROWS][ENGINE_GROUPS][ENGINE_BLOCKS];
    struct attn_blocks blocks[ENGINE_ROWS][ENGINE_GROUPS];
    const bool built = engine_below(&e->seed, 2) != 0;
    int32_t status = attn_serving_builder.reset(builder, &err);

    for (uint32_t n = 0; n < e->seqs && status == ATTN_OK; n++) {
        struct attn_builder_add_args add = e->add[n];
        for (uint32_t g = 0; g < e->params.groups; g++) {
            blocks[n][g] = e->blocks[n][g];
            blocks[n][g].unchanged = 0;
            blocks[n][g].blocks =
                memcpy(wrong[n][g], e->lists[e->first_row + n][g].blocks, sizeof wrong[n][g]);
            if (e->params.flavour == ATTN_FLASH_ATTN && e->params.chunked == 0 && add.prompt != 0 &&
                add.prefix_hit == 0)
                continue; /* set_row is refused: the row shows nothing yet */
            const uint32_t least =
                (add.context_len + add.query_len + e->group[g].block - 1) / e->group[g].block;
            if (blocks[n][g].count > least && engine_below(&e->seed, 2) != 0 &&
                blocks[n][g].computed < blocks[n][g].count)
                blocks[n][g].count--;
            const uint32_t bad = engine_below(&e->seed, blocks[n][g].count);
            if (blocks[n][g].computed <= bad)
                wrong[n][g][bad] = 77;
        }
        add.blocks = blocks[n];
        status = attn_serving_builder.add(builder, &add, &err);
    }
    if (status == ATTN_OK && built)
        status = attn_serving_builder.build(builder, &e->build, NULL, out, &err);
    for (uint32_t i = 0; i < e->seqs * e->params.groups && status == ATTN_OK; i++) {
        const uint32_t n = i / e->params.groups, g = i % e->params.groups;
        const struct engine_list *list = &e->lists[e->first_row + n][g];
        struct attn_builder_row_args row;
        uint32_t first = 0;
        while (first < blocks[n][g].count && wrong[n][g][first] == list->blocks[first])
            first++;
        ATTN_INIT(&row);
        row.group = g;
        row.row = e->first_row + n;
        row.first = first;
        row.count = list->count - first;
        row.blocks = list->blocks + first;
        status = row.count == 0 ? ATTN_OK : attn_serving_builder.set_row(builder, &row, &err);
    }
    return status == ATTN_OK ? attn_serving_builder.build(builder, &e->build, NULL, out, &err) : status;
}

/* Rows are written between steps, and the adds take them as they stand. */
static int32_t run_rows(struct engine *e, struct attn_builder_impl *builder, struct attn_metadata_impl **out)
{
    struct attn_blocks blocks[ENGINE_ROWS][ENGINE_GROUPS];
    int32_t status = attn_serving_builder.reset(builder, &err);

    for (uint32_t i = 0; i < e->seqs * e->params.groups && status == ATTN_OK; i++) {
        const uint32_t n = i / e->params.groups, g = i % e->params.groups;
        const struct engine_list *list = &e->lists[e->first_row + n][g];
        const struct attn__table_row *state = &builder->group[g].table.row[e->first_row + n];
        struct attn_builder_row_args row;
        ATTN_INIT(&row);
        row.group = g;
        row.row = e->first_row + n;
        row.count = list->count;
        row.blocks = list->blocks;
        if (state->start == 0)
            status = attn_serving_builder.set_row(builder, &row, &err);
    }
    for (uint32_t n = 0; n < e->seqs && status == ATTN_OK; n++) {
        struct attn_builder_add_args add = e->add[n];
        for (uint32_t g = 0; g < e->params.groups; g++) {
            const struct attn__table_row *state = &builder->group[g].table.row[e->first_row + n];
            const bool whole = add.prefix_hit != 0
                                   ? builder->params.flavour != ATTN_FLASHINFER
                                   : (add.prompt == 0 || builder->params.chunked != 0) &&
                                         (e->blocks[n][g].window_blocks == 0 ||
                                          e->blocks[n][g].window_blocks >= e->blocks[n][g].count);
            blocks[n][g] = e->blocks[n][g];
            blocks[n][g].unchanged = 0;
            if (whole && state->start == 0) {
                blocks[n][g].kind = ATTN_BLOCKS_ROW;
                blocks[n][g].blocks = NULL;
            }
        }
        add.blocks = blocks[n];
        status = attn_serving_builder.add(builder, &add, &err);
    }
    return status == ATTN_OK ? attn_serving_builder.build(builder, &e->build, NULL, out, &err) : status;
}

static int judge(int32_t status, const struct attn_metadata_impl *want, const struct attn_metadata_impl *got,
                 int device, const char *what, uint64_t seed)
{
    if (status == ATTN_OK && engine_equal(want, got, device))
        return 1;
    printf("not ok - %s, seed %llu: %s\n", what, (unsigned long long)seed,
           status != ATTN_OK ? err.message : "");
    return 0;
}

/* One engine for some steps. */
static int run_engine(uint64_t seed, uint32_t steps)
{
    struct engine e;
    engine_init(&e, seed, 1 + (uint32_t)(seed % 4));
    struct tables tables[2] = {0};
    const bool adopted = seed / 4 % 2 != 0;
    struct attn_builder_impl *const fresh[] = {create(&e, NULL, ATTN_DEVICE_CPU, 1, NULL),
                                               create(&e, NULL, ATTN_DEVICE_CPU, 1, NULL)};
    struct attn_builder_impl *rows =
        create(&e, &engine_memory, ATTN_DEVICE_CPU, 1, adopted ? &tables[0] : NULL);
    struct attn_builder_impl *device =
        create(&e, &engine_memory, ATTN_DEVICE_CUDA, 2, adopted ? &tables[1] : NULL);
    struct attn_builder_impl *changed = create(&e, NULL, ATTN_DEVICE_CPU, 1, NULL);
    struct attn_builder_impl *stand = create(&e, NULL, ATTN_DEVICE_CPU, 1, NULL);
    struct attn_metadata_impl *want = NULL, *got = NULL, *before;
    int good = 1;

    for (uint32_t i = 0; i < steps && good != 0; i++) {
        engine_step(&e);
        before = want;
        int32_t status = engine_run(&e, fresh[i % 2], &want, &err);
        good = judge(status, want, want, 0, "built anew", seed) && engine_is_clean(&e, want);
        if (good == 0)
            break;
        status = run_changed(&e, changed, &got);
        good = judge(status, want, got, 0, "changed by set_row", seed);
        status = run_rows(&e, stand, &got);
        good = good != 0 && judge(status, want, got, 0, "rows as they stand", seed);
        engine_say_unchanged(&e);
        status = engine_run(&e, rows, &got, &err);
        good = good != 0 && judge(status, want, got, 1, "rows that outlive steps", seed);
        status = engine_run(&e, device, &got, &err);
        /* Copies of this step still wait, but for every third step. */
        engine_pass(i % 3 == 2 ? 0 : 1);
        good = good != 0 && judge(status, want, got, i % 3 == 2, "on a device", seed);
        if (good != 0 && i % 3 == 1 && !engine_equal_late(before, device))
            good = judge(ATTN_E_STATE, want, got, 0, "the step before on a device", seed);
    }
    engine_pass(0);
    struct attn_builder_impl *const all[] = {fresh[0], fresh[1], rows, device, changed, stand};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        attn_serving_builder.destroy(all[i]);
    free_tables(&e, &tables[0]);
    free_tables(&e, &tables[1]);
    return good;
}

int main(int argc, char **argv)
{
    const uint32_t steps = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4000, each = 40;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint32_t done = 0;

    ATTN_INIT(&err);
    for (uint64_t i = 0; done < steps; i++, done += each)
        if (run_engine(seed + i, each) == 0)
            return 1;
    printf("ok - %u random steps, built five ways\n1..1\n", done);
    return 0;
}
