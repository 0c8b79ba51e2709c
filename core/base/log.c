/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The log sink: levels by subsystem, a callback, stderr or a file; one write per line. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/env.h"
#include "base/quiet.h"
#include "show.h"

#define LINE_MAX_BYTES 1200
#define SAID_MAX       4096

static const char *const level_names[] = {NULL, "error", "warn", "info", "dispatch", "debug", "trace"};
#define LEVELS (sizeof level_names / sizeof level_names[0])

static uint32_t level_of(const char *text, size_t length)
{
    for (uint32_t i = 1; i < LEVELS; i++)
        if (strlen(level_names[i]) == length && strncmp(level_names[i], text, length) == 0)
            return i;
    return 0;
}

/* One item, "level" or "level:subsystem". */
static bool parse_item(const char *item, size_t length, struct attn__log *log, char *problem, size_t size)
{
    const char *colon = memchr(item, ':', length);
    size_t level_length = colon != NULL ? (size_t)(colon - item) : length;
    uint32_t level = level_of(item, level_length);
    if (level == 0) {
        snprintf(problem, size,
                 "\"%.*s\" is no log level; error, warn, info, dispatch, debug or trace is accepted, "
                 "or level:subsystem",
                 (int)(level_length < 40 ? level_length : 40), item);
        return false;
    }
    if (colon == NULL) {
        if (log != NULL)
            log->level = level;
        return true;
    }
    size_t name_length = length - level_length - 1;
    if (name_length == 0 || name_length >= sizeof log->subsystem[0].name) {
        snprintf(problem, size, "the subsystem in \"%.*s\" has %zu letters; 1 to %zu are accepted",
                 (int)(length < 40 ? length : 40), item, name_length, sizeof log->subsystem[0].name - 1);
        return false;
    }
    if (log == NULL)
        return true;
    if (log->subsystems == sizeof log->subsystem / sizeof log->subsystem[0]) {
        snprintf(problem, size, "it names more than %u subsystems; as many are accepted", log->subsystems);
        return false;
    }
    memcpy(log->subsystem[log->subsystems].name, colon + 1, name_length);
    log->subsystem[log->subsystems].name[name_length] = '\0';
    log->subsystem[log->subsystems++].level = level;
    return true;
}

bool attn__log_parse(const char *text, struct attn__log *log, char *problem, size_t size)
{
    struct attn__log discarded = {.level = 0};
    if (log == NULL)
        log = &discarded;
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        if (!parse_item(p, length, log, problem, size))
            return false;
        p += length;
        if (*p == '\0')
            return true;
    }
}

/* Replaces %p by the process id; false if it does not fit. */
static bool expand(const char *pattern, char *path, size_t size)
{
    size_t n = 0;
    for (const char *p = pattern; *p != '\0'; p++) {
        int wrote;
        if (p[0] == '%' && p[1] == 'p') {
            wrote = snprintf(path + n, size - n, "%ld", (long)getpid());
            p++;
        } else {
            wrote = snprintf(path + n, size - n, "%c", *p);
        }
        if (wrote < 0 || (size_t)wrote >= size - n)
            return false;
        n += (size_t)wrote;
    }
    return true;
}

/* Moves a descriptor above 0, 1 and 2, which other code may expect or make the standard streams. */
static int raise_descriptor(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int raised = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error == EINVAL ? EMFILE : error;
    return raised;
}

static void open_file(struct attn__log *log, struct attn__env *env)
{
    const char *pattern = attn__env_get(env, ATTN__VAR_ATTN_LOG_FILE);
    char path[4096], problem[1024];
    if (pattern[0] == '\0')
        return;
    path[0] = '\0';
    int fd = -1;
    if (expand(pattern, path, sizeof path)) /* O_NONBLOCK: opening a pipe without reader would block */
        fd = raise_descriptor(
            open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644));
    else
        errno = ENAMETOOLONG;
    if (fd >= 0) {
        log->fd = fd;
        log->own_fd = true;
        return;
    }
    /* Of a longer name the beginning: the record of a variable would lose the reason behind it. */
    snprintf(problem, sizeof problem, "%.800s cannot be opened for writing (%s); log lines go to stderr",
             path, strerrordesc_np(errno));
    env->records[ATTN__VAR_ATTN_LOG_FILE].problem = attn__env_keep_escaped(env, problem);
}

int32_t attn__log_init(struct attn__log *log, const struct attn_context_options *options,
                       struct attn__env *env, struct attn_error *err)
{
    char problem[256];
    memset(log, 0, sizeof *log);
    log->fd = STDERR_FILENO;
    log->level = ATTN_LOG_WARN;
    if (options != NULL && (options->log != NULL || (options->given & ATTN_GIVEN_LOG) != 0)) {
        log->callback = true;
        log->fn = options->log;
        log->user = options->log_user;
    }
    /* A bad value was replaced by the default when the environment was read. */
    (void)attn__log_parse(attn__env_get(env, ATTN__VAR_ATTN_LOG), log, problem, sizeof problem);
    if (pthread_mutex_init(&log->lock, NULL) != 0)
        return attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for the lock of the log");
    if (!log->callback) {
        char now[32];
        attn__time_text(now, sizeof now); /* reads the time zone, so that no line has to ask for memory */
        open_file(log, env);
    }
    return ATTN_OK;
}

void attn__log_finish(struct attn__log *log)
{
    if (log->own_fd)
        close(log->fd);
    free(log->said);
    pthread_mutex_destroy(&log->lock);
}

bool attn__log_wants(const struct attn__log *log, uint32_t level, const char *subsystem)
{
    if (level < ATTN_LOG_ERROR || level > ATTN_LOG_TRACE || (log->callback && log->fn == NULL))
        return false;
    for (uint32_t i = log->subsystems; i-- > 0;)
        if (strcmp(log->subsystem[i].name, subsystem) == 0)
            return level <= log->subsystem[i].level;
    return level <= log->level;
}

static void write_line(struct attn__log *log, uint32_t level, const char *subsystem, const char *message)
{
    /* Text of a plugin or a file must not control a terminal or look like a second line. */
    char text[LINE_MAX_BYTES], name[32];
    attn__show(message, text, sizeof text);
    attn__show(subsystem, name, sizeof name);
    if (log->callback) {
        log->fn(log->user, level, name, text);
        return;
    }
    char line[LINE_MAX_BYTES + 96], time[32];
    attn__time_text(time, sizeof time);
    int n = snprintf(line, sizeof line, "%s libattn %-8s %s: %s", time, level_names[level], name, text);
    if (n < 0)
        return;
    size_t length = (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[length++] = '\n';
    struct attn__quiet quiet;
    attn__quiet_begin(&quiet);
    while (write(log->fd, line, length) < 0 && errno == EINTR)
        continue;
    attn__quiet_end(&quiet);
}

void attn__log_line(struct attn__log *log, uint32_t level, const char *subsystem, const char *format, ...)
{
    if (!attn__log_wants(log, level, subsystem))
        return;
    int saved = errno;
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= 0)
        write_line(log, level, subsystem, text);
    errno = saved;
}

static uint64_t hash(const char *subsystem, const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *p = subsystem; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    for (const char *p = text; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    return h;
}

/* True the first time a key is seen. Without memory, always true: better a line twice than never. */
static bool is_first(struct attn__log *log, uint64_t key)
{
    bool first = true;
    pthread_mutex_lock(&log->lock);
    for (uint32_t i = 0; i < log->said_count && first; i++)
        first = log->said[i] != key;
    if (first && log->said_count < SAID_MAX) {
        uint64_t *more = log->said;
        if ((log->said_count & 31) == 0)
            more = realloc(log->said, (log->said_count + 32) * sizeof *more);
        if (more != NULL) {
            log->said = more;
            log->said[log->said_count++] = key;
        }
    }
    pthread_mutex_unlock(&log->lock);
    return first;
}

void attn__log_once(struct attn__log *log, uint32_t level, const char *subsystem, const char *format, ...)
{
    if (!attn__log_wants(log, level, subsystem))
        return;
    int saved = errno;
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n >= 0 && is_first(log, hash(subsystem, text)))
        write_line(log, level, subsystem, text);
    errno = saved;
}
