/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Opens a plugin and lists its devices: once each, by one thread at a time. */
#include <stdio.h>
#include <stdlib.h>

#include "plugin/probe/probe.h"

#define DEVICES_MOST 256

void attn__plugin_tell(struct attn__plugin *plugin, uint32_t stage, uint32_t reason, const char *format, ...)
{
    char text[sizeof plugin->text];
    va_list args;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    va_end(args);
    pthread_mutex_lock(&plugin->context->lock);
    plugin->stage = stage;
    plugin->reason = reason;
    memcpy(plugin->text, text, sizeof text);
    pthread_mutex_unlock(&plugin->context->lock);
}

void attn__plugin_destroy(struct attn__plugin *plugin)
{
    if (plugin == NULL)
        return;
    /* In a child after fork the plugin's threads do not exist, and finish would wait for them. */
    if (plugin->state == ATTN__OPEN && attn__check_fork(plugin->context->born, "finish", NULL) == ATTN_OK)
        plugin->table.finish(plugin->instance);
    free(plugin->devices);
    free(plugin->backends);
    free(plugin->path);
    free(plugin);
}

void attn__plugin_reset(struct attn__plugin *plugin)
{
    free(plugin->backends);
    plugin->backends = NULL;
    plugin->backend_count = 0;
    plugin->instance = NULL;
    memset(&plugin->table, 0, sizeof plugin->table);
    plugin->state = ATTN__CLOSED;
    plugin->stage = ATTN_STAGE_NOTE;
    plugin->reason = 0;
    plugin->signal = 0;
    plugin->text[0] = plugin->linker[0] = plugin->library[0] = plugin->effects[0] = '\0';
}

/* Whether the file may be opened, or was. Under the lock. */
static bool may_open(const struct attn__plugin *plugin)
{
    if (plugin->vanished)
        return false;
    return plugin->state != ATTN__CLOSED || (plugin->stage >= ATTN_STAGE_NOTE && plugin->reason == 0);
}

/* Loads a file if the policy admits it, and logs the outcome. `opening` keeps the record from changing. */
static bool load(struct attn__plugin *plugin, bool named)
{
    struct attn__log *log = &plugin->context->log;
    if (attn__policy_admit(plugin, named) && attn__loader_load(plugin) == ATTN_OK) {
        attn__log_line(log, ATTN_LOG_INFO, "loader", "%s: plugin %s %s is ready%s%s", plugin->path,
                       plugin->note.name, plugin->note.version, plugin->effects[0] != '\0' ? ", but " : "",
                       plugin->effects);
        return true;
    }
    attn__log_once(log, ATTN_LOG_WARN, "loader", "%s: %s: %s%s%s", plugin->path,
                   attn_reason_name(plugin->reason), plugin->text,
                   plugin->linker[0] != '\0' ? "; the linker says: " : "", plugin->linker);
    return false;
}

/* Whether the plugin is open, with its devices listed if `asked`. Needs no `opening`: it stays open. */
static bool is_open(const struct attn__plugin *plugin, bool asked)
{
    pthread_mutex_lock(&plugin->context->lock);
    const bool open = plugin->state == ATTN__OPEN && (plugin->asked || !asked);
    pthread_mutex_unlock(&plugin->context->lock);
    return open;
}

/* Waits for `opening`: a file may become a duplicate of one that is being opened. */
bool attn__plugin_is_usable(const struct attn__plugin *plugin)
{
    struct attn_context *context = plugin->context;
    if (is_open(plugin, false))
        return true;
    pthread_mutex_lock(&context->opening);
    pthread_mutex_lock(&context->lock);
    const bool usable = may_open(plugin);
    pthread_mutex_unlock(&context->lock);
    pthread_mutex_unlock(&context->opening);
    return usable;
}

int32_t attn__plugin_open(struct attn__plugin *plugin, bool named)
{
    struct attn_context *context = plugin->context;
    if (is_open(plugin, false))
        return ATTN_OK;
    pthread_mutex_lock(&context->opening);
    pthread_mutex_lock(&context->lock);
    if (named && plugin->state == ATTN__FAILED && plugin->reason == ATTN_REASON_QUARANTINED)
        attn__plugin_reset(plugin);
    if (plugin->state == ATTN__CLOSED && may_open(plugin)) {
        pthread_mutex_unlock(&context->lock);
        const uint64_t start = attn__now();
        const bool loaded = load(plugin, named);
        pthread_mutex_lock(&context->lock);
        plugin->nanoseconds += attn__now() - start;
        plugin->state = loaded ? ATTN__OPEN : ATTN__FAILED;
        attn__registry_resolve_duplicates(context);
    }
    const int32_t status = plugin->state == ATTN__OPEN ? ATTN_OK : ATTN_E_PLUGIN;
    pthread_mutex_unlock(&context->lock);
    pthread_mutex_unlock(&context->opening);
    return status;
}

/* Asks once. The records are cleared before the call and checked after it. */
static void ask(struct attn__plugin *plugin)
{
    struct attn_device_info *devices = calloc(DEVICES_MOST, sizeof *devices);
    struct attn_error err;
    const uint64_t start = attn__now();
    uint32_t count = 0;
    int32_t status = ATTN_E_MEMORY;
    ATTN_INIT(&err);
    for (uint32_t i = 0; i < DEVICES_MOST && devices != NULL; i++)
        ATTN_INIT(&devices[i]);
    if (devices != NULL)
        status = plugin->table.get_devices(plugin->instance, devices, DEVICES_MOST, &count, &err);
    count = status != ATTN_OK ? 0 : count < DEVICES_MOST ? count : DEVICES_MOST;
    for (uint32_t i = 0; i < count; i++) {
        devices[i].name[sizeof devices[i].name - 1] = '\0';
        devices[i].arch[sizeof devices[i].arch - 1] = '\0';
        if (devices[i].device_class < ATTN_CLASS_ACCELERATOR ||
            devices[i].device_class > ATTN_CLASS_PORTABLE_CPU)
            devices[i].device_class = plugin->note.device_class;
    }
    const bool no_driver = status != ATTN_OK && err.reason == ATTN_REASON_NO_DRIVER;
    err.message[sizeof err.message - 1] = '\0';
    if (status == ATTN_OK)
        snprintf(err.message, sizeof err.message, "plugin %s found no device", plugin->note.name);
    else if (err.message[0] == '\0')
        snprintf(err.message, sizeof err.message, "plugin %s answered %s when asked for devices",
                 plugin->note.name, attn_status_name(status));
    pthread_mutex_lock(&plugin->context->lock);
    plugin->nanoseconds += attn__now() - start;
    plugin->asked = true;
    plugin->devices = devices;
    plugin->device_count = count;
    if (count == 0) {
        plugin->device_reason = no_driver ? ATTN_REASON_NO_DRIVER : ATTN_REASON_NO_DEVICE;
        snprintf(plugin->device_text, sizeof plugin->device_text, "%.*s", (int)sizeof plugin->device_text - 1,
                 err.message);
    }
    pthread_mutex_unlock(&plugin->context->lock);
}

int32_t attn__plugin_ask_devices(struct attn__plugin *plugin)
{
    const int32_t status = attn__plugin_open(plugin, false);
    if (status != ATTN_OK || is_open(plugin, true))
        return status;
    pthread_mutex_lock(&plugin->context->opening);
    if (!plugin->asked)
        ask(plugin);
    pthread_mutex_unlock(&plugin->context->opening);
    return ATTN_OK;
}
