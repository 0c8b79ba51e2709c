/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The record of a choice: orders the candidates, decides whether it is a fallback, and writes its log line.
 */
#include <stdlib.h>

#include "select/select.h"

/* "vendor/flavour on device:0: HEAD_DIM: head dimension ..." */
static void append_refusal(struct attn__line *line, const struct attn__candidate *candidate,
                           const struct attn_reason *reason)
{
    attn__line_append(line, "%.80s%s%s", candidate->name, candidate->info.device != NULL ? " on " : "",
                      candidate->info.device != NULL ? candidate->info.device : "");
    if (reason != NULL)
        attn__line_append(line, ": %s: %s", attn_reason_name(reason->code), reason->text);
}

/* ---------------------------------------------------------------- order and fallback */

static int compare_asked(const void *a, const void *b)
{
    const struct attn__candidate *left = *(struct attn__candidate *const *)a;
    const struct attn__candidate *right = *(struct attn__candidate *const *)b;
    if (left->item != right->item)
        return left->item < right->item ? -1 : 1;
    return attn__candidate_compare(left, right);
}

/* True for a real refusal, not for an absent plugin or a device that the caller did not ask for. */
static bool was_refused(const struct attn__candidate *candidate)
{
    const uint32_t cause = attn__candidate_cause(candidate);
    return !candidate->info.accepted && !candidate->excluded && cause != ATTN_REASON_NONE &&
           !attn_reason_is_absence(cause);
}

/* Copies item `index` of the wanted list. */
static void copy_item(const struct attn_decision *decision, uint32_t index, char *item, size_t size)
{
    const char *cursor = decision->requested;
    item[0] = 0;
    for (uint32_t i = 0; i <= index && attn__item_next(&cursor, item, size); i++) {
    }
}

/* The candidate of a better class whose refusal makes the winner a fallback, or NULL. */
static const struct attn__candidate *find_better(const struct attn_decision *decision)
{
    char item[ATTN__NAME_SIZE];
    copy_item(decision, decision->won, item, sizeof item);
    for (uint32_t i = 0; decision->winner != NULL && i < decision->count; i++) {
        const struct attn__candidate *candidate = decision->candidates[i];
        if (candidate->info.device_class < decision->winner->info.device_class && was_refused(candidate) &&
            attn__item_matches(item, candidate->name))
            return candidate;
    }
    return NULL;
}

/* Says why the choice is a fallback. */
static void append_fallback(struct attn__line *line, const struct attn_decision *decision,
                            const struct attn__candidate *better)
{
    if (decision->won > 0) {
        char item[ATTN__NAME_SIZE];
        copy_item(decision, 0, item, sizeof item);
        attn__line_append(line, "'%.60s' did not serve", item);
        better = decision->count > 0 && decision->candidates[0]->item < decision->won
                     ? decision->candidates[0]
                     : NULL;
    } else {
        attn__line_append(line, "a better device class was refused");
    }
    if (better != NULL) {
        attn__line_append(line, " (");
        append_refusal(line, better, better->info.reason_count > 0 ? &better->reasons[0] : NULL);
        attn__line_append(line, ")");
    }
}

/* ---------------------------------------------------------------- no candidate serves */

/* Device reasons come first in the list of query reasons; the rest is about the problem. */
static bool is_about_problem(uint32_t code)
{
    return code >= ATTN_REASON_ATTN_TYPE;
}

/*
 * The reason to show: an explicit refusal, else the first one about a problem that no row serves. Rows that
 * refuse a problem which others serve give reasons too, before refused_from: these do not matter.
 */
static const struct attn_reason *leading_reason(const struct attn__candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->info.reason_count && !candidate->info.accepted; i++)
        if (attn_reason_is_explicit(candidate->reasons[i].code))
            return &candidate->reasons[i];
    for (uint32_t i = candidate->refused_from; i < candidate->info.reason_count; i++)
        if (is_about_problem(candidate->reasons[i].code))
            return &candidate->reasons[i];
    return candidate->info.reason_count > 0 ? &candidate->reasons[0] : NULL;
}

/* How far a candidate is from serving: smaller is closer. */
static uint32_t distance(const struct attn__candidate *candidate)
{
    const struct attn_reason *reason = leading_reason(candidate);
    if (reason == NULL)
        return 9;
    if (attn_reason_is_explicit(reason->code))
        return 0;
    if (is_about_problem(reason->code))
        return candidate->info.device == NULL ? 3 : reason->code == ATTN_REASON_GENERIC_KERNEL ? 1 : 2;
    switch (reason->code) {
    case ATTN_REASON_NO_SUCH_BACKEND:
        return 5;
    case ATTN_REASON_DISABLED_BY_USER:
        return 7;
    case ATTN_REASON_NOT_REQUESTED:
        return 8;
    default:
        return attn_reason_is_absence(reason->code) ? 6 : 4;
    }
}

static const struct attn__candidate *find_closest(const struct attn_decision *decision)
{
    const struct attn__candidate *closest = NULL;
    for (uint32_t i = 0; i < decision->count; i++) {
        const struct attn__candidate *candidate = decision->candidates[i];
        if (closest == NULL || distance(candidate) < distance(closest))
            closest = candidate;
    }
    return closest;
}

/* True if the plugin of some candidate was open, so that it was asked. */
static bool was_anybody_asked(const struct attn_decision *decision)
{
    for (uint32_t i = 0; i < decision->count; i++)
        if (decision->candidates[i]->entry != NULL)
            return true;
    return false;
}

/* `said`: the reason that the line has already, or 0. */
static void append_files(struct attn__line *line, struct attn__plugin *const *plugins, uint32_t count,
                         uint32_t said)
{
    uint32_t refused = 0;
    struct attn__plugin *first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t reason = attn__plugin_reason(plugins[i], NULL, 0);
        if (reason != 0 && reason != ATTN_REASON_SIDE_EFFECTS && !attn_reason_is_absence(reason))
            first = refused++ == 0 ? plugins[i] : first;
    }
    if (first != NULL) {
        char text[160];
        const uint32_t reason = attn__plugin_reason(first, text, sizeof text);
        attn__line_append(line, "; %u of %u plugin files were refused, first %.120s", refused, count,
                          first->path);
        if (reason != said)
            attn__line_append(line, ": %s: %s; %s", attn_reason_name(reason),
                              text[0] != 0 ? text : attn_reason_text(reason), attn_reason_advice(reason));
    } else if (count == 0) {
        attn__line_append(
            line, "; no plugin file (libattn-*.so) is on the search path, which attn-info path shows; "
                  "install plugins there, or set ATTN_PLUGIN_PATH");
    }
}

static int32_t fail_unserved(const struct attn__selection *selection, struct attn__line *line,
                             struct attn_error *err)
{
    struct attn_decision *decision = selection->decision;
    const struct attn__candidate *closest = find_closest(decision);
    const struct attn_reason *reason = closest != NULL ? leading_reason(closest) : NULL;
    if (reason != NULL && attn_reason_is_explicit(reason->code)) {
        line->used = decision->finding = 0;
        attn__line_append(line, "%s", reason->text);
        return attn__fail(err, ATTN_E_NO_BACKEND, reason->code, reason->field, "%s", decision->text);
    }
    attn__line_append(line, ": no backend serves");
    if (reason != NULL) {
        attn__line_append(line, ", closest is ");
        append_refusal(line, closest, reason);
        attn__line_append(line, "; %s", attn_reason_advice(reason->code));
    }
    if (!was_anybody_asked(decision))
        append_files(line, selection->plugins, selection->plugin_count, reason != NULL ? reason->code : 0);
    const char *field = reason != NULL && reason->field[0] != 0 ? reason->field : "backend";
    return attn__fail(err, ATTN_E_NO_BACKEND, reason != NULL ? reason->code : 0, field, "%s", decision->text);
}

/* ---------------------------------------------------------------- the end of a selection */

static void append_winner(struct attn__line *line, const struct attn__candidate *winner)
{
    attn__line_append(line, ": ");
    append_refusal(line, winner, NULL);
    for (uint32_t i = 0; i < winner->info.kernel_count && i < 4; i++)
        attn__line_append(line, "%s%s%s", i == 0 ? ", kernels " : ", ", winner->kernels[i].name,
                          winner->kernels[i].speed == ATTN_SPEED_GENERIC ? " (generic)" : "");
    if (winner->info.kernel_count > 4)
        attn__line_append(line, ", ... (%u)", winner->info.kernel_count);
}

/* Says who would have won with generic kernels, which ATTN_STRICT=2 refuses. */
static void append_passed(struct attn__line *line, const struct attn_decision *decision)
{
    for (uint32_t i = 0; i < decision->count; i++) {
        const struct attn__candidate *candidate = decision->candidates[i];
        if (candidate == decision->winner)
            return;
        if (attn__candidate_cause(candidate) != ATTN_REASON_GENERIC_KERNEL)
            continue;
        attn__line_append(line, "; passed over (strict): ");
        append_refusal(line, candidate, &candidate->reasons[0]);
        return;
    }
}

static int32_t conclude_fallback(struct attn_decision *decision, struct attn__line *line, bool strict,
                                 struct attn_error *err)
{
    const struct attn__candidate *better = find_better(decision);
    if (decision->won == 0 && better == NULL) {
        append_passed(line, decision);
        return ATTN_OK;
    }
    decision->info.fallback = 1;
    attn__line_append(line, strict ? "; refused as a fallback (strict): " : "; fallback: ");
    append_fallback(line, decision, better);
    if (!strict) {
        attn__log_once(&decision->context->log, ATTN_LOG_WARN, "select", "%s", decision->text);
        return ATTN_OK;
    }
    decision->winner = NULL;
    const uint32_t reason =
        better != NULL ? attn__candidate_cause(better) : attn__candidate_cause(decision->candidates[0]);
    return attn__fail(err, ATTN_E_NO_BACKEND, reason, "backend", "%s", decision->text);
}

int32_t attn__selection_conclude(const struct attn__selection *selection, struct attn_error *err)
{
    struct attn_decision *decision = selection->decision;
    if (decision->count > 0)
        qsort(decision->candidates, decision->count, sizeof(struct attn__candidate *), compare_asked);
    struct attn__line line = {decision->text, sizeof decision->text, 0};
    attn__line_append(&line, "'%.100s' (%s%s)", decision->requested,
                      attn_decided_by_name(decision->info.decided_by),
                      decision->overrules ? ", overrules ATTN_BACKEND" : "");
    decision->finding = (uint32_t)line.used + 2;
    int32_t status;
    if (decision->winner == NULL && !decision->none) {
        status = fail_unserved(selection, &line, err);
    } else {
        if (decision->none)
            attn__line_append(&line, ": no backend is wanted");
        else
            append_winner(&line, decision->winner);
        if (selection->split != NULL)
            attn__line_append(&line, "; %s", selection->split);
        status = conclude_fallback(decision, &line, selection->strict != 0, err);
        attn__selection_warn_generic(selection);
    }
    decision->info.effective = decision->winner != NULL ? decision->winner->info.name : NULL;
    decision->info.device = decision->winner != NULL ? decision->winner->info.device : NULL;
    decision->info.text = decision->text;
    decision->info.candidate_count = decision->count;
    attn__log_line(&decision->context->log, ATTN_LOG_DISPATCH, "select", "%s", decision->text);
    return status;
}

void attn_decision_destroy(struct attn_decision *decision)
{
    if (decision == NULL)
        return;
    for (uint32_t i = 0; i < decision->count; i++)
        attn__candidate_destroy(decision->candidates[i]);
    free(decision->candidates);
    free(decision->requested);
    attn__context_drop(decision->context);
    free(decision);
}

const struct attn_decision_info *attn_decision_get_info(const struct attn_decision *decision)
{
    return decision != NULL ? &decision->info : NULL;
}

const struct attn_candidate *attn_decision_get_candidate(const struct attn_decision *decision, uint32_t index)
{
    return decision != NULL && index < decision->count ? &decision->candidates[index]->info : NULL;
}
