/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Generic kernels: which of a model's problems a candidate serves by one, what keeps its optimised kernel,
 * and how the user is told. They are right and many times slower, so that nobody should run them without
 * knowing.
 */
#include <stdlib.h>

#include "select/problem.h"
#include "select/select.h"

/* A problem that a generic kernel serves, in some part of a batch. */
struct attn__generic {
    uint32_t problem;
    struct attn_kernel_info kernel;
    struct attn_reason why; /* the first reason of another row; code 0: the plugin gives none */
};

bool attn__candidate_note_generic(struct attn__candidate *candidate, uint32_t problem,
                                  const struct attn_query *query)
{
    uint32_t k = 0;
    while (k < query->kernel_count && query->kernels[k].speed != ATTN_SPEED_GENERIC)
        k++;
    if (k == query->kernel_count)
        return true;
    struct attn__generic *grown =
        realloc(candidate->generic, (candidate->generic_count + (size_t)1) * sizeof *grown);
    if (grown == NULL)
        return false;
    candidate->generic = grown;
    struct attn__generic *generic = &grown[candidate->generic_count++];
    *generic = (struct attn__generic){.problem = problem, .kernel = query->kernels[k]};
    for (uint32_t i = 0; i < query->reason_count && generic->why.code == 0; i++)
        if (query->reasons[i].kernel[0] != 0)
            generic->why = query->reasons[i];
    return true;
}

/* ": KERNEL does not take KEY=VALUE (wanted: ...)" */
static void append_why(struct attn__line *line, const struct attn_reason *why)
{
    if (why->code == 0)
        return;
    attn__line_append(line, ": %.63s does not ", why->kernel);
    if (why->field[0] != 0 && why->wanted[0] != 0)
        attn__line_append(line, "take %.31s=%.47s (wanted: %.79s)", why->field, why->got, why->wanted);
    else
        attn__line_append(line, "serve: %.159s", why->text[0] != 0 ? why->text : attn_reason_text(why->code));
}

static const char *when_of(const struct attn__generic *generic)
{
    return generic->kernel.when[0] != 0 ? generic->kernel.when : "always";
}

/* ---------------------------------------------------------------- ATTN_STRICT=2 */

bool attn__candidate_refuse_generic(struct attn__candidate *candidate)
{
    for (uint32_t i = candidate->info.accepted != 0 ? candidate->generic_count : 0; i-- > 0;) {
        const struct attn__generic *generic = &candidate->generic[i];
        const struct attn_reason *why = &generic->why;
        char text[sizeof why->text];
        struct attn__line line = {text, sizeof text, 0};
        attn__line_append(&line, "the generic kernel %.63s would serve (%.63s)", generic->kernel.name,
                          when_of(generic));
        append_why(&line, why);
        if (!attn__candidate_refuse(candidate, ATTN_REASON_GENERIC_KERNEL, why->field, why->got, why->wanted,
                                    "%s", text))
            return false;
        /* It is why the candidate does not serve, so it leads. */
        struct attn_reason *reasons = candidate->reasons;
        const struct attn_reason own = reasons[candidate->info.reason_count - 1];
        memmove(&reasons[1], reasons, (candidate->info.reason_count - 1) * sizeof own);
        reasons[0] = own;
        candidate->info.accepted = 0;
    }
    return true;
}

/* ---------------------------------------------------------------- the warning */

static bool is_optimised(const struct attn__candidate *candidate)
{
    bool optimised = candidate->info.accepted != 0 && candidate->info.kernel_count > 0;
    for (uint32_t i = 0; i < candidate->info.kernel_count && optimised; i++)
        optimised = candidate->kernels[i].speed == ATTN_SPEED_OPTIMISED;
    return optimised;
}

/* A candidate of the winner's class that serves all by optimised kernels, or NULL. */
static const struct attn__candidate *find_optimised(const struct attn_decision *decision)
{
    for (uint32_t i = 0; i < decision->count; i++)
        if (decision->candidates[i]->info.device_class == decision->winner->info.device_class &&
            is_optimised(decision->candidates[i]))
            return decision->candidates[i];
    return NULL;
}

/* The maxima belong to an engine, not to a class: with them every size would be warned of again. */
static void format_class(const struct attn_problem *problem, char *text, size_t size)
{
    struct attn_problem class = *problem;
    class.max_seqs = class.max_q = class.max_kv = class.max_rows = 0;
    if (attn_problem_format(&class, text, size, NULL, NULL) != ATTN_OK)
        text[0] = 0;
}

void attn__selection_warn_generic(const struct attn__selection *selection)
{
    const struct attn_decision *decision = selection->decision;
    const struct attn__candidate *winner = decision->winner;
    for (uint32_t i = 0; winner != NULL && i < winner->generic_count; i++) {
        const struct attn__generic *generic = &winner->generic[i];
        char problem[512], text[1024];
        format_class(&selection->problems[generic->problem], problem, sizeof problem);
        struct attn__line line = {text, sizeof text, 0};
        attn__line_append(
            &line,
            "%.80s on %s serves '%s' by the generic kernel %.63s (%.63s), many times slower than "
            "an optimised one",
            winner->name, winner->info.device, problem, generic->kernel.name, when_of(generic));
        append_why(&line, &generic->why);
        const struct attn__candidate *other = find_optimised(decision);
        if (other != NULL)
            attn__line_append(&line, "; %.80s on %s has optimised kernels for it", other->name,
                              other->info.device);
        attn__log_once(&decision->context->log, ATTN_LOG_WARN, "select", "%s", text);
    }
}
