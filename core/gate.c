/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The gate before loading: a file passes if an earlier trial ended well, or the one made now does. Link
 * errors are no verdict, for the host's own dlopen finds them again.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "probe.h"

void attn__gate_pardon(struct attn_context *context)
{
    char directory[PATH_MAX];

    attn__known_pardon();
    if (attn__verdict_directory(&context->env, directory, sizeof directory))
        attn__verdict_pardon(directory);
}

/* ---------------------------------------------------------------- judging */

/* What a bad verdict says of the trial. */
static void describe(const struct attn__verdict *verdict, char *text, size_t size)
{
    const char *name = verdict->outcome == ATTN__CRASHED ? sigabbrev_np((int)verdict->number) : NULL;

    if (verdict->outcome == ATTN__CRASHED)
        snprintf(text, size, "died of signal %u (SIG%s) in step %s", verdict->number,
                 name != NULL ? name : "?", verdict->step);
    else if (verdict->outcome == ATTN__TIMED_OUT)
        snprintf(text, size, "did not come back from step %s within 2 seconds", verdict->step);
    else
        snprintf(text, size, "ended its process with status %u in step %s", verdict->number, verdict->step);
}

static uint32_t reason_of(const struct attn__verdict *verdict)
{
    return verdict->outcome == ATTN__CRASHED     ? ATTN_REASON_CRASHED
           : verdict->outcome == ATTN__TIMED_OUT ? ATTN_REASON_TIMED_OUT
                                                 : ATTN_REASON_EXITED;
}

/* False if the file must not be loaded; the record says why. */
static bool pass(struct attn__plugin *plugin, const struct attn__verdict *verdict, bool kept)
{
    char text[160], since[32] = "?";
    struct tm local;
    time_t when = (time_t)verdict->since;

    if (verdict->outcome == ATTN__NO_VERDICT)
        return true;
    if (verdict->outcome == ATTN__GOOD) {
        pthread_mutex_lock(&plugin->context->lock);
        snprintf(plugin->manners, sizeof plugin->manners, "%s", verdict->text);
        pthread_mutex_unlock(&plugin->context->lock);
        attn__plugin_tell(plugin, ATTN_STAGE_PROBED, 0, "%s", "");
        return true;
    }
    describe(verdict, text, sizeof text);
    pthread_mutex_lock(&plugin->context->lock);
    plugin->signal = verdict->outcome == ATTN__CRASHED ? verdict->number : 0;
    pthread_mutex_unlock(&plugin->context->lock);
    if (!kept) {
        attn__plugin_tell(plugin, ATTN_STAGE_NOTE, reason_of(verdict), "plugin %s %s", plugin->note.name,
                          text);
        return false;
    }
    if (localtime_r(&when, &local) != NULL)
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &local);
    attn__plugin_tell(plugin, ATTN_STAGE_NOTE, ATTN_REASON_QUARANTINED,
                      "plugin %s is in quarantine since %s: when it was tried, it %s (%s)", plugin->note.name,
                      since, text, attn_reason_name(reason_of(verdict)));
    return false;
}

/* Files beside libattn came with it. */
static bool is_in_own_directory(const struct attn__plugin *plugin)
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

static bool pass_untried(struct attn__plugin *plugin, const char *why)
{
    if (is_in_own_directory(plugin)) {
        attn__log_once(&plugin->context->log, ATTN_LOG_INFO, "probe",
                       "%s is loaded without a trial, for it came with libattn: %s", plugin->path, why);
        return true;
    }
    attn__plugin_tell(plugin, ATTN_STAGE_NOTE, ATTN_REASON_PROBE_UNAVAILABLE,
                      "plugin %s cannot be tried in a child process: %s", plugin->note.name, why);
    return false;
}

/* ---------------------------------------------------------------- the gate */

/* One file at the gate. */
struct visitor {
    struct attn__plugin *plugin;
    bool *passed;
    char key[ATTN__KEY_SIZE];
    struct attn__trial *trial;
};

/* What came of a trial, made by this thread or by another one. */
static void conclude(struct attn_context *context, const struct visitor *visitor,
                     const struct attn__verdict *verdict)
{
    struct attn__plugin *plugin = visitor->plugin;

    attn__log_line(&context->log, ATTN_LOG_DEBUG, "probe", "%s: tried, outcome %u", plugin->path,
                   verdict->outcome);
    *visitor->passed = verdict->outcome == ATTN__UNAVAILABLE ? pass_untried(plugin, verdict->text)
                                                             : pass(plugin, verdict, false);
}

/* Tries files at once, and lets the threads know that wait for one of them. */
static void try_own(const struct attn_context *context, struct visitor *const *visitors, uint32_t count,
                    const char *directory, int64_t now)
{
    const char **paths = calloc(count, sizeof *paths);
    struct attn__verdict *verdicts = calloc(count, sizeof *verdicts);
    char(*keys)[ATTN__KEY_SIZE] = calloc(count, sizeof *keys);
    char helper[PATH_MAX];
    /* Who raised the privileges of this process must not steer a child that has them too. */
    char *nothing[] = {NULL}, *const *environment =
                                  context->env.elevated ? nothing : context->env.environment;
    bool memory = paths != NULL && verdicts != NULL && keys != NULL;
    bool ready = memory && attn__probe_find_helper(helper, sizeof helper);

    for (uint32_t i = 0; i < count && ready; i++) {
        paths[i] = visitors[i]->plugin->path;
        memcpy(keys[i], visitors[i]->key, ATTN__KEY_SIZE);
    }
    if (ready)
        attn__probe_run(helper, paths, environment, verdicts, count);
    for (uint32_t i = 0; i < count; i++) {
        struct attn__verdict none = {.outcome = ATTN__UNAVAILABLE};
        snprintf(none.text, sizeof none.text, "%s",
                 memory ? "the program attn-probe is not where libattn is" : "no memory");
        attn__trial_end(visitors[i]->trial, visitors[i]->key, ready ? &verdicts[i] : &none);
    }
    if (ready && directory != NULL)
        attn__verdict_store(directory, (const char(*)[ATTN__KEY_SIZE])keys, verdicts, count, now);
    free(keys);
    free(verdicts);
    free(paths);
}

/* Tries those that nothing is known of, all at once; what another thread tries just now is waited for. */
static void try_all(struct attn_context *context, struct visitor *visitors, uint32_t count,
                    const char *directory, int64_t now, bool anew)
{
    struct visitor **own = calloc(count, sizeof *own);
    uint32_t mine = 0;

    for (uint32_t i = 0; i < count && own != NULL; i++) {
        struct attn__verdict verdict;
        bool first = false;
        visitors[i].trial = attn__trial_begin(visitors[i].key, &first);
        /* Another thread may have ended one since its verdict was looked for. */
        if (first && !anew && attn__known_recall(visitors[i].key, now, &verdict))
            attn__trial_end(visitors[i].trial, visitors[i].key, &verdict);
        else if (first)
            own[mine++] = &visitors[i];
    }
    if (mine > 0)
        try_own(context, own, mine, directory, now);
    free(own);
    for (uint32_t i = 0; i < count; i++) {
        struct attn__verdict verdict = {.outcome = ATTN__UNAVAILABLE, .text = "no memory"};
        if (visitors[i].trial != NULL)
            attn__trial_take(visitors[i].trial, &verdict);
        conclude(context, &visitors[i], &verdict);
    }
}

void attn__gate_pass(struct attn_context *context, struct attn__plugin *const *plugins, bool *passed,
                     uint32_t count, bool named)
{
    const char *mode = attn__env_get(&context->env, ATTN__VAR_ATTN_PROBE);
    struct visitor *visitors = calloc(count, sizeof *visitors);
    char path[PATH_MAX];
    const char *directory = NULL;
    int64_t now = (int64_t)time(NULL);
    uint32_t untried = 0;

    bool open = context->is_trial || strcmp(mode, "never") == 0;
    for (uint32_t i = 0; i < count; i++)
        passed[i] = open;
    if (open || visitors == NULL) {
        for (uint32_t i = 0; i < count && !open; i++)
            passed[i] = pass_untried(plugins[i], "no memory");
        free(visitors);
        return;
    }
    if (attn__verdict_directory(&context->env, path, sizeof path))
        directory = path;
    for (uint32_t i = 0; i < count; i++) {
        struct visitor *visitor = &visitors[untried];
        struct attn__verdict verdict;
        *visitor = (struct visitor){.plugin = plugins[i], .passed = &passed[i]};
        attn__verdict_key(plugins[i], visitor->key);
        bool kept = strcmp(mode, "always") != 0 &&
                    (attn__known_recall(visitor->key, now, &verdict) ||
                     (directory != NULL && attn__verdict_load(directory, visitor->key, now, &verdict)));
        /* Who names a plugin wants it tried, whatever happened before. */
        if (kept && !(named && verdict.outcome != ATTN__GOOD))
            passed[i] = pass(plugins[i], &verdict, true);
        else
            untried++;
    }
    if (untried > 0)
        try_all(context, visitors, untried, directory, now, named || strcmp(mode, "always") == 0);
    free(visitors);
}
