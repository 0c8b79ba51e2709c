/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whether a file may be loaded: who owns and who may write it, and every directory and link on the way. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include "plugin/loader.h"

#define LINKS_MOST 40

void attn__library_path(char *path, size_t size)
{
    static const char here;
    Dl_info info;
    struct link_map *map = NULL;
    char name[PATH_MAX] = "";
    path[0] = '\0';
    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return;
    if (map->l_name[0] == '\0') { /* linked statically into the program */
        ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
        if (length <= 0)
            return;
        name[length] = '\0';
    } else if (strchr(map->l_name, '/') == NULL || realpath(map->l_name, name) == NULL) {
        return;
    }
    if (strlen(name) < size)
        memcpy(path, name, strlen(name) + 1);
}

void attn__trust_init(struct attn__trust *trust, bool elevated)
{
    char path[PATH_MAX];
    struct stat status;
    *trust = (struct attn__trust){.elevated = elevated, .user = geteuid()};
    attn__library_path(path, sizeof path);
    if (path[0] != '\0' && stat(path, &status) == 0)
        trust->library = status.st_uid;
}

static bool is_trusted_owner(const struct attn__trust *trust, uid_t owner)
{
    return owner == 0 || (!trust->elevated && (owner == trust->user || owner == trust->library));
}

uint32_t attn__trust_judge(struct attn__walk *walk, const char *path)
{
    const struct attn__trust *trust = walk->trust;
    const struct attn__words *words = walk->words;
    const struct stat *status = &walk->status;
    const unsigned mode = (unsigned)status->st_mode & 07777U;
    if (!is_trusted_owner(trust, status->st_uid))
        return attn__refuse(words, ATTN_REASON_UNTRUSTED_OWNER, "%s belongs to user %u; %s", path,
                            (unsigned)status->st_uid,
                            trust->elevated ? "only root is trusted in an elevated process"
                                            : "root, the current user and the owner of libattn are trusted");
    if (S_ISLNK(status->st_mode)) /* its mode says nothing */
        return 0;
    bool sticky = S_ISDIR(status->st_mode) && (status->st_mode & S_ISVTX) != 0 && !trust->elevated;
    if ((status->st_mode & S_IWOTH) != 0 && !sticky)
        return attn__refuse(words, ATTN_REASON_UNTRUSTED_MODE, "%s is writable by others (mode %04o)", path,
                            mode);
    if ((status->st_mode & S_IWGRP) != 0 && !sticky && trust->elevated)
        return attn__refuse(words, ATTN_REASON_UNTRUSTED_MODE,
                            "%s is writable by a group (mode %04o), which an elevated process refuses", path,
                            mode);
    walk->group_writable |= (status->st_mode & S_IWGRP) != 0 && !sticky;
    return 0;
}

static uint32_t unreadable(const struct attn__words *words, const char *path, int error)
{
    if (error == ENOTDIR)
        return attn__refuse(words, ATTN_REASON_NOT_A_FILE, "%s stands where a directory is needed", path);
    if (error == ENOENT)
        return attn__refuse(words, ATTN_REASON_UNREADABLE, "%s does not exist", path);
    if (error == ENAMETOOLONG && strlen(path) >= PATH_MAX)
        return attn__refuse(words, ATTN_REASON_UNREADABLE, "the path is longer than %d bytes", PATH_MAX);
    return attn__refuse(words, ATTN_REASON_UNREADABLE, "%s: %s", path, strerrordesc_np(error));
}

static uint32_t walk_along(struct attn__walk *walk, char *path, unsigned links);

/* The components of what a link leads to; `links` were followed to get to it. */
static uint32_t follow(struct attn__walk *walk, const char *link, unsigned links)
{
    char next[PATH_MAX];
    const size_t start = (size_t)(strrchr(link, '/') + 1 - link);
    memcpy(next, link, start);
    const ssize_t length = readlink(link, next + start, sizeof next - start);
    if (length < 0 || links == LINKS_MOST)
        return unreadable(walk->words, link, length < 0 ? errno : ELOOP);
    if (start + (size_t)length >= sizeof next)
        return unreadable(walk->words, link, ENAMETOOLONG);
    next[start + (size_t)length] = '\0';
    return walk_along(walk, next[start] == '/' ? next + start : next, links + 1);
}

/* Every component of an absolute path, which stays as it is, and of what links among them lead to. */
static uint32_t walk_along(struct attn__walk *walk, char *path, unsigned links)
{
    for (size_t end = 1;; end += strcspn(path + end, "/")) {
        const char behind = path[end];
        path[end] = '\0';
        uint32_t reason = lstat(path, &walk->status) != 0 ? unreadable(walk->words, path, errno)
                                                          : attn__trust_judge(walk, path);
        if (reason == 0 && S_ISLNK(walk->status.st_mode))
            reason = follow(walk, path, links);
        path[end] = behind;
        if (reason != 0 || behind == '\0')
            return reason;
        end += strspn(path + end, "/");
    }
}

uint32_t attn__trust_walk(struct attn__walk *walk, const char *path)
{
    char copy[PATH_MAX];
    walk->words->text[0] = '\0';
    if (path[0] != '/')
        return attn__refuse(walk->words, ATTN_REASON_UNREADABLE,
                            "%s is relative, and the working directory cannot be told", path);
    if (strlen(path) >= sizeof copy)
        return unreadable(walk->words, path, ENAMETOOLONG);
    memcpy(copy, path, strlen(path) + 1);
    const uint32_t reason = walk_along(walk, copy, 0);
    return reason == 0 && stat(path, &walk->status) != 0 ? unreadable(walk->words, path, errno) : reason;
}
