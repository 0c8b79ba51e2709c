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

/* A life takes milliseconds; emulated and with sanitizers, seconds. */
enum { DEADLINE_MILLISECONDS = 60000 };

void apart_stage(struct apart *apart, const char *stage)
{
    snprintf(apart->stage, sizeof apart->stage, "%s", stage);
}

static bool has_line(const struct apart *apart, const char *name)
{
    for (uint32_t i = 0; i < apart->count; i++)
        if (strcmp(apart->lines[i].name, name) == 0)
            return true;
    return false;
}

/* The first verdict on a name stands: what came later may follow from it. */
static struct apart_line *add_line(struct apart *apart, const char *name, uint32_t verdict)
{
    if (has_line(apart, name))
        return NULL;
    if (apart->count == APART_LINES) {
        fprintf(stderr, "attn-check: more lines than a child may report\n");
        _exit(2);
    }
    struct apart_line *line = &apart->lines[apart->count++];
    snprintf(line->name, sizeof line->name, "%s", name);
    line->verdict = verdict;
    return line;
}

void apart_pass(struct apart *apart, const char *name)
{
    add_line(apart, name, APART_PASSED);
}

void apart_fail(struct apart *apart, const char *name, const char *format, ...)
{
    struct apart_line *line = add_line(apart, name, APART_FAILED);
    va_list arguments;

    if (line == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line->text, sizeof line->text, format, arguments);
    va_end(arguments);
}

void apart_skip(struct apart *apart, const char *name, const char *why)
{
    struct apart_line *line = add_line(apart, name, APART_SKIPPED);

    if (line != NULL)
        snprintf(line->text, sizeof line->text, "%s", why);
}

void apart_judge(struct apart *apart, const char *name, const char *text)
{
    if (text[0] == '\0')
        apart_pass(apart, name);
    else
        apart_fail(apart, name, "%s", text);
}

/* The handlers of the checker's own process would report in its place. */
static void default_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, SIGTERM, SIGCHLD};

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], SIG_DFL);
}

/* False if the child was still there at the deadline. */
static bool wait_for(pid_t child, int *status)
{
    const struct timespec pause = {0, 1000000};

    for (uint32_t i = 0; i < DEADLINE_MILLISECONDS; i++) {
        if (waitpid(child, status, WNOHANG) == child)
            return true;
        nanosleep(&pause, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return false;
}

static void report_lines(const struct apart *apart, const struct run_options *options)
{
    for (uint32_t i = 0; i < apart->count && i < APART_LINES; i++) {
        const struct apart_line *line = &apart->lines[i];
        if (!options_wants(options, line->name))
            continue;
        tap_begin(NULL, options->running, line->name, 0);
        if (line->verdict == APART_PASSED)
            tap_pass();
        else if (line->verdict == APART_SKIPPED)
            tap_skip(line->text);
        else
            tap_fail("%s", line->text);
    }
}

void apart_run(const struct run_options *options, const char *name, apart_fn fn)
{
    int status = 0;

    if (options->filter_kind == FILTER_PROBLEM)
        return;
    struct apart *apart =
        mmap(NULL, sizeof *apart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(apart == MAP_FAILED ? NULL : apart);
    apart_stage(apart, "start");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        default_signals();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fn(apart, options->plugin);
        apart->finished = true;
        _exit(0);
    }
    bool in_time = child > 0 && wait_for(child, &status);
    report_lines(apart, options);
    if (apart->finished && (has_line(apart, name) || !options_wants(options, name))) {
        munmap(apart, sizeof *apart);
        return;
    }
    tap_begin(NULL, options->running, name, 0);
    if (child < 0)
        tap_fail("no child process");
    else if (!in_time)
        tap_fail("hangs in stage '%s'", apart->stage);
    else if (WIFSIGNALED(status))
        tap_fail("died of signal %d (%s) in stage '%s'", WTERMSIG(status), strsignal(WTERMSIG(status)),
                 apart->stage);
    else if (!apart->finished)
        tap_fail("the process was ended with status %d in stage '%s'", WEXITSTATUS(status), apart->stage);
    else
        tap_pass();
    munmap(apart, sizeof *apart);
}
