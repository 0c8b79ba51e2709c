/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Capacities that are too small, and values that this version of the interface does not have. */
#include <stdio.h>
#include <stdlib.h>

#include "abi.h"
#include "need.h"

enum { MANY = 64 };

/* ---------------------------------------------------------------- devices */

/* Asks with room for `capacity` records before a forbidden page. False: the result is given. */
static bool ask_devices(struct isolated *isolated, struct life *life, uint32_t capacity, uint32_t *count)
{
    struct attn_error *err = life_error(life);
    struct attn_device_info untouched;
    struct arena arena;
    uint32_t told = UINT32_MAX;
    const size_t size = sizeof(struct attn_device_info);

    ATTN_INIT(&untouched);
    arena_init(&arena, false);
    struct attn_device_info *list = (void *)arena_add(&arena, "devices", capacity * size, 8, 0)->data;
    for (uint32_t i = 0; i < capacity; i++)
        list[i] = untouched;
    life_enter(life, "get_devices");
    int32_t status = life->table->get_devices(life->instance, list, capacity, &told, err);
    if (status == ATTN_E_DEVICE) {
        if (err->reason != ATTN_REASON_NO_DRIVER || err->message[0] == '\0')
            isolated_fail(isolated, "devices", "ATTN_E_DEVICE without reason NO_DRIVER and a message");
        arena_finish(&arena);
        return false;
    }
    if (status != ATTN_OK || (*count != UINT32_MAX && told != *count)) {
        isolated_fail(isolated, "devices", "ATTN_P22: with room for %u: %s, %u devices; before there were %u",
                      capacity, attn_status_name(status), told, *count);
        arena_finish(&arena);
        return false;
    }
    *count = told;
    for (uint32_t i = 0; i < capacity; i++) {
        const struct attn_device_info *info = &list[i];
        if (i >= told && memcmp(info, &untouched, size) != 0)
            isolated_fail(isolated, "devices", "ATTN_P22: record %u of %u is written to", i, told);
        if (i < told && (info->struct_size != size || info->device_class < ATTN_CLASS_ACCELERATOR ||
                         info->device_class > ATTN_CLASS_PORTABLE_CPU ||
                         memchr(info->name, '\0', sizeof info->name) == NULL || info->name[0] == '\0' ||
                         info->device.type == 0))
            isolated_fail(isolated, "devices",
                          "ATTN_P22: record %u has class %u, type %u, size %u, name '%.63s'", i,
                          info->device_class, info->device.type, info->struct_size, info->name);
    }
    arena_finish(&arena);
    return true;
}

void judge_devices(struct isolated *isolated, const char *plugin)
{
    static const uint32_t capacities[] = {MANY, 0, 1, 2, MANY};
    uint32_t count = UINT32_MAX;
    struct life life = {0};

    if (!life_load(&life, isolated, plugin) || !life_begin(&life)) {
        isolated_fail(isolated, "devices", "%s", life.why);
        return;
    }
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++)
        if (!ask_devices(isolated, &life, capacities[i], &count))
            break;
    life_end(&life);
}

/* ---------------------------------------------------------------- queries */

/* Selection takes a speed that there is not for a fast one. */
static void judge_speeds(struct isolated *isolated, const char *name, const struct attn_query *query)
{
    for (uint32_t i = 0; i < query->kernel_count && i < query->kernel_capacity; i++)
        if (query->kernels[i].speed > ATTN_SPEED_GENERIC)
            isolated_fail(
                isolated, name,
                "ATTN_P17: kernel '%.63s' states speed %u; 0 (not said), 1 (optimised) and 2 (generic) "
                "are accepted",
                query->kernels[i].name, query->kernels[i].speed);
}

/* Asks with little room before forbidden pages. */
static void ask_query(struct isolated *isolated, struct life *life, const struct attn_backend_table *backend,
                      const struct attn_problem *problem, uint32_t room, struct attn_query *first)
{
    static const char name[] = "capacities of a query";
    struct attn_query query;
    struct arena arena;

    ATTN_INIT(&query);
    arena_init(&arena, false);
    query.reason_capacity = query.kernel_capacity = room;
    query.reasons = (void *)arena_add(&arena, "reasons", room * sizeof *query.reasons, 8, 0)->data;
    query.kernels = (void *)arena_add(&arena, "kernels", room * sizeof *query.kernels, 8, 0)->data;
    if (room == 0) {
        query.reasons = NULL;
        query.kernels = NULL;
    }
    const struct attn_query before = query;
    life_enter(life, "query with little room");
    int32_t status = backend->query(life->instance, NULL, problem, &query);
    if (status != ATTN_OK)
        isolated_fail(isolated, name, "ATTN_P22: with room for %u the query answers %s", room,
                      attn_status_name(status));
    else if (query.struct_size != before.struct_size || query.reasons != before.reasons ||
             query.kernels != before.kernels || query.reason_capacity != room ||
             query.kernel_capacity != room)
        isolated_fail(isolated, name, "ATTN_P22: the query changes sizes, capacities or addresses");
    else if (room == MANY)
        *first = query;
    else if (query.accepted != first->accepted || query.reason_count != first->reason_count ||
             query.kernel_count != first->kernel_count)
        isolated_fail(isolated, name,
                      "ATTN_P22: accepted %u, %u reasons, %u kernels with room for %u; else %u, %u, %u",
                      query.accepted, query.reason_count, query.kernel_count, room, first->accepted,
                      first->reason_count, first->kernel_count);
    judge_speeds(isolated, name, &query);
    arena_finish(&arena);
}

void judge_capacities(struct isolated *isolated, const char *plugin)
{
    static const char *const problems[] = {
        "heads=8 kv_heads=4 head_dim=64 q=f32", "heads=8 head_dim=128 q=f16",
        "heads=8 head_dim=128 q=bf16 kv=f32 graph=always layout=paged-x window=5 softcap=3"};
    static const uint32_t rooms[] = {MANY, 0, 1, 2};
    struct life life = {0};

    if (!life_load(&life, isolated, plugin) || !life_begin(&life)) {
        isolated_fail(isolated, "capacities of a query", "%s", life.why);
        return;
    }
    for (uint32_t b = 0; b < life.backend_count; b++) {
        for (size_t p = 0; p < sizeof problems / sizeof problems[0]; p++) {
            struct attn_query first = {0};
            struct attn_problem problem;
            struct attn_error *err = life_error(&life);
            if (attn_problem_parse(problems[p], &problem, err) != ATTN_OK)
                isolated_fail(isolated, "capacities of a query", "the checker's own problem: %s",
                              err->message);
            for (size_t r = 0; r < sizeof rooms / sizeof rooms[0]; r++)
                ask_query(isolated, &life, life.backends[b], &problem, rooms[r], &first);
        }
    }
    life_end(&life);
}

/* ---------------------------------------------------------------- values of a later interface */

#define MEMBER(member)                                                                                       \
    {                                                                                                        \
#member, offsetof(struct attn_problem, member)                                                       \
    }

static const struct {
    const char *name;
    size_t offset;
} members[] = {MEMBER(type),       MEMBER(q_dtype),     MEMBER(k_dtype), MEMBER(v_dtype),   MEMBER(out_dtype),
               MEMBER(addressing), MEMBER(index_dtype), MEMBER(causal),  MEMBER(align),     MEMBER(alibi),
               MEMBER(sinks),      MEMBER(mask),        MEMBER(span),    MEMBER(kv_source), MEMBER(layout),
               MEMBER(q_scale),    MEMBER(k_scale),     MEMBER(v_scale), MEMBER(out_scale), MEMBER(positions),
               MEMBER(seq_causal), MEMBER(mla),         MEMBER(cp),      MEMBER(lse),       MEMBER(det),
               MEMBER(graph),      MEMBER(given),       MEMBER(reserved)};

static void ask_unknown(struct isolated *isolated, struct life *life,
                        const struct attn_backend_table *backend, const struct attn_problem *known)
{
    static const char name[] = "unknown values";
    const uint32_t value = 0x77;

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        struct attn_reason reasons[4] = {0};
        struct attn_problem problem = *known;
        struct attn_query query;
        ATTN_INIT(&query);
        query.reasons = reasons;
        query.reason_capacity = 4;
        memcpy((char *)&problem + members[i].offset, &value, sizeof value);
        life_enter(life, "query with an unknown value");
        int32_t status = backend->query(life->instance, NULL, &problem, &query);
        if (status != ATTN_OK || query.accepted != 0)
            isolated_fail(isolated, name, "ATTN_P23: %s accepts %s = 0x%x, which nobody has defined yet",
                          backend->name, members[i].name, value);
        else if (query.reason_count == 0 || reasons[0].code == 0 || reasons[0].field[0] == '\0')
            isolated_fail(isolated, name, "ATTN_P23: %s refuses %s = 0x%x without naming a key",
                          backend->name, members[i].name, value);
    }
}

void judge_unknown_values(struct isolated *isolated, const char *plugin)
{
    struct life life = {0};
    bool any = false;

    if (!life_load(&life, isolated, plugin) || !life_begin(&life)) {
        isolated_fail(isolated, "unknown values", "%s", life.why);
        return;
    }
    for (uint32_t b = 0; b < life.backend_count; b++) {
        struct attn_problem problem;
        if (!life_choose(&life, life.backends[b], NULL, &problem) || problem.heads == 0)
            continue;
        any = true;
        ask_unknown(isolated, &life, life.backends[b], &problem);
    }
    if (!any)
        isolated_skip(isolated, "unknown values", "no problem of the list is accepted");
    life_end(&life);
}
