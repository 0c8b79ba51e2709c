/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Which files are probed before they are loaded: those without a good result of an earlier probe. A link
 * error is no result, for the host's own dlopen finds it again.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "plugin/probe/probe.h"

void attn__policy_reset(struct attn_context *context)
{
    char directory[PATH_MAX];
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

static void probe(const struct attn__plugin *plugin, struct attn__result *result)
{
    const struct attn_context *context = plugin->context;
    char helper[PATH_MAX];
    /* Who raised the privileges of this process must not steer a child that has them too. */
    char *nothing[] = {NULL};
    if (attn__probe_find_helper(helper, sizeof helper))
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
    /* Who names a plugin wants it probed, whatever happened before. */
    if (kept && !(named && result.outcome != ATTN__GOOD))
        return admit(plugin, &result, true);
    probe(plugin, &result);
    attn__log_line(&context->log, ATTN_LOG_DEBUG, "probe", "%s: probed, outcome %u", plugin->path,
                   result.outcome);
    if (keeps)
        attn__cache_store(directory, key, &result);
    return admit(plugin, &result, false);
}
