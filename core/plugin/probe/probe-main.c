/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn-probe FILE: leads one plugin through a short life and tells descriptor 3 how it went.
 *
 * Lines: "cannot WHY" if no worker could be started, else "worker N" with its process; "step NAME" before
 * each part of the life; "broken TEXT" if a function broke the calling convention; "effect TEXT" for each
 * side effect on the process; "good" after the whole life, or "refused" if linker or tables refused it; last,
 * from the guard, "signal N" or "exit N" for the end of the worker. Run by libattn alone; opens no driver of
 * an accelerator.
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

#include "plugin/probe/call-check.h"
#include "plugin/probe/fence.h"
#include "plugin/probe/probe.h"
#include "plugin/probe/side-effects.h"

/* Sanitizers map terabytes. */
#define DATA_MOST (FENCE_IS_LEFT_TO_SANITIZER ? RLIM_INFINITY : (rlim_t)4 << 30)
#define FILE_MOST ((rlim_t)64 << 20)

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

/* ---------------------------------------------------------------- a short life */

/* Asks one backend about a simple problem, without a device or on one. True if it serves the problem. */
static bool ask(const struct attn__backend *backend, const struct attn_device *device,
                const struct attn_problem *problem)
{
    struct attn_reason reasons[8];
    struct attn_kernel_info kernels[8];
    struct attn_query query;

    memset(reasons, 0, sizeof reasons);
    memset(kernels, 0, sizeof kernels);
    ATTN_INIT(&query);
    query.reasons = reasons;
    query.reason_capacity = 8;
    query.kernels = kernels;
    query.kernel_capacity = 8;
    return backend->table.query(backend->plugin->instance, device, problem, &query) == ATTN_OK &&
           query.accepted != 0;
}

/* Everything that needs no data. */
static void use(const struct attn__backend *backend, const struct attn_device *device,
                const struct attn_problem *problem)
{
    struct attn_backend_impl *impl = NULL;
    struct attn_plan_impl *plan = NULL;
    struct attn_plan_sizes sizes;
    struct attn_kv_shape shape;
    struct attn_buffer buffer = {NULL, 0};
    struct attn_error err;

    ATTN_INIT(&err);
    ATTN_INIT(&sizes);
    ATTN_INIT(&shape);
    say("step", "open");
    if (backend->table.open(backend->plugin->instance, device, NULL, &impl, &err) != ATTN_OK || impl == NULL)
        return;
    say("step", "plan");
    if (backend->plan.create(impl, problem, &plan, &err) == ATTN_OK && plan != NULL) {
        (void)backend->plan.sizes(plan, &sizes);
        backend->plan.destroy(plan);
    }
    say("step", "kv");
    (void)backend->kv.shape(impl, problem, 4, &shape, &err);
    say("step", "memory");
    if (backend->memory.alloc(impl, 4096, &buffer, &err) == ATTN_OK && buffer.data != NULL)
        backend->memory.free(impl, &buffer);
    say("step", "close");
    backend->table.close(impl);
}

static void live(struct attn__plugin *plugin)
{
    static const char text[] = "heads=8 kv_heads=2 head_dim=64 max_seqs=4 max_q=8 max_kv=64 max_rows=16";
    struct attn_problem problem;
    const struct attn_axis *axes;
    uint32_t count;

    if (attn_problem_parse(text, &problem, NULL) != ATTN_OK)
        return;
    say("step", "axes");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        (void)plugin->backends[i].table.axes(plugin->instance, &axes, &count);
    say("step", "query");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        (void)ask(&plugin->backends[i], NULL, &problem);
    if (plugin->note.device_class < ATTN_CLASS_CPU)
        return; /* no driver of an accelerator is opened for a probe */
    say("step", "get_devices");
    if (attn__plugin_ask_devices(plugin) != ATTN_OK)
        return;
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        for (uint32_t d = 0; d < plugin->device_count; d++) {
            say("step", "query");
            if (ask(&plugin->backends[i], &plugin->devices[d].device, &problem))
                use(&plugin->backends[i], &plugin->devices[d].device, &problem);
        }
}

/* ---------------------------------------------------------------- the worker */

static void tell_effect(const char *text)
{
    say("effect", text);
}

static void tell_broken(const char *text)
{
    say("broken", text);
    _exit(1);
}

/* Never returns. Destructors are part of the probe: the host runs them too, at its end. */
static void work(const char *path)
{
    static const char *const variables[] = {"ATTN_DISABLE=", "ATTN_BACKEND=auto"};
    struct attn_context_options options;
    struct attn_context *context;

    ATTN_INIT(&options);
    options.given = ATTN_GIVEN_LOG;
    options.plugin_path = "/dev/null"; /* nothing else is looked at */
    options.variables = variables;
    options.variable_count = sizeof variables / sizeof variables[0];
    if (attn_context_create(&options, &context, NULL) != ATTN_OK)
        _exit(0);
    call_check_begin(tell_broken);
    context->check_call = call_check_add;
    struct attn__plugin *plugin = attn__plugin_create(context, path);
    side_effects_begin();
    say("step", "load");
    fence_begin(plugin != NULL ? plugin->memory : 0);
    bool opened = plugin != NULL && attn__plugin_open(plugin) == ATTN_OK;
    fence_end();
    if (opened) {
        live(plugin);
        say("step", "finish");
    }
    attn__plugin_destroy(plugin);
    say("step", "after finish");
    if (opened)
        side_effects_end(tell_effect);
    say(opened ? "good" : "refused", "");
    if (!opened)
        _exit(0);
    say("step", "exit");
    exit(0);
}

/* ---------------------------------------------------------------- the guard */

static volatile sig_atomic_t worker;

/* The host asks for the end, or it is gone and time is up. */
static void end_worker(int number)
{
    (void)number;
    if (worker > 0)
        (void)kill((pid_t)worker, SIGKILL);
}

/* A child of this process, or 0. */
static pid_t find_child(void)
{
    pid_t child = 0;
    FILE *list = fopen("/proc/thread-self/children", "re");

    if (list != NULL && fscanf(list, "%d", &child) != 1)
        child = 0;
    if (list != NULL)
        fclose(list);
    return child;
}

/* Whatever the worker started became a child of this process when its parent ended. True if there was any. */
static bool end_others(void)
{
    bool any = false;
    pid_t child;

    while (waitpid(-1, NULL, WNOHANG) >= 0 && (child = find_child()) > 0) {
        any = true;
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    return any;
}

/* Watches the worker; the host hears of its end from here. */
static void guard(const sigset_t *asked)
{
    const struct sigaction action = {.sa_handler = end_worker};
    char number[16];
    int status;

    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGALRM, &action, NULL);
    sigprocmask(SIG_UNBLOCK, asked, NULL);
    snprintf(number, sizeof number, "%ld", (long)worker);
    say("worker", number);
    alarm(6 * (unsigned)(ATTN__PROBE_DEADLINE_NS / 1000000000)); /* should the host be gone */
    while (waitpid((pid_t)worker, &status, 0) < 0)
        if (errno != EINTR)
            return;
    worker = 0;
    if (end_others())
        say("effect", "leaves a child process");
    snprintf(number, sizeof number, "%d", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    say(WIFSIGNALED(status) ? "signal" : "exit", number);
}

int main(int argc, char **argv)
{
    sigset_t asked;

    if (argc != 2) {
        fprintf(stderr,
                "attn-probe: a part of libattn that probes one plugin file; run attn-info why FILE\n");
        return 2;
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_DATA, DATA_MOST);
    limit(RLIMIT_FSIZE, FILE_MOST); /* what it prints goes into memory */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Not before the guard is ready to end its worker. */
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    sigprocmask(SIG_BLOCK, &asked, NULL);
    worker = fork();
    if (worker < 0) {
        say("cannot", strerrordesc_np(errno));
        return 1;
    }
    if (worker == 0) {
        sigprocmask(SIG_UNBLOCK, &asked, NULL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setpgid(0, 0); /* a plugin may kill its group, and not the guard */
        work(argv[1]);
    }
    guard(&asked);
    return 0;
}
