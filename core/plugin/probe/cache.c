/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Results of earlier probes: a text file of one line for each path that was probed. The line begins with a
 * hash of everything that the result depends on. Files are written by rename, so that readers see the old one
 * or the new one.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/quiet.h"
#include "plugin/probe/probe.h"

enum { NAME_LENGTH = 16, LINE_MOST = 400 };
enum { DAY = 24 * 60 * 60, TEN_MINUTES = 10 * 60 };

/* ---------------------------------------------------------------- key */

static uint64_t mix_text(uint64_t hash, const char *text)
{
    return attn__hash(hash, text, strlen(text) + 1);
}

/* Identity and times of a file that a probe depends on. */
static uint64_t mix_file(uint64_t hash, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return hash;
    hash = attn__hash(hash, &status.st_ino, sizeof status.st_ino);
    hash = attn__hash(hash, &status.st_size, sizeof status.st_size);
    return attn__hash(hash, &status.st_mtim, sizeof status.st_mtim);
}

/* The lines of the first CPU that say what it is. */
static uint64_t mix_cpu(uint64_t hash)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '\n')
        if (strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0)
            hash = mix_text(hash, line);
    if (file != NULL)
        fclose(file);
    return hash;
}

void attn__cache_key(const struct attn__plugin *plugin, char key[ATTN__KEY_SIZE])
{
    const uint64_t start = ATTN__HASH_START;
    const uint32_t interface[] = {ATTN_ABI_MAJOR, ATTN_ABI_MINOR};
    const char *search = attn__env_outside(&plugin->context->env, "LD_LIBRARY_PATH");
    char library[PATH_MAX];
    struct utsname host;
    const uint64_t name = mix_text(mix_text(start, plugin->path), uname(&host) == 0 ? host.nodename : "");
    uint64_t rest = attn__hash(start, &plugin->identity, sizeof plugin->identity);
    rest = attn__hash(rest, interface, sizeof interface);
    attn__library_path(library, sizeof library);
    rest = mix_file(mix_file(rest, library), "/etc/ld.so.cache");
    rest = mix_cpu(mix_text(rest, search != NULL ? search : ""));
    snprintf(key, ATTN__KEY_SIZE, "%016" PRIx64 "%016" PRIx64, name, rest);
}

/* ---------------------------------------------------------------- directory */

static bool is_own(const struct stat *status)
{
    return status->st_uid == geteuid() && (status->st_mode & S_IWOTH) == 0;
}

/* Makes the last two components if they are missing: ~/.cache and attn. */
static bool make_directory(const char *path)
{
    char parent[PATH_MAX];
    struct stat status;
    if (mkdir(path, 0700) != 0 && errno == ENOENT) {
        snprintf(parent, sizeof parent, "%s", path);
        char *slash = strrchr(parent, '/');
        if (slash == NULL || slash == parent)
            return false;
        *slash = '\0';
        (void)mkdir(parent, 0700);
        (void)mkdir(path, 0700);
    }
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode) && is_own(&status);
}

bool attn__cache_directory(const struct attn__env *env, char *path, size_t size)
{
    const char *given = attn__env_get(env, ATTN__VAR_ATTN_CACHE_DIR);
    const char *cache = attn__env_outside(env, "XDG_CACHE_HOME"), *home = attn__env_outside(env, "HOME");
    int length = -1;
    if (env->elevated)
        return false;
    if (given[0] != '\0')
        length = snprintf(path, size, "%s", given);
    else if (cache != NULL && cache[0] == '/')
        length = snprintf(path, size, "%s/attn", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, size, "%s/.cache/attn", home);
    return length > 0 && (size_t)length < size && make_directory(path);
}

/* ---------------------------------------------------------------- files */

/* "KEY OUTCOME NUMBER SINCE|STEP|TEXT" */
static bool parse_line(char *line, char key[ATTN__KEY_SIZE], struct attn__result *out)
{
    int at = 0;
    memset(out, 0, sizeof *out);
    if (sscanf(line, "%32[0-9a-f] %" SCNu32 " %" SCNu32 " %" SCNd64 "|%n", key, &out->outcome, &out->number,
               &out->since, &at) != 4 ||
        at == 0)
        return false;
    char *rest = line + at, *step = strsep(&rest, "|"), *text = strsep(&rest, "\n");
    if (text == NULL || rest == NULL || strlen(step) >= sizeof out->step || strlen(text) >= sizeof out->text)
        return false;
    memcpy(out->step, step, strlen(step));
    memcpy(out->text, text, strlen(text));
    return out->outcome >= ATTN__GOOD && out->outcome <= ATTN__EXITED;
}

/* The result in one file. False if there is none, or none that may be trusted. */
static bool read_file(const char *path, char key[ATTN__KEY_SIZE], struct attn__result *out)
{
    char line[LINE_MOST] = "";
    struct stat status;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    const bool trusted = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_own(&status) &&
                         read(fd, line, sizeof line - 1) > 0;
    close(fd);
    return trusted && parse_line(line, key, out);
}

/* In a read-only directory, or on a full disk, nothing is kept, and every probe is made again. */
void attn__cache_store(const char *directory, const char *key, const struct attn__result *result)
{
    char path[PATH_MAX], temporary[PATH_MAX], line[LINE_MOST];
    struct attn__quiet quiet;
    if (result->outcome < ATTN__GOOD || result->outcome > ATTN__EXITED)
        return;
    snprintf(path, sizeof path, "%s/%.*s", directory, NAME_LENGTH, key);
    snprintf(temporary, sizeof temporary, "%s/.XXXXXX", directory);
    const int length = snprintf(line, sizeof line, "%s %" PRIu32 " %" PRIu32 " %" PRId64 "|%s|%s\n", key,
                                result->outcome, result->number, result->since, result->step, result->text);
    const int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return;
    attn__quiet_begin(&quiet);
    bool written = write(fd, line, (size_t)length) == length;
    written = close(fd) == 0 && written;
    attn__quiet_end(&quiet);
    if (!written || rename(temporary, path) != 0)
        (void)unlink(temporary);
}

bool attn__cache_load(const char *directory, const char *key, int64_t now, struct attn__result *out)
{
    char path[PATH_MAX], found[ATTN__KEY_SIZE];
    snprintf(path, sizeof path, "%s/%.*s", directory, NAME_LENGTH, key);
    if (!read_file(path, found, out) || strcmp(found, key) != 0)
        return false;
    /* Unsigned, because the file may hold any number: a time in the future gives a huge age. */
    const uint64_t age = (uint64_t)now - (uint64_t)out->since;
    return out->outcome == ATTN__GOOD || age <= (out->outcome == ATTN__TIMED_OUT ? TEN_MINUTES : DAY);
}

void attn__cache_reset(const char *directory)
{
    char path[PATH_MAX], key[ATTN__KEY_SIZE];
    struct attn__result result;
    DIR *list = opendir(directory);
    const struct dirent *entry;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        if (strspn(entry->d_name, "0123456789abcdef") != NAME_LENGTH)
            continue;
        snprintf(path, sizeof path, "%s/%.*s", directory, NAME_LENGTH, entry->d_name);
        if (read_file(path, key, &result) && result.outcome != ATTN__GOOD)
            (void)unlink(path);
    }
    if (list != NULL)
        closedir(list);
}
