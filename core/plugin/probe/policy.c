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
    attn__cache_reset(NULL);
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

/* Probes files at once. */
static void probe_all(const struct attn_context *context, struct attn__probe *probes, uint32_t count)
{
    char helper[PATH_MAX];
    /* Who raised the privileges of this process must not steer a child that has them too. */
    char *nothing[] = {NULL};
    if (attn__probe_find_helper(helper, sizeof helper)) {
        attn__probe_run(helper, context->env.elevated ? nothing : context->env.environment, probes, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        probes[i].result = (struct attn__result){.outcome = ATTN__UNAVAILABLE,
                                                 .text = "the program attn-probe is not where libattn is"};
}

/* `order` has room for the numbers of those that must be probed. */
static void admit_probed(struct attn_context *context, struct attn__probe *probes, uint32_t *order,
                         struct attn__plugin *const *plugins, bool *admitted, uint32_t count, bool named)
{
    const bool always = strcmp(attn__env_get(&context->env, ATTN__VAR_ATTN_PROBE), "always") == 0;
    const int64_t now = (int64_t)time(NULL);
    char path[PATH_MAX];
    const char *directory = attn__cache_directory(&context->env, path, sizeof path) ? path : NULL;
    uint32_t unknown = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct attn__probe *probe = &probes[unknown];
        *probe = (struct attn__probe){.path = plugins[i]->path};
        attn__cache_key(plugins[i], probe->key);
        bool kept =
            !always && (attn__cache_load(NULL, probe->key, now, &probe->result) ||
                        (directory != NULL && attn__cache_load(directory, probe->key, now, &probe->result)));
        /* Who names a plugin wants it probed, whatever happened before. */
        if (kept && !(named && probe->result.outcome != ATTN__GOOD))
            admitted[i] = admit(plugins[i], &probe->result, true);
        else
            order[unknown++] = i;
    }
    if (unknown == 0)
        return;
    probe_all(context, probes, unknown);
    attn__cache_store(NULL, probes, unknown, now);
    if (directory != NULL)
        attn__cache_store(directory, probes, unknown, now);
    for (uint32_t i = 0; i < unknown; i++) {
        attn__log_line(&context->log, ATTN_LOG_DEBUG, "probe", "%s: probed, outcome %u", probes[i].path,
                       probes[i].result.outcome);
        admitted[order[i]] = admit(plugins[order[i]], &probes[i].result, false);
    }
}

void attn__policy_admit(struct attn_context *context, struct attn__plugin *const *plugins, bool *admitted,
                        uint32_t count, bool named)
{
    const char *mode = attn__env_get(&context->env, ATTN__VAR_ATTN_PROBE);
    const bool never = context->check_call != NULL || strcmp(mode, "never") == 0;
    struct attn__probe *probes = never ? NULL : calloc(count, sizeof *probes);
    uint32_t *order = never ? NULL : calloc(count, sizeof *order);
    if (probes != NULL && order != NULL)
        admit_probed(context, probes, order, plugins, admitted, count, named);
    else
        for (uint32_t i = 0; i < count; i++)
            admitted[i] = never || admit_unprobed(plugins[i], "no memory");
    free(order);
    free(probes);
}
