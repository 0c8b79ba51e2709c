/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Finds plugin files: judges each directory of the search path once, in search order, and makes a record of
 * each file named libattn-*.so that says which stage it reached.
 */
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

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static struct attn__identity identify(const struct stat *status)
{
    return (struct attn__identity){status->st_dev, status->st_ino, (uint64_t)status->st_size,
                                   nanoseconds(&status->st_mtim), nanoseconds(&status->st_ctim)};
}

bool attn__is_same_inode(const struct attn__identity *a, const struct attn__identity *b)
{
    return a->inode != 0 && a->inode == b->inode && a->device == b->device;
}

/* ---------------------------------------------------------------- the search path */

/* Room for paths that are too long, so that messages can show them. */
#define PATH_SIZE (2 * PATH_MAX)

static bool is_seen(const struct attn__scan *scan, const struct attn__directory *directory, const char *path)
{
    for (uint32_t i = 0; i < scan->directory_count; i++)
        if (strcmp(scan->directories[i].path, path) == 0 ||
            attn__is_same_inode(&scan->directories[i].identity, &directory->identity))
            return true;
    return false;
}

/*
 * Makes a path absolute, so that nothing depends on a later working directory, and removes slashes at its
 * end. If the working directory is not known the path stays relative, which attn__trust_walk refuses.
 */
static void make_absolute(const char *path, size_t length, char out[PATH_SIZE])
{
    char here[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL)
        here[0] = '\0';
    snprintf(out, PATH_SIZE, "%s%s%.*s", here, here[0] != '\0' && here[1] != '\0' ? "/" : "",
             (int)(length < PATH_MAX ? length : PATH_MAX), path);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
}

/* Judges a directory, and appends it if it is a new one. */
static void add(struct attn__scan *scan, const char *path, size_t length, const char *origin, bool own)
{
    char absolute[PATH_SIZE];
    struct attn__directory directory = {.origin = origin, .own = own};
    const struct attn__words words = {directory.text, sizeof directory.text};
    struct attn__walk walk = {.trust = &scan->trust, .words = &words};
    if (length == 0)
        return;
    make_absolute(path, length, absolute);
    directory.reason = attn__trust_walk(&walk, absolute);
    directory.group_writable = walk.group_writable;
    if (directory.reason == 0) {
        directory.identity = identify(&walk.status);
        if (!S_ISDIR(walk.status.st_mode))
            directory.reason = attn__refuse(&words, ATTN_REASON_NOT_A_FILE, "%s is no directory", absolute);
        else if (directory.group_writable)
            attn__refuse(&words, 0, "%s, or a directory above it, is writable by a group", absolute);
    }
    if (is_seen(scan, &directory, absolute))
        return;
    struct attn__directory *more = realloc(scan->directories, (scan->directory_count + 1) * sizeof *more);
    directory.path = more != NULL ? strdup(absolute) : NULL;
    scan->directories = more != NULL ? more : scan->directories;
    if (directory.path != NULL)
        more[scan->directory_count++] = directory;
    else
        scan->failed = true;
}

static void add_all(struct attn__scan *scan, const char *paths, const char *origin)
{
    for (size_t length; paths[0] != '\0'; paths += length + (paths[length] == ':')) {
        length = strcspn(paths, ":");
        add(scan, paths, length, origin, false);
    }
}

/* The directory of libattn + "/attn". */
static void add_own(struct attn__scan *scan)
{
    char path[PATH_MAX];
    attn__library_path(path, sizeof path - sizeof "/attn");
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return;
    memcpy(slash, "/attn", sizeof "/attn");
    add(scan, path, strlen(path), "libattn", true);
}

void attn__scan_path(struct attn__scan *scan, const struct attn__env *env, const char *option)
{
    static const char standard[] = ATTN_PLUGIN_DIR;
    memset(scan, 0, sizeof *scan);
    attn__trust_init(&scan->trust, env->elevated);
    if (!env->elevated && option != NULL) {
        add_all(scan, option, "option");
    } else if (!env->elevated && attn__env_is_given(env, ATTN__VAR_ATTN_PLUGIN_PATH)) {
        add_all(scan, attn__env_get(env, ATTN__VAR_ATTN_PLUGIN_PATH), "ATTN_PLUGIN_PATH");
    } else {
        if (!env->elevated) {
            add_all(scan, attn__env_get(env, ATTN__VAR_ATTN_PLUGIN_PATH_ADD), "ATTN_PLUGIN_PATH_ADD");
            add_own(scan);
        }
        add(scan, standard, sizeof standard - 1, "compiled-in", true);
    }
}

/* ---------------------------------------------------------------- the files */

#define OPEN_FLAGS (O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

bool attn__plugin_is_same(const struct attn__plugin *plugin, const struct stat *status)
{
    const struct attn__identity now = identify(status);
    return memcmp(&plugin->identity, &now, sizeof now) == 0;
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

/* Judges the path before anything is opened: that alone would wake a writer of a fifo, or move a tape. */
static uint32_t judge_path(const struct attn__plugin *plugin, const struct attn__trust *trust,
                           const struct attn__words *words)
{
    struct attn__walk walk = {.trust = trust, .words = words};
    struct stat status;
    if (stat(plugin->path, &status) == 0 && !S_ISREG(status.st_mode))
        return attn__refuse(words, ATTN_REASON_NOT_A_FILE, "%s is %s; a regular file is accepted",
                            plugin->path, kind_of(status.st_mode));
    return attn__trust_walk(&walk, plugin->path);
}

/* Takes the identity of an open file, then its headers and note. 0 or a reason with words. */
static uint32_t read_file(struct attn__plugin *plugin, int fd, const struct attn__words *words)
{
    struct attn__elf elf;
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return attn__refuse(words, ATTN_REASON_UNREADABLE, "%s cannot be opened: %s", plugin->path,
                            strerrordesc_np(errno));
    plugin->identity = identify(&status);
    plugin->stage = ATTN_STAGE_TRUSTED;
    uint32_t reason = attn__elf_read(fd, plugin->identity.size, &elf, words);
    plugin->note = elf.note;
    plugin->memory = elf.memory;
    plugin->has_note = elf.note.name[0] != '\0';
    return reason;
}

/* A record for one file, every component of its path judged, and read. NULL without memory. */
static struct attn__plugin *read_plugin(struct attn_context *context, const struct attn__trust *trust,
                                        const char *path)
{
    const uint64_t start = attn__now();
    struct attn__plugin *plugin = calloc(1, sizeof *plugin);
    if (plugin == NULL)
        return NULL;
    const struct attn__words words = {plugin->text, sizeof plugin->text};
    plugin->context = context;
    plugin->stage = ATTN_STAGE_FOUND;
    plugin->path = strdup(path);
    if (plugin->path == NULL) {
        free(plugin);
        return NULL;
    }
    plugin->reason = judge_path(plugin, trust, &words);
    if (plugin->reason == 0) {
        const int fd = open(plugin->path, OPEN_FLAGS);
        plugin->reason = read_file(plugin, fd, &words);
        if (fd >= 0)
            close(fd);
    }
    if (plugin->reason == 0)
        plugin->stage = ATTN_STAGE_NOTE;
    plugin->nanoseconds = attn__now() - start;
    return plugin;
}

struct attn__plugin *attn__plugin_create(struct attn_context *context, const char *path)
{
    struct attn__trust trust;
    char absolute[PATH_SIZE];
    /* A path without a slash would make the dynamic linker search. */
    make_absolute(path, strlen(path), absolute);
    attn__trust_init(&trust, context->env.elevated);
    return read_plugin(context, &trust, absolute);
}

static int is_plugin_name(const struct dirent *entry)
{
    /* Not fnmatch, which matches no name that is invalid in the encoding of the locale. */
    static const char start[] = "libattn-", end[] = ".so";
    size_t length = strlen(entry->d_name);
    return length >= sizeof start + sizeof end - 2 && memcmp(entry->d_name, start, sizeof start - 1) == 0 &&
           strcmp(entry->d_name + length - (sizeof end - 1), end) == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void say(struct attn_context *context, const struct attn__plugin *plugin)
{
    /* A plugin for a better CPU beside one for this CPU is no mistake. */
    bool quiet = attn_reason_is_absence(plugin->reason) || plugin->reason == ATTN_REASON_CPU_LEVEL;
    if (plugin->reason != 0)
        attn__log_once(&context->log, quiet ? ATTN_LOG_INFO : ATTN_LOG_WARN, "loader", "%s: %s: %s",
                       plugin->path, attn_reason_name(plugin->reason), plugin->text);
}

/* Reads one file of a directory and appends its record. */
static void read_entry(struct attn__scan *scan, struct attn_context *context,
                       const struct attn__directory *directory, const char *name)
{
    char path[PATH_SIZE];
    struct attn__plugin **more = realloc(scan->plugins, (scan->plugin_count + 1) * sizeof scan->plugins[0]);
    scan->plugins = more != NULL ? more : scan->plugins;
    snprintf(path, sizeof path, "%s/%s", strcmp(directory->path, "/") == 0 ? "" : directory->path, name);
    struct attn__plugin *plugin = more != NULL ? read_plugin(context, &scan->trust, path) : NULL;
    if (plugin == NULL) {
        scan->failed = true;
        return;
    }
    plugin->own = directory->own;
    more[scan->plugin_count++] = plugin;
    say(context, plugin);
}

static void read_directory(struct attn__scan *scan, struct attn_context *context,
                           struct attn__directory *directory)
{
    const struct attn__words words = {directory->text, sizeof directory->text};
    struct dirent **entries = NULL;
    const int count = scandir(directory->path, &entries, is_plugin_name, by_bytes), error = errno;
    scan->failed = scan->failed || (count < 0 && error == ENOMEM);
    if (count < 0) { /* it is trusted, but for example no descriptor is free */
        directory->reason = attn__refuse(&words, ATTN_REASON_UNREADABLE, "%s cannot be read: %s",
                                         directory->path, strerrordesc_np(error));
        attn__log_once(&context->log, ATTN_LOG_WARN, "path", "%s", directory->text);
    }
    for (int i = 0; i < count; i++) {
        read_entry(scan, context, directory, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

void attn__scan_files(struct attn__scan *scan, struct attn_context *context)
{
    for (uint32_t i = 0; i < scan->directory_count; i++) {
        struct attn__directory *directory = &scan->directories[i];
        /* A directory of libattn's own need not be there. */
        const bool quiet = directory->own && directory->reason == ATTN_REASON_UNREADABLE;
        if (directory->reason == 0)
            read_directory(scan, context, directory);
        else
            attn__log_once(&context->log, quiet ? ATTN_LOG_DEBUG : ATTN_LOG_WARN, "path", "%s (%s): %s",
                           directory->path, directory->origin, directory->text);
    }
}

void attn__scan_finish(struct attn__scan *scan)
{
    for (uint32_t i = 0; i < scan->plugin_count; i++)
        attn__plugin_destroy(scan->plugins[i]);
    free(scan->plugins);
    attn__directories_destroy(scan->directories, scan->directory_count);
}

void attn__directories_destroy(struct attn__directory *directories, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(directories[i].path);
    free(directories);
}
