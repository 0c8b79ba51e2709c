/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Moves marks instead of keys, and counts owners. */
#include "shadow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 31);
}

static uint64_t mark(const int32_t *tokens, uint32_t last)
{
    uint64_t hash = 1;
    for (uint32_t i = 0; i <= last; i++)
        hash = mix(hash, (uint64_t)tokens[i] + 1);
    return hash;
}

int shadow_init(struct shadow *shadow, const struct scheduler *s)
{
    const struct scheduler_options *o = &s->options;
    *shadow = (struct shadow){.scheduler = s};
    for (uint32_t g = 0; g < o->groups; g++) {
        shadow->cache[g] = calloc((size_t)o->group[g].blocks * o->block + 1, sizeof **shadow->cache);
        shadow->host[g] = calloc((size_t)o->host_blocks * o->block + 1, sizeof **shadow->host);
        if (!shadow->cache[g] || !shadow->host[g])
            return -1;
    }
    return 0;
}

void shadow_finish(struct shadow *shadow)
{
    for (uint32_t g = 0; g < SCHEDULER_GROUPS; g++) {
        free(shadow->cache[g]);
        free(shadow->host[g]);
    }
}

static void move(const struct shadow *shadow, const struct block_moves *moves, uint64_t *const *from,
                 uint64_t *const *to)
{
    size_t block = shadow->scheduler->options.block;
    for (uint32_t i = 0; i < moves->count; i++) {
        const struct block_move *m = &moves->moves[i];
        memmove(to[m->group] + (size_t)m->to * block, from[m->group] + (size_t)m->from * block,
                block * sizeof(uint64_t));
    }
}

static uint64_t *place(const struct shadow *shadow, const struct scheduled *sequence, uint32_t group,
                       uint32_t token)
{
    uint32_t block = shadow->scheduler->options.block;
    if (token / block >= sequence->held || sequence->blocks[group][token / block] < 0)
        return NULL;
    return shadow->cache[group] + (size_t)sequence->blocks[group][token / block] * block + token % block;
}

void shadow_compute(struct shadow *shadow, const struct scheduled *sequence, uint32_t token)
{
    for (uint32_t g = 0; g < shadow->scheduler->options.groups; g++) {
        uint64_t *at = place(shadow, sequence, g, token);
        if (at != NULL)
            *at = mark(sequence->tokens, token);
    }
}

static bool sees_right(const struct shadow *shadow, const struct scheduled_part *part, struct failure *why)
{
    const struct scheduler_options *o = &shadow->scheduler->options;
    for (uint32_t g = 0; g < o->groups; g++) {
        uint32_t window = o->group[g].window;
        uint32_t begin = window > 0 && part->first + 1 > window ? part->first + 1 - window : 0;
        uint64_t hash = 1;
        for (uint32_t i = 0; i < part->first + part->count; i++) {
            hash = mix(hash, (uint64_t)part->sequence->tokens[i] + 1);
            uint64_t *at = place(shadow, part->sequence, g, i);
            if (i >= begin && (at == NULL || *at != hash)) {
                failure_set(why, "group %" PRIu32 ": token %" PRIu32 " of order %" PRIu64 " is %s", g, i,
                            part->sequence->order, at == NULL ? "nowhere" : "not what was written");
                return false;
            }
        }
    }
    return true;
}

bool shadow_step(struct shadow *shadow, const struct scheduler_step *step, struct failure *why)
{
    move(shadow, &step->out, shadow->cache, shadow->host);
    move(shadow, &step->in, shadow->host, shadow->cache);
    move(shadow, &step->copies, shadow->cache, shadow->cache);
    for (uint32_t i = 0; i < step->part_count; i++)
        for (uint32_t t = 0; t < step->parts[i].count; t++)
            shadow_compute(shadow, step->parts[i].sequence, step->parts[i].first + t);
    for (uint32_t i = 0; i < step->part_count; i++)
        if (!sees_right(shadow, &step->parts[i], why))
            return false;
    return true;
}

int32_t shadow_next(const struct scheduled *sequence, uint32_t sample)
{
    return (int32_t)(mix(mark(sequence->tokens, sequence->count - 1), sample) >> 40 & 1);
}

static bool check_group(const struct shadow *shadow, uint32_t group, struct scheduled *const *all,
                        uint32_t count, bool swapped, struct failure *why)
{
    const struct scheduler *s = shadow->scheduler;
    const struct blocks *blocks = swapped ? &s->host[group] : &s->cache[group];
    uint32_t *owners = calloc(blocks->count + 1, sizeof *owners);
    uint32_t unheld = 0;
    bool good = owners != NULL;
    for (uint32_t i = 0; good && i < count; i++) {
        if ((all[i]->state == SEQUENCE_SWAPPED) != swapped)
            continue;
        for (uint32_t b = all[i]->trimmed[group]; b < all[i]->held; b++)
            owners[all[i]->blocks[group][b]]++;
    }
    for (uint32_t i = 0; good && i < blocks->count; i++) {
        unheld += owners[i] == 0;
        if (owners[i] != blocks_references(blocks, (int32_t)i)) {
            failure_set(why,
                        "group %" PRIu32 ": block %" PRIu32 " has %" PRIu32 " owners and counts %" PRIu32,
                        group, i, owners[i], blocks_references(blocks, (int32_t)i));
            good = false;
        }
    }
    if (good && unheld != blocks->unheld) {
        failure_set(why, "group %" PRIu32 ": %" PRIu32 " blocks are free and %" PRIu32 " are said to be",
                    group, unheld, blocks->unheld);
        good = false;
    }
    free(owners);
    return good;
}

bool shadow_check_owners(const struct shadow *shadow, struct scheduled *const *all, uint32_t count,
                         struct failure *why)
{
    const struct scheduler *s = shadow->scheduler;
    uint32_t states[SEQUENCE_ENDED + 1] = {0};
    uint64_t batch_slots[8] = {0};
    for (uint32_t i = 0; i < count; i++) {
        states[all[i]->state]++;
        if (all[i]->state != SEQUENCE_RUNS)
            continue;
        if (batch_slots[all[i]->batch_slot / 64] >> all[i]->batch_slot % 64 & 1) {
            failure_set(why, "two sequences have batch slot %" PRIu32, all[i]->batch_slot);
            return false;
        }
        batch_slots[all[i]->batch_slot / 64] |= UINT64_C(1) << all[i]->batch_slot % 64;
    }
    if (states[SEQUENCE_RUNS] != s->running_count || states[SEQUENCE_WAITS] != s->waiting.count ||
        states[SEQUENCE_SWAPPED] != s->swapped.count || count - states[SEQUENCE_ENDED] != scheduler_left(s)) {
        failure_set(why, "the lists do not agree with the states");
        return false;
    }
    for (uint32_t g = 0; g < s->options.groups; g++)
        if (!check_group(shadow, g, all, count, false, why) || !check_group(shadow, g, all, count, true, why))
            return false;
    return true;
}
