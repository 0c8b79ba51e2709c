/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Runs some checks in a child that has not loaded the plugin, and reports what it found. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "life.h"
#include "need.h"
#include "tap.h"

/*
 * A stage takes milliseconds; emulated, with sanitizers, or on a device that other processes use too,
 * seconds. The whole has no limit: many stages, each of which waits for others, are no hang.
 */
enum { STAGE_SECONDS = 60 };

void isolated_stage(struct isolated *isolated, const char *stage)
{
    snprintf(isolated->stage, sizeof isolated->stage, "%s", stage);
    atomic_fetch_add(&isolated->stages, 1);
}

static bool has_line(const struct isolated *isolated, const char *name)
{
    for (uint32_t i = 0; i < isolated->count; i++)
        if (strcmp(isolated->lines[i].name, name) == 0)
            return true;
    return false;
}

/* The first result of a name is kept: what came later may follow from it. */
static struct isolated_line *add_line(struct isolated *isolated, const char *name, uint32_t result)
{
    if (has_line(isolated, name))
        return NULL;
    if (isolated->count == ISOLATED_LINES) {
        fprintf(stderr, "attn-check: more lines than a child may report\n");
        _exit(2);
    }
    struct isolated_line *line = &isolated->lines[isolated->count++];
    snprintf(line->name, sizeof line->name, "%s", name);
    line->result = result;
    return line;
}

void isolated_pass(struct isolated *isolated, const char *name)
{
    add_line(isolated, name, ISOLATED_PASSED);
}

void isolated_fail(struct isolated *isolated, const char *name, const char *format, ...)
{
    struct isolated_line *line = add_line(isolated, name, ISOLATED_FAILED);
    va_list arguments;

    if (line == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line->text, sizeof line->text, format, arguments);
    va_end(arguments);
}

void isolated_skip(struct isolated *isolated, const char *name, const char *why)
{
    struct isolated_line *line = add_line(isolated, name, ISOLATED_SKIPPED);

    if (line != NULL)
        snprintf(line->text, sizeof line->text, "%s", why);
}

void isolated_judge(struct isolated *isolated, const char *name, const char *text)
{
    if (text[0] == '\0')
        isolated_pass(isolated, name);
    else
        isolated_fail(isolated, name, "%s", text);
}

/* The handlers of the checker's own process would report in its place. */
static void default_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, SIGTERM, SIGCHLD};

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], SIG_DFL);
}

static time_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

/* False if the child stood still in one stage for too long. */
static bool wait_for(const struct isolated *isolated, pid_t child, int *status)
{
    const struct timespec pause = {0, 1000000};
    uint32_t stages = 0;
    time_t began = now();

    while (waitpid(child, status, WNOHANG) != child) {
        if (now() - began > STAGE_SECONDS) {
            kill(child, SIGKILL);
            waitpid(child, status, 0);
            return false;
        }
        if (atomic_load(&isolated->stages) != stages) {
            stages = atomic_load(&isolated->stages);
            began = now();
            tap->beats++;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

static void report_lines(const struct isolated *isolated, const struct run_options *options)
{
    for (uint32_t i = 0; i < isolated->count && i < ISOLATED_LINES; i++) {
        const struct isolated_line *line = &isolated->lines[i];
        if (!options_wants(options, line->name))
            continue;
        tap_begin(NULL, options->running, line->name, 0);
        if (line->result == ISOLATED_PASSED)
            tap_pass();
        else if (line->result == ISOLATED_SKIPPED)
            tap_skip(line->text);
        else
            tap_fail("%s", line->text);
    }
}

void isolated_run(const struct run_options *options, const char *name, isolated_fn fn)
{
    int status = 0;

    if (options->filter_kind == FILTER_PROBLEM)
        return;
    struct isolated *isolated =
        mmap(NULL, sizeof *isolated, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(isolated == MAP_FAILED ? NULL : isolated);
    isolated_stage(isolated, "start");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        default_signals();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fn(isolated, options->plugin);
        isolated->finished = true;
        _exit(0);
    }
    bool in_time = child > 0 && wait_for(isolated, child, &status);
    report_lines(isolated, options);
    if (isolated->finished && (has_line(isolated, name) || !options_wants(options, name))) {
        munmap(isolated, sizeof *isolated);
        return;
    }
    tap_begin(NULL, options->running, name, 0);
    if (child < 0)
        tap_fail("no child process");
    else if (!in_time)
        tap_fail("hangs in stage '%s': it is not over after %d seconds", isolated->stage, STAGE_SECONDS);
    else if (WIFSIGNALED(status))
        tap_fail("died of signal %d (%s) in stage '%s'", WTERMSIG(status), strsignal(WTERMSIG(status)),
                 isolated->stage);
    else if (!isolated->finished)
        tap_fail("the process was ended with status %d in stage '%s'", WEXITSTATUS(status), isolated->stage);
    else
        tap_pass();
    munmap(isolated, sizeof *isolated);
}
