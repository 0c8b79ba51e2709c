/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where plugins are looked for: the directories in search order, each judged once. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/loader.h"

/* The list while it grows. */
struct list {
    struct attn__trust trust;
    struct attn__directory *directories;
    uint32_t count;
};

static bool is_seen(const struct list *list, const char *path, const struct attn__directory *directory)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct attn__directory *other = &list->directories[i];
        if (strcmp(other->path, path) == 0 || (directory->inode != 0 && other->inode == directory->inode &&
                                               other->device_id == directory->device_id))
            return true;
    }
    return false;
}

bool attn__path_absolute(const char *path, size_t length, char *out, size_t size)
{
    size_t n = 0;
    if (path[0] != '/') {
        if (getcwd(out, size) == NULL)
            return false;
        n = strlen(out);
        if (n + 1 < size)
            out[n++] = '/';
    }
    if (n + length + 1 > size) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(out + n, path, length);
    n += length;
    while (n > 1 && out[n - 1] == '/')
        n--;
    out[n] = '\0';
    return true;
}

/* Judges a directory and appends it; false without memory. */
static bool add(struct list *list, const char *path, size_t length, const char *origin)
{
    char absolute[PATH_MAX], text[PATH_MAX + 128];
    struct stat status;
    struct attn__directory directory = {.origin = origin};
    if (length == 0)
        return true;
    if (attn__path_absolute(path, length, absolute, sizeof absolute)) {
        directory.reason =
            attn__trust_walk(&list->trust, absolute, &status, &directory.group_writable, text, sizeof text);
        if (directory.reason == 0 && !S_ISDIR(status.st_mode)) {
            directory.reason = ATTN_REASON_NOT_A_FILE;
            snprintf(text, sizeof text, "%s is no directory", absolute);
        }
        if (directory.reason == 0) {
            directory.device_id = status.st_dev;
            directory.inode = status.st_ino;
            if (directory.group_writable)
                snprintf(text, sizeof text, "%s, or a directory above it, is writable by a group", absolute);
        }
    } else {
        int error = errno;
        snprintf(absolute, sizeof absolute, "%.*s", (int)(length < PATH_MAX / 2 ? length : PATH_MAX / 2),
                 path);
        directory.reason = ATTN_REASON_UNREADABLE;
        if (error == ENAMETOOLONG)
            snprintf(text, sizeof text, "the path is longer than %d bytes", PATH_MAX);
        else
            snprintf(text, sizeof text, "the path is relative, and the working directory cannot be told: %s",
                     strerrordesc_np(error));
    }
    if (is_seen(list, absolute, &directory))
        return true;
    directory.path = strdup(absolute);
    directory.text = strdup(text);
    struct attn__directory *more = realloc(list->directories, (list->count + 1) * sizeof *list->directories);
    list->directories = more != NULL ? more : list->directories;
    if (directory.path == NULL || directory.text == NULL || more == NULL) {
        free(directory.path);
        free(directory.text);
        return false;
    }
    list->directories[list->count++] = directory;
    return true;
}

static bool add_all(struct list *list, const char *paths, const char *origin)
{
    for (const char *p = paths;; p++) {
        size_t length = strcspn(p, ":");
        if (!add(list, p, length, origin))
            return false;
        p += length;
        if (*p == '\0')
            return true;
    }
}

/* The directory of libattn + "/attn". */
static bool add_own(struct list *list)
{
    char path[PATH_MAX];
    attn__library_path(path, sizeof path - sizeof "/attn");
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return true;
    memcpy(slash, "/attn", sizeof "/attn");
    return add(list, path, strlen(path), "libattn");
}

static bool fill(struct list *list, const struct attn__env *env, const char *option)
{
    static const char standard[] = ATTN_PLUGIN_DIR;
    if (!env->elevated) {
        if (option != NULL)
            return add_all(list, option, "option");
        if (attn__env_is_given(env, ATTN__VAR_ATTN_PLUGIN_PATH))
            return add_all(list, attn__env_get(env, ATTN__VAR_ATTN_PLUGIN_PATH), "ATTN_PLUGIN_PATH");
        if (!add_all(list, attn__env_get(env, ATTN__VAR_ATTN_PLUGIN_PATH_ADD), "ATTN_PLUGIN_PATH_ADD") ||
            !add_own(list))
            return false;
    }
    return add(list, standard, sizeof standard - 1, "compiled-in");
}

int32_t attn__path_init(const struct attn__env *env, const char *option, struct attn__directory **out,
                        uint32_t *out_count, struct attn_error *err)
{
    struct list list = {.count = 0};
    attn__trust_init(&list.trust, env->elevated);
    bool filled = fill(&list, env, option);
    if (!filled) {
        attn__path_finish(list.directories, list.count);
        return attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for the search path of plugins");
    }
    *out = list.directories;
    *out_count = list.count;
    return ATTN_OK;
}

void attn__path_finish(struct attn__directory *directories, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(directories[i].path);
        free(directories[i].text);
    }
    free(directories);
}
