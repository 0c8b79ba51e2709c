/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One candidate of a selection: asks its backend, and keeps all reasons that it gives. */
#include <stdio.h>
#include <stdlib.h>

#include "dispatch/call.h"
#include "select/select.h"

#define FIRST_CAPACITY 16
#define ROWS_MAX       65536 /* a larger count is a mistake of the plugin */

void attn__copy_text(char *target, size_t size, const char *source)
{
    const size_t length = strnlen(source, size - 1);
    memcpy(target, source, length);
    target[length] = 0;
}

struct attn__backend *attn__plugin_find(const struct attn__plugin *plugin, const char *name)
{
    for (uint32_t i = 0; i < plugin->backend_count; i++)
        if (attn__same_name(plugin->backends[i].table.name, name))
            return &plugin->backends[i];
    return NULL;
}

uint32_t attn__plugin_reason(struct attn__plugin *plugin, char *text, size_t size)
{
    pthread_mutex_lock(&plugin->context->lock);
    const uint32_t reason = plugin->reason;
    if (text != NULL)
        attn__copy_text(text, size, plugin->text);
    pthread_mutex_unlock(&plugin->context->lock);
    return reason;
}

struct attn__candidate *attn__candidate_add(struct attn_decision *decision, const char *name, uint32_t item,
                                            uint32_t device_class)
{
    if (decision->count == decision->capacity) {
        const uint32_t capacity = decision->capacity * 2 + 8;
        struct attn__candidate **grown =
            realloc(decision->candidates, capacity * sizeof(struct attn__candidate *));
        if (grown == NULL)
            return NULL;
        decision->candidates = grown;
        decision->capacity = capacity;
    }
    struct attn__candidate *candidate = calloc(1, sizeof *candidate);
    if (candidate == NULL)
        return NULL;
    attn__copy_text(candidate->name, sizeof candidate->name, name);
    candidate->info.name = candidate->name;
    candidate->info.device_class = device_class;
    candidate->item = item;
    candidate->sequence = decision->count;
    decision->candidates[decision->count++] = candidate;
    return candidate;
}

void attn__candidate_destroy(struct attn__candidate *candidate)
{
    free(candidate->reasons);
    free(candidate->kernels);
    free(candidate->generic);
    free(candidate);
}

void attn__candidate_set_device(struct attn__candidate *candidate, const struct attn_device *device)
{
    candidate->device = *device;
    attn__device_name(candidate->entry->plugin, device, candidate->device_name,
                      sizeof candidate->device_name);
    candidate->info.device = candidate->device_name;
}

/* ---------------------------------------------------------------- reasons */

static bool reserve(void **rows, uint32_t *capacity, uint32_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return true;
    void *grown = realloc(*rows, wanted * size);
    if (grown == NULL)
        return false;
    *rows = grown;
    *capacity = wanted;
    return true;
}

static bool reserve_reasons(struct attn__candidate *candidate, uint32_t more)
{
    void *rows = candidate->reasons;
    const bool fits = reserve(&rows, &candidate->reason_capacity, candidate->info.reason_count + more,
                              sizeof(struct attn_reason));
    candidate->reasons = rows;
    candidate->info.reasons = rows;
    return fits;
}

static bool reserve_kernels(struct attn__candidate *candidate, uint32_t more)
{
    void *rows = candidate->kernels;
    const bool fits = reserve(&rows, &candidate->kernel_capacity, candidate->info.kernel_count + more,
                              sizeof(struct attn_kernel_info));
    candidate->kernels = rows;
    candidate->info.kernels = rows;
    return fits;
}

bool attn__candidate_refuse(struct attn__candidate *candidate, uint32_t code, const char *field,
                            const char *got, const char *wanted, const char *format, ...)
{
    if (!reserve_reasons(candidate, 1))
        return false;
    struct attn_reason *reason = &candidate->reasons[candidate->info.reason_count++];
    memset(reason, 0, sizeof *reason);
    reason->code = code;
    attn__copy_text(reason->field, sizeof reason->field, field);
    attn__copy_text(reason->got, sizeof reason->got, got);
    attn__copy_text(reason->wanted, sizeof reason->wanted, wanted);
    va_list args;
    va_start(args, format);
    vsnprintf(reason->text, sizeof reason->text, format, args);
    va_end(args);
    if (reason->text[0] == 0)
        attn__copy_text(reason->text, sizeof reason->text, attn_reason_text(code));
    return true;
}

uint32_t attn__candidate_cause(const struct attn__candidate *candidate)
{
    return candidate->info.reason_count > 0 ? candidate->reasons[0].code : ATTN_REASON_NONE;
}

static bool same_reason(const struct attn_reason *a, const struct attn_reason *b)
{
    return a->code == b->code && strcmp(a->kernel, b->kernel) == 0 && strcmp(a->field, b->field) == 0 &&
           strcmp(a->got, b->got) == 0 && strcmp(a->text, b->text) == 0;
}

/* Keeps the reasons that a plugin appended to the array, without repetitions, and terminates their texts. */
static void keep_reasons(struct attn__candidate *candidate, uint32_t written)
{
    const uint32_t start = candidate->info.reason_count;
    for (uint32_t i = start; i < start + written; i++) {
        struct attn_reason *reason = &candidate->reasons[i];
        reason->kernel[sizeof reason->kernel - 1] = 0;
        reason->field[sizeof reason->field - 1] = 0;
        reason->got[sizeof reason->got - 1] = 0;
        reason->wanted[sizeof reason->wanted - 1] = 0;
        reason->text[sizeof reason->text - 1] = 0;
        if (reason->text[0] == 0)
            attn__copy_text(reason->text, sizeof reason->text, attn_reason_text(reason->code));
        uint32_t before = 0;
        while (before < candidate->info.reason_count && !same_reason(&candidate->reasons[before], reason))
            before++;
        if (before == candidate->info.reason_count)
            candidate->reasons[candidate->info.reason_count++] = *reason;
    }
}

static void keep_kernels(struct attn__candidate *candidate, uint32_t written)
{
    const uint32_t start = candidate->info.kernel_count;
    for (uint32_t i = start; i < start + written; i++) {
        struct attn_kernel_info *kernel = &candidate->kernels[i];
        kernel->name[sizeof kernel->name - 1] = 0;
        kernel->when[sizeof kernel->when - 1] = 0;
        uint32_t before = 0;
        while (before < candidate->info.kernel_count &&
               (strcmp(candidate->kernels[before].name, kernel->name) != 0 ||
                strcmp(candidate->kernels[before].when, kernel->when) != 0))
            before++;
        if (before == candidate->info.kernel_count)
            candidate->kernels[candidate->info.kernel_count++] = *kernel;
    }
}

/* ---------------------------------------------------------------- questions */

/* Asks again until both arrays are large enough, a limited number of times. */
static bool query_all(struct attn__candidate *candidate, const struct attn_problem *problem,
                      struct attn_query *query, int32_t *out_status)
{
    const struct attn__backend *entry = candidate->entry;
    const struct attn_device *device = candidate->info.device != NULL ? &candidate->device : NULL;
    uint32_t reasons = FIRST_CAPACITY;
    uint32_t kernels = FIRST_CAPACITY;
    for (int tries = 0;; tries++) {
        if (!reserve_reasons(candidate, reasons) || !reserve_kernels(candidate, kernels))
            return false;
        ATTN_INIT(query);
        query->reasons = candidate->reasons + candidate->info.reason_count;
        query->reason_capacity = reasons;
        query->kernels = candidate->kernels + candidate->info.kernel_count;
        query->kernel_capacity = kernels;
        memset(query->reasons, 0, reasons * sizeof *query->reasons);
        memset(query->kernels, 0, kernels * sizeof *query->kernels);
        *out_status = entry->table.query(entry->plugin->instance, device, problem, query);
        const bool fits = query->reason_count <= reasons && query->kernel_count <= kernels;
        if (*out_status != ATTN_OK || fits || tries == 2) {
            query->reason_count = query->reason_count < reasons ? query->reason_count : reasons;
            query->kernel_count = query->kernel_count < kernels ? query->kernel_count : kernels;
            return true;
        }
        reasons = query->reason_count > reasons ? query->reason_count : reasons;
        reasons = reasons < ROWS_MAX ? reasons : ROWS_MAX;
        kernels = query->kernel_count > kernels ? query->kernel_count : kernels;
        kernels = kernels < ROWS_MAX ? kernels : ROWS_MAX;
    }
}

/* Asks about problem number `index`; *out_accepted is the answer. False without memory. */
static bool ask_one(struct attn__candidate *candidate, const struct attn_problem *problem, uint32_t index,
                    bool *out_accepted)
{
    *out_accepted = false;
    const uint32_t known = candidate->entry->plugin->table.problem_size;
    if (known < sizeof *problem && attn__has_bytes(problem, known, sizeof *problem)) {
        return attn__candidate_refuse(
            candidate, ATTN_REASON_UNKNOWN_TO_PLUGIN, "problem", "", "",
            "the problem has a value beyond byte %u, which is all that the plugin knows", known);
    }
    struct attn_query query;
    int32_t status;
    if (!query_all(candidate, problem, &query, &status))
        return false;
    if (status != ATTN_OK) {
        return attn__candidate_refuse(candidate, ATTN_REASON_ENTRY_FAILED, "query", attn_status_name(status),
                                      "", "the plugin's query failed with %s", attn_status_name(status));
    }
    const uint32_t before = candidate->info.reason_count;
    if (!attn__candidate_note_generic(candidate, index, &query))
        return false;
    keep_reasons(candidate, query.reason_count);
    keep_kernels(candidate, query.kernel_count);
    *out_accepted = query.accepted == 1;
    if (query.cost_rank > candidate->info.cost_rank)
        candidate->info.cost_rank = query.cost_rank;
    if (candidate->info.graph_level == 0 || query.graph_level < candidate->info.graph_level)
        candidate->info.graph_level = query.graph_level;
    if (!*out_accepted && query.reason_count == 0 && candidate->info.reason_count == before) {
        return attn__candidate_refuse(candidate, ATTN_REASON_ENTRY_FAILED, "query", "", "",
                                      "the plugin refused the problem without a reason");
    }
    return true;
}

bool attn__candidate_ask(struct attn__candidate *candidate, const struct attn_problem *problems,
                         uint32_t count)
{
    bool all = true;
    candidate->refused_from = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t before = candidate->info.reason_count;
        bool accepted;
        if (!ask_one(candidate, &problems[i], i, &accepted))
            return false;
        if (all && !accepted)
            candidate->refused_from = before;
        all = all && accepted;
    }
    /* Without a device the answer is about the problem alone. */
    candidate->info.accepted = all && candidate->info.device != NULL;
    return true;
}

/* ---------------------------------------------------------------- order */

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

int attn__candidate_compare(const struct attn__candidate *a, const struct attn__candidate *b)
{
    int order = compare_numbers(a->info.device_class, b->info.device_class);
    if (order == 0)
        order = compare_numbers(a->info.cost_rank, b->info.cost_rank);
    if (order == 0) {
        order = compare_numbers(a->info.device != NULL ? a->device.ordinal : (int64_t)INT32_MAX + 1,
                                b->info.device != NULL ? b->device.ordinal : (int64_t)INT32_MAX + 1);
    }
    if (order == 0)
        order = strcmp(a->name, b->name);
    return order != 0 ? order : compare_numbers(a->sequence, b->sequence);
}
