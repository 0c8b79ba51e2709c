/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Honesty of the axes: what they list is served somewhere, what they do not list is refused by name, and one
 * answer holds within a range. Maxima and graph levels: whoever serves more serves less.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "conform.h"
#include "need.h"

enum { MOST_REASONS = 64, SAMPLES_QUICK = 120, SAMPLES_FULL = 600, RANGE_SAMPLES = 40 };

/* Random problems, as texts: a key is changed by putting it there once more. */
struct samples {
    char (*texts)[PROBLEM_TEXT];
    uint32_t count;
};

enum answer { REFUSED, SERVED, NO_PROBLEM };

/* Asks about a problem with one key changed; `field` is what must be named by a refusal, or NULL. */
static enum answer ask(const struct target *target, const struct attn_problem *problem, const char *field,
                       bool *out_named)
{
    struct attn_reason *reasons = need(calloc(MOST_REASONS, sizeof *reasons));
    struct attn_query query;
    enum answer answer = NO_PROBLEM;

    ATTN_INIT(&query);
    query.reasons = reasons;
    query.reason_capacity = MOST_REASONS;
    if (attn_context_query(target->context, target->name, &target->device, problem, &query, NULL) == ATTN_OK)
        answer = query.accepted != 0 ? SERVED : REFUSED;
    for (uint32_t i = 0; field != NULL && i < query.reason_count && i < MOST_REASONS; i++)
        *out_named |= strcmp(reasons[i].field, field) == 0;
    free(reasons);
    return answer;
}

/* The problem of a text with key=value instead of what it says. False: there is no such problem. */
static bool change(const char *text, const char *key, const char *value, struct attn_problem *out)
{
    char changed[2 * PROBLEM_TEXT] = "";
    size_t used = 0, size = strlen(key);

    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (strncmp(text, key, size) != 0 || text[size] != '=')
            used += (size_t)snprintf(changed + used, sizeof changed - used, "%.*s ", (int)length, text);
        text += length + (text[length] != '\0');
    }
    snprintf(changed + used, sizeof changed - used, "%s=%s", key, value);
    return attn_problem_parse(changed, out, NULL) == ATTN_OK;
}

static enum answer ask_changed(const struct target *target, const char *text, const char *key,
                               const char *value, const char *field, bool *out_named)
{
    struct attn_problem problem;

    return change(text, key, value, &problem) ? ask(target, &problem, field, out_named) : NO_PROBLEM;
}

static bool is_listed(const struct attn_axis *axes, uint32_t count, const char *key, const char *value)
{
    char *end;
    int64_t number = strtoll(value, &end, 10);

    for (uint32_t i = 0; i < count; i++) {
        const struct attn_axis *axis = &axes[i];
        if (strcmp(axis->key, key) != 0)
            continue;
        for (uint32_t j = 0; j < axis->value_count && axis->values != NULL; j++)
            if (strcmp(axis->values[j], value) == 0)
                return true;
        if (axis->values == NULL && *value != '\0' && *end == '\0' && number >= axis->first &&
            number <= axis->last && (number - axis->first) % axis->step == 0)
            return true;
    }
    return false;
}

/* A listed value is served with some other keys, or refused for their sake. */
static void check_listed(const struct target *target, const struct samples *samples, const char *key,
                         const char *value)
{
    uint32_t problems = 0;
    bool always = true;

    tap_begin(target, "axes", key, 0);
    for (uint32_t i = 0; i < samples->count && always; i++) {
        bool named = false;
        enum answer answer = ask_changed(target, samples->texts[i], key, value, key, &named);
        if (answer == NO_PROBLEM)
            continue;
        problems++;
        always = answer == REFUSED && named;
    }
    if (problems > 0 && always)
        tap_fail("%s=%s is on the axes, but refused by that name in all of %u problems", key, value,
                 problems);
    else
        tap_pass();
}

static bool is_served(const struct target *target, const char *text)
{
    struct attn_problem problem;
    bool named;

    return attn_problem_parse(text, &problem, NULL) == ATTN_OK &&
           ask(target, &problem, NULL, &named) == SERVED;
}

/* A value that is not listed is refused with every other key, and by name where it alone is to blame. */
static void check_unlisted(const struct target *target, const struct samples *samples, const char *key,
                           const char *value)
{
    tap_begin(target, "axes", key, 0);
    for (uint32_t i = 0; i < samples->count; i++) {
        bool named = false;
        enum answer answer = ask_changed(target, samples->texts[i], key, value, key, &named);
        if (answer == SERVED) {
            tap_fail("%s=%s is served, but not on the axes; with %s", key, value, samples->texts[i]);
            return;
        }
        if (answer == REFUSED && !named && is_served(target, samples->texts[i])) {
            tap_fail("%s=%s is refused without a reason whose field is %s; with %s", key, value, key,
                     samples->texts[i]);
            return;
        }
    }
    tap_pass();
}

/* Within a range one answer holds. */
static void check_range(const struct target *target, const struct samples *samples,
                        const struct attn_axis *axis)
{
    struct rng rng = {mix((uint64_t)axis->first, (uint64_t)axis->last)};

    tap_begin(target, "axes", axis->key, 0);
    for (uint32_t i = 0; i < samples->count && i < RANGE_SAMPLES; i++) {
        uint64_t steps = (uint64_t)((axis->last - axis->first) / axis->step);
        const int64_t values[] = {
            axis->first, axis->last, axis->first + axis->step * (int64_t)(rng_next(&rng) % (steps + 1)),
            axis->first + axis->step * (int64_t)(rng_next(&rng) % (steps < 300 ? steps + 1 : 300))};
        enum answer first = NO_PROBLEM;
        int64_t at = 0;
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            char value[32];
            bool named = false;
            snprintf(value, sizeof value, "%" PRId64, values[k]);
            enum answer answer = ask_changed(target, samples->texts[i], axis->key, value, NULL, &named);
            if (answer == NO_PROBLEM)
                continue;
            if (first == NO_PROBLEM) {
                first = answer;
                at = values[k];
            } else if (answer != first) {
                tap_fail("%s=%" PRId64 " is %s and %s=%" PRId64 " is %s, within one range; with %s",
                         axis->key, at, first == SERVED ? "served" : "refused", axis->key, values[k],
                         answer == SERVED ? "served" : "refused", samples->texts[i]);
                return;
            }
        }
    }
    tap_pass();
}

/* Every value that the library knows of a key with names for values: "a|b|c (remark)". */
static void check_known(const struct target *target, const struct samples *samples,
                        const struct attn_axis *axes, uint32_t count, const char *key, const char *values)
{
    char value[64];
    size_t end = strcspn(values, " ");

    for (size_t at = 0; strchr(values, '|') != NULL && at < end;) {
        size_t length = strcspn(values + at, "| ");
        snprintf(value, sizeof value, "%.*s", (int)length, values + at);
        at += length + 1;
        if (!is_listed(axes, count, key, value))
            check_unlisted(target, samples, key, value);
    }
}

/* Names and numbers of one axis; false if it is none. */
static bool is_axis(const struct attn_axis *axis, const char **out_values)
{
    const char *name = NULL;

    for (uint32_t i = 0; axis->key != NULL && (name = attn_problem_key(i, NULL, out_values)) != NULL; i++)
        if (strcmp(name, axis->key) == 0)
            break;
    if (name == NULL)
        tap_fail("there is an axis of the unknown key %s", axis->key != NULL ? axis->key : "NULL");
    else if (axis->values == NULL && (axis->step < 1 || axis->last < axis->first))
        tap_fail("the range of %s is %" PRId64 " to %" PRId64 " by %" PRId64, axis->key, axis->first,
                 axis->last, axis->step);
    else if (axis->values != NULL && axis->value_count == 0)
        tap_fail("the list of %s is empty", axis->key);
    else
        return true;
    return false;
}

static void check_axis(const struct target *target, const struct samples *samples,
                       const struct attn_axis *axes, uint32_t count, uint32_t index)
{
    const struct attn_axis *axis = &axes[index];
    const char *values = "";
    bool first = true;
    char text[32];

    tap_begin(target, "axes", axis->key != NULL ? axis->key : "", 0);
    if (!is_axis(axis, &values))
        return;
    tap_pass();
    for (uint32_t j = 0; j < index; j++)
        first = first && strcmp(axes[j].key, axis->key) != 0;
    for (uint32_t j = 0; j < axis->value_count && axis->values != NULL; j++)
        check_listed(target, samples, axis->key, axis->values[j]);
    if (first)
        check_known(target, samples, axes, count, axis->key, values);
    if (axis->values != NULL)
        return;
    const int64_t ends[] = {axis->first, axis->last};
    const bool bounded[] = {axis->first >= INT64_MIN + axis->step, axis->last <= INT64_MAX - axis->step};
    check_range(target, samples, axis);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%" PRId64, ends[i]);
        check_listed(target, samples, axis->key, text);
        if (!bounded[i])
            continue;
        snprintf(text, sizeof text, "%" PRId64, ends[i] + (i == 0 ? -axis->step : axis->step));
        if (!is_listed(axes, count, axis->key, text))
            check_unlisted(target, samples, axis->key, text);
    }
}

/* Whoever serves large maxima serves smaller ones, and none said. */
static void check_maxima(const struct target *target, const struct samples *samples)
{
    static const uint32_t ladder[] = {0, 1, 64, 4096, 1u << 20, INT32_MAX};

    tap_begin(target, "axes", "max_seqs max_q max_kv max_rows", 0);
    for (uint32_t i = 0; i < samples->count; i++) {
        bool served = true, named = false;
        for (size_t k = 0; k < sizeof ladder / sizeof ladder[0]; k++) {
            struct attn_problem problem;
            if (attn_problem_parse(samples->texts[i], &problem, NULL) != ATTN_OK)
                break;
            problem.max_seqs = problem.max_q = problem.max_kv = problem.max_rows = ladder[k];
            enum answer answer = ask(target, &problem, NULL, &named);
            if (answer == SERVED && !served) {
                tap_fail("maxima of %u are served, smaller ones are not; with %s", ladder[k],
                         samples->texts[i]);
                return;
            }
            served = answer == SERVED;
        }
    }
    tap_pass();
}

/*
 * The level that a query tells is what may be demanded, and no more. A backend that claims a level would have
 * its captures made and replayed here, through its own streams.
 */
static void check_graph(const struct target *target, const struct samples *samples)
{
    static const char *const names[] = {"", "never", "single", "uniform", "always"};

    tap_begin(target, "axes", "graph", 0);
    for (uint32_t i = 0; i < samples->count; i++) {
        struct attn_problem problem;
        struct attn_query query;
        ATTN_INIT(&query);
        if (!change(samples->texts[i], "graph", "never", &problem) ||
            attn_context_query(target->context, target->name, &target->device, &problem, &query, NULL) !=
                ATTN_OK ||
            query.accepted == 0)
            continue;
        for (uint32_t level = ATTN_GRAPH_NEVER; level <= ATTN_GRAPH_ALWAYS; level++) {
            bool named = false;
            problem.graph = level;
            enum answer answer = ask(target, &problem, "graph", &named);
            if ((answer == SERVED) == (level <= query.graph_level) && (answer == SERVED || named))
                continue;
            tap_fail("the query tells level %u, but graph=%s is %s%s; with %s", query.graph_level,
                     names[level], answer == SERVED ? "served" : "refused",
                     answer == SERVED || named ? "" : " without a reason of that name", samples->texts[i]);
            return;
        }
    }
    tap_pass();
}

void check_axes(struct target_list *list, const struct run_options *options)
{
    uint32_t wanted = options->full ? SAMPLES_FULL : SAMPLES_QUICK;
    struct samples samples = {need(calloc(wanted, sizeof *samples.texts)), 0};

    for (uint32_t n = 0; n < wanted; n++) {
        struct attn_problem problem;
        uint64_t seed;
        if (options_problem(options, n, 600, &problem, &seed) &&
            attn_problem_format(&problem, samples.texts[samples.count], PROBLEM_TEXT, NULL, NULL) == ATTN_OK)
            samples.count++;
    }
    for (uint32_t t = 0; t < list->count && samples.count > 0; t++) {
        const struct target *target = &list->targets[t];
        const struct attn_axis *axes = NULL;
        struct attn_error err;
        uint32_t count = 0;
        ATTN_INIT(&err);
        if (attn_context_get_axes(target->context, target->name, &axes, &count, &err) != ATTN_OK) {
            tap_begin(target, "axes", "", 0);
            tap_fail("axes: %s", err.message);
            continue;
        }
        for (uint32_t i = 0; i < count; i++)
            check_axis(target, &samples, axes, count, i);
        check_maxima(target, &samples);
        check_graph(target, &samples);
    }
    free(samples.texts);
}
