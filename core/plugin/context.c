/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The context: snapshot of the environment, log, search path and registry, freed with the last reference. */
#include <stdlib.h>

#include "base/env.h"
#include "plugin/probe/probe.h"
#include "record/recorder.h"

static int32_t no_memory(struct attn_error *err)
{
    return attn__fail(err, ATTN_E_MEMORY, 0, NULL, "no memory for a context");
}

/* Tells the plugins' variables from mistakes: the plugins' notes say which names are theirs. */
static int32_t settle_env(struct attn_context *context, struct attn_error *err)
{
    const struct attn_note **notes = calloc(context->plugin_count + 1, sizeof *notes);
    uint32_t count = 0;
    if (notes == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < context->plugin_count; i++)
        if (context->plugins[i]->has_note)
            notes[count++] = &context->plugins[i]->note;
    int32_t status = attn__env_resolve(&context->env, &context->log, notes, count, err);
    free(notes);
    return status;
}

/*
 * A child after fork may find the context in the middle of a change by a thread that it does not have: then
 * it leaves the memory alone rather than follow a dangling pointer.
 */
static bool is_torn(struct attn_context *context)
{
    if (pthread_mutex_trylock(&context->lock) != 0)
        return true;
    bool torn = pthread_mutex_trylock(&context->log.lock) != 0;
    if (!torn)
        pthread_mutex_unlock(&context->log.lock);
    pthread_mutex_unlock(&context->lock);
    return torn;
}

static void free_context(struct attn_context *context)
{
    bool child = context->born != attn__fork_generation();
    if (child && is_torn(context))
        return;
    for (uint32_t i = 0; i < context->plugin_count; i++)
        attn__plugin_destroy(context->plugins[i]);
    free(context->plugins);
    attn__directories_destroy(context->directories, context->directory_count);
    if (!child) { /* one may be held by a thread of the parent */
        pthread_mutex_destroy(&context->opening);
        pthread_mutex_destroy(&context->lock);
    }
    attn__recorder_destroy(context->recorder);
    attn__log_finish(&context->log);
    attn__env_finish(&context->env);
    free(context->plugin_path);
    free(context);
}

/* Sets up what free_context expects, or cleans up itself. Later failures are left to free_context. */
static int32_t begin(struct attn_context *context, const struct attn_context_options *options,
                     struct attn_error *err)
{
    int32_t status = attn__env_init(&context->env, options, err);
    if (status != ATTN_OK)
        return status;
    status = attn__log_init(&context->log, options, &context->env, err);
    if (status != ATTN_OK) {
        attn__env_finish(&context->env);
        return status;
    }
    pthread_mutex_init(&context->lock, NULL);
    pthread_mutex_init(&context->opening, NULL);
    return ATTN_OK;
}

static int32_t fill(struct attn_context *context, const struct attn_context_options *options,
                    struct attn_error *err)
{
    if (options->plugin_path != NULL && options->plugin_path[0] != '\0') {
        context->plugin_path = strdup(options->plugin_path);
        if (context->plugin_path == NULL)
            return no_memory(err);
    }
    if (context->plugin_path != NULL && context->env.elevated)
        attn__log_once(&context->log, ATTN_LOG_WARN, "path",
                       "options.plugin_path=%s is ignored: an elevated process searches %s alone",
                       context->plugin_path, ATTN_PLUGIN_DIR);
    context->parallel_for = options->parallel_for;
    context->parallel_for_arg = options->parallel_for_arg;
    int32_t status = attn__recorder_create(&context->env, &context->recorder, err);
    if (status == ATTN_OK)
        status = attn__registry_scan(context, err);
    return status == ATTN_OK ? settle_env(context, err) : status;
}

int32_t attn_context_create(const struct attn_context_options *options, struct attn_context **out,
                            struct attn_error *err)
{
    struct attn_context_options taken;
    if (out == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "out", "out is NULL; a place for the context is accepted");
    *out = NULL;
    if (options == NULL) {
        ATTN_INIT(&taken);
    } else {
        int32_t status = attn__take(&taken, sizeof taken, options, sizeof taken, "options", err);
        if (status != ATTN_OK)
            return status;
    }
    if ((taken.given & ~ATTN_GIVEN_LOG) != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "given", "options.given is %#x; bits of %#x are accepted",
                          taken.given, ATTN_GIVEN_LOG);
    struct attn_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return no_memory(err);
    atomic_init(&context->refs, 1);
    context->born = attn__fork_generation();
    int32_t status = begin(context, &taken, err);
    if (status != ATTN_OK) {
        free(context);
        return status;
    }
    status = fill(context, &taken, err);
    if (status != ATTN_OK) {
        free_context(context);
        return status;
    }
    *out = context;
    return ATTN_OK;
}

void attn__context_hold(struct attn_context *context)
{
    atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
}

void attn__context_drop(struct attn_context *context)
{
    if (atomic_fetch_sub_explicit(&context->refs, 1, memory_order_acq_rel) == 1)
        free_context(context);
}

void attn_context_destroy(struct attn_context *context)
{
    if (context != NULL)
        attn__context_drop(context);
}

static int32_t check(const struct attn_context *context, const char *what, struct attn_error *err)
{
    if (context == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "context", "%s: context is NULL; a context is accepted",
                          what);
    return attn__check_fork(context->born, what, err);
}

int32_t attn_context_rescan(struct attn_context *context, struct attn_error *err)
{
    int32_t status = check(context, "attn_context_rescan", err);
    if (status != ATTN_OK)
        return status;
    attn__policy_reset(context);
    return attn__registry_scan(context, err);
}

int32_t attn_context_load_all(struct attn_context *context, struct attn_error *err)
{
    struct attn__plugin **plugins;
    uint32_t count, reason;
    int32_t status = check(context, "attn_context_load_all", err);
    if (status != ATTN_OK)
        return status;
    const char *wanted = attn__env_get(&context->env, ATTN__VAR_ATTN_BACKEND);
    if (attn__registry_list(context, &plugins, &count) != ATTN_OK)
        return no_memory(err);
    for (uint32_t i = 0; i < count; i++)
        /* In this order: if a file fails, the next one of its name becomes usable. */
        if (attn__plugin_is_usable(plugins[i]) && attn__wanted_plugin(context, wanted, plugins[i], &reason))
            (void)attn__plugin_ask_devices(plugins[i]); /* the record keeps what went wrong */
    free(plugins);
    return ATTN_OK;
}

const struct attn_variable_record *attn_context_get_variable(const struct attn_context *context,
                                                             uint32_t index)
{
    if (context == NULL || index >= context->env.count)
        return NULL;
    return &context->env.records[index];
}
