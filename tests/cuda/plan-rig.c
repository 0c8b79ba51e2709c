/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Layer classes, drawn or told, and the planning of their steps. */
#include "plan-rig.h"

#include <stdio.h>
#include <stdlib.h>

static const struct fake_machine good = {.devices = 1, .major = 9, .minor = 0, .version = 12080};

static void must(const struct rig *rig, int32_t status)
{
    if (status == ATTN_OK)
        return;
    printf("Bail out! %s: %s\n", rig->world->err.field, rig->world->err.message);
    exit(1);
}

static void *room_of(uint64_t size)
{
    void *room = aligned_alloc(256, (size + 511) / 256 * 256);

    if (room == NULL)
        exit(1);
    memset(room, RIG_RUBBISH, size);
    return room;
}

uint32_t rig_draw(struct rig *rig, uint32_t below)
{
    rig->random = rig->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(rig->random >> 33) % below;
}

void rig_begin(struct rig *rig, struct world *world, uint64_t random)
{
    const struct attn_device device = device_of(world, 0);
    struct attn_open_config config;

    memset(rig, 0, sizeof *rig);
    rig->world = world;
    rig->random = random;
    ATTN_INIT(&config);
    world_begin(world, &good);
    must(rig, world->table->open(world->instance, &device, &config, &rig->backend, &world->err));
    must(rig, world->table->memory->stream_create(rig->backend, &rig->stream, &world->err));
}

void rig_end(struct rig *rig)
{
    struct world *world = rig->world;

    for (uint32_t i = 0; i < rig->made_count; i++) {
        world->table->memory->free(rig->backend, &rig->made[i]->device);
        world->table->plan->destroy(rig->made[i]->plan);
        free(rig->made[i]);
    }
    world->table->memory->stream_destroy(rig->backend, rig->stream);
    world->table->close(rig->backend);
    world_end(world);
}

/* ---------------------------------------------------------------- classes */

struct attn_problem rig_problem(uint32_t max_q)
{
    struct attn_problem p = world_problem(ATTN_BF16, 8, 2, 64);

    p.addressing = ATTN_DENSE;
    p.block = RIG_KV_LEN;
    p.max_seqs = RIG_SEQS;
    p.max_q = max_q;
    p.max_kv = RIG_KV_LEN;
    p.max_rows = RIG_SEQS * RIG_Q_LEN;
    return p;
}

struct attn_problem rig_draw_problem(struct rig *rig)
{
    struct attn_problem p = rig_problem(rig_draw(rig, 3) == 0 ? 1 : RIG_Q_LEN);

    if (rig_draw(rig, 4) == 0) {
        p.mla = p.kv_heads = 1;
        p.head_dim = 576;
        p.head_dim_vo = 512;
        p.heads = rig_draw(rig, 2) == 0 ? 16 : 3;
    }
    if (rig_draw(rig, 3) == 0)
        p.causal = ATTN_CAUSAL_NO;
    if (rig_draw(rig, 4) == 0)
        p.align = ATTN_ALIGN_START;
    if (rig_draw(rig, 3) == 0) {
        p.given |= ATTN_GIVEN_WINDOW_LEFT;
        p.window_left = (int32_t)rig_draw(rig, 400);
    }
    if (rig_draw(rig, 4) == 0) {
        p.given |= ATTN_GIVEN_WINDOW_RIGHT;
        p.window_right = (int32_t)rig_draw(rig, 300);
    }
    if (rig_draw(rig, 6) == 0) {
        p.mask = ATTN_MASK_BITS;
        p.span = rig_draw(rig, 2) == 0 ? ATTN_SPAN_SQUARE : ATTN_SPAN_FULL;
    }
    p.kv_source = 1 + rig_draw(rig, 3);
    p.seq_causal = rig_draw(rig, 4) == 0;
    p.positions = rig_draw(rig, 6) == 0;
    p.det = rig_draw(rig, 3) == 0;
    p.cp = p.kv_source == ATTN_KV_CACHE && rig_draw(rig, 3) == 0;
    return p;
}

struct rig_class *rig_add(struct rig *rig, const struct attn_problem *problem)
{
    struct world *world = rig->world;
    struct rig_class *own = calloc(1, sizeof *own);

    if (own == NULL)
        exit(1);
    own->problem = *problem;
    must(rig, world->table->plan->create(rig->backend, problem, &own->plan, &world->err));
    ATTN_INIT(&own->sizes);
    must(rig, world->table->plan->sizes(own->plan, &own->sizes));
    must(rig, world->table->memory->alloc(rig->backend, sizeof own->arrays, &own->device, &world->err));
    ATTN_INIT(&own->batch);
    rig->made[rig->made_count++] = own;
    rig->step[rig->count++] = own;
    return own;
}

/* ---------------------------------------------------------------- steps */

void rig_add_sequence(struct rig_class *own, uint32_t q_len, uint32_t keys, bool causal)
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

void rig_set_batch(struct rig *rig, struct rig_class *own, uint32_t max_q)
{
    const struct attn_problem *p = &own->problem;
    const struct attn_buffer from = {&own->arrays, 0};
    struct attn_batch *batch = &own->batch;

    ATTN_INIT(&own->host);
    batch->rows = (uint32_t)own->arrays.q_offsets[batch->seqs];
    batch->max_q = max_q;
    batch->max_kv = RIG_KV_LEN;
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
    must(rig, rig->world->table->memory->copy(rig->backend, &own->device, &from, sizeof own->arrays,
                                              ATTN_COPY_TO_DEVICE, rig->stream, &rig->world->err));
}

/* Sequences of one query, of few or of all numbers; the bound is exact, or that of the plan. */
void rig_draw_batch(struct rig *rig, struct rig_class *own)
{
    const uint32_t seqs = rig_draw(rig, 5) == 0 ? RIG_SEQS - rig_draw(rig, 100) : rig_draw(rig, 40);
    const uint32_t most = rig_draw(rig, 2) == 0 ? 1 : rig_draw(rig, 2) == 0 ? 12 : RIG_Q_LEN;
    uint32_t max_q = 0;

    for (uint32_t i = 0; i < seqs; i++) {
        uint32_t q_len = most == 1 ? 1 : rig_draw(rig, most + 1);
        q_len = q_len < own->problem.max_q ? q_len : own->problem.max_q;
        max_q = q_len > max_q ? q_len : max_q;
        rig_add_sequence(own, q_len, rig_draw(rig, RIG_KV_LEN - RIG_Q_LEN), rig_draw(rig, 2) == 0);
    }
    rig_set_batch(rig, own, rig_draw(rig, 3) == 0 ? own->problem.max_q : max_q);
}

/* ---------------------------------------------------------------- planning */

uint64_t rig_bytes(const struct rig *rig)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < rig->count; i++)
        bytes += rig->step[i]->sizes.schedule;
    return bytes;
}

int32_t rig_plan(struct rig *rig, uint64_t hosts, unsigned char *out)
{
    const struct attn_memory_table *memory = rig->world->table->memory;
    const struct attn_plan_impl *plans[RIG_CLASSES];
    const struct attn_batch *batches[RIG_CLASSES];
    struct attn_span schedules[RIG_CLASSES], staging = {{NULL, 0}, rig_bytes(rig)};
    struct attn_batch given[RIG_CLASSES];
    struct attn_buffer block, to = {out, 0};
    uint64_t offset = 0;

    staging.buffer.data = room_of(staging.size);
    must(rig, memory->alloc(rig->backend, staging.size + 1, &block, &rig->world->err)); /* holds rubbish */
    for (uint32_t i = 0; i < rig->count; i++) {
        const struct rig_class *own = rig->step[i];
        given[i] = own->batch;
        given[i].given = (hosts >> i & 1) != 0 ? ATTN_GIVEN_HOST_COPIES : 0;
        plans[i] = own->plan;
        batches[i] = &given[i];
        schedules[i] = (struct attn_span){{block.data, offset}, own->sizes.schedule};
        offset += own->sizes.schedule;
    }
    const int32_t status = rig->world->table->plan->prepare_many(plans, batches, schedules, rig->count,
                                                                 &staging, rig->stream, &rig->world->err);
    if (status == ATTN_OK)
        must(rig, memory->copy(rig->backend, &to, &block, staging.size, ATTN_COPY_TO_HOST, rig->stream,
                               &rig->world->err));
    memory->free(rig->backend, &block);
    free(staging.buffer.data);
    return status;
}
