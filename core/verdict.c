/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Verdicts of earlier trials: one text file, a line each, found by a hash of everything that a verdict
 * depends on. Written by rename, so that readers see the old file or the new one; two writers at once may
 * lose one's lines, which costs a trial.
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

#include "probe.h"
#include "quiet.h"

enum { VERDICTS_MOST = 256, LINE_MOST = 400, FILE_MOST = VERDICTS_MOST * LINE_MOST };
enum { DAY = 24 * 60 * 60, TEN_MINUTES = 10 * 60 };

static const char file_name[] = "verdicts";
static const char header[] = "libattn verdicts 1";

/* ---------------------------------------------------------------- key */

struct hash {
    uint64_t a, b;
};

static void mix_bytes(struct hash *hash, const void *bytes, size_t size)
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
    mix_bytes(hash, text, strlen(text) + 1);
}

static void mix_number(struct hash *hash, uint64_t number)
{
    mix_bytes(hash, &number, sizeof number);
}

/* Identity and times of a file that a trial depends on. */
static void mix_file(struct hash *hash, const char *path)
{
    struct stat status;

    if (stat(path, &status) != 0)
        return;
    mix_number(hash, (uint64_t)status.st_ino);
    mix_number(hash, (uint64_t)status.st_size);
    mix_number(hash, (uint64_t)status.st_mtim.tv_sec);
    mix_number(hash, (uint64_t)status.st_mtim.tv_nsec);
}

/* The line of the first CPU that says what it is. */
static void mix_cpu(struct hash *hash)
{
    static const char *const names[] = {"model name", "CPU part"};
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");

    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '\n')
            break;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strncmp(line, names[i], strlen(names[i])) == 0)
                mix_text(hash, line);
    }
    fclose(file);
}

void attn__verdict_key(const struct attn__plugin *plugin, char key[ATTN__KEY_SIZE])
{
    struct hash hash = {UINT64_C(0xcbf29ce484222325), 1};
    const char *library_path = attn__env_outside(&plugin->context->env, "LD_LIBRARY_PATH");
    char library[PATH_MAX];
    struct utsname host;

    mix_number(&hash, plugin->device_id);
    mix_number(&hash, plugin->inode);
    mix_number(&hash, plugin->size);
    mix_number(&hash, (uint64_t)plugin->mtime_ns);
    mix_number(&hash, (uint64_t)plugin->ctime_ns);
    mix_number(&hash, ATTN_ABI_MAJOR);
    mix_number(&hash, ATTN_ABI_MINOR);
    attn__library_path(library, sizeof library);
    mix_file(&hash, library);
    mix_file(&hash, "/etc/ld.so.cache");
    mix_text(&hash, library_path != NULL ? library_path : "");
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

bool attn__verdict_directory(const struct attn__env *env, char *path, size_t size)
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

/* ---------------------------------------------------------------- file */

/* One line of the file. */
struct kept {
    char key[ATTN__KEY_SIZE];
    struct attn__verdict verdict;
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
static bool parse_line(const char *line, struct kept *out)
{
    struct attn__verdict *verdict = &out->verdict;
    int at = 0;

    memset(out, 0, sizeof *out);
    if (sscanf(line, "%32[0-9a-f] %" SCNu32 " %" SCNu32 " %" SCNd64 " %n", out->key, &verdict->outcome,
               &verdict->number, &verdict->since, &at) != 4 ||
        at == 0 || strlen(out->key) != ATTN__KEY_SIZE - 1)
        return false;
    size_t step = strcspn(line + at, "|");
    if (line[at + (int)step] != '|' || step >= sizeof verdict->step)
        return false;
    memcpy(verdict->step, line + at, step);
    snprintf(verdict->text, sizeof verdict->text, "%s", line + at + step + 1);
    return verdict->outcome >= ATTN__GOOD && verdict->outcome <= ATTN__EXITED;
}

/* A time to come is nonsense. */
bool attn__verdict_counts(const struct attn__verdict *verdict, int64_t now)
{
    if (verdict->outcome == ATTN__GOOD)
        return true;
    /* The file may hold any number: signed ones would overflow. */
    uint64_t age = (uint64_t)now - (uint64_t)verdict->since;
    return verdict->since <= now && age <= (verdict->outcome == ATTN__TIMED_OUT ? TEN_MINUTES : DAY);
}

static uint32_t read_all(int directory, struct kept *list, uint32_t most)
{
    char *text = read_file(directory), *rest = text, *line;
    uint32_t count = 0;

    if (text == NULL)
        return 0;
    if ((line = strsep(&rest, "\n")) != NULL && strcmp(line, header) == 0) {
        while (count < most && (line = strsep(&rest, "\n")) != NULL)
            count += parse_line(line, &list[count]);
    }
    free(text);
    return count;
}

static bool write_lines(FILE *file, const struct kept *list, uint32_t count)
{
    fprintf(file, "%s\n", header);
    for (uint32_t i = 0; i < count; i++) {
        const struct attn__verdict *v = &list[i].verdict;
        fprintf(file, "%s %" PRIu32 " %" PRIu32 " %" PRId64 " %s|%s\n", list[i].key, v->outcome, v->number,
                v->since, v->step, v->text);
    }
    return fflush(file) == 0 && ferror(file) == 0;
}

/* A read-only directory, a full disk: nothing is kept, and every trial is made again. */
static void write_all(int directory, const struct kept *list, uint32_t count)
{
    char name[64];
    static _Atomic uint32_t number;
    struct attn__quiet quiet;

    snprintf(name, sizeof name, ".%s.%ld.%u", file_name, (long)getpid(), number++);
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    attn__quiet_begin(&quiet);
    bool written = write_lines(file, list, count);
    written = fclose(file) == 0 && written;
    attn__quiet_end(&quiet);
    if (!written || renameat(directory, name, directory, file_name) != 0)
        (void)unlinkat(directory, name, 0);
}

static int open_directory(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool attn__verdict_load(const char *directory, const char *key, int64_t now, struct attn__verdict *out)
{
    struct kept *list = calloc(VERDICTS_MOST, sizeof *list);
    int at = open_directory(directory);
    uint32_t count = list != NULL && at >= 0 ? read_all(at, list, VERDICTS_MOST) : 0;
    bool found = false;

    for (uint32_t i = 0; i < count && !found; i++) {
        if (strcmp(list[i].key, key) == 0 && attn__verdict_counts(&list[i].verdict, now)) {
            *out = list[i].verdict;
            found = true;
        }
    }
    if (at >= 0)
        close(at);
    free(list);
    return found;
}

static bool is_new(const char *key, const char (*keys)[ATTN__KEY_SIZE], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(key, keys[i]) == 0)
            return false;
    return true;
}

void attn__verdict_store(const char *directory, const char (*keys)[ATTN__KEY_SIZE],
                         const struct attn__verdict *verdicts, uint32_t count, int64_t now)
{
    struct kept *old = calloc(VERDICTS_MOST, sizeof *old), *list = calloc(VERDICTS_MOST, sizeof *list);
    int at = open_directory(directory);
    uint32_t kept = 0;

    if (old != NULL && list != NULL && at >= 0) {
        for (uint32_t i = 0; i < count && kept < VERDICTS_MOST; i++) {
            if (verdicts[i].outcome < ATTN__GOOD || verdicts[i].outcome > ATTN__EXITED)
                continue;
            memcpy(list[kept].key, keys[i], ATTN__KEY_SIZE);
            list[kept++].verdict = verdicts[i];
        }
        uint32_t old_count = read_all(at, old, VERDICTS_MOST);
        for (uint32_t i = 0; i < old_count && kept < VERDICTS_MOST; i++)
            if (is_new(old[i].key, keys, count) && attn__verdict_counts(&old[i].verdict, now))
                list[kept++] = old[i];
        write_all(at, list, kept);
    }
    if (at >= 0)
        close(at);
    free(old);
    free(list);
}

void attn__verdict_pardon(const char *directory)
{
    struct kept *list = calloc(VERDICTS_MOST, sizeof *list);
    int at = open_directory(directory);
    uint32_t count = list != NULL && at >= 0 ? read_all(at, list, VERDICTS_MOST) : 0, kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (list[i].verdict.outcome == ATTN__GOOD)
            list[kept++] = list[i];
    if (kept != count)
        write_all(at, list, kept);
    if (at >= 0)
        close(at);
    free(list);
}
