/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads plugin directories: every file named libattn-*.so becomes a record that says how far it came. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/loader.h"

#define OPEN_FLAGS (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

bool attn__plugin_is_same(const struct attn__plugin *plugin, const struct stat *status)
{
    return plugin->device_id == status->st_dev && plugin->inode == status->st_ino &&
           plugin->size == (uint64_t)status->st_size && plugin->mtime_ns == nanoseconds(&status->st_mtim) &&
           plugin->ctime_ns == nanoseconds(&status->st_ctim);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a fifo"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "something else";
}

/* Takes the identity of an open file, then its headers and note. 0 or a reason with text. */
static uint32_t read_open(struct attn__plugin *plugin, int fd, const struct attn__words *words)
{
    struct attn__elf elf;
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return attn__refuse(words, ATTN_REASON_UNREADABLE, "%s cannot be opened: %s", plugin->path,
                            strerrordesc_np(errno));
    plugin->device_id = status.st_dev;
    plugin->inode = status.st_ino;
    plugin->size = (uint64_t)status.st_size;
    plugin->mtime_ns = nanoseconds(&status.st_mtim);
    plugin->ctime_ns = nanoseconds(&status.st_ctim);
    plugin->stage = ATTN_STAGE_TRUSTED;
    uint32_t reason = attn__elf_read(fd, &elf, words->text, words->size);
    plugin->note = elf.note;
    plugin->memory = elf.memory;
    plugin->has_note = elf.note.name[0] != '\0';
    return reason;
}

/* Judges the path before anything is opened: that alone would wake a writer of a fifo, or move a tape. */
static uint32_t read_file(struct attn__plugin *plugin, const struct attn__trust *trust)
{
    const struct attn__words words = {plugin->text, sizeof plugin->text};
    struct stat status;
    uint32_t group_writable;
    if (stat(plugin->path, &status) == 0 && !S_ISREG(status.st_mode))
        return attn__refuse(&words, ATTN_REASON_NOT_A_FILE, "%s is %s; a regular file is accepted",
                            plugin->path, kind_of(status.st_mode));
    uint32_t reason = attn__trust_walk(trust, plugin->path, &status, &group_writable, words.text, words.size);
    if (reason != 0)
        return reason;
    const int fd = open(plugin->path, OPEN_FLAGS);
    reason = read_open(plugin, fd, &words);
    if (fd >= 0)
        close(fd);
    return reason;
}

struct attn__plugin *attn__plugin_read(struct attn_context *context, const struct attn__trust *trust,
                                       const char *path)
{
    uint64_t start = attn__now();
    struct attn__plugin *plugin = calloc(1, sizeof *plugin);
    if (plugin == NULL)
        return NULL;
    plugin->context = context;
    plugin->stage = ATTN_STAGE_FOUND;
    plugin->path = strdup(path);
    if (plugin->path == NULL) {
        free(plugin);
        return NULL;
    }
    plugin->reason = read_file(plugin, trust);
    if (plugin->reason == 0)
        plugin->stage = ATTN_STAGE_NOTE;
    plugin->nanoseconds = attn__now() - start;
    return plugin;
}

static int is_plugin_name(const struct dirent *entry)
{
    /* Not fnmatch: to that, bytes that are no text of the locale match nothing. */
    static const char start[] = "libattn-", end[] = ".so";
    size_t length = strlen(entry->d_name);
    return length >= sizeof start + sizeof end - 2 && memcmp(entry->d_name, start, sizeof start - 1) == 0 &&
           strcmp(entry->d_name + length - (sizeof end - 1), end) == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* What was read so far. */
struct found {
    struct attn__plugin **plugins;
    uint32_t count, capacity;
};

static bool append(struct found *found, struct attn__plugin *plugin)
{
    if (found->count == found->capacity) {
        uint32_t capacity = found->capacity + 16;
        struct attn__plugin **more = realloc(found->plugins, capacity * sizeof *more);
        if (more == NULL)
            return false;
        found->plugins = more;
        found->capacity = capacity;
    }
    found->plugins[found->count++] = plugin;
    return true;
}

static void say(struct attn_context *context, const struct attn__plugin *plugin)
{
    /* A plugin for a better CPU beside one for this CPU is no mistake. */
    bool quiet = attn_reason_is_absence(plugin->reason) || plugin->reason == ATTN_REASON_CPU_LEVEL;
    if (plugin->reason != 0)
        attn__log_once(&context->log, quiet ? ATTN_LOG_INFO : ATTN_LOG_WARN, "loader", "%s: %s: %s",
                       plugin->path, attn_reason_name(plugin->reason), plugin->text);
}

static bool read_entries(struct attn_context *context, const struct attn__trust *trust, const char *path,
                         struct dirent **entries, int count, struct found *found)
{
    char full[PATH_MAX];
    for (int i = 0; i < count; i++) {
        int n = snprintf(full, sizeof full, "%s/%s", strcmp(path, "/") == 0 ? "" : path, entries[i]->d_name);
        if (n < 0 || (size_t)n >= sizeof full) {
            attn__log_once(&context->log, ATTN_LOG_WARN, "loader", "%s/%s: the path is too long", path,
                           entries[i]->d_name);
            continue;
        }
        struct attn__plugin *plugin = attn__plugin_read(context, trust, full);
        if (plugin == NULL)
            return false;
        say(context, plugin);
        if (!append(found, plugin)) {
            attn__plugin_destroy(plugin);
            return false;
        }
    }
    return true;
}

/* The directory is trusted, but cannot be read: no more descriptors, say. */
static bool refuse_directory(struct attn_context *context, struct attn__directory *directory, int error)
{
    char text[PATH_MAX + 64];
    snprintf(text, sizeof text, "%s cannot be read: %s", directory->path, strerrordesc_np(error));
    char *copy = strdup(text);
    if (copy == NULL)
        return false;
    free(directory->text);
    directory->text = copy;
    directory->reason = ATTN_REASON_UNREADABLE;
    attn__log_once(&context->log, ATTN_LOG_WARN, "path", "%s", text);
    return true;
}

static bool read_directory(struct attn_context *context, const struct attn__trust *trust,
                           struct attn__directory *directory, struct found *found)
{
    struct dirent **entries = NULL;
    const char *path = directory->path;
    int count = scandir(path, &entries, is_plugin_name, by_bytes);
    int error = errno;
    bool done = true;
    if (count >= 0)
        done = read_entries(context, trust, path, entries, count, found);
    else
        done = error != ENOMEM && refuse_directory(context, directory, error);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return done;
}

int32_t attn__directories_read(struct attn_context *context, struct attn__directory *directories,
                               uint32_t directory_count, struct attn__plugin ***out, uint32_t *out_count)
{
    struct attn__trust trust;
    struct found found = {.count = 0};
    bool done = true;
    attn__trust_init(&trust, context->env.elevated);
    for (uint32_t i = 0; i < directory_count && done; i++) {
        struct attn__directory *directory = &directories[i];
        bool standard =
            strcmp(directory->origin, "libattn") == 0 || strcmp(directory->origin, "compiled-in") == 0;
        if (directory->reason == 0)
            done = read_directory(context, &trust, directory, &found);
        else /* a standard directory need not be there */
            attn__log_once(&context->log,
                           standard && directory->reason == ATTN_REASON_UNREADABLE ? ATTN_LOG_DEBUG
                                                                                   : ATTN_LOG_WARN,
                           "path", "%s (%s): %s", directory->path, directory->origin, directory->text);
    }
    if (!done) {
        for (uint32_t i = 0; i < found.count; i++)
            attn__plugin_destroy(found.plugins[i]);
        free(found.plugins);
        return ATTN_E_MEMORY;
    }
    *out = found.plugins;
    *out_count = found.count;
    return ATTN_OK;
}
