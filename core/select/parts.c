/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Decides a model part by part: one backend for all parts if one serves them all, else one for each class,
 * else one for each phase of it. Each decision is one of attn_select.
 */
#include <stdio.h>
#include <stdlib.h>

#include "select/parts.h"
#include "select/problem.h"

#define PARTS_MAX 4096

static const char *const phase_names[] = {"both phases", "prefill", "decode"};

/* A part in the order by class and phase. */
struct member {
    uint32_t layer_class;
    uint32_t phase;
    uint32_t part;
};

struct division {
    struct attn_context *context;
    struct attn_parts *parts;
    struct attn_select_options options;
    struct member *members;        /* [count] */
    struct attn_problem *problems; /* [count], of the group that is decided */
    uint32_t unserved;             /* lowest number of a part that no backend serves; UINT32_MAX = none */
    struct attn_error refusal;     /* of that part */
};

/* ---------------------------------------------------------------- arguments */

/* An error of a member of one part says which. */
static int32_t fail_part(struct attn_error *err, int32_t status, uint32_t part, const struct attn_error *own)
{
    return attn__fail(err, status, own->reason, own->field, "parts[%u]: %s", part, own->message);
}

static int32_t check_list(uint32_t part, const char *list, struct attn_error *err)
{
    char item[ATTN__NAME_SIZE];
    const char *cursor = list;
    return list == NULL || attn__item_next(&cursor, item, sizeof item)
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, "backend",
                            "parts[%u]: backend is '%.64s'; accepted: a comma list of vendor/flavour, "
                            "vendor, flavour or auto, or none, or NULL for the list of all parts",
                            part, list);
}

static int32_t take_part(struct division *division, uint32_t number, const void *given,
                         struct attn_error *err)
{
    struct attn__part *part = &division->parts->parts[number];
    struct attn_model_part one;
    struct attn_error own;
    attn__error_open(&own);
    int32_t status = attn__take(&one, sizeof one, given, sizeof one, "part", &own);
    if (status != ATTN_OK)
        return fail_part(err, status, number, &own);
    if (one.phase > ATTN_PHASE_DECODE) {
        return attn__fail(err, ATTN_E_INVALID, 0, "phase",
                          "parts[%u]: phase is %u; accepted: ATTN_PHASE_PREFILL, ATTN_PHASE_DECODE, or 0 for "
                          "both",
                          number, one.phase);
    }
    status = attn__problem_take(division->context, one.problem, &part->problem, &own);
    if (status != ATTN_OK)
        return fail_part(err, status, number, &own);
    part->info.layer_class = one.layer_class;
    part->info.phase = one.phase;
    part->wanted = one.backend;
    division->members[number] = (struct member){one.layer_class, one.phase, number};
    return check_list(number, one.backend, err);
}

static int compare_members(const void *a, const void *b)
{
    const struct member *left = a;
    const struct member *right = b;
    if (left->layer_class != right->layer_class)
        return left->layer_class < right->layer_class ? -1 : 1;
    if (left->phase != right->phase)
        return left->phase < right->phase ? -1 : 1;
    return left->part < right->part ? -1 : left->part > right->part;
}

/* Orders the members; classes are to be numbered without gaps, and no phase of one given twice. */
static int32_t check_members(struct division *division, struct attn_error *err)
{
    struct member *members = division->members;
    qsort(members, division->parts->count, sizeof *members, compare_members);
    for (uint32_t i = 0; i < division->parts->count; i++) {
        const struct member *here = &members[i];
        const uint32_t next = i == 0 ? 0 : members[i - 1].layer_class + 1;
        if (here->layer_class > next) {
            return attn__fail(err, ATTN_E_INVALID, 0, "layer_class",
                              "parts[%u]: layer_class is %u, but no part has %u; accepted: classes numbered "
                              "from 0 without a gap",
                              here->part, here->layer_class, next);
        }
        const struct member *before = i > 0 && here->layer_class < next ? here - 1 : NULL;
        if (before != NULL && (before->phase == 0 || before->phase == here->phase)) {
            return attn__fail(err, ATTN_E_INVALID, 0, "phase",
                              "parts[%u] and parts[%u] are both of class %u, %s and %s; accepted: one part "
                              "of both phases, or one of each phase",
                              before->part, here->part, here->layer_class, phase_names[before->phase],
                              phase_names[here->phase]);
        }
    }
    return ATTN_OK;
}

static int32_t make_parts(struct division *division, uint32_t count, struct attn_error *err)
{
    struct attn_parts *parts = calloc(1, sizeof *parts);
    division->parts = parts;
    if (parts != NULL) {
        parts->count = count;
        parts->parts = calloc(count, sizeof *parts->parts);
        parts->decisions = calloc(count, sizeof(struct attn_decision *));
        division->members = calloc(count, sizeof *division->members);
        division->problems = calloc(count, sizeof *division->problems);
    }
    return parts != NULL && parts->parts != NULL && parts->decisions != NULL && division->members != NULL &&
                   division->problems != NULL
               ? ATTN_OK
               : attn__fail(err, ATTN_E_MEMORY, 0, "parts", "no memory for %u parts", count);
}

static int32_t take(struct division *division, const struct attn_model_part *parts, uint32_t count,
                    const struct attn_select_options *options, struct attn_error *err)
{
    if (parts == NULL || count == 0 || count > PARTS_MAX) {
        return attn__fail(err, ATTN_E_INVALID, 0, parts == NULL ? "parts" : "count",
                          "%u parts are given; accepted: 1 to %d", parts == NULL ? 0 : count, PARTS_MAX);
    }
    ATTN_INIT(&division->options);
    int32_t status = options != NULL ? attn__take(&division->options, sizeof division->options, options,
                                                  sizeof division->options, "options", err)
                                     : ATTN_OK;
    if (status == ATTN_OK)
        status = make_parts(division, count, err);
    const uint32_t stride = parts->struct_size; /* a newer caller's structs are larger */
    for (uint32_t i = 0; status == ATTN_OK && i < count; i++)
        status = take_part(division, i, (const char *)parts + (size_t)i * stride, err);
    return status == ATTN_OK ? check_members(division, err) : status;
}

/* ---------------------------------------------------------------- decisions */

static int32_t decide(struct division *division, const struct member *members, uint32_t count,
                      const char *split, struct attn_error *err);

/* Decides a group that no backend serves as a whole: its classes, or the phases of its one class. */
static int32_t split_group(struct division *division, const struct member *members, uint32_t count,
                           const struct attn_decision *whole, struct attn_error *err)
{
    const bool by_class = members[0].layer_class != members[count - 1].layer_class;
    char note[512];
    if (by_class)
        snprintf(note, sizeof note, "split by class, because of the %u parts together: %.400s", count,
                 whole->text + whole->finding);
    else
        snprintf(note, sizeof note, "split by phase, because of class %u as a whole: %.400s",
                 members[0].layer_class, whole->text + whole->finding);
    int32_t status = ATTN_OK;
    for (uint32_t first = 0, end; first < count && status == ATTN_OK; first = end) {
        end = first + 1;
        while (by_class && end < count && members[end].layer_class == members[first].layer_class)
            end++;
        status = decide(division, &members[first], end - first, note, err);
    }
    return status;
}

/* Gives the decision to its parts, and keeps the refusal of the lowest one. */
static void keep(struct division *division, const struct member *members, uint32_t count,
                 struct attn_decision *decision, int32_t status, const struct attn_error *own)
{
    struct attn_parts *parts = division->parts;
    parts->decisions[parts->decision_count++] = decision;
    for (uint32_t i = 0; i < count; i++) {
        struct attn_part_decision *info = &parts->parts[members[i].part].info;
        info->decision = decision;
        info->status = status;
        if (status != ATTN_OK && members[i].part < division->unserved) {
            division->unserved = members[i].part;
            division->refusal = *own;
        }
    }
}

/* Decides a group. Parts that no backend serves are kept with their reasons; that is no failure here. */
static int32_t decide(struct division *division, const struct member *members, uint32_t count,
                      const char *split, struct attn_error *err)
{
    struct attn_decision *decision;
    struct attn_error own;
    attn__error_open(&own);
    for (uint32_t i = 0; i < count; i++)
        division->problems[i] = division->parts->parts[members[i].part].problem;
    int32_t status = attn__select(division->context, division->problems, count, &division->options, split,
                                  &decision, &own);
    if (decision == NULL)
        return attn__fail(err, status, own.reason, own.field, "%s", own.message);
    if (status == ATTN_OK || count == 1) {
        keep(division, members, count, decision, status, &own);
        return ATTN_OK;
    }
    status = split_group(division, members, count, decision, err);
    attn_decision_destroy(decision);
    return status;
}

/* Parts without a list of their own together, the others one by one. */
static int32_t decide_all(struct division *division, struct attn_error *err)
{
    const char *wanted = division->options.backend;
    struct member *members = division->members;
    uint32_t together = 0;
    int32_t status = ATTN_OK;
    for (uint32_t i = 0; i < division->parts->count && status == ATTN_OK; i++) {
        const struct member member = members[i];
        division->options.backend = division->parts->parts[member.part].wanted;
        if (division->options.backend == NULL)
            members[together++] = member; /* overwrites a member that was read already */
        else
            status = decide(division, &member, 1, NULL, err);
    }
    division->options.backend = wanted;
    return status == ATTN_OK && together > 0 ? decide(division, members, together, NULL, err) : status;
}

/* Fails with the refusal of the lowest part that no backend serves; an explicit one stays unchanged. */
static int32_t fail_unserved(const struct division *division, struct attn_error *err)
{
    if (division->unserved == UINT32_MAX)
        return ATTN_OK;
    const struct attn_part_decision *info = &division->parts->parts[division->unserved].info;
    const struct attn_error *own = &division->refusal;
    if (attn_reason_is_explicit(own->reason))
        return attn__fail(err, own->status, own->reason, own->field, "%s", own->message);
    return attn__fail(err, own->status, own->reason, own->field, "parts[%u] (class %u, %s): %s",
                      division->unserved, info->layer_class, phase_names[info->phase], own->message);
}

int32_t attn_select_parts(struct attn_context *context, const struct attn_model_part *parts, uint32_t count,
                          const struct attn_select_options *options, struct attn_parts **out,
                          struct attn_error *err)
{
    if (context == NULL || out == NULL) {
        return attn__fail(err, ATTN_E_INVALID, 0, context == NULL ? "context" : "out", "%s is NULL",
                          context == NULL ? "context" : "out");
    }
    *out = NULL;
    struct division division = {.context = context, .unserved = UINT32_MAX};
    int32_t status = attn__check_fork(context->born, "attn_select_parts", err);
    if (status == ATTN_OK)
        status = take(&division, parts, count, options, err);
    if (status == ATTN_OK)
        status = decide_all(&division, err);
    if (status == ATTN_OK)
        status = attn__parts_share(division.parts, err);
    free(division.members);
    free(division.problems);
    if (status != ATTN_OK) {
        attn_parts_destroy(division.parts);
        return status;
    }
    *out = division.parts;
    return fail_unserved(&division, err);
}

void attn_parts_destroy(struct attn_parts *parts)
{
    if (parts == NULL)
        return;
    for (uint32_t i = 0; i < parts->decision_count; i++)
        attn_decision_destroy(parts->decisions[i]);
    free(parts->decisions);
    free(parts->parts);
    free(parts);
}

const struct attn_part_decision *attn_parts_get_decision(const struct attn_parts *parts, uint32_t index)
{
    return parts != NULL && index < parts->count ? &parts->parts[index].info : NULL;
}
