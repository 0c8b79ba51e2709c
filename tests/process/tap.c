/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* TAP lines on a private copy of standard output, and children that must end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

static int tap = -1;
static unsigned tests, failures;

void tap_begin(void)
{
    tap = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
    if (tap < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        exit(99);
}

bool check(bool good, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(tap, "%sok %u - %s\n", good ? "" : "not ", ++tests, text);
    failures += !good;
    return good;
}

void skip(const char *name, const char *reason)
{
    dprintf(tap, "ok %u - %s # SKIP %s\n", ++tests, name, reason);
}

void tell(const char *format, ...)
{
    char text[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(tap, "# %s\n", text);
}

int tap_end(void)
{
    dprintf(tap, "1..%u\n", tests);
    return failures != 0;
}

/* Threads of this process that run or want to. */
static unsigned count_running(void)
{
    unsigned running = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL)
        return 0;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[128] = "";
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (read(fd, line, sizeof line - 1) > 0) {
            const char *end = strrchr(line, ')');
            running += end != NULL && end[1] == ' ' && end[2] == 'R';
        }
        close(fd);
    }
    closedir(tasks);
    return running;
}

/*
 * AddressSanitizer's allocator is not prepared for a fork: a thread that has its lock, such as one that is
 * just starting, leaves it locked in the child for ever. So threads are given a second to come to rest.
 */
static void await_rest(void)
{
    const struct timespec moment = {0, 1000000};
    for (unsigned i = 0; i < 1000 && count_running() > 1; i++)
        nanosleep(&moment, NULL);
}

int in_child(int (*work)(void *arg), void *arg, unsigned seconds)
{
    const struct timespec moment = {0, 1000000};
    int status = 0;
    if (is_sanitized())
        await_rest();
    pid_t child = fork();
    if (child < 0)
        return CHILD_NONE;
    if (child == 0)
        _exit(work(arg));
    for (unsigned i = 0; i < seconds * 1000; i++) {
        pid_t done = waitpid(child, &status, WNOHANG);
        if (done == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : CHILD_DIED;
        if (done < 0 && errno != EINTR)
            return CHILD_NONE;
        nanosleep(&moment, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return CHILD_HANGS;
}

bool is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
}
