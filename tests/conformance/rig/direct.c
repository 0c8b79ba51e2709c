/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A plugin without the library between: entry, tables, and the least host that the rules allow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

#include "rig.h"

static void take_log(void *ctx, uint32_t level, const char *subsystem, const char *text)
{
    (void)ctx, (void)level, (void)subsystem, (void)text;
}

static uint64_t tell_time(void *ctx)
{
    struct timespec now;

    (void)ctx;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The level is the only option that is set. */
static const char *get_option(void *ctx, const char *key)
{
    const struct direct *direct = ctx;
    bool all = strcmp(direct->target->level, "all") == 0;

    return strcmp(key, "ATTN_CPU_FLAGS") == 0 && !all ? direct->target->level : NULL;
}

bool target_file(const struct target *target, char *path, size_t size)
{
    const struct attn_backend_record *record;
    struct attn_report *report = NULL;
    bool found = false;

    if (attn_context_get_report(target->context, &report, NULL) != ATTN_OK)
        return false;
    for (uint32_t i = 0; (record = attn_report_get_backend(report, i)) != NULL && !found; i++) {
        found = strcmp(record->name, target->name) == 0;
        if (found)
            snprintf(path, size, "%s", record->file);
    }
    attn_report_destroy(report);
    return found;
}

static bool find_table(struct direct *direct, char *why, size_t size)
{
    const struct attn_backend_table *const *tables = NULL;
    struct attn_error err;
    uint32_t count = 0;

    ATTN_INIT(&err);
    if (direct->plugin->get_backends(direct->instance, &tables, &count, &err) != ATTN_OK) {
        snprintf(why, size, "get_backends: %s", err.message);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(tables[i]->name, direct->target->name) == 0)
            direct->table = tables[i];
    if (direct->table == NULL)
        snprintf(why, size, "get_backends does not list %s", direct->target->name);
    return direct->table != NULL;
}

bool direct_init(struct direct *direct, const struct target *target, char *why, size_t size)
{
    struct attn_error err;
    char path[4096];

    memset(direct, 0, sizeof *direct);
    ATTN_INIT(&err);
    direct->target = target;
    if (!target_file(target, path, sizeof path)) {
        snprintf(why, size, "no file is known for %s", target->name);
        return false;
    }
    direct->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = direct->library != NULL ? dlsym(direct->library, "attn_plugin_entry_v1") : NULL;
    if (symbol == NULL) {
        snprintf(why, size, "%s", dlerror());
        direct_finish(direct);
        return false;
    }
    memcpy(&direct->entry, &symbol, sizeof symbol);
    ATTN_INIT(&direct->host);
    direct->host.abi_minor = ATTN_ABI_MINOR;
    direct->host.ctx = direct;
    direct->host.out_instance = &direct->instance;
    direct->host.log = take_log;
    direct->host.clock = tell_time;
    direct->host.get_option = get_option;
    if (direct->entry(&direct->host, &direct->plugin, &err) != ATTN_OK || direct->plugin == NULL) {
        snprintf(why, size, "entry: %s", err.message);
        direct->plugin = NULL;
        direct_finish(direct);
        return false;
    }
    if (find_table(direct, why, size))
        return true;
    direct_finish(direct);
    return false;
}

void direct_finish(struct direct *direct)
{
    if (direct->plugin != NULL)
        direct->plugin->finish(direct->instance);
    if (direct->library != NULL)
        dlclose(direct->library);
    memset(direct, 0, sizeof *direct);
}
