/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of wanted backends and ATTN_DISABLE, applied to names before anything is loaded. */
#include <stdio.h>
#include <stdlib.h>

#include "select/select.h"

bool attn__item_next(const char **cursor, char *item, size_t size)
{
    /* Line ends too, because lists may come from files. */
    const char *start = *cursor + strspn(*cursor, " \t\r\n,");
    size_t length = strcspn(start, ",");
    *cursor = start + length;
    while (length > 0 && strchr(" \t\r\n", start[length - 1]) != NULL)
        length--;
    if (length == 0)
        return false;
    /* A name that is cut here matches nothing, and is only used in a message. */
    length = length < size ? length : size - 1;
    memcpy(item, start, length);
    item[length] = 0;
    return true;
}

bool attn__note_next(const char **cursor, char *name, size_t size)
{
    return attn__item_next(cursor, name, size);
}

/* The part of a backend name before the slash. */
static void copy_vendor(const char *name, char *vendor, size_t size)
{
    const size_t length = strcspn(name, "/");
    snprintf(vendor, size, "%.*s", (int)(length < size ? length : size - 1), name);
}

static const char *flavour_of(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash != NULL ? slash + 1 : name;
}

bool attn__item_matches(const char *item, const char *name)
{
    if (attn__same_name(item, "auto"))
        return true;
    char vendor[ATTN__NAME_SIZE];
    copy_vendor(name, vendor, sizeof vendor);
    return attn__same_name(item, name) || attn__same_name(item, vendor) ||
           attn__same_name(item, flavour_of(name));
}

static bool list_admits(const char *wanted, const char *name)
{
    char item[ATTN__NAME_SIZE];
    const char *cursor = wanted;
    bool blank = true;
    while (attn__item_next(&cursor, item, sizeof item)) {
        blank = false;
        if (attn__item_matches(item, name))
            return true;
    }
    return blank; /* an empty list means auto */
}

/* Matches a glob with the whole name, and without a slash also with the vendor and with the flavour. */
static bool is_disabled(const char *globs, const char *name)
{
    char glob[ATTN__NAME_SIZE];
    char vendor[ATTN__NAME_SIZE];
    copy_vendor(name, vendor, sizeof vendor);
    while (attn__item_next(&globs, glob, sizeof glob))
        if (attn__name_matches(glob, name) ||
            (strchr(glob, '/') == NULL &&
             (attn__name_matches(glob, vendor) || attn__name_matches(glob, flavour_of(name)))))
            return true;
    return false;
}

bool attn__wanted_backend(const struct attn_context *context, const char *wanted, const char *name,
                          uint32_t *out_reason)
{
    uint32_t reason = 0;
    if (!list_admits(wanted, name))
        reason = ATTN_REASON_NOT_REQUESTED;
    else if (is_disabled(attn__env_get(&context->env, ATTN__VAR_ATTN_DISABLE), name))
        reason = ATTN_REASON_DISABLED_BY_USER;
    if (out_reason != NULL)
        *out_reason = reason;
    return reason == 0;
}

bool attn__wanted_plugin(const struct attn_context *context, const char *wanted,
                         const struct attn__plugin *plugin, uint32_t *out_reason)
{
    char name[ATTN__NAME_SIZE];
    const char *cursor = plugin->note.backends;
    uint32_t reason = ATTN_REASON_NOT_REQUESTED;
    while (attn__note_next(&cursor, name, sizeof name)) {
        uint32_t one;
        if (attn__wanted_backend(context, wanted, name, &one)) {
            reason = 0;
            break;
        }
        /* This reason tells the user more than the other one. */
        reason = one == ATTN_REASON_DISABLED_BY_USER ? one : reason;
    }
    if (out_reason != NULL)
        *out_reason = reason;
    return reason == 0;
}

const char *attn__device_type(const struct attn__plugin *plugin, const struct attn_device *device)
{
    if (plugin->table.device_type != NULL)
        return plugin->table.device_type;
    return device->type == ATTN_DEVICE_CPU ? "cpu" : plugin->table.name;
}

void attn__device_name(const struct attn__plugin *plugin, const struct attn_device *device, char *text,
                       size_t size)
{
    snprintf(text, size, "%.20s:%d", attn__device_type(plugin, device), device->ordinal);
}

/* ---------------------------------------------------------------- names that no plugin has */

static bool has_vendor(const char *vendor, struct attn__plugin *const *plugins, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (plugins[i]->has_note && attn__same_name(vendor, plugins[i]->note.name))
            return true;
    return false;
}

/* The nearest full name, vendor or flavour of any note, into `near`. */
static bool find_near(const char *item, struct attn__plugin *const *plugins, uint32_t count, char *near,
                      size_t size)
{
    char best[2 * ATTN__NAME_SIZE] = "";
    for (uint32_t i = 0; i < count; i++) {
        const char *cursor = plugins[i]->note.backends;
        char name[ATTN__NAME_SIZE];
        while (plugins[i]->has_note && attn__note_next(&cursor, name, sizeof name)) {
            char vendor[ATTN__NAME_SIZE];
            copy_vendor(name, vendor, sizeof vendor);
            const char *const names[] = {best, name, vendor, flavour_of(name)};
            const size_t first = best[0] == 0 ? 1 : 0;
            const char *found = attn__nearest(item, names + first, sizeof names / sizeof names[0] - first);
            if (found != NULL && found != best)
                attn__copy_text(best, sizeof best, found);
        }
    }
    attn__copy_text(near, size, best);
    return best[0] != 0;
}

/* True if the vendor may be a misspelt name of a plugin. */
static bool has_near_vendor(const char *vendor, struct attn__plugin *const *plugins, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *const name = plugins[i]->note.name;
        if (plugins[i]->has_note && attn__nearest(vendor, &name, 1) != NULL)
            return true;
    }
    return false;
}

/* The file that should have the name, if it is there but its note could not be read. */
static struct attn__plugin *find_refused(const char *vendor, struct attn__plugin *const *plugins,
                                         uint32_t count)
{
    char base[ATTN__NAME_SIZE + 16];
    snprintf(base, sizeof base, "libattn-%s.so", vendor);
    for (uint32_t i = 0; i < count; i++) {
        const char *slash = strrchr(plugins[i]->path, '/');
        const char *file = slash != NULL ? slash + 1 : plugins[i]->path;
        if (!plugins[i]->has_note && attn__same_name(file, base))
            return plugins[i];
    }
    return NULL;
}

void attn__item_explain(const char *item, struct attn__plugin *const *plugins, uint32_t count,
                        bool from_environment, char *text, size_t size)
{
    const char *also = from_environment ? "; other software reads ATTN_BACKEND too" : "";
    char vendor[ATTN__NAME_SIZE];
    copy_vendor(item, vendor, sizeof vendor);
    char near[ATTN__NAME_SIZE];
    struct attn__plugin *refused = find_refused(vendor, plugins, count);
    char installed[48] = "";
    for (uint32_t i = 0; i < count; i++)
        if (plugins[i]->has_note)
            attn__add_name(installed, sizeof installed, plugins[i]->note.name);
    if (installed[0] == '\0')
        attn__add_name(installed, sizeof installed, "none");
    if (attn__kind_hint(item) != NULL && !has_vendor(vendor, plugins, count)) {
        snprintf(text, size, "there is no backend '%.16s'; %s; installed: %s", item, attn__kind_hint(item),
                 installed);
    } else if (refused != NULL) {
        snprintf(text, size, "no usable plugin of vendor '%.40s': %s was refused, %s%s", vendor,
                 refused->path, attn_reason_name(attn__plugin_reason(refused, NULL, 0)), also);
    } else if (strchr(item, '/') != NULL && !has_vendor(vendor, plugins, count) &&
               !has_near_vendor(vendor, plugins, count)) {
        snprintf(text, size, "no plugin of vendor '%.40s' is installed; there is: %s%s", vendor, installed,
                 also);
    } else if (find_near(item, plugins, count, near, sizeof near)) {
        snprintf(text, size, "no plugin offers '%.40s'; the nearest name is '%.40s'%s", item, near, also);
    } else if (has_vendor(vendor, plugins, count)) {
        snprintf(text, size, "the plugin of vendor '%.40s' offers no '%.40s'%s", vendor, item, also);
    } else {
        snprintf(text, size, "no plugin of vendor or flavour '%.40s' is installed; there is: %s%s", vendor,
                 installed, also);
    }
}
