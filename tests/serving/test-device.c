/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Steps that are on the device already: what the builder works out there is what a build from lists gives,
 * byte for byte, in host memory and on a device of its own, with batches of every size that is accepted.
 * argv[1]: steps; argv[2]: seed.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "advance.h"
#include "engine.h"

static struct attn_error err;

/* The device's kernel. Copies that came before it are done first. */
static int32_t advance(struct attn_backend_impl *backend, const struct attn_kv_advance_step_args *args,
                       void *stream, struct attn_error *words)
{
    const struct attn_advance arrays = attn__advance_arrays(args);

    (void)backend, (void)stream;
    engine_pass(0);
    const int32_t status = attn__advance_check(&arrays, words);
    if (status == ATTN_OK)
        attn__advance_write(&arrays);
    return status;
}

static const struct attn_kv_table kv = {.struct_size = sizeof kv, .advance_step = advance};

/* What the device would hold: the arrays of a step that was built from lists. */
static void make_batch(const struct engine *e, const struct attn_metadata_impl *built, uint32_t g,
                       struct attn_batch *batch)
{
    const struct attn_step *step = &built->step;
    const struct attn_step_group *group = &step->group[g];

    ATTN_INIT(batch);
    batch->seqs = e->seqs;
    batch->num_tokens = step->num_tokens;
    batch->max_q = step->max_q;
    batch->q_offsets = step->query_starts.device;
    batch->kv_lens = group->seq_lens.device;
    batch->table = group->table.device;
    batch->table_stride = group->table.stride;
    batch->table_width = group->table.width;
    const int32_t *lens = attn__ints(&group->seq_lens);
    for (uint32_t i = step->prefills; i < e->seqs; i++)
        batch->max_kv = batch->max_kv > (uint32_t)lens[i] ? batch->max_kv : (uint32_t)lens[i];
}

/* Null lists and pages behind those in use apart. */
static int equal(struct attn_metadata_impl *want, struct attn_metadata_impl *got)
{
    for (uint32_t g = 0; g < want->step.groups; g++) {
        struct attn_step_group *group = &want->step.group[g];
        group->seq_lens_list.dtype = 0;
        if (group->page_indices.dtype != 0)
            group->page_indices.count = got->step.group[g].page_indices.count =
                (uint64_t)attn__ints(&group->page_starts)[want->step.seqs];
    }
    return engine_equal(want, got, 1);
}

/* `size` of the batches: engines that were compiled before a batch could have a cascade give smaller ones. */
static int32_t run_device(const struct engine *e, struct attn_builder_impl *builder,
                          const struct attn_metadata_impl *built, const int64_t *positions, uint32_t size,
                          struct attn_metadata_impl **out)
{
    struct attn_batch batch[ENGINE_GROUPS];
    const struct attn_batch *batches[ENGINE_GROUPS];
    struct attn_builder_device_args args;

    ATTN_INIT(&args);
    for (uint32_t g = 0; g < e->params.groups; g++) {
        make_batch(e, built, g, &batch[g]);
        batch[g].struct_size = size;
        batches[g] = &batch[g];
    }
    args.batches = batches;
    args.prefills = built->step.prefills;
    args.prompt_tokens = built->step.prefill_tokens;
    args.max_prefill_seq_len = built->step.max_prefill_len;
    for (uint32_t n = built->step.prefills; n < e->seqs; n++)
        if (e->add[n].query_len > args.max_decode_query_len)
            args.max_decode_query_len = e->add[n].query_len;
    args.positions.data = (void *)positions;
    int32_t status = attn_serving_builder.reset(builder, &err);
    if (status == ATTN_OK)
        status = attn_serving_builder.set_device(builder, &args, &err);
    return status == ATTN_OK ? attn_serving_builder.build(builder, &e->build, NULL, out, &err) : status;
}

static const uint32_t sizes[] = {sizeof(struct attn_batch), offsetof(struct attn_batch, cascade)};

static int refuses_size(const struct engine *e, struct attn_builder_impl *builder,
                        const struct attn_metadata_impl *built, const int64_t *positions, uint32_t size)
{
    struct attn_metadata_impl *got = NULL;

    return run_device(e, builder, built, positions, size, &got) == ATTN_E_INVALID &&
           strcmp(err.field, "batches") == 0 && strstr(err.message, "struct_size") != NULL;
}

static int right_positions(const struct engine *e, const int64_t *positions)
{
    for (uint32_t n = 0, row = 0; n < e->seqs; n++)
        for (uint32_t i = 0; i < e->add[n].query_len; i++, row++)
            if (positions[row] != (int64_t)e->add[n].context_len + i)
                return 0;
    return 1;
}

/* Lists without hits or padding, rows that no window has trimmed, decodes of one token: what may be on a
 * device. */
static void make_step(struct engine *e)
{
    do
        engine_step(e);
    while (e->build.graph != 0);
    for (uint32_t n = 0; n < e->seqs; n++) {
        e->add[n].prefix_hit = 0;
        if (e->add[n].prompt == 0)
            e->add[n].query_len = 1;
        for (uint32_t g = 0; g < e->params.groups; g++)
            e->blocks[n][g].computed = e->blocks[n][g].window_blocks = e->blocks[n][g].seq_len = 0;
    }
}

static int run_engine(uint64_t seed, uint32_t steps)
{
    static int64_t positions[1024];
    struct engine e;
    struct attn_builder_impl *host, *here, *there;
    struct attn_metadata_impl *built = NULL, *got = NULL;
    int good = 1;

    engine_init(&e, seed, 1 + (uint32_t)(seed % 4));
    e.params.chunked = 1;
    struct attn_serving_host on = {.struct_size = sizeof on, .device_type = ATTN_DEVICE_CPU};
    int32_t made = attn_serving_builder.create(&on, &e.params, &host, &err);
    on.memory = &engine_memory;
    on.kv = &kv;
    if (made == ATTN_OK)
        made = attn_serving_builder.create(&on, &e.params, &here, &err);
    on.device_type = ATTN_DEVICE_CUDA;
    if (made == ATTN_OK)
        made = attn_serving_builder.create(&on, &e.params, &there, &err);
    if (made != ATTN_OK)
        return 0;
    for (uint32_t i = 0; i < steps && good != 0; i++) {
        make_step(&e);
        int32_t status = engine_run(&e, host, &built, &err);
        if (status == ATTN_OK)
            status = run_device(&e, here, built, positions, sizes[i % 2], &got);
        good = status == ATTN_OK && equal(built, got) && right_positions(&e, positions);
        if (good == 0)
            printf("not ok - in host memory, seed %llu: %s\n", (unsigned long long)seed, err.message);
        memset(positions, 0x5a, sizeof positions);
        status = good != 0 ? run_device(&e, there, built, positions, sizes[i % 2], &got) : status;
        engine_pass(0);
        if (good != 0 && !(status == ATTN_OK && equal(built, got) && right_positions(&e, positions))) {
            printf("not ok - on a device, seed %llu: %s\n", (unsigned long long)seed, err.message);
            good = 0;
        }
    }
    if (good != 0 && !(refuses_size(&e, there, built, positions, 0) &&
                       refuses_size(&e, there, built, positions, 1u << 20))) {
        printf("not ok - batches without a size, seed %llu: %s\n", (unsigned long long)seed, err.message);
        good = 0;
    }
    attn_serving_builder.destroy(host);
    attn_serving_builder.destroy(here);
    attn_serving_builder.destroy(there);
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
    printf("ok - %u random steps, on the device twice\n1..1\n", done);
    return 0;
}
