/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Decides which files are probed before they are loaded: those without a good result of an earlier probe.
 * Starts attn-probe for one file, and reads the result from its guard until time is up. A link error is no
 * result, because the host's own dlopen will report it.
 */
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

/* ---------------------------------------------------------------- one probe */

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
    /* First, because the pipe may have one of the descriptors that are opened below. */
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

/* The plugin runs in the process of the worker and may have written anything into the result. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '|')
            *p = '?';
}

/* Fills the result from what the guard writes. False if the guard still runs. */
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
        /* One more deadline, in which the guard ends what its worker started. */
        const uint64_t most = (ATTN__PROBE_DEADLINES + 1) * ATTN__PROBE_DEADLINE_NS;
        if (!listen_to(ends[0], attn__now() + most, result))
            (void)kill(child, SIGKILL); /* its worker dies with it */
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    close(ends[0]);
}

/* ---------------------------------------------------------------- what a result means */

/* What happened in the probe, and the reason. */
static uint32_t describe(const struct attn__result *result, const struct attn__words *words)
{
    const char *name = result->outcome == ATTN__CRASHED ? sigabbrev_np((int)result->number) : NULL;
    if (result->outcome == ATTN__CRASHED && result->number == 0)
        return attn__refuse(words, ATTN_REASON_CRASHED, "harmed its caller in step %s: %s", result->step,
                            result->text);
    if (result->outcome == ATTN__CRASHED)
        return attn__refuse(words, ATTN_REASON_CRASHED, "died of signal %u (SIG%s) in step %s",
                            result->number, name != NULL ? name : "?", result->step);
    if (result->outcome == ATTN__TIMED_OUT)
        return attn__refuse(words, ATTN_REASON_TIMED_OUT, "did not come back from step %s within 2 seconds",
                            result->step);
    return attn__refuse(words, ATTN_REASON_EXITED, "ended its process with status %u in step %s",
                        result->number, result->step);
}

static void refuse(struct attn__plugin *plugin, const struct attn__result *result, bool kept)
{
    char text[256], since[32] = "?";
    const struct attn__words words = {text, sizeof text};
    const uint32_t reason = describe(result, &words);
    const time_t when = (time_t)result->since;
    struct tm local;
    if (localtime_r(&when, &local) != NULL)
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &local);
    if (kept)
        attn__plugin_tell(plugin, ATTN_STAGE_NOTE, ATTN_REASON_QUARANTINED,
                          "plugin %s is in quarantine since %s: when it was probed, it %s (%s)",
                          plugin->note.name, since, text, attn_reason_name(reason));
    else
        attn__plugin_tell(plugin, ATTN_STAGE_NOTE, reason, "plugin %s %s", plugin->note.name, text);
}

/* Decides if no child can be started: only libattn's own plugins are loaded without a probe. */
static bool admit_unprobed(struct attn__plugin *plugin, const char *why)
{
    if (plugin->own) {
        attn__log_once(&plugin->context->log, ATTN_LOG_INFO, "probe",
                       "%s is loaded without a probe, for it came with libattn: %s", plugin->path, why);
        return true;
    }
    attn__plugin_tell(plugin, ATTN_STAGE_NOTE, ATTN_REASON_PROBE_UNAVAILABLE,
                      "plugin %s cannot be probed in a child process: %s", plugin->note.name, why);
    return false;
}

/* False if the file must not be loaded; the record says why. `kept`: an earlier probe had this result. */
static bool admit(struct attn__plugin *plugin, const struct attn__result *result, bool kept)
{
    const bool good = result->outcome == ATTN__GOOD;
    pthread_mutex_lock(&plugin->context->lock);
    plugin->signal = result->outcome == ATTN__CRASHED ? result->number : 0;
    snprintf(plugin->effects, sizeof plugin->effects, "%s", good ? result->text : "");
    pthread_mutex_unlock(&plugin->context->lock);
    if (result->outcome == ATTN__UNAVAILABLE)
        return admit_unprobed(plugin, result->text);
    if (good)
        attn__plugin_tell(plugin, ATTN_STAGE_PROBED, 0, "%s", "");
    else if (result->outcome != ATTN__NO_RESULT)
        refuse(plugin, result, kept);
    return good || result->outcome == ATTN__NO_RESULT;
}

/* ---------------------------------------------------------------- which files are probed */

/* The helper that belongs to this library: beside it in the build tree; else where the installation puts
 * helpers. */
static bool find_helper(char *path, size_t size)
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

static void probe(const struct attn__plugin *plugin, struct attn__result *result)
{
    const struct attn_context *context = plugin->context;
    char helper[PATH_MAX];
    /* An elevated process does not pass on its environment, which an unprivileged user has set. */
    char *nothing[] = {NULL};
    if (find_helper(helper, sizeof helper))
        attn__probe_run(helper, context->env.elevated ? nothing : context->env.environment, plugin->path,
                        result);
    else
        *result = (struct attn__result){.outcome = ATTN__UNAVAILABLE,
                                        .text = "the program attn-probe is not where libattn is"};
}

bool attn__policy_admit(struct attn__plugin *plugin, bool named)
{
    struct attn_context *context = plugin->context;
    const char *mode = attn__env_get(&context->env, ATTN__VAR_ATTN_PROBE);
    char directory[PATH_MAX], key[ATTN__KEY_SIZE];
    struct attn__result result;
    if (context->check_call != NULL || strcmp(mode, "never") == 0)
        return true;
    attn__cache_key(plugin, key);
    const bool keeps = attn__cache_directory(&context->env, directory, sizeof directory);
    const bool kept = keeps && strcmp(mode, "always") != 0 &&
                      attn__cache_load(directory, key, (int64_t)time(NULL), &result);
    /* A plugin that is asked for by name is probed again after a bad result. */
    if (kept && !(named && result.outcome != ATTN__GOOD))
        return admit(plugin, &result, true);
    probe(plugin, &result);
    attn__log_line(&context->log, ATTN_LOG_DEBUG, "probe", "%s: probed, outcome %u", plugin->path,
                   result.outcome);
    if (keeps)
        attn__cache_store(directory, key, &result);
    return admit(plugin, &result, false);
}

void attn__policy_reset(struct attn_context *context)
{
    char directory[PATH_MAX];
    if (attn__cache_directory(&context->env, directory, sizeof directory))
        attn__cache_reset(directory);
}
