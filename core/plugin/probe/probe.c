/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Starts one child per file to be probed, and listens to all of them until they have spoken or time is up. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/probe/probe.h"
#include "show.h"

enum { LINE_MOST = 256 };

/* A machine that is too busy to probe a plugin gets so much more time for it. */
#define STARVED_DEADLINES 5

/* So long a guard may take to end what its worker started. */
enum { GUARD_NS = 500000000, GUARD_LOOKS = 500 };

/* One child. */
struct child {
    struct attn__result *result;
    pid_t pid;
    pid_t worker; /* 0: not told yet */
    uint64_t start, deadline;
    int fd; /* -1: nothing more comes from it */
    char line[LINE_MOST];
    size_t length;
    bool done; /* the worker went all the way */
};

/* ---------------------------------------------------------------- starting */

static void unavailable(struct child *child, const char *what, const char *why)
{
    char words[sizeof child->line + 128];

    child->result->outcome = ATTN__UNAVAILABLE;
    snprintf(words, sizeof words, "%s: %s", what, why);
    attn__show(words, child->result->text, sizeof child->result->text);
}

static void cannot_start(struct child *child, const char *what, int error)
{
    unavailable(child, what, strerrordesc_np(error));
}

/* The child inherits no descriptor but one, no signal handler and no signal mask. */
static int spawn(const char *helper, const char *path, char *const *environment, int writer, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *arguments[] = {(char *)(uintptr_t)helper, (char *)(uintptr_t)path, NULL};
    sigset_t all, none;
    int error = posix_spawn_file_actions_init(&actions);

    if (error != 0)
        return error;
    sigfillset(&all);
    sigemptyset(&none);
    (void)posix_spawnattr_init(&attributes); /* these do not fail */
    (void)posix_spawnattr_setflags(&attributes,
                                   POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    for (int fd = 0; fd < 3 && error == 0; fd++)
        error = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, writer, ATTN__PROBE_FD);
    if (error == 0)
        error = posix_spawn_file_actions_addclosefrom_np(&actions, ATTN__PROBE_FD + 1);
    if (error == 0)
        error = posix_spawn(pid, helper, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* The write end must lie above the descriptors that the child opens anew. */
static int raise_writer(int writer)
{
    int raised = fcntl(writer, F_DUPFD_CLOEXEC, ATTN__PROBE_FD + 1), error = errno;

    close(writer);
    errno = error == EINVAL ? EMFILE : error; /* the limit of descriptors is below it */
    return raised;
}

static void start(struct child *child, const char *helper, const char *path, char *const *environment)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        cannot_start(child, "pipe", errno);
        return;
    }
    int writer = raise_writer(ends[1]);
    int error = writer < 0 ? errno : spawn(helper, path, environment, writer, &child->pid);
    if (writer >= 0)
        close(writer);
    if (error != 0) {
        close(ends[0]);
        bool lacks = access(helper, X_OK) == 0 && access("/dev/null", R_OK | W_OK) != 0;
        cannot_start(child, lacks ? "/dev/null" : helper, error);
        return;
    }
    child->fd = ends[0];
}

/* ---------------------------------------------------------------- listening */

/* Appends a side effect to the list of them. */
static void add_effect(struct attn__result *result, const char *text)
{
    size_t used = strlen(result->text);

    snprintf(result->text + used, sizeof result->text - used, "%s%s", used > 0 ? "; " : "", text);
    for (char *p = result->text + used; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

/* Code of the plugin can write into the pipe too; what is no name of a step was not said by the worker. */
static bool is_step(const char *text)
{
    return text[0] != ' ' && text[0] != '\0' && text[strspn(text, "abcdefghijklmnopqrstuvwxyz_ ")] == '\0';
}

/* One line of the guard or the worker; see probe-main.c. True if nothing more is to come. */
static bool hear(struct child *child, const char *line)
{
    struct attn__result *result = child->result;
    int number;

    if (strncmp(line, "cannot ", 7) == 0 && result->step[0] == '\0') {
        unavailable(child, "the second process of a probe cannot be started", line + 7);
        return true;
    }
    if (strncmp(line, "step ", 5) == 0) {
        if (is_step(line + 5))
            snprintf(result->step, sizeof result->step, "%.20s", line + 5);
    } else if (strncmp(line, "effect ", 7) == 0) {
        add_effect(result, line + 7);
    } else if (strncmp(line, "broken ", 7) == 0) {
        result->text[0] = '\0';
        add_effect(result, line + 7);
        result->outcome = ATTN__CRASHED;
    } else if (sscanf(line, "worker %d", &number) == 1) {
        child->worker = number;
    } else if (strcmp(line, "good") == 0 || strcmp(line, "refused") == 0) {
        child->done = true;
        result->outcome = line[0] == 'g' ? ATTN__GOOD : ATTN__NO_RESULT;
    } else if (result->step[0] == '\0') { /* nothing of the plugin ran */
        unavailable(child, "attn-probe", "it ended before the probe began");
        return true;
    } else if (sscanf(line, "signal %d", &number) == 1) {
        result->outcome = ATTN__CRASHED;
        result->number = (uint32_t)number;
        return true;
    } else if (sscanf(line, "exit %d", &number) == 1) {
        if (result->outcome == ATTN__CRASHED) /* it broke the calling convention */
            return true;
        result->number = (uint32_t)number;
        if (!child->done || number != 0)
            result->outcome = ATTN__EXITED;
        return true;
    }
    return false;
}

/* What arrived of a child. True if nothing more is to come. */
static bool listen_to(struct child *child)
{
    char bytes[512];
    ssize_t count = read(child->fd, bytes, sizeof bytes);

    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (count <= 0) { /* even the guard is gone */
        child->result->outcome = ATTN__EXITED;
        if (child->result->step[0] == '\0')
            unavailable(child, "attn-probe", "it ended before the probe began");
        return true;
    }
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            if (child->length + 1 < sizeof child->line)
                child->line[child->length++] = bytes[i];
            continue;
        }
        child->line[child->length] = '\0';
        child->length = 0;
        if (hear(child, child->line))
            return true;
    }
    return false;
}

/* Asks the guard to end the worker and all that it started, unless it has done so; then waits for it. */
static void end(struct child *child)
{
    const struct timespec moment = {0, GUARD_NS / GUARD_LOOKS};
    pid_t ended;

    close(child->fd);
    child->fd = -1;
    (void)kill(child->pid, SIGTERM);
    ended = waitpid(child->pid, NULL, WNOHANG);
    for (int i = 0; i < GUARD_LOOKS && ended == 0; i++) {
        nanosleep(&moment, NULL);
        ended = waitpid(child->pid, NULL, WNOHANG);
    }
    if (ended != 0)
        return;
    (void)kill(child->pid, SIGKILL); /* a plugin may have stopped the guard; its worker dies with it */
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static void time_out(struct child *child)
{
    child->result->outcome = ATTN__TIMED_OUT;
    child->result->text[0] = '\0';
    if (child->result->step[0] == '\0')
        unavailable(child, "attn-probe", "it did not begin the probe in time");
    end(child);
}

/* State and processor time of a process. False if it is not there. */
static bool look_at(pid_t process, char *out_state, uint64_t *out_ns)
{
    char path[64], text[512];
    unsigned long user = 0, kernel = 0;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[count > 0 ? count : 0] = '\0';
    const char *name_end = strrchr(text, ')');
    if (name_end == NULL || sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                                   out_state, &user, &kernel) != 3)
        return false;
    *out_ns = (uint64_t)(user + kernel) * (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK));
    return true;
}

/* Whether it wants to go on but the machine gives it no time: that is no fault of the plugin. */
static bool is_starved(const struct child *child)
{
    char state = 0;
    uint64_t used = 0;

    return look_at(child->worker > 0 ? child->worker : child->pid, &state, &used) &&
           (state == 'R' || state == 'D') && used < ATTN__PROBE_DEADLINE_NS / 2;
}

/* ---------------------------------------------------------------- all of them */

/* So many at once, lest a directory of hundreds takes the time of each from all. */
enum { CHILDREN_MOST = 16 };

/* Ends those that have had their time. Nanoseconds until the next one's end. */
static uint64_t watch(struct child *const *running, uint32_t count)
{
    uint64_t now = attn__now(), rest = ATTN__PROBE_DEADLINE_NS;

    for (uint32_t i = 0; i < count; i++) {
        struct child *child = running[i];
        if (child->fd >= 0 && now >= child->deadline) {
            if (now - child->start < STARVED_DEADLINES * ATTN__PROBE_DEADLINE_NS && is_starved(child))
                child->deadline = now + ATTN__PROBE_DEADLINE_NS / 8;
            else
                time_out(child);
        }
        if (child->fd >= 0 && child->deadline - now < rest)
            rest = child->deadline - now;
    }
    return rest;
}

/* Hears what the running ones say until one of them speaks or `rest` is over. False if nobody can be heard.
 */
static bool listen_all(struct child *const *running, uint32_t count, uint64_t rest)
{
    struct pollfd polls[CHILDREN_MOST];

    for (uint32_t i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = running[i]->fd, .events = POLLIN};
    if (poll(polls, count, (int)(rest / 1000000 + 1)) < 0 && errno != EINTR)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (polls[i].fd >= 0 && polls[i].revents != 0 && listen_to(running[i]))
            end(running[i]);
    return true;
}

/* Moves those that still run to the front, and says how many there are. */
static uint32_t keep_running(struct child **running, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        if (running[i]->fd >= 0) {
            struct child *child = running[i];
            running[i] = running[kept];
            running[kept++] = child;
        }
    return kept;
}

void attn__probe_run(const char *helper, char *const *environment, struct attn__probe *probes, uint32_t count)
{
    struct child children[CHILDREN_MOST], *running[CHILDREN_MOST];
    uint32_t next = 0, active = 0;

    for (uint32_t i = 0; i < CHILDREN_MOST; i++)
        running[i] = &children[i];
    while (active > 0 || next < count) {
        while (active < CHILDREN_MOST && next < count) {
            struct child *child = running[active];
            struct attn__probe *probe = &probes[next++];
            probe->result = (struct attn__result){.since = (int64_t)time(NULL)};
            *child = (struct child){.result = &probe->result, .fd = -1, .start = attn__now()};
            child->deadline = child->start + ATTN__PROBE_DEADLINE_NS;
            start(child, helper, probe->path, environment);
            active += child->fd >= 0;
        }
        uint64_t rest = watch(running, active);
        active = keep_running(running, active);
        if (active > 0 && !listen_all(running, active, rest))
            for (uint32_t i = 0; i < active; i++)
                if (running[i]->fd >= 0)
                    time_out(running[i]);
        active = keep_running(running, active);
    }
}

/* Beside the library in the build tree; else where the installation puts helpers. */
bool attn__probe_find_helper(char *path, size_t size)
{
    static const char *const places[] = {"attn-probe", ATTN_PROBE_FROM_LIB};
    char library[PATH_MAX];

    attn__library_path(library, sizeof library);
    char *slash = strrchr(library, '/');
    for (size_t i = 0; i < sizeof places / sizeof places[0] && slash != NULL; i++) {
        slash[1] = '\0';
        int length = places[i][0] == '/' ? snprintf(path, size, "%s", places[i])
                                         : snprintf(path, size, "%s%s", library, places[i]);
        if (length > 0 && (size_t)length < size && access(path, X_OK) == 0)
            return true;
    }
    return false;
}
