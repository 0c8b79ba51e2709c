/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Hosts in trouble: no descriptors, no processes, no home, no working directory, no /proc, a disk or pipe
 * that takes nothing. In each of them a context comes up, and what does not work has a record that says why.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "malformed.h"
#include "process.h"

enum { USER = 54321 }; /* of nobody else: limits count processes per user */

static struct malformed malformed, home;
/* What a function in a child found wrong; it is told through a pipe. */
static int report_fd;

static int wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vdprintf(report_fd, format, arguments);
    va_end(arguments);
    return 1;
}

/* ---------------------------------------------------------------- what must hold */

/* A context over the directory of the mock, with ATTN_PROBE=auto and a cache in `home`. */
static int32_t create(struct attn_context **out, struct attn_error *err)
{
    static char cache[128];
    static const char *const variables[] = {cache, "ATTN_UNKNOWN=1"};
    struct attn_context_options options;
    ATTN_INIT(&options);
    ATTN_INIT(err);
    snprintf(cache, sizeof cache, "ATTN_CACHE_DIR=%s/cache", home.path);
    options.plugin_path = malformed.path;
    options.variables = variables;
    options.variable_count = 2;
    return attn_context_create(&options, out, err);
}

/*
 * Loads the mock. 0 if it is ready, or if something says why it is not: its own record, or that of its
 * directory; `reason`, if not 0, is the one wanted and `text` a part of what it says.
 */
static int load(uint32_t reason, const char *text)
{
    struct attn_context *context = NULL;
    struct attn_report *report = NULL;
    struct attn_error err;
    if (create(&context, &err) != ATTN_OK)
        return wrong("attn_context_create: %s", err.message);
    if (attn_context_load_all(context, &err) != ATTN_OK ||
        attn_context_get_report(context, &report, &err) != ATTN_OK)
        return wrong("%s", err.message);
    const struct attn_directory_record *directory = attn_report_get_directory(report, 0);
    const struct attn_file_record *file = attn_report_get_file(report, 0);
    uint32_t got = file != NULL ? file->reason : directory != NULL ? directory->reason : 0;
    const char *words = file != NULL ? file->text : directory != NULL ? directory->text : "";
    int result = 0;
    if (directory == NULL)
        result = wrong("no record of the directory");
    else if (file == NULL && directory->reason == 0)
        result = wrong("no file, and the directory has no reason");
    else if (got != 0 && (words[0] == '\0' || attn_reason_advice(got)[0] == '\0'))
        result = wrong("%s without words", attn_reason_name(got));
    else if (strstr(words, ": : ") != NULL)
        result = wrong("nothing is named: %s", words);
    else if (text != NULL && (got != reason || strstr(words, text) == NULL))
        result = wrong("%s: %s", attn_reason_name(got), words);
    attn_report_destroy(report);
    attn_context_destroy(context);
    return result;
}

static int load_ready(void)
{
    return load(0, "");
}

static int load_and_compute(void)
{
    int result = load_ready();
    return result == 0 && !step_works(&linked_library, "3") ? wrong("computing") : result;
}

static void limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        _exit(CHILD_NONE);
    limit.rlim_cur = most;
    if (setrlimit(resource, &limit) != 0)
        _exit(CHILD_NONE);
}

/* ---------------------------------------------------------------- descriptors */

static int without_standard_streams(void)
{
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    int result = load_and_compute();
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return wrong("descriptor %d is left open", fd);
    return result;
}

static int log_file_without_streams(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log", home.path);
    setenv("ATTN_LOG_FILE", path, 1);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    struct attn_context *context = NULL;
    struct attn_error err;
    struct stat status;
    if (create(&context, &err) != ATTN_OK)
        return wrong("%s", err.message);
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return wrong("the log is descriptor %d", fd);
    attn_context_destroy(context);
    return stat(path, &status) == 0 && status.st_size > 0 ? 0 : wrong("the log file is empty");
}

/* With every number of free descriptors there is an answer, and with all of them the plugin is ready. */
static int few_descriptors(void)
{
    for (rlim_t most = 0; most < 16; most++) {
        limit(RLIMIT_NOFILE, most);
        int result = load(0, NULL);
        limit(RLIMIT_NOFILE, 1024);
        if (result != 0)
            return wrong(" with %d descriptors", (int)most);
    }
    return load_ready();
}

static int rescan_after_want(void)
{
    struct attn_context *context = NULL;
    struct attn_report *report = NULL;
    struct attn_error err;
    limit(RLIMIT_NOFILE, 3);
    int32_t status = create(&context, &err);
    limit(RLIMIT_NOFILE, 1024);
    if (status != ATTN_OK || attn_context_rescan(context, &err) != ATTN_OK ||
        attn_context_load_all(context, &err) != ATTN_OK ||
        attn_context_get_report(context, &report, &err) != ATTN_OK)
        return wrong("%s", err.message);
    const struct attn_file_record *file = attn_report_get_file(report, 0);
    int result = file != NULL && file->stage == ATTN_STAGE_READY ? 0 : wrong("it is not ready");
    attn_report_destroy(report);
    attn_context_destroy(context);
    return result;
}

/* ---------------------------------------------------------------- processes and signals */

/* Limits of processes do not hold for root. False if the user cannot reach what is tested. */
static bool become_user(void)
{
    const char *plugins = getenv("ATTN_PLUGIN_PATH");
    if (getuid() == 0 && (setgid(USER) != 0 || setuid(USER) != 0))
        return false;
    return plugins != NULL && access(plugins, R_OK | X_OK) == 0;
}

static int no_process(void)
{
    if (!become_user())
        return CHILD_NONE;
    limit(RLIMIT_NPROC, 0);
    return load(ATTN_REASON_PROBE_UNAVAILABLE, "Resource temporarily unavailable");
}

static int one_process(void)
{
    if (!become_user())
        return CHILD_NONE;
    limit(RLIMIT_NPROC, 2);
    return load(ATTN_REASON_PROBE_UNAVAILABLE, "second process");
}

static int no_thread(void)
{
    if (!become_user())
        return CHILD_NONE;
    setenv("ATTN_PROBE", "never", 1);
    limit(RLIMIT_NPROC, 0);
    return step_works(&linked_library, "4") ? 0 : wrong("computing without threads");
}

static int blocked_signals(void)
{
    sigset_t all, after;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGCHLD, SIG_IGN);
    int result = load_and_compute();
    sigpending(&after);
    if (!sigisemptyset(&after))
        return wrong("a signal is pending");
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&all, i) == 1 && i != SIGKILL && i != SIGSTOP && sigismember(&after, i) != 1)
            return wrong("signal %d is not blocked any more", i);
    return result;
}

static int closed_pipe(void)
{
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0)
        return CHILD_NONE;
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    return load_ready(); /* with a warning about ATTN_UNKNOWN */
}

static int file_limit(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log", home.path);
    setenv("ATTN_LOG_FILE", path, 1);
    signal(SIGXFSZ, SIG_DFL);
    limit(RLIMIT_FSIZE, 0);
    return load_ready();
}

static int full_log(void)
{
    setenv("ATTN_LOG_FILE", "/dev/full", 1);
    return load_ready();
}

/* ---------------------------------------------------------------- directories */

static int odd_homes(void)
{
    static const char *const homes[] = {"",          "/nowhere/at/all", "relative",
                                        "/dev/null", "/proc/self",      "/proc"};
    unsetenv("ATTN_CACHE_DIR");
    for (size_t i = 0; i < 2 * sizeof homes / sizeof homes[0]; i++) {
        bool xdg = i % 2 != 0;
        setenv(xdg ? "XDG_CACHE_HOME" : "HOME", homes[i / 2], 1);
        unsetenv(xdg ? "HOME" : "XDG_CACHE_HOME");
        struct attn_context_options options;
        struct attn_context *context = NULL;
        struct attn_error err;
        ATTN_INIT(&options);
        ATTN_INIT(&err);
        options.plugin_path = malformed.path;
        if (attn_context_create(&options, &context, &err) != ATTN_OK ||
            attn_context_load_all(context, &err) != ATTN_OK)
            return wrong("%s=%s: %s", xdg ? "XDG_CACHE_HOME" : "HOME", homes[i / 2], err.message);
        attn_context_destroy(context);
    }
    return access("relative", F_OK) != 0 && access("attn", F_OK) != 0 ? 0 : wrong("a relative home was used");
}

static int unwritable_cache(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/cache", home.path);
    if (mkdir(path, 0700) != 0)
        return CHILD_NONE;
    if (getuid() == 0 && (chown(path, USER, USER) != 0 || !become_user()))
        return CHILD_NONE;
    return chmod(path, 0500) == 0 ? load_ready() : CHILD_NONE;
}

static int vanished_directory(void)
{
    char path[] = "/tmp/attn-gone-XXXXXX";
    struct attn_context_options options;
    struct attn_context *context = NULL;
    struct attn_report *report = NULL;
    struct attn_error err;
    if (mkdtemp(path) == NULL || chdir(path) != 0 || rmdir(path) != 0)
        return CHILD_NONE;
    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.plugin_path = "plugins:./more";
    if (attn_context_create(&options, &context, &err) != ATTN_OK ||
        attn_context_get_report(context, &report, &err) != ATTN_OK)
        return wrong("%s", err.message);
    for (uint32_t i = 0; i < 2; i++) {
        const struct attn_directory_record *directory = attn_report_get_directory(report, i);
        if (directory == NULL || directory->reason != ATTN_REASON_UNREADABLE ||
            strstr(directory->text, "working directory") == NULL)
            return wrong("directory %u: %s", i, directory != NULL ? directory->text : "no record");
    }
    attn_report_destroy(report);
    if (attn_context_inspect(context, "libattn-x.so", &report, &err) != ATTN_OK)
        return wrong("%s", err.message);
    if (strstr(attn_report_get_file(report, 0)->text, "working directory") == NULL)
        return wrong("%s", attn_report_get_file(report, 0)->text);
    attn_report_destroy(report);
    attn_context_destroy(context);
    return load_and_compute();
}

/* A name space of mounts of its own: what is covered here stays as it is for everybody else. */
static bool cover(const char *path, const char *options)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", path, "tmpfs", 0, options) == 0;
}

static int no_proc(void)
{
    return cover("/proc", "size=4k") ? load_and_compute() : CHILD_NONE;
}

static int full_disk(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/cache", home.path);
    if (mkdir(path, 0700) != 0 || !cover(path, "size=4k,nr_inodes=2,mode=0700"))
        return CHILD_NONE;
    return load_ready();
}

static int full_blocks(void)
{
    char path[128], block[4096] = {0};
    snprintf(path, sizeof path, "%s/cache", home.path);
    if (mkdir(path, 0700) != 0 || !cover(path, "size=4k,mode=0700"))
        return CHILD_NONE;
    int fd = open(malformed_path(&home, "cache/filler"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, block, sizeof block) != sizeof block || close(fd) != 0)
        return CHILD_NONE;
    int result = load_ready();
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, NULL);
    return count == 3 ? result : wrong("%d entries instead of the filler and two dots", count);
}

static int no_devices(void)
{
    if (!cover("/dev", "size=4k"))
        return CHILD_NONE;
    return load(ATTN_REASON_PROBE_UNAVAILABLE, "/dev/null");
}

/* ---------------------------------------------------------------- the list */

struct host {
    const char *name;
    int (*work)(void);
    const char *needs; /* the reason of a skip, where the child answers CHILD_NONE */
};

static int work_in(void *arg)
{
    const struct host *host = arg;
    return host->work();
}

static void check_host(const struct host *host)
{
    char words[400] = "";
    int ends[2];
    malformed_create(&malformed);
    malformed_create(&home);
    if (chmod(malformed.path, 0755) != 0 || chmod(home.path, 0755) != 0 || pipe2(ends, O_CLOEXEC) != 0)
        exit(99);
    malformed_add(&malformed, "good", "libattn-mock.so");
    report_fd = fcntl(ends[1], F_DUPFD_CLOEXEC, 90);
    close(ends[1]);
    int result = in_child(work_in, (void *)(uintptr_t)host, 30);
    close(report_fd);
    ssize_t length = read(ends[0], words, sizeof words - 1);
    close(ends[0]);
    words[length > 0 ? length : 0] = '\0';
    if (result == CHILD_NONE && host->needs != NULL)
        skip(host->name, host->needs);
    else
        check(result == 0, "%s%s%s%s", host->name,
              result == CHILD_DIED    ? ": a signal ended it"
              : result == CHILD_HANGS ? ": it hangs"
                                      : "",
              words[0] != '\0' ? ": " : "", words);
    malformed_remove(&malformed);
    malformed_remove(&home);
}

int main(void)
{
    static const char mounts[] = "a mount name space cannot be had";
    static const char user[] = "another user cannot reach the build directory";
    static const struct host hosts[] = {
        {"descriptors 0, 1 and 2 are closed", without_standard_streams, NULL},
        {"a log file is none of them", log_file_without_streams, NULL},
        {"few descriptors", few_descriptors, NULL},
        {"a rescan after too few descriptors", rescan_after_want, NULL},
        {"no process may be started", no_process, user},
        {"one process may be started", one_process, user},
        {"no thread may be started", no_thread, user},
        {"signals are blocked, children ignored", blocked_signals, NULL},
        {"stderr is a closed pipe", closed_pipe, NULL},
        {"files may not grow", file_limit, NULL},
        {"the log is full", full_log, NULL},
        {"odd homes", odd_homes, NULL},
        {"the cache cannot be written", unwritable_cache, user},
        {"the working directory is gone", vanished_directory, NULL},
        {"no /proc", no_proc, mounts},
        {"a disk without inodes", full_disk, mounts},
        {"a full disk", full_blocks, mounts},
        {"no /dev", no_devices, mounts},
    };
    tap_begin();
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        check_host(&hosts[i]);
    return tap_end();
}
