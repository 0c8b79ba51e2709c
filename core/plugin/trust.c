/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whether a file may be loaded: who owns and who may write it, and every directory and link on the way. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
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
    if (elevated)
        return;
    attn__library_path(path, sizeof path);
    if (path[0] != '\0' && stat(path, &status) == 0) {
        trust->has_library = true;
        trust->library = status.st_uid;
    }
}

static bool is_trusted_owner(const struct attn__trust *trust, uid_t owner)
{
    if (owner == 0)
        return true;
    if (trust->elevated)
        return false;
    return owner == trust->user || (trust->has_library && owner == trust->library);
}

uint32_t attn__trust_judge(const struct attn__trust *trust, const char *path, const struct stat *status,
                           uint32_t *out_group_writable, char *text, size_t size)
{
    const struct attn__words words = {text, size};
    const unsigned mode = (unsigned)status->st_mode & 07777U;
    if (!is_trusted_owner(trust, status->st_uid))
        return attn__refuse(&words, ATTN_REASON_UNTRUSTED_OWNER, "%s belongs to user %u; %s", path,
                            (unsigned)status->st_uid,
                            trust->elevated ? "only root is trusted in an elevated process"
                                            : "root, the current user and the owner of libattn are trusted");
    if (S_ISLNK(status->st_mode)) /* its mode says nothing */
        return 0;
    bool sticky = S_ISDIR(status->st_mode) && (status->st_mode & S_ISVTX) != 0 && !trust->elevated;
    if ((status->st_mode & S_IWOTH) != 0 && !sticky)
        return attn__refuse(&words, ATTN_REASON_UNTRUSTED_MODE, "%s is writable by others (mode %04o)", path,
                            mode);
    if ((status->st_mode & S_IWGRP) != 0 && !sticky && trust->elevated)
        return attn__refuse(&words, ATTN_REASON_UNTRUSTED_MODE,
                            "%s is writable by a group (mode %04o), which an elevated process refuses", path,
                            mode);
    *out_group_writable |= (status->st_mode & S_IWGRP) != 0 && !sticky;
    return 0;
}

/* What is still to be walked, and what was: both absolute or empty. */
struct walk {
    char rest[2 * PATH_MAX];
    char done[PATH_MAX];
    uint32_t links;
};

static uint32_t unreadable(const struct attn__words *words, const char *path, int error)
{
    if (error == ENOTDIR)
        return attn__refuse(words, ATTN_REASON_NOT_A_FILE, "%s stands where a directory is needed", path);
    if (error == ENOENT)
        return attn__refuse(words, ATTN_REASON_UNREADABLE, "%s does not exist", path);
    return attn__refuse(words, ATTN_REASON_UNREADABLE, "%s: %s", path, strerrordesc_np(error));
}

/* Puts a link's target before the rest. */
static int follow(struct walk *walk)
{
    char target[PATH_MAX], rest[sizeof walk->rest];
    ssize_t length = readlink(walk->done, target, sizeof target - 1);
    if (length <= 0)
        return length < 0 ? errno : ENOENT;
    target[length] = '\0';
    if (++walk->links > LINKS_MOST)
        return ELOOP;
    int n = snprintf(rest, sizeof rest, "%s/%s", target, walk->rest);
    if (n < 0 || (size_t)n >= sizeof rest)
        return ENAMETOOLONG;
    memcpy(walk->rest, rest, (size_t)n + 1);
    if (target[0] == '/')
        walk->done[0] = '\0';
    else
        *strrchr(walk->done, '/') = '\0';
    return 0;
}

/* Moves one component from rest to done; 0 components left: false. */
static bool step(struct walk *walk, int *out_error)
{
    char *start = walk->rest + strspn(walk->rest, "/");
    size_t length = strcspn(start, "/"), done = strlen(walk->done);
    *out_error = 0;
    if (length == 0)
        return false;
    if (length == 2 && strncmp(start, "..", 2) == 0) {
        char *last = strrchr(walk->done, '/');
        if (last != NULL)
            *last = '\0';
    } else if (length != 1 || start[0] != '.') {
        if (done + length + 2 > sizeof walk->done)
            *out_error = ENAMETOOLONG;
        else
            snprintf(walk->done + done, sizeof walk->done - done, "/%.*s", (int)length, start);
    }
    memmove(walk->rest, start + length, strlen(start + length) + 1);
    return true;
}

uint32_t attn__trust_walk(const struct attn__trust *trust, const char *path, struct stat *out,
                          uint32_t *out_group_writable, char *text, size_t size)
{
    const struct attn__words words = {text, size};
    struct walk walk = {.links = 0};
    int error = 0;
    bool link;
    *out_group_writable = 0;
    text[0] = '\0';
    if (path[0] != '/' && getcwd(walk.rest, PATH_MAX) == NULL)
        return attn__refuse(&words, ATTN_REASON_UNREADABLE,
                            "%s is relative, and the working directory cannot be told: %s", path,
                            strerrordesc_np(errno));
    size_t before = strlen(walk.rest);
    int n = snprintf(walk.rest + before, sizeof walk.rest - before, "/%s", path);
    if (n < 0 || (size_t)n >= sizeof walk.rest - before)
        return unreadable(&words, path, ENAMETOOLONG);
    do {
        const char *name = walk.done[0] != '\0' ? walk.done : "/";
        if (error != 0 || lstat(name, out) != 0)
            return unreadable(&words, name, error != 0 ? error : errno);
        uint32_t reason = attn__trust_judge(trust, name, out, out_group_writable, text, size);
        if (reason != 0)
            return reason;
        link = S_ISLNK(out->st_mode);
        if (link && (error = follow(&walk)) != 0)
            return unreadable(&words, name, error);
    } while (step(&walk, &error) || link);
    return 0;
}
