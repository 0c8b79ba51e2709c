/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tables and texts are the file's own, the same for every instance, and outlive all of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi.h"
#include "need.h"

enum { MOST_PLACES = 512, INSTANCES = 16 };

/* Everything that must not move or change. */
struct places {
    struct {
        const char *what;
        const void *at;
    } list[MOST_PLACES];
    uint32_t count;
};

static void add(struct places *places, const char *what, const void *at)
{
    if (at != NULL && places->count < MOST_PLACES) {
        places->list[places->count].what = what;
        places->list[places->count++].at = at;
    }
}

static bool add_axes(struct places *places, struct life *life, const struct attn_backend_table *backend)
{
    const struct attn_axis *axes = NULL;
    uint32_t count = 0;

    life_enter(life, "axes");
    if (backend->axes(life->instance, &axes, &count) != ATTN_OK || (axes == NULL && count > 0)) {
        snprintf(life->why, sizeof life->why, "axes of %s fails", backend->name);
        return false;
    }
    add(places, "list of axes", axes);
    for (uint32_t i = 0; i < count; i++) {
        add(places, "key of an axis", axes[i].key);
        add(places, "values of an axis", axes[i].values);
        for (uint32_t v = 0; axes[i].values != NULL && v < axes[i].value_count; v++)
            add(places, "value of an axis", axes[i].values[v]);
    }
    return true;
}

static bool collect(struct places *places, struct life *life)
{
    add(places, "plugin table", life->table);
    add(places, "name", life->table->name);
    add(places, "vendor", life->table->vendor);
    add(places, "version", life->table->version);
    add(places, "list of backends", life->backends);
    for (uint32_t i = 0; i < life->backend_count; i++) {
        const struct attn_backend_table *backend = life->backends[i];
        add(places, "backend table", backend);
        add(places, "backend name", backend->name);
        add(places, "plan table", backend->plan);
        add(places, "kv table", backend->kv);
        add(places, "merge table", backend->merge);
        add(places, "memory table", backend->memory);
        if (!add_axes(places, life, backend))
            return false;
    }
    return true;
}

static bool compare(struct isolated *isolated, const struct places *first, const struct places *second,
                    const char *when)
{
    for (uint32_t i = 0; i < first->count || i < second->count; i++) {
        if (i < first->count && i < second->count && first->list[i].at == second->list[i].at)
            continue;
        isolated_fail(isolated, "constant tables", "ATTN_P14: the %s is another one %s",
                      first->list[i < first->count ? i : 0].what, when);
        return false;
    }
    return true;
}

/* A plugin that stands on another library may hand on that one's tables; memory of the heap is no table. */
static void judge_places(struct isolated *isolated, const struct places *places)
{
    Dl_info info;

    for (uint32_t i = 0; i < places->count; i++) {
        if (dladdr(places->list[i].at, &info) == 0)
            isolated_fail(isolated, "constant tables", "ATTN_P14: the %s does not lie in any loaded file",
                          places->list[i].what);
    }
}

void judge_constants(struct isolated *isolated, const char *plugin)
{
    static struct places first, again, other;
    struct life one = {0}, two = {0};

    if (!life_load(&one, isolated, plugin) || !life_begin(&one) || !collect(&first, &one) ||
        !collect(&again, &one)) {
        isolated_fail(isolated, "constant tables", "%s", one.why);
        return;
    }
    two.isolated = isolated;
    two.entry = one.entry;
    if (!life_begin(&two) || !collect(&other, &two)) {
        isolated_fail(isolated, "constant tables", "%s", two.why);
        return;
    }
    char name[64];
    snprintf(name, sizeof name, "%s", one.table->name);
    if (compare(isolated, &first, &again, "when it is asked for again"))
        compare(isolated, &first, &other, "for another instance");
    judge_places(isolated, &first);
    life_end(&one);
    life_end(&two);
    isolated_stage(isolated, "reading the tables after finish");
    if (strncmp(name, one.table->name, sizeof name - 1) != 0)
        isolated_fail(isolated, "constant tables", "ATTN_P14: its name changes with finish");
}

/* As several contexts, or several copies of the library in one process, would have them. */
void judge_instances(struct isolated *isolated, const char *plugin)
{
    struct life loaded = {0};
    struct life *lives = need(calloc(INSTANCES, sizeof *lives));

    if (!life_load(&loaded, isolated, plugin)) {
        isolated_fail(isolated, "instances", "%s", loaded.why);
        return;
    }
    for (uint32_t i = 0; i < INSTANCES; i++) {
        lives[i].isolated = isolated;
        lives[i].entry = loaded.entry;
        if (!life_begin(&lives[i]) || !life_ask(&lives[i])) {
            isolated_fail(isolated, "instances", "ATTN_P21: instance %u beside %u others: %s", i + 1, i,
                          lives[i].why);
            return;
        }
    }
    /* 5 and 16 have no common divisor: every one, in an order of its own. */
    for (uint32_t i = 0; i < INSTANCES; i++) {
        uint32_t number = i * 5 % INSTANCES;
        if (!life_ask(&lives[number])) {
            isolated_fail(isolated, "instances", "ATTN_P21: after %u others were finished: %s", i,
                          lives[number].why);
            return;
        }
        life_end(&lives[number]);
    }
    free(lives);
}
