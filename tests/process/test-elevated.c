/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The library in a program with raised privileges. The program is set-user-ID root and is started by another
 * user, in a root directory of its own where the compiled-in directory can be filled: that is all a test may
 * do without touching the machine's. The caller's environment, working directory and files are hostile.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "malformed.h"
#include "process.h"

enum { USER = 54321 };

static struct malformed root;
static char output[65536];

/* ---------------------------------------------------------------- the root directory */

/* Makes the directories above an absolute path, and their owner root. */
static void make_parents(const char *path)
{
    char part[512];
    for (const char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        snprintf(part, sizeof part, "%s%.*s", root.path, (int)(p - path), path);
        if (mkdir(part, 0755) != 0 && errno != EEXIST)
            exit(99);
    }
}

static const char *inside(const char *path)
{
    return malformed_path(&root, path + 1);
}

static void put(const char *from, const char *path, mode_t mode)
{
    char real[4096];
    if (realpath(from, real) == NULL) {
        tell("%s: %s", from, strerror(errno));
        exit(99);
    }
    make_parents(path);
    malformed_copy(&root, real, path + 1);
    if (chmod(inside(path), mode) != 0)
        exit(99);
}

/* What this program is linked with, where it lies; the library itself goes where the linker always looks. */
static int put_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *name = info->dlpi_name;
    (void)size, (void)arg;
    if (name[0] != '/')
        return 0;
    const char *last = strrchr(name, '/') + 1;
    char path[256];
    bool own = strncmp(last, "libattn", 7) == 0;
    snprintf(path, sizeof path, own ? "/usr/lib/%s" : "%s", own ? last : name);
    put(name, path, 0755);
    if (own) {
        char helper[4096];
        snprintf(helper, sizeof helper, "%s", name);
        put(strcat(dirname(helper), "/attn-probe"), "/usr/lib/attn-probe", 0755);
    }
    return 0;
}

static void fill_root(const char *host)
{
    malformed_create(&root);
    if (chmod(root.path, 0755) != 0)
        exit(99);
    if (dlopen("libm.so.6", RTLD_NOW) == NULL) /* the plugin needs it */
        exit(99);
    dl_iterate_phdr(put_library, NULL);
    put(host, "/host", 0755);
    make_parents("/proc/");
    make_parents("/dev/");
    malformed_write(&root, "dev/null", "", 0);
    chmod(inside("/dev/null"), 0666);
    make_parents("/tmp/");
    chmod(inside("/tmp"), 01777);
    make_parents(PLUGIN_DIR "/");
    make_parents("/hostile/");
    make_parents("/call/");
}

static void put_mock(const char *kind, const char *path)
{
    make_parents(path);
    malformed_add(&root, kind, path + 1);
}

/* ---------------------------------------------------------------- running */

static char *const environment[] = {"ATTN_BACKEND=mock,auto",
                                    "ATTN_STRICT=0",
                                    "ATTN_DISABLE=nothing",
                                    "ATTN_THREADS=2",
                                    "ATTN_DETERMINISTIC=1",
                                    "ATTN_LOG=debug",
                                    "ATTN_PLUGIN_PATH=/hostile",
                                    "ATTN_PLUGIN_PATH_ADD=/hostile",
                                    "ATTN_PROBE=auto",
                                    "ATTN_CACHE_DIR=/tmp/cache",
                                    "ATTN_LOG_FILE=/tmp/log",
                                    "ATTN_CPU_FLAGS=none",
                                    "ATTN_MOCK_LIBRARY=/hostile/x",
                                    "HOME=/tmp/home",
                                    "XDG_CACHE_HOME=/tmp/xdg",
                                    NULL};

/* Helpers find themselves through /proc; where no name space is to be had, they do without. */
static void bring_proc(void)
{
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        (void)mount("/proc", inside("/proc"), NULL, MS_BIND | MS_REC, NULL);
}

/* Starts /host in the root directory as the user; false if it did not end within ten seconds. */
static bool run_host(uid_t user, char *const *arguments)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(99);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        bring_proc();
        if (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0 || chroot(root.path) != 0 ||
            chdir("/tmp") != 0 || setgid(user) != 0 || setuid(user) != 0)
            _exit(98);
        close(ends[0]);
        close(ends[1]);
        execve("/host", arguments, environment);
        _exit(97);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n;
         used + 1 < sizeof output && (n = read(ends[0], output + used, sizeof output - 1 - used)) > 0;)
        used += (size_t)n;
    output[used] = '\0';
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_elevated(void)
{
    static char *const arguments[] = {"host", "/hostile", "/hostile/libattn-mock.so", NULL};
    return run_host(USER, arguments);
}

static bool says(const char *line)
{
    return strstr(output, line) != NULL;
}

static bool check_says(const char *line)
{
    bool good = check(says(line), "elevated: %.*s", (int)strcspn(line, "\n"), line);
    for (char *p = output, *end; !good && (end = strchr(p, '\n')) != NULL; p = end + 1)
        tell("%.*s", (int)(end - p), p);
    return good;
}

static bool exists(const char *path)
{
    return access(inside(path), F_OK) == 0;
}

/* ---------------------------------------------------------------- what must hold */

static void check_variables(void)
{
    static const char *const honoured[] = {"ATTN_BACKEND=mock,auto", "ATTN_STRICT=0",
                                           "ATTN_DISABLE=nothing",   "ATTN_THREADS=2",
                                           "ATTN_DETERMINISTIC=1",   "ATTN_LOG=debug"};
    static const char *const ignored[] = {"ATTN_PLUGIN_PATH=", "ATTN_PLUGIN_PATH_ADD=", "ATTN_PROBE=auto",
                                          "ATTN_CACHE_DIR=",   "ATTN_LOG_FILE=",        "ATTN_CPU_FLAGS=",
                                          "ATTN_MOCK_LIBRARY="};
    char line[256];
    for (size_t i = 0; i < sizeof honoured / sizeof honoured[0]; i++) {
        snprintf(line, sizeof line, "variable %s (environment)\n", honoured[i]);
        check_says(line);
    }
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        snprintf(line, sizeof line, "variable %s (ignored: elevated process)\n", ignored[i]);
        check_says(line);
    }
}

static void check_elevated(void)
{
    put_mock("other", "/hostile/libattn-other.so");
    put_mock("good", "/hostile/libattn-mock.so");
    put(getenv("CPU_PLUGIN"), PLUGIN_DIR "/libattn-cpu.so", 0644);
    check(run_elevated(), "elevated: the program ends well");
    check_says("user 54321 effective 0\n");
    check_variables();
    check_says("directory " PLUGIN_DIR " (compiled-in) trusted");
    check(!says("directory /hostile") && !says("directory /call") && !says("file /hostile"),
          "elevated: no other directory is searched");
    check_says("file " PLUGIN_DIR "/libattn-cpu.so ready -");
    check_says("select ATTN_OK cpu/flash-attn");
    check_says("inspect /hostile/libattn-mock.so note UNTRUSTED_OWNER");
    check_says("options.plugin_path=/hostile is ignored");
    check(!exists("/tmp/cache") && !exists("/tmp/log") && !exists("/tmp/home") && !exists("/tmp/xdg") &&
              !exists("/call/cache"),
          "elevated: neither cache nor log is written");
    check_says("probed, outcome 1"); /* in a child process, though nothing is kept */
}

/* Who may write the directory, or a directory above it, must be root alone. */
static void check_chain(void)
{
    if (chmod(inside(PLUGIN_DIR), 0775) != 0)
        exit(99);
    run_elevated();
    check_says("directory " PLUGIN_DIR " (compiled-in) UNTRUSTED_MODE");
    check(!says("\nfile "), "elevated: nothing of a directory that a group may write is looked at");
    if (chmod(inside(PLUGIN_DIR), 0755) != 0 || chmod(inside("/usr"), 01777) != 0)
        exit(99);
    run_elevated();
    check_says("/usr is writable by others (mode 1777)");
    if (chmod(inside("/usr"), 0755) != 0 || chown(inside(PLUGIN_DIR "/libattn-cpu.so"), USER, 0) != 0)
        exit(99);
    run_elevated();
    check_says("libattn-cpu.so found UNTRUSTED_OWNER");
    if (chown(inside(PLUGIN_DIR "/libattn-cpu.so"), 0, 0) != 0)
        exit(99);
}

/* Elevated processes must not probe plugins within probes within probes, nor die of them. */
static void check_crash(void)
{
    struct timespec start, now;
    put_mock("trouble-segfault", PLUGIN_DIR "/libattn-hostile.so");
    clock_gettime(CLOCK_MONOTONIC, &start);
    check(run_elevated(), "elevated: a plugin that crashes does not take the program along");
    clock_gettime(CLOCK_MONOTONIC, &now);
    check_says("libattn-hostile.so note CRASHED");
    check_says("libattn-cpu.so ready -");
    check(now.tv_sec - start.tv_sec < 5, "elevated: no probe waits for another one");
    run_elevated();
    check_says("libattn-hostile.so note CRASHED"); /* not QUARANTINED: nothing was kept */
    unlink(inside(PLUGIN_DIR "/libattn-hostile.so"));
}

/* Whether a result of a probe is kept in a directory. */
static bool holds_result(const char *path)
{
    DIR *list = opendir(inside(path));
    const struct dirent *entry;
    bool found = false;
    while (list != NULL && (entry = readdir(list)) != NULL)
        found = found || entry->d_name[0] != '.';
    if (list != NULL)
        closedir(list);
    return found;
}

/* The same program in the hands of root itself: then the variables count, so that they would have above. */
static void check_plain(void)
{
    static char *const arguments[] = {"host", NULL};
    check(run_host(0, arguments) && says("secure 0\n"), "not elevated: the program ends well");
    check(says("directory /hostile (ATTN_PLUGIN_PATH) trusted") &&
              says("file /hostile/libattn-mock.so ready") &&
              says("variable ATTN_MOCK_LIBRARY=/hostile/x (environment)"),
          "not elevated: the same variables are honoured");
    check(holds_result("/call/cache") && exists("/tmp/log"), "not elevated: cache and log are written");
}

int main(int count, char **arguments)
{
    static const char name[] = "a program with raised privileges";
    tap_begin();
    if (count < 2 || geteuid() != 0 || getuid() != 0) {
        skip(name, "only root can make a program that raises privileges");
        return tap_end();
    }
    if (is_sanitized()) {
        skip(name, "a sanitizer cannot run in a root directory without /proc");
        return tap_end();
    }
    fill_root(arguments[1]);
    if (chmod(inside("/host"), 04755) != 0)
        exit(99);
    run_elevated();
    if (!says("secure 1\n") && says("secure 0\n")) {
        skip(name, "the directory of temporary files ignores the set-user-ID bit");
    } else {
        check_elevated();
        check_chain();
        check_crash();
        check_plain();
    }
    malformed_remove(&root);
    return tap_end();
}
