/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads one plugin with dlopen, checks that file and entry are its own, and takes its tables. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <sys/stat.h>

#include "plugin/loader.h"

typedef int32_t (*entry_fn)(const struct attn_host *host, const struct attn_plugin **out,
                            struct attn_error *err);

#define REFUSE(plugin, stage, reason, ...)                                                                   \
    (attn__plugin_tell((plugin), ATTN_STAGE_##stage, ATTN_REASON_##reason, __VA_ARGS__), ATTN_E_PLUGIN)

/*
 * The images that this process has loaded: if a file was replaced and its path is opened again, the linker
 * returns the old image. Images are never unloaded (RTLD_NODELETE). If there are more than fit, the rest is
 * not remembered. Under the shared lock.
 */
static struct image {
    const struct link_map *map;
    struct attn__identity identity;
} images[256];
static unsigned image_count;

/* True if the image was loaded from the file in the record. Remembers images that it has not seen before. */
static bool is_image_of(const struct link_map *map, const struct attn__plugin *plugin)
{
    unsigned i = 0;
    attn__shared_lock();
    while (i < image_count && images[i].map != map)
        i++;
    if (i == image_count && i < sizeof images / sizeof images[0])
        images[image_count++] = (struct image){map, plugin->identity};
    /* ctime is not compared: it changes when the file gets another name, too. */
    const bool same = i == image_count || memcmp(&images[i].identity, &plugin->identity,
                                                 offsetof(struct attn__identity, ctime_ns)) == 0;
    attn__shared_unlock();
    return same;
}

static int32_t refuse_linker(struct attn__plugin *plugin, const char *words)
{
    /* "libx.so.1: cannot open shared object file: ..." */
    const char *end = strstr(words, ": cannot open shared object file");
    char library[sizeof plugin->library];
    snprintf(library, sizeof library, "%.*s", end != NULL ? (int)(end - words) : 0, words);
    if (strcmp(library, plugin->path) == 0)
        library[0] = '\0';
    pthread_mutex_lock(&plugin->context->lock);
    snprintf(plugin->linker, sizeof plugin->linker, "%s", words);
    memcpy(plugin->library, library, sizeof library);
    pthread_mutex_unlock(&plugin->context->lock);
    if (library[0] != '\0')
        return REFUSE(plugin, NOTE, MISSING_LIBRARY, "plugin %s needs the library %s, which is not found",
                      plugin->note.name, library);
    const char *symbol = strstr(words, "undefined symbol: ");
    if (symbol != NULL)
        return REFUSE(plugin, NOTE, UNDEFINED_SYMBOL, "plugin %s needs the symbol %s, which no library has",
                      plugin->note.name, symbol + strlen("undefined symbol: "));
    if (strstr(words, "static TLS") != NULL)
        return REFUSE(plugin, NOTE, STATIC_TLS,
                      "plugin %s needs static thread-local storage, of which no more is left",
                      plugin->note.name);
    return REFUSE(plugin, NOTE, DLOPEN_FAILED, "plugin %s cannot be loaded: %s", plugin->note.name, words);
}

/* The file must be the one whose note was read, before it is loaded and after. */
static int32_t check_file(struct attn__plugin *plugin, const char *when)
{
    struct stat status;
    if (stat(plugin->path, &status) != 0)
        return REFUSE(plugin, NOTE, CHANGED_WHILE_LOADING, "%s cannot be read any more %s: %s", plugin->path,
                      when, strerrordesc_np(errno));
    if (!attn__plugin_is_same(plugin, &status))
        return REFUSE(
            plugin, NOTE, CHANGED_WHILE_LOADING,
            "%s is not the file any more whose note was read: it changed %s; rescan the directories",
            plugin->path, when);
    return ATTN_OK;
}

/* dlsym finds symbols of dependencies too. */
static bool is_own(const void *symbol, const struct link_map *map)
{
    Dl_info info;
    struct link_map *owner = NULL;
    return dladdr1(symbol, &info, (void **)&owner, RTLD_DL_LINKMAP) != 0 && owner == map;
}

static int32_t find_entry(struct attn__plugin *plugin, const struct link_map *map, entry_fn *out)
{
    void *symbol = dlsym(plugin->handle, ATTN_PLUGIN_ENTRY_SYMBOL);
    if (symbol == NULL)
        return REFUSE(plugin, LOADED, NO_ENTRY, "plugin %s does not export %s", plugin->note.name,
                      ATTN_PLUGIN_ENTRY_SYMBOL);
    if (!is_own(symbol, map)) {
        Dl_info info;
        const char *owner = dladdr(symbol, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "?";
        return REFUSE(plugin, LOADED, ENTRY_NOT_OWN,
                      "%s of plugin %s is defined in %s, not in the plugin itself", ATTN_PLUGIN_ENTRY_SYMBOL,
                      plugin->note.name, owner);
    }
    memcpy(out, &symbol, sizeof *out);
    return ATTN_OK;
}

static int32_t enter(struct attn__plugin *plugin, const struct link_map *map, entry_fn entry)
{
    const struct attn_plugin *given = NULL;
    struct attn_error err;
    ATTN_INIT(&err);
    if (plugin->context->check_call != NULL)
        entry = (entry_fn)plugin->context->check_call((attn__function)entry, "", "the entry");
    int32_t status = entry(&plugin->host, &given, &err);
    err.message[sizeof err.message - 1] = '\0';
    if (status != ATTN_OK)
        return REFUSE(plugin, LOADED, ENTRY_FAILED, "the entry of plugin %s answered %s: %s",
                      plugin->note.name, attn_status_name(status),
                      err.message[0] != '\0' ? err.message : "no message");
    if (given == NULL)
        return REFUSE(plugin, LOADED, ENTRY_FAILED, "the entry of plugin %s gave no table",
                      plugin->note.name);
    /* A table outside of the plugin's image is no constant of it, and may not be a table at all. */
    if (!is_own(given, map))
        return REFUSE(
            plugin, LOADED, ENTRY_FAILED,
            "the table that the entry of plugin %s gave is no part of its file; a constant of the plugin is "
            "accepted",
            plugin->note.name);
    status = attn__negotiate(plugin, given);
    /* A successful call of the entry is ended by finish, if the table is long enough to have it. */
    if (status != ATTN_OK && plugin->table.finish != NULL)
        plugin->table.finish(plugin->instance);
    return status;
}

/* Loads the file if it is still the one that was read, before and after. */
static int32_t link_plugin(struct attn__plugin *plugin, struct link_map **out)
{
    const int32_t status = check_file(plugin, "before it was loaded");
    if (status != ATTN_OK)
        return status;
    plugin->handle = dlopen(plugin->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (plugin->handle == NULL) {
        const char *words = dlerror();
        return refuse_linker(plugin, words != NULL ? words : "no message");
    }
    if (dlinfo(plugin->handle, RTLD_DI_LINKMAP, out) != 0 || *out == NULL)
        return REFUSE(plugin, NOTE, DLOPEN_FAILED, "the dynamic linker does not tell where plugin %s is",
                      plugin->note.name);
    if (!is_image_of(*out, plugin))
        return REFUSE(plugin, NOTE, REPLACED_AFTER_LOADING,
                      "%s was replaced; this process has loaded its old version", plugin->path);
    return check_file(plugin, "while it was loaded");
}

int32_t attn__loader_load(struct attn__plugin *plugin)
{
    struct link_map *map = NULL;
    entry_fn entry = NULL;
    attn__host_init(plugin);
    int32_t status = link_plugin(plugin, &map);
    if (status == ATTN_OK)
        status = find_entry(plugin, map, &entry);
    if (status == ATTN_OK)
        status = enter(plugin, map, entry);
    if (status == ATTN_OK && plugin->effects[0] == '\0')
        attn__plugin_tell(plugin, ATTN_STAGE_READY, 0, "%s", "");
    else if (status == ATTN_OK)
        attn__plugin_tell(plugin, ATTN_STAGE_READY, ATTN_REASON_SIDE_EFFECTS, "plugin %s %s",
                          plugin->note.name, plugin->effects);
    return status;
}
