/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn-probe FILE: leads one plugin through a short life and tells descriptor 3 how it went.
 *
 * Lines: "cannot WHY" if no worker could be started, else "worker N" with its process; "step NAME" before
 * each part of the life; "manner TEXT" for each trace that the plugin left in the process; "good" after the
 * whole life, or "refused" if linker or tables refused it; last, from the guard, "signal N" or "exit N" for
 * the end of the worker. Run by libattn alone; opens no driver of an accelerator.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"
#include "traces.h"

/* Sanitizers map terabytes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DATA_MOST RLIM_INFINITY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DATA_MOST RLIM_INFINITY
#endif
#endif
#ifndef DATA_MOST
#define DATA_MOST (UINT64_C(4) << 30)
#endif

#define FILE_MOST (UINT64_C(64) << 20)

/*
 * Sanitizers ask for these. Memory that a plugin keeps must not look as if the plugin ended the process, nor
 * a crash: the guard tells of it.
 */
#define CRASHES "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0"
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return CRASHES;
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return CRASHES;
}

static void say(const char *word, const char *text)
{
    char line[256];
    int length = snprintf(line, sizeof line, "%s%s%s\n", word, text[0] != '\0' ? " " : "", text);

    if (length >= (int)sizeof line) {
        length = (int)sizeof line - 1;
        line[length - 1] = '\n';
    }
    for (int at = 0; at < length;) {
        ssize_t count = write(ATTN__PROBE_FD, line + at, (size_t)(length - at));
        if (count < 0 && errno != EINTR)
            return;
        at += count > 0 ? (int)count : 0;
    }
}

static void limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) == 0) {
        limit.rlim_cur = limit.rlim_cur < most ? limit.rlim_cur : most;
        (void)setrlimit(resource, &limit);
    }
}

/* Asks one backend about a plain problem, without a device or on one. */
static void ask(const struct attn__backend *backend, const struct attn_device *device)
{
    struct attn_reason reasons[8];
    struct attn_kernel_info kernels[8];
    struct attn_problem problem;
    struct attn_query query;

    memset(reasons, 0, sizeof reasons);
    memset(kernels, 0, sizeof kernels);
    ATTN_INIT(&query);
    query.reasons = reasons;
    query.reason_capacity = 8;
    query.kernels = kernels;
    query.kernel_capacity = 8;
    if (attn_problem_parse("heads=8 kv_heads=2 head_dim=64", &problem, NULL) == ATTN_OK)
        (void)backend->table.query(backend->plugin->instance, device, &problem, &query);
}

static void live(struct attn__plugin *plugin)
{
    const struct attn_axis *axes;
    uint32_t count;

    say("step", "axes");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        (void)plugin->backends[i].table.axes(plugin->instance, &axes, &count);
    say("step", "query");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        ask(&plugin->backends[i], NULL);
    if (plugin->note.device_class < ATTN_CLASS_CPU)
        return; /* no driver of an accelerator is opened for a trial */
    say("step", "get_devices");
    if (attn__plugin_ask_devices(plugin) != ATTN_OK)
        return;
    say("step", "query");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        for (uint32_t d = 0; d < plugin->device_count; d++)
            ask(&plugin->backends[i], &plugin->devices[d].device);
}

static void tell_manner(void *user, const char *text)
{
    (void)user;
    say("manner", text);
}

/* Never returns. Destructors are part of the trial: the host runs them too, at its end. */
static void work(const char *path)
{
    static const char *const variables[] = {"ATTN_DISABLE=", "ATTN_BACKEND=auto"};
    struct attn_context_options options;
    struct attn_context *context;
    struct traces traces;

    ATTN_INIT(&options);
    options.given = ATTN_GIVEN_LOG;
    options.plugin_path = "/dev/null"; /* nothing else is looked at */
    options.variables = variables;
    options.variable_count = sizeof variables / sizeof variables[0];
    if (attn_context_create(&options, &context, NULL) != ATTN_OK)
        _exit(0);
    context->is_trial = true; /* an elevated process does not honour ATTN_PROBE */
    struct attn__plugin *plugin = attn__plugin_create(context, path);
    traces_take(&traces);
    say("step", "load");
    bool opened = plugin != NULL && attn__plugin_open(plugin) == ATTN_OK;
    if (opened) {
        live(plugin);
        say("step", "finish");
    }
    attn__plugin_destroy(plugin);
    say("step", "after finish");
    if (opened)
        traces_compare(&traces, tell_manner, NULL);
    say(opened ? "good" : "refused", "");
    if (!opened)
        _exit(0);
    say("step", "exit");
    exit(0);
}

/* Watches the worker; the host hears of its end from here. */
static void guard(pid_t worker)
{
    char number[16];
    int status;

    snprintf(number, sizeof number, "%ld", (long)worker);
    say("worker", number);
    alarm(6 * (unsigned)(ATTN__PROBE_DEADLINE_NS / 1000000000)); /* should the host be gone */
    while (waitpid(worker, &status, 0) < 0) {
        if (errno != EINTR)
            return;
    }
    snprintf(number, sizeof number, "%d", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    say(WIFSIGNALED(status) ? "signal" : "exit", number);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "attn-probe: a part of libattn that tries one plugin file; run attn-info why FILE\n");
        return 2;
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_DATA, DATA_MOST);
    limit(RLIMIT_FSIZE, FILE_MOST); /* what it prints goes into memory */
    pid_t worker = fork();
    if (worker < 0) {
        say("cannot", strerrordesc_np(errno));
        return 1;
    }
    if (worker == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(argv[1]);
    }
    guard(worker);
    return 0;
}
