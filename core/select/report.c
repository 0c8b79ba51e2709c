/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reports: an immutable copy of everything known about directories, files and backends. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "plugin/loader.h"

/* Strings of a report, each in a node of a list, which frees them with the report. */
struct string {
    struct string *next;
    char text[];
};

struct attn_report {
    struct attn_directory_record *directories;
    struct attn_file_record *files;
    struct attn_backend_record *backends;
    uint32_t directory_count, file_count, backend_count;
    struct string *strings;
    bool failed; /* out of memory */
};

static const char *keep(struct attn_report *report, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return "";
    size_t size = strlen(text) + 1;
    struct string *string = malloc(sizeof *string + size);
    if (string == NULL) {
        report->failed = true;
        return "";
    }
    memcpy(string->text, text, size);
    string->next = report->strings;
    report->strings = string;
    return string->text;
}

/* Makes room for one more record; false without memory. */
static bool grow(struct attn_report *report, void *array, uint32_t *count, size_t size)
{
    void **records = array;
    void *more = realloc(*records, (*count + (size_t)1) * size);
    if (more == NULL) {
        report->failed = true;
        return false;
    }
    memset((char *)more + *count * size, 0, size);
    *records = more;
    ++*count;
    return true;
}

static void add_directory(struct attn_report *report, const struct attn__directory *directory)
{
    if (!grow(report, &report->directories, &report->directory_count, sizeof *report->directories))
        return;
    struct attn_directory_record *record = &report->directories[report->directory_count - 1];
    record->path = keep(report, directory->path);
    record->origin = directory->origin;
    record->reason = directory->reason;
    record->group_writable = directory->group_writable;
    record->text = keep(report, directory->text);
}

/* The reason why a file that may be opened was not: the wanted list, or none. */
static uint32_t closed_reason(const struct attn__plugin *plugin)
{
    struct attn_context *context = plugin->context;
    const char *wanted = attn__env_get(&context->env, ATTN__VAR_ATTN_BACKEND);
    uint32_t reason = 0;
    if (plugin->state != ATTN__CLOSED || plugin->reason != 0 || plugin->stage < ATTN_STAGE_NOTE)
        return 0;
    return attn__wanted_plugin(context, wanted, plugin, &reason) ? 0 : reason;
}

static void add_file(struct attn_report *report, const struct attn__plugin *plugin)
{
    if (!grow(report, &report->files, &report->file_count, sizeof *report->files))
        return;
    struct attn_file_record *record = &report->files[report->file_count - 1];
    const struct attn_note *note = &plugin->note;
    uint32_t closed = closed_reason(plugin);
    record->path = keep(report, plugin->path);
    record->stage = plugin->stage;
    record->reason = plugin->reason != 0 ? plugin->reason : closed;
    record->signal = plugin->signal;
    record->microseconds = plugin->nanoseconds / 1000;
    record->text = closed != 0 ? attn_reason_text(closed) : keep(report, plugin->text);
    record->advice = record->reason != 0 ? attn_reason_advice(record->reason) : "";
    record->linker = keep(report, plugin->linker);
    record->library = keep(report, plugin->library);
    record->name = keep(report, note->name);
    record->vendor = keep(report, note->vendor);
    record->version = keep(report, note->version);
    record->backends = keep(report, note->backends);
    record->abi_major = note->abi_major;
    record->abi_minor = note->abi_minor;
    record->device_class = note->device_class;
    record->cpu_level = note->cpu_level;
}

static struct attn_backend_record *add_backend(struct attn_report *report, const struct attn__plugin *plugin,
                                               const char *name, uint32_t device_class, uint32_t state,
                                               uint32_t reason, const char *text)
{
    if (!grow(report, &report->backends, &report->backend_count, sizeof *report->backends))
        return NULL;
    struct attn_backend_record *record = &report->backends[report->backend_count - 1];
    const char *slash = strchr(name, '/');
    record->name = keep(report, name);
    record->flavour = keep(report, slash != NULL ? slash + 1 : name);
    record->vendor = keep(report, plugin->note.vendor);
    record->file = keep(report, plugin->path);
    record->state = state;
    record->reason = reason;
    record->text = keep(report, text);
    record->advice = reason != 0 ? attn_reason_advice(reason) : "";
    record->device_class = device_class;
    record->device_name = record->device_type = record->device_text = record->device_arch = "";
    return record;
}

static void add_on_device(struct attn_report *report, const struct attn__plugin *plugin, const char *name,
                          const struct attn_device_info *device)
{
    char text[32];
    struct attn_backend_record *record =
        add_backend(report, plugin, name, device->device_class, ATTN_BACKEND_READY, 0, "");
    if (record == NULL)
        return;
    attn__device_name(plugin, &device->device, text, sizeof text);
    record->has_device = 1;
    record->device = device->device;
    record->device_name = keep(report, text);
    record->device_type = keep(report, attn__device_type(plugin, &device->device));
    record->device_text = keep(report, device->name);
    record->device_arch = keep(report, device->arch);
    record->memory_bytes = device->memory_bytes;
    record->units = device->units;
}

/* Lists one backend of a file: on each device, or without a device and with the reason. */
static void add_named(struct attn_report *report, const struct attn__plugin *plugin, const char *name,
                      uint32_t device_class)
{
    struct attn_context *context = plugin->context;
    const char *wanted = attn__env_get(&context->env, ATTN__VAR_ATTN_BACKEND);
    uint32_t reason = 0;
    if (plugin->state != ATTN__OPEN && plugin->reason != 0)
        add_backend(report, plugin, name, device_class, ATTN_BACKEND_REFUSED, plugin->reason, plugin->text);
    else if (!attn__wanted_backend(context, wanted, name, &reason))
        add_backend(report, plugin, name, device_class, ATTN_BACKEND_NOT_ASKED, reason,
                    attn_reason_text(reason));
    else if (!plugin->asked)
        add_backend(report, plugin, name, device_class, ATTN_BACKEND_NOT_ASKED, 0, "");
    else if (plugin->device_count == 0)
        add_backend(report, plugin, name, device_class, ATTN_BACKEND_NO_DEVICE, plugin->device_reason,
                    plugin->device_text);
    for (uint32_t i = 0; i < plugin->device_count && reason == 0; i++)
        add_on_device(report, plugin, name, &plugin->devices[i]);
}

static void add_backends(struct attn_report *report, const struct attn__plugin *plugin)
{
    char list[sizeof plugin->note.backends], *rest = list;
    /* Backends of a duplicate are listed with the other file of that name. */
    if (!plugin->has_note || plugin->reason == ATTN_REASON_DUPLICATE)
        return;
    if (plugin->state == ATTN__OPEN) {
        for (uint32_t i = 0; i < plugin->backend_count; i++)
            add_named(report, plugin, plugin->backends[i].table.name, plugin->backends[i].table.device_class);
        return;
    }
    memcpy(list, plugin->note.backends, sizeof list);
    for (char *name; (name = strsep(&rest, ",")) != NULL;)
        add_named(report, plugin, name, plugin->note.device_class);
}

static int32_t finish(struct attn_report *report, struct attn_report **out, struct attn_error *err)
{
    if (report->failed) {
        attn_report_destroy(report);
        return attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for a report");
    }
    *out = report;
    return ATTN_OK;
}

static int32_t check(const struct attn_context *context, const char *what, struct attn_report **out,
                     struct attn_report **report, struct attn_error *err)
{
    if (context == NULL || out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, context == NULL ? "context" : "out",
                          "%s: %s is NULL; a context and a place for the report are accepted", what,
                          context == NULL ? "context" : "out");
    *out = NULL;
    int32_t status = attn__check_fork(context->born, what, err);
    if (status != ATTN_OK)
        return status;
    *report = calloc(1, sizeof **report);
    return *report != NULL ? ATTN_OK : attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for a report");
}

int32_t attn_context_get_report(struct attn_context *context, struct attn_report **out,
                                struct attn_error *err)
{
    struct attn_report *report;
    int32_t status = check(context, "attn_context_get_report", out, &report, err);
    if (status != ATTN_OK)
        return status;
    pthread_mutex_lock(&context->lock);
    for (uint32_t i = 0; i < context->directory_count; i++)
        add_directory(report, &context->directories[i]);
    for (uint32_t i = 0; i < context->plugin_count; i++) {
        if (context->plugins[i]->vanished)
            continue;
        add_file(report, context->plugins[i]);
        add_backends(report, context->plugins[i]);
    }
    pthread_mutex_unlock(&context->lock);
    return finish(report, out, err);
}

/* The registry's record of the file, if it was opened or is being opened. */
static struct attn__plugin *find_known(struct attn_context *context, const char *path)
{
    struct attn__plugin *known = NULL;
    struct stat status;
    if (stat(path, &status) != 0)
        return NULL;
    pthread_mutex_lock(&context->lock);
    for (uint32_t i = 0; i < context->plugin_count && known == NULL; i++)
        if (context->plugins[i]->state != ATTN__CLOSED && !context->plugins[i]->vanished &&
            attn__plugin_is_same(context->plugins[i], &status))
            known = context->plugins[i];
    pthread_mutex_unlock(&context->lock);
    return known;
}

/* An elevated process loads from the library's own directory alone. */
static void confine(struct attn__plugin *plugin)
{
    static const char place[] = ATTN_PLUGIN_DIR "/";
    bool inside = strncmp(plugin->path, place, sizeof place - 1) == 0 &&
                  strchr(plugin->path + sizeof place - 1, '/') == NULL;
    if (plugin->context->env.elevated && plugin->reason == 0 && !inside)
        attn__plugin_tell(plugin, plugin->stage, ATTN_REASON_UNTRUSTED_OWNER,
                          "%s lies outside of %s, from which alone an elevated process loads plugins",
                          plugin->path, ATTN_PLUGIN_DIR);
}

int32_t attn_context_inspect(struct attn_context *context, const char *path, struct attn_report **out,
                             struct attn_error *err)
{
    struct attn_report *report;
    struct attn__plugin *own = NULL, *plugin;
    int32_t status = check(context, "attn_context_inspect", out, &report, err);
    if (status != ATTN_OK)
        return status;
    if (path == NULL || path[0] == '\0') {
        free(report);
        return attn__fail(err, ATTN_E_INVALID, 0, "path", "path is %s; the path of a file is accepted",
                          path == NULL ? "NULL" : "empty");
    }
    plugin = find_known(context, path);
    if (plugin == NULL)
        plugin = own = attn__plugin_create(context, path);
    if (plugin == NULL) {
        report->failed = true;
        return finish(report, out, err);
    }
    if (own != NULL)
        confine(own);
    if (attn__plugin_is_usable(plugin))
        (void)attn__plugin_ask_devices(plugin); /* the record keeps what went wrong */
    pthread_mutex_lock(&context->lock);
    add_file(report, plugin);
    add_backends(report, plugin);
    pthread_mutex_unlock(&context->lock);
    attn__plugin_destroy(own);
    return finish(report, out, err);
}

void attn_report_destroy(struct attn_report *report)
{
    if (report == NULL)
        return;
    for (struct string *string = report->strings, *next; string != NULL; string = next) {
        next = string->next;
        free(string);
    }
    free(report->directories);
    free(report->files);
    free(report->backends);
    free(report);
}

const struct attn_directory_record *attn_report_get_directory(const struct attn_report *report,
                                                              uint32_t index)
{
    return report != NULL && index < report->directory_count ? &report->directories[index] : NULL;
}

const struct attn_file_record *attn_report_get_file(const struct attn_report *report, uint32_t index)
{
    return report != NULL && index < report->file_count ? &report->files[index] : NULL;
}

const struct attn_backend_record *attn_report_get_backend(const struct attn_report *report, uint32_t index)
{
    return report != NULL && index < report->backend_count ? &report->backends[index] : NULL;
}
