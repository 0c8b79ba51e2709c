/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Queries of one backend, opened or by name, without a selection. */
#include <stdio.h>
#include <stdlib.h>

#include "dispatch/call.h"
#include "select/problem.h"
#include "select/select.h"

static bool offers(const struct attn__plugin *plugin, const char *backend)
{
    char name[ATTN__NAME_SIZE];
    const char *cursor = plugin->note.backends;
    while (plugin->has_note && attn__note_next(&cursor, name, sizeof name))
        if (attn__same_name(name, backend))
            return true;
    return false;
}

/*
 * The first file that offers the backend; if `opened` the first that opens, for where one fails the next of
 * its name counts. NULL if there is none.
 */
static struct attn__plugin *find_plugin(struct attn__plugin *const *plugins, uint32_t count,
                                        const char *backend, bool opened)
{
    for (uint32_t i = 0; i < count; i++)
        if (offers(plugins[i], backend) && (!opened || attn__plugin_open(plugins[i], false) == ATTN_OK))
            return plugins[i];
    return NULL;
}

static int32_t fail_plugin(struct attn__plugin *plugin, const char *backend, struct attn_error *err)
{
    char text[320];
    const uint32_t reason = attn__plugin_reason(plugin, text, sizeof text);
    return attn__fail(err, ATTN_E_PLUGIN, reason, "backend", "%.80s: %s: %s", backend,
                      attn_reason_name(reason), text);
}

/* Opens the plugin of a backend if it is wanted, and finds the backend in it. */
static int32_t find_backend(struct attn_context *context, const char *backend, struct attn__backend **out,
                            struct attn_error *err)
{
    struct attn__plugin **plugins;
    uint32_t count;
    if (attn__registry_list(context, &plugins, &count) != ATTN_OK)
        return attn__fail(err, ATTN_E_MEMORY, 0, "backend", "no memory for the list of plugins");
    int32_t status = ATTN_OK;
    uint32_t reason = 0;
    struct attn__plugin *first = find_plugin(plugins, count, backend, false), *plugin = NULL;
    if (first == NULL) {
        char text[160];
        attn__item_explain(backend, plugins, count, false, text, sizeof text);
        status = attn__fail(err, ATTN_E_INVALID, ATTN_REASON_NO_SUCH_BACKEND, "backend", "%s", text);
    } else if (!attn__wanted_backend(context, attn__env_get(&context->env, ATTN__VAR_ATTN_BACKEND), backend,
                                     &reason)) {
        status = attn__fail(err, ATTN_E_UNSUPPORTED, reason, "backend", "%.80s: %s; %s", backend,
                            attn_reason_text(reason), attn_reason_advice(reason));
    } else if ((plugin = find_plugin(plugins, count, backend, true)) == NULL) {
        status = fail_plugin(first, backend, err);
    } else {
        *out = attn__plugin_find(plugin, backend);
        if (*out == NULL) {
            status = attn__fail(err, ATTN_E_PLUGIN, ATTN_REASON_NOTE_MISMATCH, "backend",
                                "%.80s: the note names it, but the tables do not", backend);
        }
    }
    free(plugins);
    return status;
}

static int32_t begin(struct attn_context *context, const char *backend, const void *out, const char *what,
                     struct attn_error *err)
{
    if (context == NULL || backend == NULL || out == NULL) {
        const char *name = context == NULL ? "context" : backend == NULL ? "backend" : "out";
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s: %s is NULL", what, name);
    }
    return attn__check_fork(context->born, what, err);
}

/* Terminates the texts of the reasons and kernels that the plugin wrote. */
static void close_texts(struct attn_query *query)
{
    for (uint32_t i = 0; i < query->reason_count && i < query->reason_capacity; i++) {
        struct attn_reason *reason = &query->reasons[i];
        reason->kernel[sizeof reason->kernel - 1] = 0;
        reason->field[sizeof reason->field - 1] = 0;
        reason->got[sizeof reason->got - 1] = 0;
        reason->wanted[sizeof reason->wanted - 1] = 0;
        reason->text[sizeof reason->text - 1] = 0;
    }
    for (uint32_t i = 0; i < query->kernel_count && i < query->kernel_capacity; i++) {
        query->kernels[i].name[sizeof query->kernels[i].name - 1] = 0;
        query->kernels[i].when[sizeof query->kernels[i].when - 1] = 0;
    }
}

static int32_t take_query(const struct attn_query *query, struct attn_query *own, struct attn_error *err)
{
    const int32_t status = attn__take(own, sizeof *own, query, sizeof *own, "query", err);
    if (status != ATTN_OK)
        return status;
    if ((own->reasons == NULL && own->reason_capacity > 0) ||
        (own->kernels == NULL && own->kernel_capacity > 0)) {
        return attn__fail(err, ATTN_E_INVALID, 0, "query",
                          "query.reasons or query.kernels is NULL, but its capacity is not 0; give an array, "
                          "or the capacity 0");
    }
    own->accepted = own->cost_rank = own->graph_level = own->reason_count = own->kernel_count = 0;
    return ATTN_OK;
}

/* Asks a backend, on a device or on none, and gives the answer to the caller. */
static int32_t ask(const struct attn__backend *entry, const struct attn_device *device,
                   const struct attn_problem *problem, struct attn_query *own, struct attn_query *out,
                   struct attn_error *err)
{
    const uint32_t known = entry->plugin->table.problem_size;
    if (known < sizeof *problem && attn__has_bytes(problem, known, sizeof *problem)) {
        return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_UNKNOWN_TO_PLUGIN, "problem",
                          "%.80s: the problem has a value beyond byte %u, which is all that the plugin knows",
                          entry->table.name, known);
    }
    const int32_t status = entry->table.query(entry->plugin->instance, device, problem, own);
    if (status != ATTN_OK) {
        return attn__fail(err, ATTN_E_PLUGIN, 0, "query", "%.80s: the plugin's query failed with %s",
                          entry->table.name, attn_status_name(status));
    }
    close_texts(own);
    return attn__answer(out, own, sizeof *own, "query", err);
}

int32_t attn_backend_query(struct attn_backend *backend, const struct attn_problem *problem,
                           struct attn_query *query, struct attn_error *err)
{
    int32_t status = attn__call_begin(backend, "attn_backend_query", err);
    struct attn_query own;
    struct attn_problem full;
    if (status == ATTN_OK)
        status = take_query(query, &own, err);
    if (status == ATTN_OK)
        status = attn__problem_take(backend->context, problem, &full, err);
    return status == ATTN_OK ? ask(backend->entry, &backend->device, &full, &own, query, err) : status;
}

int32_t attn_context_query(struct attn_context *context, const char *backend,
                           const struct attn_device *device, const struct attn_problem *problem,
                           struct attn_query *query, struct attn_error *err)
{
    int32_t status = begin(context, backend, query, "attn_context_query", err);
    struct attn_query own;
    struct attn_problem full;
    struct attn__backend *entry = NULL;
    if (status == ATTN_OK)
        status = take_query(query, &own, err);
    if (status == ATTN_OK)
        status = attn__problem_take(context, problem, &full, err);
    if (status == ATTN_OK)
        status = find_backend(context, backend, &entry, err);
    return status == ATTN_OK ? ask(entry, device, &full, &own, query, err) : status;
}

int32_t attn_context_get_axes(struct attn_context *context, const char *backend, const struct attn_axis **out,
                              uint32_t *out_count, struct attn_error *err)
{
    int32_t status = begin(context, backend, out, "attn_context_get_axes", err);
    if (status == ATTN_OK && out_count == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, "out_count",
                          "out_count is NULL; a place for the count is accepted");
    }
    struct attn__backend *entry = NULL;
    if (status == ATTN_OK) {
        *out = NULL;
        *out_count = 0;
        status = find_backend(context, backend, &entry, err);
    }
    if (status != ATTN_OK)
        return status;
    status = entry->table.axes(entry->plugin->instance, out, out_count);
    if (status != ATTN_OK) {
        *out = NULL;
        *out_count = 0;
        return attn__fail(err, ATTN_E_PLUGIN, 0, "axes", "%.80s: the plugin's axes failed with %s", backend,
                          attn_status_name(status));
    }
    return ATTN_OK;
}
