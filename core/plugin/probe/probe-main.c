/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * attn-probe FILE: probes one plugin. A guard process watches a worker process, which loads the plugin, calls
 * its functions and finishes it, and writes its progress into a page that both share. The guard writes to
 * descriptor 3: one byte when it begins, then a struct attn__result. Run by libattn alone; opens no driver of
 * an accelerator.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/probe/probe.h"
#include "plugin/probe/worker.h"

/* Sanitizers map terabytes. */
#define DATA_MOST (FENCE_IS_LEFT_TO_SANITIZER ? RLIM_INFINITY : (rlim_t)4 << 30)
#define FILE_MOST ((rlim_t)64 << 20)

/*
 * Sanitizers call these. Memory that a plugin leaks must not end the process, which would look as if the
 * plugin had done so. Crashes must end it by their signal, which the guard reports.
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

/* The result so far, written by the worker. Shared with the guard, so that it outlives the worker. */
static struct attn__result *said;

static void begin_step(const char *name)
{
    /* A plugin that closed stdout ends here, so that the step that did it is reported. */
    if (fcntl(STDOUT_FILENO, F_GETFD) < 0)
        _exit(1);
    snprintf(said->step, sizeof said->step, "%s", name);
}

static void add_effect(const char *text)
{
    said->text[sizeof said->text - 1] = '\0';
    const size_t used = strlen(said->text);
    snprintf(said->text + used, sizeof said->text - used, "%s%s", used > 0 ? "; " : "", text);
}

static void tell_broken(const char *text)
{
    said->outcome = ATTN__CRASHED;
    snprintf(said->text, sizeof said->text, "%s", text);
    _exit(1);
}

static void limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) == 0) {
        limit.rlim_cur = limit.rlim_cur < most ? limit.rlim_cur : most;
        (void)setrlimit(resource, &limit);
    }
}

/* ---------------------------------------------------------------- calls of the plugin */

/* After calls that fill in outputs. */
static void check_outputs(const char *functions)
{
    char text[96];
    if (outputs_are_alone())
        return;
    snprintf(text, sizeof text, "%s writes beside what it has to fill in", functions);
    tell_broken(text);
}

/* Asks one backend about a simple problem, without a device or on one. True if it serves the problem. */
static bool ask(const struct attn__backend *backend, const struct attn_device *device,
                const struct attn_problem *problem)
{
    enum { CAPACITY = 8 };
    outputs_begin();
    struct attn_query *query = outputs_add(sizeof *query);
    ATTN_INIT(query);
    query->reasons = outputs_add(CAPACITY * sizeof *query->reasons);
    query->reason_capacity = CAPACITY;
    query->kernels = outputs_add(CAPACITY * sizeof *query->kernels);
    query->kernel_capacity = CAPACITY;
    const int32_t status = backend->table.query(backend->plugin->instance, device, problem, query);
    check_outputs("query");
    return status == ATTN_OK && query->accepted != 0;
}

/* Makes a plan and asks it for its sizes. */
static void use_plan(const struct attn__backend *backend, struct attn_backend_impl *impl,
                     const struct attn_problem *problem, struct attn_error *err)
{
    struct attn_plan_sizes *sizes = outputs_add(sizeof *sizes);
    struct attn_plan_impl **plan = outputs_add(sizeof(void *));
    ATTN_INIT(sizes);
    begin_step("plan");
    if (backend->plan.create(impl, problem, plan, err) == ATTN_OK && *plan != NULL) {
        (void)backend->plan.sizes(*plan, sizes);
        backend->plan.destroy(*plan);
    }
    check_outputs("the plan table");
}

/* Opens a backend and calls what needs no input data. */
static void use(const struct attn__backend *backend, const struct attn_device *device,
                const struct attn_problem *problem)
{
    outputs_begin();
    struct attn_backend_impl **out = outputs_add(sizeof(void *)), *impl;
    struct attn_kv_shape *shape = outputs_add(sizeof *shape);
    struct attn_buffer *buffer = outputs_add(sizeof *buffer);
    struct attn_error *err = outputs_add(sizeof *err);
    ATTN_INIT(err);
    ATTN_INIT(shape);
    begin_step("open");
    const int32_t status = backend->table.open(backend->plugin->instance, device, NULL, out, err);
    check_outputs("open");
    if (status != ATTN_OK || *out == NULL)
        return;
    impl = *out;
    use_plan(backend, impl, problem, err);
    begin_step("kv");
    (void)backend->kv.shape(impl, problem, 4, shape, err);
    check_outputs("the kv table");
    begin_step("memory");
    if (backend->memory.alloc(impl, 4096, buffer, err) == ATTN_OK && buffer->data != NULL)
        backend->memory.free(impl, buffer);
    check_outputs("the memory table");
    begin_step("close");
    backend->table.close(impl);
}

static void live(struct attn__plugin *plugin)
{
    static const char text[] =
        "heads=8 kv_heads=2 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16";
    struct attn_problem problem;
    const struct attn_axis *axes;
    uint32_t count;
    if (attn_problem_parse(text, &problem, NULL) != ATTN_OK)
        return;
    begin_step("axes");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        (void)plugin->backends[i].table.axes(plugin->instance, &axes, &count);
    begin_step("query");
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        (void)ask(&plugin->backends[i], NULL, &problem);
    if (plugin->note.device_class < ATTN_CLASS_CPU)
        return; /* no driver of an accelerator is opened for a probe */
    begin_step("get_devices");
    if (attn__plugin_ask_devices(plugin) != ATTN_OK)
        return;
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        for (uint32_t d = 0; d < plugin->device_count; d++) {
            begin_step("query");
            if (ask(&plugin->backends[i], &plugin->devices[d].device, &problem))
                use(&plugin->backends[i], &plugin->devices[d].device, &problem);
        }
}

/* ---------------------------------------------------------------- the worker */

/* Never returns: exit runs the destructors of the plugin, as the host does at its end. */
static void work(const char *path)
{
    static const char *const variables[] = {"ATTN_DISABLE=", "ATTN_BACKEND=auto"};
    struct attn_context_options options;
    struct attn_context *context;
    ATTN_INIT(&options);
    options.given = ATTN_GIVEN_LOG;
    options.plugin_path = "/dev/null"; /* no directory is searched */
    options.variables = variables;
    options.variable_count = sizeof variables / sizeof variables[0];
    if (attn_context_create(&options, &context, NULL) != ATTN_OK)
        _exit(0);
    call_check_begin(tell_broken);
    context->check_call = call_check_add;
    struct attn__plugin *plugin = attn__plugin_create(context, path);
    side_effects_begin();
    begin_step("load");
    fence_begin(plugin != NULL ? plugin->memory : 0);
    bool opened = plugin != NULL && attn__plugin_open(plugin, false) == ATTN_OK;
    fence_end();
    if (opened) {
        live(plugin);
        begin_step("finish");
    }
    attn__plugin_destroy(plugin);
    begin_step("after finish");
    if (opened)
        side_effects_end(add_effect);
    said->outcome = opened ? ATTN__GOOD : ATTN__NO_RESULT;
    if (!opened)
        _exit(0);
    begin_step("exit");
    exit(0);
}

/* ---------------------------------------------------------------- the guard */

/* Whether the worker could run but got too little CPU time, which is not the fault of the plugin. */
static bool is_starved(pid_t worker)
{
    char path[64], text[512], state = 0;
    unsigned long user = 0, kernel = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)worker);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')');
    if (name_end == NULL || sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                                   &state, &user, &kernel) != 3)
        return false;
    const uint64_t tick = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
    return (state == 'R' || state == 'D') && (user + kernel) * tick < ATTN__PROBE_DEADLINE_NS / 2;
}

/* Waits until the worker ends. If its time is up, kills it and returns false. */
static bool wait_for(pid_t worker, int *status)
{
    const struct timespec moment = {0, 1000000};
    const uint64_t start = attn__now();
    uint64_t deadline = start + ATTN__PROBE_DEADLINE_NS;
    while (waitpid(worker, status, WNOHANG) == 0) {
        const uint64_t now = attn__now();
        if (now >= deadline) {
            if (now - start >= ATTN__PROBE_DEADLINES * ATTN__PROBE_DEADLINE_NS || !is_starved(worker)) {
                (void)kill(worker, SIGKILL);
                (void)waitpid(worker, status, 0);
                return false;
            }
            deadline = now + ATTN__PROBE_DEADLINE_NS / 8;
        }
        nanosleep(&moment, NULL);
    }
    return true;
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

/* Kills processes that the worker left, which became children of this one. True if there were any. */
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

/* Watches the worker, and judges its end. */
static void guard(pid_t worker)
{
    int status = 0;
    const bool in_time = wait_for(worker, &status);
    if (end_others())
        add_effect("leaves a child process");
    if (!in_time) {
        said->outcome = ATTN__TIMED_OUT;
    } else if (WIFSIGNALED(status)) {
        said->outcome = ATTN__CRASHED;
        said->number = (uint32_t)WTERMSIG(status);
    } else if (WEXITSTATUS(status) != 0 && said->outcome != ATTN__CRASHED) {
        said->outcome = ATTN__EXITED;
        said->number = (uint32_t)WEXITSTATUS(status);
    }
}

/* Starts the worker and guards it. A worker that ends without an outcome counts as one that exited. */
static void run(const char *path)
{
    said->outcome = ATTN__EXITED;
    const pid_t worker = fork();
    if (worker < 0) {
        said->outcome = ATTN__UNAVAILABLE;
        snprintf(said->text, sizeof said->text, "the second process of a probe cannot be started: %s",
                 strerrordesc_np(errno));
        return;
    }
    if (worker == 0) {
        close(ATTN__PROBE_FD);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setpgid(0, 0); /* a plugin that kills its process group spares the guard */
        work(path);
    }
    guard(worker);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr,
                "attn-probe: a part of libattn that probes one plugin file; run attn-info why FILE\n");
        return 2;
    }
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_DATA, DATA_MOST);
    limit(RLIMIT_FSIZE, FILE_MOST); /* its output is kept in memory */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (said == MAP_FAILED || write(ATTN__PROBE_FD, "", 1) != 1)
        return 1;
    run(argv[1]);
    return write(ATTN__PROBE_FD, said, sizeof *said) == (ssize_t)sizeof *said ? 0 : 1;
}
