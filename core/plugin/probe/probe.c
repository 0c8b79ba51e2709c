/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Starts the helper for one file, and reads what its guard says of it until time is up. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/probe/probe.h"
#include "show.h"

static void unavailable(struct attn__result *result, const char *what, const char *why)
{
    char words[PATH_MAX + 128];
    result->outcome = ATTN__UNAVAILABLE;
    snprintf(words, sizeof words, "%s: %s", what, why);
    attn__show(words, result->text, sizeof result->text);
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
    /* First, for the pipe may have one of the numbers that are opened anew. */
    error = posix_spawn_file_actions_adddup2(&actions, writer, ATTN__PROBE_FD);
    for (int fd = 0; fd < ATTN__PROBE_FD && error == 0; fd++)
        error = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (error == 0)
        error = posix_spawn_file_actions_addclosefrom_np(&actions, ATTN__PROBE_FD + 1);
    if (error == 0)
        error = posix_spawn(pid, helper, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Takes `size` bytes from the guard. False if it ended before it wrote them, or time is up. */
static bool take(int fd, uint64_t deadline, void *out, size_t size)
{
    for (size_t done = 0; done < size;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        const uint64_t now = attn__now();
        if (now >= deadline)
            return false;
        const int ready = poll(&poll_fd, 1, (int)((deadline - now) / 1000000 + 1));
        const ssize_t count = ready > 0 ? read(fd, (char *)out + done, size - done) : 0;
        if ((ready > 0 && count == 0) || (ready < 0 && errno != EINTR))
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* The plugin shares a process with the worker, and may have written anything there. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '|')
            *p = '?';
}

/* Fills the result from what the guard says. False if it still runs. */
static bool listen_to(int fd, uint64_t deadline, struct attn__result *result)
{
    struct attn__result heard;
    char begun;
    if (!take(fd, deadline, &begun, sizeof begun)) {
        const bool ended = attn__now() < deadline;
        unavailable(result, "attn-probe",
                    ended ? "it ended before the probe began" : "it did not begin the probe in time");
        return ended;
    }
    if (!take(fd, deadline, &heard, sizeof heard)) { /* the plugin stopped or killed the guard */
        const bool ended = attn__now() < deadline;
        result->outcome = ended ? ATTN__EXITED : ATTN__TIMED_OUT;
        snprintf(result->step, sizeof result->step, "load");
        return ended;
    }
    heard.since = result->since;
    *result = heard;
    clean(result->step, sizeof result->step);
    clean(result->text, sizeof result->text);
    if (result->outcome > ATTN__UNAVAILABLE)
        result->outcome = ATTN__EXITED;
    return true;
}

void attn__probe_run(const char *helper, char *const *environment, const char *path,
                     struct attn__result *result)
{
    int ends[2];
    pid_t child = 0;
    *result = (struct attn__result){.since = (int64_t)time(NULL)};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        unavailable(result, "pipe", strerrordesc_np(errno));
        return;
    }
    const int error = spawn(helper, path, environment, ends[1], &child);
    close(ends[1]);
    if (error != 0) {
        const bool lacks = access(helper, X_OK) == 0 && access("/dev/null", R_OK | W_OK) != 0;
        unavailable(result, lacks ? "/dev/null" : helper, strerrordesc_np(error));
    } else {
        /* One more for the guard to end what its worker started. */
        const uint64_t most = (ATTN__PROBE_DEADLINES + 1) * ATTN__PROBE_DEADLINE_NS;
        if (!listen_to(ends[0], attn__now() + most, result))
            (void)kill(child, SIGKILL); /* its worker dies with it */
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    close(ends[0]);
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
        int length = snprintf(path, size, "%s%s", places[i][0] == '/' ? "" : library, places[i]);
        if (length > 0 && (size_t)length < size && access(path, X_OK) == 0)
            return true;
    }
    return false;
}
