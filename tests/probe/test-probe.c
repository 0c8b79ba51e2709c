/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plugins that crash, hang, exit and have side effects: each has its reason, the host lives, the others
 * serve. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "malformed.h"

/* A sanitizer maps more than the limit of memory that a probe has. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

/* Plugins print to stdout, tests do not. */
static FILE *tap;
static unsigned tests, failures;

static void check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void check(bool good, const char *format, ...)
{
    va_list arguments;

    fprintf(tap, "%sok %u - ", good ? "" : "not ", ++tests);
    va_start(arguments, format);
    vfprintf(tap, format, arguments);
    va_end(arguments);
    fputc('\n', tap);
    fflush(tap);
    failures += !good;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* A malformed with a cache directory of its own. */
struct place {
    struct malformed malformed, home;
    char cache[128];
    const char *variables[4];
};

static void place_create(struct place *place, const char *probe)
{
    malformed_create(&place->malformed);
    malformed_create(&place->home);
    snprintf(place->cache, sizeof place->cache, "ATTN_CACHE_DIR=%s/cache", place->home.path);
    place->variables[0] = place->cache;
    place->variables[1] = probe;
    place->variables[2] = NULL;
}

static void place_remove(struct place *place)
{
    malformed_remove(&place->malformed);
    malformed_remove(&place->home);
}

/* Loads everything in a context of its own and hands out what is known then. */
static struct attn_report *load(const struct place *place, double *out_seconds)
{
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    struct attn_report *report = NULL;
    double start = now();

    if (attn_context_load_all(context, NULL) != ATTN_OK ||
        attn_context_get_report(context, &report, NULL) != ATTN_OK)
        exit(99);
    if (out_seconds != NULL)
        *out_seconds = now() - start;
    attn_context_destroy(context);
    return report;
}

static bool serves(const struct attn_report *report, const char *name)
{
    const struct attn_backend_record *record;

    for (uint32_t i = 0; (record = attn_report_get_backend(report, i)) != NULL; i++)
        if (strcmp(record->name, name) == 0)
            return record->state == ATTN_BACKEND_READY;
    return false;
}

/* One plugin that makes trouble beside a good one, in a place of its own. */
static void check_trouble(const char *kind, uint32_t reason, uint32_t signal, const char *word)
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, kind, "libattn-a.so");
    malformed_add(&place.malformed, "other", "libattn-b.so");
    struct attn_report *report = load(&place, NULL);
    const struct attn_file_record *record = malformed_file(report, "libattn-a.so");
    bool good = record != NULL && record->reason == reason && record->signal == signal &&
                strstr(record->text, word) != NULL;
    check(good, "%s: %s", kind, attn_reason_name(reason));
    if (!good && record != NULL)
        fprintf(tap, "# %s, signal %u: %s\n", attn_reason_name(record->reason), record->signal, record->text);
    check(record != NULL && (record->stage == ATTN_STAGE_READY) == (reason == ATTN_REASON_SIDE_EFFECTS),
          "%s: %s", kind, reason == ATTN_REASON_SIDE_EFFECTS ? "still loads" : "is not loaded");
    check(serves(report, "other/flash-attn"), "%s: the good plugin beside it serves", kind);
    attn_report_destroy(report);
    place_remove(&place);
}

static void check_troubles(void)
{
    check_trouble("trouble-segfault", ATTN_REASON_CRASHED, SIGSEGV, "SIGSEGV");
    check_trouble("trouble-abort", ATTN_REASON_CRASHED, SIGABRT, "SIGABRT");
    check_trouble("trouble-exit", ATTN_REASON_EXITED, 0, "ended its process");
    check_trouble("trouble-hang", ATTN_REASON_TIMED_OUT, 0, "2 seconds");
    check_trouble("trouble-fork", ATTN_REASON_SIDE_EFFECTS, 0, "child process");
    if (!SANITIZED)
        check_trouble("trouble-hungry", ATTN_REASON_CRASHED, SIGABRT, "SIGABRT");
    check_trouble("trouble-print", ATTN_REASON_SIDE_EFFECTS, 0, "prints");
    check_trouble("trouble-thread", ATTN_REASON_SIDE_EFFECTS, 0, "thread");
    check_trouble("trouble-descriptor", ATTN_REASON_SIDE_EFFECTS, 0, "descriptor");
    check_trouble("trouble-environment", ATTN_REASON_SIDE_EFFECTS, 0, "environment");
    check_trouble("trouble-signals", ATTN_REASON_SIDE_EFFECTS, 0, "signal mask");
}

/* Whether a process has a file of the malformed mapped. */
static bool is_mapped_by(const char *process, const struct malformed *malformed)
{
    char path[300], line[512];
    bool found = false;

    snprintf(path, sizeof path, "/proc/%s/maps", process);
    FILE *maps = fopen(path, "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        found = found || strstr(line, malformed->path) != NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

static unsigned count_mapping(const struct malformed *malformed)
{
    DIR *list = opendir("/proc");
    const struct dirent *entry;
    unsigned count = 0;

    while (list != NULL && (entry = readdir(list)) != NULL)
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && is_mapped_by(entry->d_name, malformed);
    if (list != NULL)
        closedir(list);
    return count;
}

/* What the plugin starts ends with its probe, however far it went away. */
static void check_daemon(void)
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "trouble-daemon-crash", "libattn-a.so");
    struct attn_report *report = load(&place, NULL);
    check(malformed_file(report, "libattn-a.so")->reason == ATTN_REASON_CRASHED &&
              count_mapping(&place.malformed) == 0,
          "a daemon of a plugin does not outlive its probe");
    attn_report_destroy(report);
    place_remove(&place);
}

/* What the linker refuses is no result: the host's own attempt says why. */
static void check_link_error(void)
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "needs-symbol", "libattn-a.so");
    for (int i = 0; i < 2; i++) {
        struct attn_report *report = load(&place, NULL);
        check(malformed_file(report, "libattn-a.so")->reason == ATTN_REASON_UNDEFINED_SYMBOL,
              "a link error keeps its own reason, time %d", i + 1);
        attn_report_destroy(report);
    }
    place_remove(&place);
}

/* In a new process, which remembers nothing: only the cache can tell. */
static int in_child(int (*work)(const struct place *place), const struct place *place)
{
    int status = -1;

    pid_t child = fork();
    if (child == 0)
        _exit(work(place));
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static int load_once(const struct place *place)
{
    struct attn_report *report = load(place, NULL);
    uint32_t reason = malformed_file(report, "libattn-a.so")->reason;

    attn_report_destroy(report);
    return (int)reason;
}

static int load_after_rescan(const struct place *place)
{
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    struct attn_report *report = NULL;

    if (attn_context_rescan(context, NULL) != ATTN_OK || attn_context_load_all(context, NULL) != ATTN_OK ||
        attn_context_get_report(context, &report, NULL) != ATTN_OK)
        return 999;
    uint32_t reason = malformed_file(report, "libattn-a.so")->reason;
    attn_report_destroy(report);
    attn_context_destroy(context);
    return (int)reason;
}

/* The reason of the only candidate when the plugin is asked for as `backend`. */
static int ask_in(struct attn_context *context, const char *backend)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;

    ATTN_INIT(&options);
    options.backend = backend;
    if (attn_problem_parse("heads=8 head_dim=64 q=bf16", &problem, NULL) != ATTN_OK ||
        attn_select(context, &problem, 1, &options, &decision, NULL) != ATTN_E_NO_BACKEND)
        return 999;
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, 0);
    int reason = candidate != NULL && candidate->reason_count > 0 ? (int)candidate->reasons[0].code : 998;
    attn_decision_destroy(decision);
    return reason;
}

static int ask_as(const struct place *place, const char *backend)
{
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    int reason = ask_in(context, backend);

    attn_context_destroy(context);
    return reason;
}

static int ask_by_name(const struct place *place)
{
    return ask_as(place, "mock");
}

static int ask_automatically(const struct place *place)
{
    return ask_as(place, "auto");
}

static int ask_automatically_then_by_name(const struct place *place)
{
    struct attn_context *context = malformed_context(&place->malformed, place->variables);
    int first = ask_in(context, "auto"), second = ask_in(context, "mock");

    attn_context_destroy(context);
    return first == ATTN_REASON_QUARANTINED ? second : 997;
}

static void check_quarantine(void)
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "trouble-segfault", "libattn-a.so");
    check(in_child(load_once, &place) == ATTN_REASON_CRASHED, "the first probe crashes");
    check(in_child(load_once, &place) == ATTN_REASON_QUARANTINED, "the next process knows of it");
    check(in_child(ask_automatically, &place) == ATTN_REASON_QUARANTINED, "auto does not probe it again");
    check(in_child(ask_by_name, &place) == ATTN_REASON_CRASHED, "who asks by name has it probed again");
    check(in_child(ask_automatically_then_by_name, &place) == ATTN_REASON_CRASHED,
          "also after it was not probed");
    check(in_child(load_after_rescan, &place) == ATTN_REASON_CRASHED, "a rescan has it probed again");
    malformed_add(&place.malformed, "good", "libattn-a.so");
    check(in_child(load_once, &place) == 0, "another file of the same name is not in quarantine");
    place_remove(&place);
}

/* The file of the only result that is kept. */
static const char *result_file(const struct place *place)
{
    static char path[512];
    const struct dirent *entry;

    snprintf(path, sizeof path, "%s/cache", place->home.path);
    DIR *list = opendir(path);
    while (list != NULL && (entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/cache/%s", place->home.path, entry->d_name);
    if (list == NULL || closedir(list) != 0)
        exit(99);
    return path;
}

/* Changes the time of the kept result, which is a line of text. */
static void age_result(const struct place *place, long seconds)
{
    char line[512] = "", key[64];
    unsigned outcome, number;
    long since;
    int rest = 0;
    FILE *file = fopen(result_file(place), "r+e");

    if (file == NULL || fgets(line, sizeof line, file) == NULL ||
        sscanf(line, "%63[0-9a-f] %u %u %ld%n", key, &outcome, &number, &since, &rest) != 4)
        exit(99);
    rewind(file);
    if (fprintf(file, "%s %u %u %ld%s", key, outcome, number, since - seconds, line + rest) < 0 ||
        fclose(file) != 0)
        exit(99);
}

static void check_expiry(void)
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "trouble-exit", "libattn-a.so");
    check(in_child(load_once, &place) == ATTN_REASON_EXITED, "the first probe exits");
    age_result(&place, 23 * 3600);
    check(in_child(load_once, &place) == ATTN_REASON_QUARANTINED, "after 23 hours it is still in quarantine");
    age_result(&place, 2 * 3600);
    check(in_child(load_once, &place) == ATTN_REASON_EXITED, "after a day it is probed again");
    place_remove(&place);
    place_create(&place, NULL);
    malformed_add(&place.malformed, "trouble-hang", "libattn-a.so");
    check(in_child(load_once, &place) == ATTN_REASON_TIMED_OUT, "the first probe hangs");
    age_result(&place, 9 * 60);
    check(in_child(load_once, &place) == ATTN_REASON_QUARANTINED, "after 9 minutes it is in quarantine");
    age_result(&place, 2 * 60);
    check(in_child(load_once, &place) == ATTN_REASON_TIMED_OUT, "after 10 minutes it is probed again");
    place_remove(&place);
}

/* Caches that must not be used, and files that are none. */
static void check_cache_rules(void)
{
    struct place place;
    char path[512];

    place_create(&place, NULL);
    malformed_add(&place.malformed, "trouble-exit", "libattn-a.so");
    snprintf(path, sizeof path, "%s/cache", place.home.path);
    mkdir(path, 0700);
    chmod(path, 0777);
    check(in_child(load_once, &place) == ATTN_REASON_EXITED &&
              in_child(load_once, &place) == ATTN_REASON_EXITED,
          "a cache directory that others may write to is not used");
    chmod(path, 0700);
    check(in_child(load_once, &place) == ATTN_REASON_EXITED, "it is used when they may not");
    for (int i = 0; i < 3; i++) {
        static const char *const nonsense[] = {"", "0123|\n\n\nzzz\n", "\xff\xfe\n|||"};
        FILE *file = fopen(result_file(&place), "we");
        if (file == NULL || fputs(nonsense[i], file) < 0 || fclose(file) != 0)
            exit(99);
        check(in_child(load_once, &place) == ATTN_REASON_EXITED &&
                  in_child(load_once, &place) == ATTN_REASON_QUARANTINED,
              "a damaged result is replaced, kind %d", i);
    }
    snprintf(path, sizeof path, "%s", result_file(&place));
    if (remove(path) != 0 || symlink("/etc/hostname", path) != 0)
        exit(99);
    check(in_child(load_once, &place) == ATTN_REASON_EXITED, "a link in the place of the cache is not read");
    place_remove(&place);
}

/* Each plugin that hangs costs one deadline once. */
static void check_deadline(void)
{
    struct place place;
    double first, second;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "trouble-hang", "libattn-a.so");
    malformed_add(&place.malformed, "trouble-hang-2", "libattn-b.so");
    malformed_add(&place.malformed, "other", "libattn-c.so");
    struct attn_report *report = load(&place, &first);
    check(first < 5 && serves(report, "other/flash-attn"),
          "two plugins that hang cost two deadlines, and the third one serves");
    fprintf(tap, "# %.3f seconds\n", first);
    attn_report_destroy(report);
    attn_report_destroy(load(&place, &second));
    check(second < 1, "the next context does not wait");
    fprintf(tap, "# %.3f seconds\n", second);
    place_remove(&place);
}

static void check_modes(void)
{
    struct place place;

    place_create(&place, "ATTN_PROBE=always");
    malformed_add(&place.malformed, "trouble-exit", "libattn-a.so");
    check(in_child(load_once, &place) == ATTN_REASON_EXITED &&
              in_child(load_once, &place) == ATTN_REASON_EXITED,
          "always probes it every time");
    place_remove(&place);
    place_create(&place, "ATTN_PROBE=never");
    malformed_add(&place.malformed, "trouble-exit", "libattn-a.so");
    check(in_child(load_once, &place) == 0, "never contains nothing: the process is ended");
    place_remove(&place);
}

/* In a sandbox that forbids to start programs. */
static int load_without_children(const struct place *place)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_execve, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 999;
    return load_once(place);
}

static int load_ignoring_children(const struct place *place)
{
    signal(SIGCHLD, SIG_IGN);
    return load_once(place);
}

static void *reap(void *arg)
{
    _Atomic bool *stop = arg;

    while (!*stop) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        sched_yield();
    }
    return NULL;
}

static int load_while_reaping(const struct place *place)
{
    _Atomic bool stop = false;
    pthread_t thread;

    if (pthread_create(&thread, NULL, reap, &stop) != 0)
        return 999;
    int reason = load_once(place);
    stop = true;
    pthread_join(thread, NULL);
    return reason;
}

static int load_blocking_signals(const struct place *place)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    return load_once(place);
}

static void check_hosts(void)
{
    static const struct {
        const char *name;
        int (*work)(const struct place *place);
    } hosts[] = {{"that ignores SIGCHLD", load_ignoring_children},
                 {"that reaps every child", load_while_reaping},
                 {"that blocks every signal", load_blocking_signals}};

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        struct place place;
        place_create(&place, "ATTN_PROBE=always");
        malformed_add(&place.malformed, "trouble-segfault", "libattn-a.so");
        check(in_child(hosts[i].work, &place) == ATTN_REASON_CRASHED, "a host %s hears of a crash",
              hosts[i].name);
        malformed_add(&place.malformed, "good", "libattn-a.so");
        check(in_child(hosts[i].work, &place) == 0, "a host %s loads a good plugin", hosts[i].name);
        place_remove(&place);
    }
}

static void check_no_children(void)
{
    struct place place;

    place_create(&place, NULL);
    malformed_add(&place.malformed, "good", "libattn-a.so");
    int reason = in_child(load_without_children, &place);
    check(reason == ATTN_REASON_PROBE_UNAVAILABLE,
          "where nothing can be started a file from elsewhere is refused (%s)",
          attn_reason_name((uint32_t)reason));
    place_remove(&place);
}

int main(void)
{
    tap = fdopen(dup(STDOUT_FILENO), "w");
    if (tap == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return 99;
    check_troubles();
    check_daemon();
    check_link_error();
    check_quarantine();
    check_expiry();
    check_cache_rules();
    check_deadline();
    check_modes();
    check_hosts();
    check_no_children();
    fprintf(tap, "1..%u\n", tests);
    fclose(tap);
    return failures > 0;
}
