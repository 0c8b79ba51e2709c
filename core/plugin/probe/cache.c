/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Results of earlier probes, in the memory of this process and in a text file of one line each. A result is
 * found by a hash of everything that it depends on. The file is written by rename, so that readers see the
 * old one or the new one; of two writers at once one may lose its lines, which costs a probe.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/quiet.h"
#include "plugin/probe/probe.h"

enum { RESULTS_MOST = 256, LINE_MOST = 400, FILE_MOST = RESULTS_MOST * LINE_MOST };
enum { DAY = 24 * 60 * 60, TEN_MINUTES = 10 * 60 };

static const char file_name[] = "results";
static const char header[] = "libattn results 1";

/* ---------------------------------------------------------------- key */

struct hash {
    uint64_t a, b;
};

static void mix(struct hash *hash, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++) {
        hash->a = (hash->a ^ p[i]) * UINT64_C(0x100000001b3);
        hash->b = (hash->b + p[i] + 1) * UINT64_C(0x9e3779b97f4a7c15);
        hash->b ^= hash->b >> 29;
    }
}

static void mix_text(struct hash *hash, const char *text)
{
    mix(hash, text, strlen(text) + 1);
}

/* Identity and times of a file that a probe depends on. */
static void mix_file(struct hash *hash, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return;
    mix(hash, &status.st_ino, sizeof status.st_ino);
    mix(hash, &status.st_size, sizeof status.st_size);
    mix(hash, &status.st_mtim, sizeof status.st_mtim);
}

/* The lines of the first CPU that say what it is. */
static void mix_cpu(struct hash *hash)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '\n')
        if (strncmp(line, "model name", 10) == 0 || strncmp(line, "CPU part", 8) == 0)
            mix_text(hash, line);
    if (file != NULL)
        fclose(file);
}

void attn__cache_key(const struct attn__plugin *plugin, char key[ATTN__KEY_SIZE])
{
    struct hash hash = {UINT64_C(0xcbf29ce484222325), 1};
    const uint64_t numbers[] = {
        plugin->device_id,          plugin->inode,  plugin->size,  (uint64_t)plugin->mtime_ns,
        (uint64_t)plugin->ctime_ns, ATTN_ABI_MAJOR, ATTN_ABI_MINOR};
    const char *search = attn__env_outside(&plugin->context->env, "LD_LIBRARY_PATH");
    char library[PATH_MAX];
    struct utsname host;
    mix(&hash, numbers, sizeof numbers);
    attn__library_path(library, sizeof library);
    mix_file(&hash, library);
    mix_file(&hash, "/etc/ld.so.cache");
    mix_text(&hash, search != NULL ? search : "");
    if (uname(&host) == 0)
        mix_text(&hash, host.nodename);
    mix_cpu(&hash);
    snprintf(key, ATTN__KEY_SIZE, "%016" PRIx64 "%016" PRIx64, hash.a, hash.b);
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

/* ---------------------------------------------------------------- list */

/* What is kept in one place. */
struct list {
    int directory; /* of the file; -1: memory */
    uint32_t count;
    struct entry {
        char key[ATTN__KEY_SIZE];
        struct attn__result result;
    } entries[RESULTS_MOST];
};

/* The file's text; free() it. NULL if there is none, or none that may be trusted. */
static char *read_file(int directory)
{
    struct stat status;
    char *text = NULL;
    int fd = openat(directory, file_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && is_own(&status) && status.st_size <= FILE_MOST)
        text = calloc((size_t)status.st_size + 1, 1);
    if (text != NULL && pread(fd, text, (size_t)status.st_size, 0) < 0)
        text[0] = '\0';
    close(fd);
    return text;
}

/* "KEY OUTCOME NUMBER SINCE STEP|TEXT" */
static bool parse_line(const char *line, struct entry *out)
{
    struct attn__result *result = &out->result;
    int at = 0;
    memset(out, 0, sizeof *out);
    if (sscanf(line, "%32[0-9a-f] %" SCNu32 " %" SCNu32 " %" SCNd64 " %n", out->key, &result->outcome,
               &result->number, &result->since, &at) != 4 ||
        at == 0 || strlen(out->key) != ATTN__KEY_SIZE - 1)
        return false;
    size_t step = strcspn(line + at, "|");
    if (line[at + (int)step] != '|' || step >= sizeof result->step)
        return false;
    memcpy(result->step, line + at, step);
    snprintf(result->text, sizeof result->text, "%s", line + at + step + 1);
    return result->outcome >= ATTN__GOOD && result->outcome <= ATTN__EXITED;
}

static void read_entries(struct list *list)
{
    char *text = read_file(list->directory), *rest = text, *line;
    if (text != NULL && (line = strsep(&rest, "\n")) != NULL && strcmp(line, header) == 0)
        while (list->count < RESULTS_MOST && (line = strsep(&rest, "\n")) != NULL)
            list->count += parse_line(line, &list->entries[list->count]);
    free(text);
}

/* What this process knows, under the shared lock. */
static struct list memory = {.directory = -1};

/* The list in a directory, or with NULL in memory. NULL if there is no such directory, or no memory. */
static struct list *open_list(const char *path)
{
    if (path == NULL) {
        attn__shared_lock();
        return &memory;
    }
    struct list *list = calloc(1, sizeof *list);
    if (list == NULL)
        return NULL;
    list->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list->directory < 0) {
        free(list);
        return NULL;
    }
    read_entries(list);
    return list;
}

static void close_list(struct list *list)
{
    if (list == &memory) {
        attn__shared_unlock();
        return;
    }
    close(list->directory);
    free(list);
}

static bool write_lines(FILE *file, const struct list *list)
{
    fprintf(file, "%s\n", header);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct attn__result *result = &list->entries[i].result;
        fprintf(file, "%s %" PRIu32 " %" PRIu32 " %" PRId64 " %s|%s\n", list->entries[i].key, result->outcome,
                result->number, result->since, result->step, result->text);
    }
    return fflush(file) == 0 && ferror(file) == 0;
}

/* In a read-only directory, or on a full disk, nothing is kept, and every probe is made again. */
static void write_list(const struct list *list)
{
    char name[64];
    static _Atomic uint32_t number;
    struct attn__quiet quiet;
    snprintf(name, sizeof name, ".%s.%ld.%u", file_name, (long)getpid(), number++);
    int fd = openat(list->directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    attn__quiet_begin(&quiet);
    bool written = write_lines(file, list);
    written = fclose(file) == 0 && written;
    attn__quiet_end(&quiet);
    if (!written || renameat(list->directory, name, list->directory, file_name) != 0)
        (void)unlinkat(list->directory, name, 0);
}

bool attn__result_counts(const struct attn__result *result, int64_t now)
{
    /* Unsigned, for the file may hold any number: the age of a time to come is huge. */
    uint64_t age = (uint64_t)now - (uint64_t)result->since;
    return result->outcome == ATTN__GOOD || age <= (result->outcome == ATTN__TIMED_OUT ? TEN_MINUTES : DAY);
}

bool attn__cache_load(const char *directory, const char *key, int64_t now, struct attn__result *out)
{
    struct list *list = open_list(directory);
    bool found = false;
    for (uint32_t i = 0; list != NULL && i < list->count && !found; i++) {
        if (strcmp(list->entries[i].key, key) == 0 && attn__result_counts(&list->entries[i].result, now)) {
            *out = list->entries[i].result;
            found = true;
        }
    }
    if (list != NULL)
        close_list(list);
    return found;
}

static bool contains(const struct attn__probe *probes, uint32_t count, const char *key)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(key, probes[i].key) == 0)
            return true;
    return false;
}

void attn__cache_store(const char *directory, const struct attn__probe *probes, uint32_t count, int64_t now)
{
    struct list *list = open_list(directory);
    uint32_t kept = 0;
    if (list == NULL)
        return;
    for (uint32_t i = 0; i < list->count; i++)
        if (!contains(probes, count, list->entries[i].key) &&
            attn__result_counts(&list->entries[i].result, now))
            list->entries[kept++] = list->entries[i];
    list->count = kept;
    for (uint32_t i = 0; i < count; i++) {
        if (probes[i].result.outcome < ATTN__GOOD || probes[i].result.outcome > ATTN__EXITED)
            continue;
        list->count -= list->count == RESULTS_MOST; /* a full list loses its last one */
        memmove(list->entries + 1, list->entries, list->count++ * sizeof list->entries[0]);
        list->entries[0].result = probes[i].result;
        memcpy(list->entries[0].key, probes[i].key, ATTN__KEY_SIZE);
    }
    if (list != &memory)
        write_list(list);
    close_list(list);
}

void attn__cache_reset(const char *directory)
{
    struct list *list = open_list(directory);
    uint32_t kept = 0;
    if (list == NULL)
        return;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->entries[i].result.outcome == ATTN__GOOD)
            list->entries[kept++] = list->entries[i];
    const bool changed = kept != list->count;
    list->count = kept;
    if (changed && list != &memory)
        write_list(list);
    close_list(list);
}
