/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prints a decision: the winner and why, then a block for each group of candidates that answered alike. */
#include "explain-print.h"

#include <stdlib.h>
#include <string.h>

#include "info.h"

/* What a reader looks for first comes first. */
enum rank { WON, ACCEPTED, REFUSED, ABSENT, UNASKED, RANKS };

static enum rank rank_of(const struct attn_candidate *candidate)
{
    enum rank rank = ABSENT;

    if (candidate->accepted)
        return ACCEPTED;
    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        uint32_t code = candidate->reasons[i].code;
        if (code == ATTN_REASON_NOT_REQUESTED || code == ATTN_REASON_DISABLED_BY_USER ||
            code == ATTN_REASON_NOT_ASKED)
            return UNASKED;
        if (attn_reason_is_absence(code))
            return ABSENT;
        rank = REFUSED;
    }
    return rank;
}

static bool same_kernels(const struct attn_candidate *a, const struct attn_candidate *b)
{
    bool same = a->kernel_count == b->kernel_count;

    for (uint32_t i = 0; i < a->kernel_count && same; i++)
        same = strcmp(a->kernels[i].name, b->kernels[i].name) == 0 &&
               strcmp(a->kernels[i].when, b->kernels[i].when) == 0 &&
               a->kernels[i].graph_level == b->kernels[i].graph_level &&
               a->kernels[i].speed == b->kernels[i].speed;
    return same;
}

static bool same_answer(const struct attn_candidate *a, const struct attn_candidate *b)
{
    bool same = a->accepted == b->accepted && a->device_class == b->device_class &&
                a->reason_count == b->reason_count && same_kernels(a, b);

    for (uint32_t i = 0; i < a->reason_count && same; i++)
        same = a->reasons[i].code == b->reasons[i].code &&
               strcmp(a->reasons[i].kernel, b->reasons[i].kernel) == 0 &&
               strcmp(a->reasons[i].text, b->reasons[i].text) == 0;
    return same;
}

static bool is_winner(const struct attn_decision_info *info, const struct attn_candidate *candidate)
{
    return info->effective != NULL && candidate->device != NULL &&
           strcmp(candidate->name, info->effective) == 0 && strcmp(candidate->device, info->device) == 0;
}

/* ---------------------------------------------------------------- the winner */

/* Why the winner stands before the next one that serves; free it. */
static char *order_text(const struct attn_decision *decision)
{
    const struct attn_candidate *winner = NULL, *next = NULL, *candidate;

    for (uint32_t i = 0; (candidate = attn_decision_get_candidate(decision, i)) != NULL; i++)
        if (is_winner(attn_decision_get_info(decision), candidate))
            winner = candidate;
        else if (candidate->accepted && winner != NULL && next == NULL)
            next = candidate;
    if (winner == NULL || next == NULL)
        return need_copy("no other backend that was asked serves");
    if (next->device_class > winner->device_class)
        return need_format("its device class comes first, %s before %s", class_name(winner->device_class),
                           class_name(next->device_class));
    if (next->cost_rank > winner->cost_rank)
        return need_format("it has the lowest cost rank, %u before %u", winner->cost_rank, next->cost_rank);
    return need_copy("the first of its class by device number and name");
}

static void print_winner(const struct attn_decision *decision, bool explicit)
{
    static const char lead[] = "; fallback: ";
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    const char *fallback = info->fallback ? strstr(info->text, lead) : NULL;
    bool won = info->effective != NULL;
    FILE *out = output_stream();

    style_print(out, won ? STYLE_GOOD : STYLE_BAD,
                won        ? info->effective
                : explicit ? info->text
                           : "no backend");
    if (won)
        fprintf(out, " on %s%s", info->device, info->fallback ? " (fallback)" : "");
    fputc('\n', out);
    char *requested =
        need_format("%s (%s)", info->requested,
                    info->decided_by == ATTN_DECIDED_BY_CALL          ? "by the call"
                    : info->decided_by == ATTN_DECIDED_BY_ENVIRONMENT ? "by ATTN_BACKEND"
                                                                      : "nothing was asked for");
    print_field("requested", requested);
    free(requested);
    char *order = won && fallback == NULL ? order_text(decision) : NULL;
    print_field("why", order);
    print_field("fallback", fallback != NULL ? fallback + strlen(lead) : NULL);
    free(order);
}

/* ---------------------------------------------------------------- the blocks */

static enum style kernel_style(unsigned column, const char *cell)
{
    return column == 1 && strcmp(cell, "generic") == 0 ? STYLE_BAD : STYLE_PLAIN;
}

static void print_kernels(const struct attn_candidate *candidate)
{
    static const char *const titles[] = {"KERNEL", "SPEED", "GRAPH", "TAKEN FOR"};
    struct table table;

    table_init(&table, 4, titles);
    table.style = kernel_style;
    table.indent = 2;
    for (uint32_t i = 0; i < candidate->kernel_count; i++) {
        const struct attn_kernel_info *kernel = &candidate->kernels[i];
        const char *const cells[] = {kernel->name, speed_name(kernel->speed),
                                     graph_level_name(kernel->graph_level),
                                     kernel->when[0] != '\0' ? kernel->when : "always"};
        table_add(&table, cells);
    }
    table_finish(&table);
    if (explain_has_generic(candidate))
        fputs("  generic kernels are many times slower than optimised ones\n", output_stream());
}

/* "names: answer", the answer on a line of its own where it does not fit. */
static void print_title(const char *names, const char *answer, enum style style)
{
    bool fits = strlen(names) + strlen(": ") + strlen(answer) <= output_columns();
    char *lead = need_format("%s:", names);

    fputc('\n', output_stream());
    if (fits)
        fprintf(output_stream(), "%s ", output_shown(lead));
    else
        output_wrap(0, 2, lead);
    fputs(fits ? "" : "  ", output_stream());
    style_print(output_stream(), style, answer);
    fputc('\n', output_stream());
    free(lead);
}

/* The block of candidate `index`, with the names of all that answered as it did. */
static void print_block(const struct attn_decision *decision, uint32_t index, uint32_t count, enum rank rank,
                        struct advised *advised)
{
    static const char *const answers[RANKS] = {"accepted", "accepted", "refused", "not there", "not asked"};
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, index);
    struct place *places = need_memory(NULL, count, sizeof *places);
    unsigned alike = 0;

    for (uint32_t i = index; i < count; i++) {
        const struct attn_candidate *other = attn_decision_get_candidate(decision, i);
        if (same_answer(candidate, other))
            places[alike++] = (struct place){other->name, other->device};
    }
    char *names = places_text(places, alike);
    print_title(names, answers[rank], candidate->accepted ? STYLE_GOOD : STYLE_BAD);
    if (candidate->accepted)
        print_kernels(candidate);
    explain_print_reasons(candidate, advised);
    free(names);
    free(places);
}

/* True if an earlier candidate's block has this one too. */
static bool is_told(const struct attn_decision *decision, uint32_t index)
{
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, index);

    for (uint32_t i = 0; i < index; i++)
        if (same_answer(attn_decision_get_candidate(decision, i), candidate))
            return true;
    return false;
}

/* The rank of a block: that of its candidates, or WON if one of them did. */
static enum rank block_rank(const struct attn_decision *decision, uint32_t index, uint32_t count)
{
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, index);

    for (uint32_t i = index; i < count; i++) {
        const struct attn_candidate *other = attn_decision_get_candidate(decision, i);
        if (is_winner(attn_decision_get_info(decision), other) && same_answer(candidate, other))
            return WON;
    }
    return rank_of(candidate);
}

void explain_print(const struct attn_decision *decision, bool explicit)
{
    struct advised advised = {.given = 0};
    uint32_t count = attn_decision_get_info(decision)->candidate_count;

    print_winner(decision, explicit);
    for (unsigned rank = WON; rank < RANKS; rank++)
        for (uint32_t i = 0; i < count; i++)
            if (!is_told(decision, i) && block_rank(decision, i, count) == rank)
                print_block(decision, i, count, (enum rank)rank, &advised);
}
