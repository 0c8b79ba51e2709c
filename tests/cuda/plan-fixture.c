/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Layer classes, drawn or told, and the planning of their steps. */
#include "plan-fixture.h"

#include <stdio.h>
#include <stdlib.h>

static const struct fake_machine good = {.devices = 1, .major = 9, .minor = 0, .version = 12080};

static void must(const struct fixture *fixture, int32_t status)
{
    if (status == ATTN_OK)
        return;
    printf("Bail out! %s: %s\n", fixture->world->err.field, fixture->world->err.message);
    exit(1);
}

static void *room_of(uint64_t size)
{
    void *room = aligned_alloc(256, (size + 511) / 256 * 256);

    if (room == NULL)
        exit(1);
    memset(room, FIXTURE_RUBBISH, size);
    return room;
}

uint32_t fixture_draw(struct fixture *fixture, uint32_t below)
{
    fixture->random = fixture->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(fixture->random >> 33) % below;
}

void fixture_begin(struct fixture *fixture, struct world *world, uint64_t random)
{
    fixture_begin_with(fixture, world, random, 0);
}

void fixture_begin_with(struct fixture *fixture, struct world *world, uint64_t random, uint64_t memory)
{
    const struct attn_device device = device_of(world, 0);
    struct fake_machine machine = good;
    struct attn_open_config config;

    memset(fixture, 0, sizeof *fixture);
    fixture->world = world;
    fixture->random = random;
    ATTN_INIT(&config);
    machine.memory = memory;
    world_begin(world, &machine);
    must(fixture, world->table->open(world->instance, &device, &config, &fixture->backend, &world->err));
    must(fixture, world->table->memory->stream_create(fixture->backend, &fixture->stream, &world->err));
}

void fixture_end(struct fixture *fixture)
{
    struct world *world = fixture->world;

    for (uint32_t i = 0; i < fixture->made_count; i++) {
        world->table->memory->free(fixture->backend, &fixture->made[i]->device);
        world->table->plan->destroy(fixture->made[i]->plan);
        free(fixture->made[i]);
    }
    world->table->memory->stream_destroy(fixture->backend, fixture->stream);
    world->table->close(fixture->backend);
    world_end(world);
}

/* ---------------------------------------------------------------- classes */

struct attn_problem fixture_problem(uint32_t max_q)
{
    struct attn_problem p = world_problem(ATTN_BF16, 8, 2, 64);

    p.addressing = ATTN_DENSE;
    p.block = FIXTURE_KV_LEN;
    p.max_seqs = FIXTURE_SEQS;
    p.max_q = max_q;
    p.max_kv = FIXTURE_KV_LEN;
    p.max_rows = FIXTURE_SEQS * FIXTURE_Q_LEN;
    return p;
}

struct attn_problem fixture_draw_problem(struct fixture *fixture)
{
    struct attn_problem p = fixture_problem(fixture_draw(fixture, 3) == 0 ? 1 : FIXTURE_Q_LEN);

    if (fixture_draw(fixture, 4) == 0) {
        p.mla = p.kv_heads = 1;
        p.head_dim = 576;
        p.head_dim_vo = 512;
        p.heads = fixture_draw(fixture, 2) == 0 ? 16 : 3;
    }
    if (fixture_draw(fixture, 3) == 0)
        p.causal = ATTN_CAUSAL_NO;
    if (fixture_draw(fixture, 4) == 0)
        p.align = ATTN_ALIGN_START;
    if (fixture_draw(fixture, 3) == 0) {
        p.given |= ATTN_GIVEN_WINDOW_LEFT;
        p.window_left = (int32_t)fixture_draw(fixture, 400);
    }
    if (fixture_draw(fixture, 4) == 0) {
        p.given |= ATTN_GIVEN_WINDOW_RIGHT;
        p.window_right = (int32_t)fixture_draw(fixture, 300);
    }
    if (fixture_draw(fixture, 6) == 0) {
        p.mask = ATTN_MASK_BITS;
        p.span = fixture_draw(fixture, 2) == 0 ? ATTN_SPAN_SQUARE : ATTN_SPAN_FULL;
    }
    if (p.mla == 0 && fixture_draw(fixture, 3) == 0) { /* keys of long prefills are converted */
        p.k_dtype = p.v_dtype = ATTN_E4M3;
        p.k_scale = p.v_scale = ATTN_SCALES_UNIT;
    }
    p.kv_source = 1 + fixture_draw(fixture, 3);
    p.seq_causal = fixture_draw(fixture, 4) == 0;
    p.positions = fixture_draw(fixture, 6) == 0;
    p.det = fixture_draw(fixture, 3) == 0;
    p.cp = p.kv_source == ATTN_KV_CACHE && fixture_draw(fixture, 3) == 0;
    return p;
}

struct fixture_class *fixture_add(struct fixture *fixture, const struct attn_problem *problem)
{
    struct world *world = fixture->world;
    struct fixture_class *own = calloc(1, sizeof *own);

    if (own == NULL)
        exit(1);
    own->problem = *problem;
    must(fixture, world->table->plan->create(fixture->backend, problem, &own->plan, &world->err));
    ATTN_INIT(&own->sizes);
    must(fixture, world->table->plan->sizes(own->plan, &own->sizes));
    must(fixture,
         world->table->memory->alloc(fixture->backend, sizeof own->arrays, &own->device, &world->err));
    ATTN_INIT(&own->batch);
    fixture->made[fixture->made_count++] = own;
    fixture->step[fixture->count++] = own;
    return own;
}

/* ---------------------------------------------------------------- steps */

void fixture_add_sequence(struct fixture_class *own, uint32_t q_len, uint32_t keys, bool causal)
{
    const uint32_t i = own->batch.seqs++, rest = keys % 32;
    uint32_t here = keys;

    if (own->problem.kv_source == ATTN_KV_CACHE_NEW)
        here = keys + q_len;
    if (own->problem.cp != 0) /* rank 1 of 2, by 16 */
        here = keys / 32 * 16 + (rest > 16 ? rest - 16 : 0);
    own->arrays.q_offsets[i + 1] = own->arrays.q_offsets[i] + (int32_t)q_len;
    own->arrays.global_lens[i] = (int32_t)keys;
    own->arrays.kv_lens[i] = (int32_t)here;
    own->arrays.kv_offsets[i + 1] = own->arrays.kv_offsets[i] + (int32_t)here;
    own->arrays.seq_causal[i] = causal;
}

void fixture_set_batch(struct fixture *fixture, struct fixture_class *own, uint32_t max_q)
{
    const struct attn_problem *p = &own->problem;
    const struct attn_buffer from = {&own->arrays, 0};
    struct attn_batch *batch = &own->batch;

    ATTN_INIT(&own->host);
    batch->num_tokens = (uint32_t)own->arrays.q_offsets[batch->seqs];
    batch->max_q = max_q;
    batch->max_kv = FIXTURE_KV_LEN;
    batch->host = &own->host;
#define GIVE(member, array)                                                                                  \
    do {                                                                                                     \
        batch->member = (struct attn_buffer){own->device.data,                                               \
                                             (uint64_t)((char *)own->arrays.array - (char *)&own->arrays)};  \
        own->host.member = own->arrays.array;                                                                \
    } while (0)
    GIVE(q_offsets, q_offsets);
    if (p->kv_source == ATTN_KV_NEW)
        GIVE(kv_offsets, kv_offsets);
    else
        GIVE(kv_lens, kv_lens);
    if (p->addressing == ATTN_TABLE)
        GIVE(table, entries);
    if (p->addressing == ATTN_CSR)
        GIVE(csr_indptr, indptr);
    if (p->addressing == ATTN_CSR && p->index_dtype == ATTN_INT64)
        GIVE(csr_indices, wide);
    else if (p->addressing == ATTN_CSR)
        GIVE(csr_indices, entries);
    if (p->positions != 0)
        GIVE(q_positions, positions);
    if (p->seq_causal != 0)
        GIVE(seq_causal, seq_causal);
    if (p->cp != 0) {
        GIVE(kv_global_lens, global_lens);
        batch->cp_rank = 1;
        batch->cp_world = 2;
        batch->cp_interleave = 16;
    }
#undef GIVE
    must(fixture,
         fixture->world->table->memory->copy(fixture->backend, &own->device, &from, sizeof own->arrays,
                                             ATTN_COPY_TO_DEVICE, fixture->stream, &fixture->world->err));
}

/* Sequences of one query, of few or of all numbers; the bound is exact, or that of the plan. */
void fixture_draw_batch(struct fixture *fixture, struct fixture_class *own)
{
    const uint32_t seqs =
        fixture_draw(fixture, 5) == 0 ? FIXTURE_SEQS - fixture_draw(fixture, 100) : fixture_draw(fixture, 40);
    const uint32_t most = fixture_draw(fixture, 2) == 0   ? 1
                          : fixture_draw(fixture, 2) == 0 ? 12
                                                          : FIXTURE_Q_LEN;
    uint32_t max_q = 0;

    for (uint32_t i = 0; i < seqs; i++) {
        uint32_t q_len = most == 1 ? 1 : fixture_draw(fixture, most + 1);
        q_len = q_len < own->problem.max_q ? q_len : own->problem.max_q;
        max_q = q_len > max_q ? q_len : max_q;
        fixture_add_sequence(own, q_len, fixture_draw(fixture, FIXTURE_KV_LEN - FIXTURE_Q_LEN),
                             fixture_draw(fixture, 2) == 0);
    }
    fixture_set_batch(fixture, own, fixture_draw(fixture, 3) == 0 ? own->problem.max_q : max_q);
}

/* ---------------------------------------------------------------- planning */

uint64_t fixture_bytes(const struct fixture *fixture)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < fixture->count; i++)
        bytes += fixture->step[i]->sizes.schedule;
    return bytes;
}

int32_t fixture_plan(struct fixture *fixture, uint64_t hosts, unsigned char *out)
{
    const struct attn_memory_table *memory = fixture->world->table->memory;
    const struct attn_plan_impl *plans[FIXTURE_CLASSES];
    const struct attn_batch *batches[FIXTURE_CLASSES];
    struct attn_span schedules[FIXTURE_CLASSES], staging = {{NULL, 0}, fixture_bytes(fixture)};
    struct attn_batch given[FIXTURE_CLASSES];
    struct attn_buffer block, to = {out, 0};
    uint64_t offset = 0;

    staging.buffer.data = room_of(staging.size);
    must(fixture,
         memory->alloc(fixture->backend, staging.size + 1, &block, &fixture->world->err)); /* holds rubbish */
    for (uint32_t i = 0; i < fixture->count; i++) {
        const struct fixture_class *own = fixture->step[i];
        given[i] = own->batch;
        given[i].given = (hosts >> i & 1) != 0 ? ATTN_GIVEN_HOST_COPIES : 0;
        plans[i] = own->plan;
        batches[i] = &given[i];
        schedules[i] = (struct attn_span){{block.data, offset}, own->sizes.schedule};
        offset += own->sizes.schedule;
    }
    const int32_t status = fixture->world->table->plan->prepare_many(
        plans, batches, schedules, fixture->count, &staging, fixture->stream, &fixture->world->err);
    if (status == ATTN_OK)
        must(fixture, memory->copy(fixture->backend, &to, &block, staging.size, ATTN_COPY_TO_HOST,
                                   fixture->stream, &fixture->world->err));
    memory->free(fixture->backend, &block);
    free(staging.buffer.data);
    return status;
}
