/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Which files are probed before they are loaded: those without a good result of an earlier probe. A link
 * error is no result, for the host's own dlopen finds it again.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "plugin/probe/probe.h"

void attn__policy_reset(struct attn_context *context)
{
    char directory[PATH_MAX];
    attn__memory_reset();
    if (attn__cache_directory(&context->env, directory, sizeof directory))
        attn__cache_reset(directory);
}

/* ---------------------------------------------------------------- what a result means */

/* What happened in the probe. */
static void describe(const struct attn__result *result, char *text, size_t size)
{
    const char *name = result->outcome == ATTN__CRASHED ? sigabbrev_np((int)result->number) : NULL;
    if (result->outcome == ATTN__CRASHED && result->number == 0)
        snprintf(text, size, "broke the calling convention in step %s: %s", result->step, result->text);
    else if (result->outcome == ATTN__CRASHED)
        snprintf(text, size, "died of signal %u (SIG%s) in step %s", result->number,
                 name != NULL ? name : "?", result->step);
    else if (result->outcome == ATTN__TIMED_OUT)
        snprintf(text, size, "did not come back from step %s within 2 seconds", result->step);
    else
        snprintf(text, size, "ended its process with status %u in step %s", result->number, result->step);
}

static uint32_t reason_of(const struct attn__result *result)
{
    return result->outcome == ATTN__CRASHED     ? ATTN_REASON_CRASHED
           : result->outcome == ATTN__TIMED_OUT ? ATTN_REASON_TIMED_OUT
                                                : ATTN_REASON_EXITED;
}

static void refuse(struct attn__plugin *plugin, const struct attn__result *result, bool kept)
{
    char text[256], since[32] = "?";
    struct tm local;
    time_t when = (time_t)result->since;
    describe(result, text, sizeof text);
    pthread_mutex_lock(&plugin->context->lock);
    plugin->signal = result->outcome == ATTN__CRASHED ? result->number : 0;
    pthread_mutex_unlock(&plugin->context->lock);
    if (!kept) {
        attn__plugin_tell(plugin, ATTN_STAGE_NOTE, reason_of(result), "plugin %s %s", plugin->note.name,
                          text);
        return;
    }
    if (localtime_r(&when, &local) != NULL)
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &local);
    attn__plugin_tell(plugin, ATTN_STAGE_NOTE, ATTN_REASON_QUARANTINED,
                      "plugin %s is in quarantine since %s: when it was probed, it %s (%s)",
                      plugin->note.name, since, text, attn_reason_name(reason_of(result)));
}

/* The directories of libattn itself. */
static bool came_with_libattn(const struct attn__plugin *plugin)
{
    struct attn_context *context = plugin->context;
    const char *slash = strrchr(plugin->path, '/');
    size_t length = slash != NULL ? (size_t)(slash - plugin->path) : 0;
    bool found = false;
    pthread_mutex_lock(&context->lock);
    for (uint32_t i = 0; i < context->directory_count; i++) {
        const struct attn__directory *directory = &context->directories[i];
        bool own = strcmp(directory->origin, "libattn") == 0 || strcmp(directory->origin, "compiled-in") == 0;
        found = found || (own && strlen(directory->path) == length &&
                          memcmp(directory->path, plugin->path, length) == 0);
    }
    pthread_mutex_unlock(&context->lock);
    return found;
}

/* Where no child can be started. */
static bool admit_unprobed(struct attn__plugin *plugin, const char *why)
{
    if (came_with_libattn(plugin)) {
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
    if (result->outcome == ATTN__NO_RESULT)
        return true;
    if (result->outcome == ATTN__UNAVAILABLE)
        return admit_unprobed(plugin, result->text);
    if (result->outcome != ATTN__GOOD) {
        refuse(plugin, result, kept);
        return false;
    }
    pthread_mutex_lock(&plugin->context->lock);
    snprintf(plugin->effects, sizeof plugin->effects, "%s", result->text);
    pthread_mutex_unlock(&plugin->context->lock);
    attn__plugin_tell(plugin, ATTN_STAGE_PROBED, 0, "%s", "");
    return true;
}

/* ---------------------------------------------------------------- probing */

/* One file that may have to be probed. */
struct file {
    struct attn__plugin *plugin;
    bool *admitted;
    char key[ATTN__KEY_SIZE];
    struct attn__running *probe; /* NULL: the result is there */
    struct attn__result result;
};

/* Probes files at once, and lets the threads know that wait for one of them. */
static void probe_own(const struct attn_context *context, struct file *const *files, uint32_t count,
                      const char *directory, int64_t now)
{
    const char **paths = calloc(count, sizeof *paths);
    struct attn__result *results = calloc(count, sizeof *results);
    char(*keys)[ATTN__KEY_SIZE] = calloc(count, sizeof *keys);
    char helper[PATH_MAX];
    /* Who raised the privileges of this process must not steer a child that has them too. */
    char *nothing[] = {NULL}, *const *environment =
                                  context->env.elevated ? nothing : context->env.environment;
    bool memory = paths != NULL && results != NULL && keys != NULL;
    bool ready = memory && attn__probe_find_helper(helper, sizeof helper);

    for (uint32_t i = 0; i < count && ready; i++) {
        paths[i] = files[i]->plugin->path;
        memcpy(keys[i], files[i]->key, ATTN__KEY_SIZE);
    }
    if (ready)
        attn__probe_run(helper, paths, environment, results, count);
    for (uint32_t i = 0; i < count; i++) {
        struct attn__result none = {.outcome = ATTN__UNAVAILABLE};
        snprintf(none.text, sizeof none.text, "%s",
                 memory ? "the program attn-probe is not where libattn is" : "no memory");
        attn__probe_end(files[i]->probe, files[i]->key, ready ? &results[i] : &none);
    }
    if (ready && directory != NULL)
        attn__cache_store(directory, (const char(*)[ATTN__KEY_SIZE])keys, results, count, now);
    free(keys);
    free(results);
    free(paths);
}

/* Probes what nothing is known of, all at once; what another thread probes just now is waited for. */
static void probe_all(struct attn_context *context, struct file *files, uint32_t count, const char *directory,
                      int64_t now, bool anew)
{
    struct file **own = calloc(count, sizeof *own);
    uint32_t mine = 0;
    for (uint32_t i = 0; i < count && own != NULL; i++) {
        bool first;
        files[i].probe = attn__probe_begin(files[i].key, now, anew, &first, &files[i].result);
        if (first)
            own[mine++] = &files[i];
    }
    if (mine > 0)
        probe_own(context, own, mine, directory, now);
    for (uint32_t i = 0; i < count; i++) {
        if (own == NULL)
            files[i].result = (struct attn__result){.outcome = ATTN__UNAVAILABLE, .text = "no memory"};
        else if (files[i].probe != NULL)
            attn__probe_take(files[i].probe, &files[i].result);
        attn__log_line(&context->log, ATTN_LOG_DEBUG, "probe", "%s: probed, outcome %u",
                       files[i].plugin->path, files[i].result.outcome);
        *files[i].admitted = admit(files[i].plugin, &files[i].result, false);
    }
    free(own);
}

static void admit_probed(struct attn_context *context, struct file *files,
                         struct attn__plugin *const *plugins, bool *admitted, uint32_t count, bool named)
{
    const bool always = strcmp(attn__env_get(&context->env, ATTN__VAR_ATTN_PROBE), "always") == 0;
    const int64_t now = (int64_t)time(NULL);
    char path[PATH_MAX];
    const char *directory = attn__cache_directory(&context->env, path, sizeof path) ? path : NULL;
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct file *file = &files[unknown];
        *file = (struct file){.plugin = plugins[i], .admitted = &admitted[i]};
        attn__cache_key(plugins[i], file->key);
        bool kept =
            !always && (attn__memory_recall(file->key, now, &file->result) ||
                        (directory != NULL && attn__cache_load(directory, file->key, now, &file->result)));
        /* Who names a plugin wants it probed, whatever happened before. */
        if (kept && !(named && file->result.outcome != ATTN__GOOD))
            admitted[i] = admit(plugins[i], &file->result, true);
        else
            unknown++;
    }
    if (unknown > 0)
        probe_all(context, files, unknown, directory, now, named || always);
}

void attn__policy_admit(struct attn_context *context, struct attn__plugin *const *plugins, bool *admitted,
                        uint32_t count, bool named)
{
    const char *mode = attn__env_get(&context->env, ATTN__VAR_ATTN_PROBE);
    const bool never = context->check_call != NULL || strcmp(mode, "never") == 0;
    struct file *files = never ? NULL : calloc(count, sizeof *files);
    if (files != NULL)
        admit_probed(context, files, plugins, admitted, count, named);
    else
        for (uint32_t i = 0; i < count; i++)
            admitted[i] = never || admit_unprobed(plugins[i], "no memory");
    free(files);
}
