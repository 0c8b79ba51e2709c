/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of plugin files: scans are merged into it, and of duplicates one file is taken. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "plugin/loader.h"
#include "select/select.h"

uint64_t attn__now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool is_same_file(const struct attn__plugin *a, const struct attn__plugin *b)
{
    return memcmp(&a->identity, &b->identity, sizeof a->identity) == 0 && strcmp(a->path, b->path) == 0;
}

/* An earlier name of the same file, or NULL. */
static const struct attn__plugin *find_twin(struct attn__plugin *const *plugins, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (!plugins[i]->vanished && attn__is_same_inode(&plugins[i]->identity, &plugins[index]->identity))
            return plugins[i];
    return NULL;
}

/* True if the first one's note names every backend of the second one's. */
static bool offers_all(const struct attn__plugin *first, const struct attn__plugin *second)
{
    char name[sizeof first->note.backends], other[sizeof first->note.backends];
    const char *cursor = second->note.backends;
    while (attn__note_next(&cursor, name, sizeof name)) {
        const char *others = first->note.backends;
        bool found = false;
        while (!found && attn__note_next(&others, other, sizeof other))
            found = attn__same_name(name, other);
        if (!found)
            return false;
    }
    return true;
}

/*
 * The file of the same plugin name that is taken instead: an open one, or an earlier one that has not failed.
 * An earlier one that lacks some of the backends counts only once it is open, because it may never be asked
 * for.
 */
static const struct attn__plugin *find_same_name(struct attn__plugin *const *plugins, uint32_t count,
                                                 uint32_t index)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct attn__plugin *other = plugins[i];
        bool counts = other->state == ATTN__OPEN ||
                      (i < index && other->state == ATTN__CLOSED && other->stage >= ATTN_STAGE_NOTE &&
                       other->reason == 0 && offers_all(other, plugins[index]));
        if (i != index && !other->vanished && counts &&
            attn__same_name(other->note.name, plugins[index]->note.name))
            return other;
    }
    return NULL;
}

void attn__registry_resolve_duplicates(struct attn_context *context)
{
    struct attn__plugin **plugins = context->plugins;
    const uint32_t count = context->plugin_count;
    for (uint32_t i = 0; i < count; i++) {
        struct attn__plugin *plugin = plugins[i];
        const struct attn__words words = {plugin->text, sizeof plugin->text};
        const struct attn__plugin *other;
        if (plugin->vanished || plugin->state != ATTN__CLOSED)
            continue;
        if (plugin->reason == ATTN_REASON_DUPLICATE)
            plugin->reason = attn__refuse(&words, 0, "%s", "");
        if ((other = find_twin(plugins, i)) != NULL)
            plugin->reason = attn__refuse(&words, ATTN_REASON_DUPLICATE, "the same file as %s", other->path);
        else if (plugin->reason == 0 && (other = find_same_name(plugins, count, i)) != NULL)
            plugin->reason = attn__refuse(&words, ATTN_REASON_DUPLICATE, "the name %s is taken by %s",
                                          plugin->note.name, other->path);
    }
}

/* Whether a file of the same name is open. */
static bool is_name_taken(const struct attn_context *context, const struct attn__plugin *plugin)
{
    for (uint32_t i = 0; i < context->plugin_count; i++)
        if (context->plugins[i]->state == ATTN__OPEN &&
            attn__same_name(context->plugins[i]->note.name, plugin->note.name))
            return true;
    return false;
}

/*
 * Returns the old record of an unchanged file, so that its address stays, else the new one, which is refused
 * if the path is loaded in an older version.
 */
static struct attn__plugin *choose(struct attn_context *context, struct attn__plugin *found)
{
    for (uint32_t i = 0; i < context->plugin_count; i++) {
        struct attn__plugin *old = context->plugins[i];
        if (!is_same_file(old, found))
            continue;
        if (old->state == ATTN__FAILED && !is_name_taken(context, old)) {
            attn__plugin_reset(old);
            old->stage = found->stage;
            old->reason = found->reason;
            memcpy(old->text, found->text, sizeof old->text);
        }
        attn__plugin_destroy(found);
        old->vanished = false;
        return old;
    }
    for (uint32_t i = 0; i < context->plugin_count; i++)
        if (context->plugins[i]->state == ATTN__OPEN && strcmp(context->plugins[i]->path, found->path) == 0 &&
            found->reason == 0) {
            found->reason = ATTN_REASON_REPLACED_AFTER_LOADING;
            snprintf(found->text, sizeof found->text, "%s changed after its old version was loaded",
                     found->path);
        }
    return found;
}

/* Takes what was found into the list. Records are never freed: others may hold them. Under both locks. */
static void merge(struct attn_context *context, struct attn__scan *scan)
{
    uint32_t n = 0;
    struct attn__plugin **list =
        calloc(scan->plugin_count + context->plugin_count + (size_t)1, sizeof(struct attn__plugin *));
    scan->failed = scan->failed || list == NULL;
    if (scan->failed) {
        free(list);
        return;
    }
    for (uint32_t i = 0; i < context->plugin_count; i++)
        context->plugins[i]->vanished = true;
    for (uint32_t i = 0; i < scan->plugin_count; i++)
        list[n++] = choose(context, scan->plugins[i]);
    scan->plugin_count = 0;
    for (uint32_t i = 0; i < context->plugin_count; i++)
        if (context->plugins[i]->vanished) {
            context->plugins[i]->vanished = context->plugins[i]->state != ATTN__OPEN;
            list[n++] = context->plugins[i];
        }
    free(context->plugins);
    context->plugins = list;
    context->plugin_count = n;
    attn__directories_destroy(context->directories, context->directory_count);
    context->directories = scan->directories;
    context->directory_count = scan->directory_count;
    scan->directories = NULL;
    scan->directory_count = 0;
    attn__registry_resolve_duplicates(context);
}

int32_t attn__registry_scan(struct attn_context *context, struct attn_error *err)
{
    struct attn__scan scan;
    attn__scan_path(&scan, &context->env, context->plugin_path);
    attn__scan_files(&scan, context);
    pthread_mutex_lock(&context->opening);
    pthread_mutex_lock(&context->lock);
    merge(context, &scan);
    pthread_mutex_unlock(&context->lock);
    pthread_mutex_unlock(&context->opening);
    attn__scan_finish(&scan);
    return scan.failed ? attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for the list of plugins")
                       : ATTN_OK;
}

int32_t attn__registry_list(struct attn_context *context, struct attn__plugin ***out, uint32_t *out_count)
{
    pthread_mutex_lock(&context->lock);
    uint32_t count = 0;
    struct attn__plugin **list = calloc(context->plugin_count + (size_t)1, sizeof *list);
    for (uint32_t i = 0; i < context->plugin_count && list != NULL; i++)
        if (!context->plugins[i]->vanished)
            list[count++] = context->plugins[i];
    pthread_mutex_unlock(&context->lock);
    *out = list;
    *out_count = count;
    return list != NULL ? ATTN_OK : ATTN_E_MEMORY;
}
