/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The stages of a plugin's life, from dlopen to finish. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>

#include "life.h"

void life_enter(struct life *life, const char *stage)
{
    snprintf(life->stage, sizeof life->stage, "%s", stage);
    isolated_stage(life->isolated, stage);
}

bool life_leave(struct life *life, int32_t status, const struct attn_error *err)
{
    if (life->watch != NULL)
        life->watch(life, life->stage, false);
    if (status == ATTN_OK)
        return true;
    snprintf(life->why, sizeof life->why, "%s answers %s: %.300s", life->stage, attn_status_name(status),
             err != NULL ? err->message : "");
    return false;
}

struct attn_error *life_error(struct life *life)
{
    ATTN_INIT(&life->err);
    return life->without_errors ? NULL : &life->err;
}

bool life_load(struct life *life, struct isolated *isolated, const char *plugin)
{
    life->isolated = isolated;
    life_enter(life, "dlopen");
    life->handle = dlopen(plugin, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (life->handle == NULL) {
        snprintf(life->why, sizeof life->why, "dlopen: %s", dlerror());
        return false;
    }
    void *symbol = dlsym(life->handle, ATTN_PLUGIN_ENTRY_SYMBOL);
    if (symbol == NULL) {
        snprintf(life->why, sizeof life->why, "no %s", ATTN_PLUGIN_ENTRY_SYMBOL);
        return false;
    }
    memcpy(&life->entry, &symbol, sizeof symbol);
    return life_leave(life, ATTN_OK, NULL);
}

bool life_begin(struct life *life)
{
    struct attn_error *err = life_error(life);

    life->table = NULL;
    life->instance = NULL;
    life->device_count = 0;
    life->host = life_host_create();
    life_enter(life, "entry");
    if (!life_leave(life, life->entry(life_host_table(life->host), &life->table, err), err))
        return false;
    life->instance = life_host_instance(life->host);
    if (life->table == NULL) {
        snprintf(life->why, sizeof life->why, "entry gives no table");
        return false;
    }
    life_enter(life, "get_backends");
    return life_leave(
        life, life->table->get_backends(life->instance, &life->backends, &life->backend_count, err), err);
}

static bool ask_backend(struct life *life, const struct attn_backend_table *table)
{
    const struct attn_axis *axes = NULL;
    struct attn_problem problem;
    uint32_t count = 0;

    life_enter(life, "axes");
    if (!life_leave(life, table->axes(life->instance, &axes, &count), NULL))
        return false;
    return life_choose(life, table, NULL, &problem);
}

bool life_ask(struct life *life)
{
    struct attn_error *err = life_error(life);

    for (uint32_t i = 0; i < life->backend_count; i++)
        if (!ask_backend(life, life->backends[i]))
            return false;
    for (uint32_t i = 0; i < LIFE_DEVICES; i++)
        ATTN_INIT(&life->devices[i]);
    life_enter(life, "get_devices");
    int32_t status =
        life->table->get_devices(life->instance, life->devices, LIFE_DEVICES, &life->device_count, err);
    if (status == ATTN_E_DEVICE) {
        life->device_count = 0; /* no driver: there is nothing to open */
        status = ATTN_OK;
    }
    if (life->device_count > LIFE_DEVICES)
        life->device_count = LIFE_DEVICES;
    return life_leave(life, status, err);
}

bool life_open(struct life *life, uint32_t backend, struct life_backend *out)
{
    struct attn_open_config config;
    struct attn_error *err = life_error(life);

    memset(out, 0, sizeof *out);
    ATTN_INIT(&config);
    out->life = life;
    out->table = life->backends[backend];
    config.threads = 2;
    for (uint32_t i = 0; i < life->device_count; i++) {
        const struct attn_device *device = &life->devices[i].device;
        if (!life_choose(life, out->table, device, &out->problem))
            return false;
        if (out->problem.heads == 0 && i + 1 < life->device_count)
            continue;
        if (out->problem.heads == 0)
            return false;
        life_enter(life, "open");
        return life_leave(life, out->table->open(life->instance, device, &config, &out->impl, err), err);
    }
    return false;
}

void life_close(struct life_backend *backend)
{
    life_enter(backend->life, "close");
    backend->table->close(backend->impl);
    life_leave(backend->life, ATTN_OK, NULL);
}

void life_end(struct life *life)
{
    life_enter(life, "finish");
    life->table->finish(life->instance);
    life_host_revoke(life->host);
    life_leave(life, ATTN_OK, NULL);
}

void life_forget(struct life *life)
{
    life_host_destroy(life->host);
    life->host = NULL;
}

bool life_live(struct life *life)
{
    bool good = life_begin(life);

    if (!good)
        return false;
    good = life_ask(life);
    for (uint32_t i = 0; good && i < life->backend_count; i++) {
        struct life_backend backend;
        if (life_open(life, i, &backend)) {
            good = life_work(&backend);
            life_close(&backend);
        } else {
            good = life->why[0] == '\0';
        }
    }
    life_end(life);
    return good;
}

bool life_has_driver(const struct life *life)
{
    for (uint32_t i = 0; i < life->device_count; i++)
        if (life->devices[i].device.type != ATTN_DEVICE_CPU)
            return true;
    return false;
}

/* ---------------------------------------------------------------- the loaded image */

struct search {
    uintptr_t inside;
    uintptr_t from, to;
};

static int find_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *search = arg;
    uintptr_t from = UINTPTR_MAX, to = 0;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t begin = (uintptr_t)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type != PT_LOAD)
            continue;
        from = begin < from ? begin : from;
        to = begin + p->p_memsz > to ? begin + p->p_memsz : to;
    }
    if (search->inside < from || search->inside >= to)
        return 0;
    search->from = from;
    search->to = to;
    return 1;
}

bool life_range(const struct life *life, const void **out_from, const void **out_to)
{
    struct search search = {0};

    memcpy(&search.inside, &life->entry, sizeof search.inside);
    if (dl_iterate_phdr(find_object, &search) == 0)
        return false;
    memcpy(out_from, &search.from, sizeof search.from);
    memcpy(out_to, &search.to, sizeof search.to);
    return true;
}
