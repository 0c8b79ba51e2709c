/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Prints the refusals of one candidate: what matters first, and what says the same once. */
#include <stdlib.h>
#include <string.h>

#include "explain-print.h"
#include "info.h"

bool explain_has_generic(const struct attn_candidate *candidate)
{
    bool generic = false;

    for (uint32_t i = 0; i < candidate->kernel_count && candidate->accepted != 0; i++)
        generic = generic || candidate->kernels[i].speed == ATTN_SPEED_GENERIC;
    return generic;
}

/* What keeps the optimised kernel that is closest where a generic one serves: a query gives it first. */
static const struct attn_reason *find_closest(const struct attn_candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->reason_count && explain_has_generic(candidate); i++)
        if (candidate->reasons[i].kernel[0] != '\0')
            return &candidate->reasons[i];
    return NULL;
}

static bool is_type(uint32_t code)
{
    return code == ATTN_REASON_DTYPE_Q || code == ATTN_REASON_DTYPE_K || code == ATTN_REASON_DTYPE_V ||
           code == ATTN_REASON_DTYPE_OUT;
}

/* A kernel is one of another element type if one of its reasons says so. */
static bool is_of_other_type(const struct attn_candidate *candidate, const char *kernel)
{
    for (uint32_t i = 0; i < candidate->reason_count; i++)
        if (is_type(candidate->reasons[i].code) && strcmp(candidate->reasons[i].kernel, kernel) == 0)
            return true;
    return false;
}

/* How many reasons a kernel has: the fewer, the nearer it came to serving. */
static unsigned reasons_of(const struct attn_candidate *candidate, const char *kernel)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < candidate->reason_count; i++)
        count += strcmp(candidate->reasons[i].kernel, kernel) == 0;
    return count;
}

static bool same_words(const struct attn_reason *a, const struct attn_reason *b)
{
    return a->code == b->code && strcmp(a->text, b->text) == 0 &&
           (a->kernel[0] == '\0') == (b->kernel[0] == '\0');
}

/* The kernels of all reasons like this one that are not told yet, between commas; marks them. Free it. */
static char *kernels_with(const struct attn_candidate *candidate, const struct attn_reason *reason,
                          bool *told)
{
    char *names = need_copy("");

    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        const struct attn_reason *other = &candidate->reasons[i];
        if (told[i] || !same_words(reason, other))
            continue;
        told[i] = true;
        char *longer = need_format("%s%s%s", names, names[0] != '\0' ? ", " : "", other->kernel);
        free(names);
        names = longer;
    }
    return names;
}

static void give_advice(uint32_t code, struct advised *advised)
{
    enum { MOST = sizeof advised->codes / sizeof advised->codes[0] };

    for (unsigned i = 0; i < advised->given; i++)
        if (advised->codes[i] == code)
            return;
    if (advised->given < MOST)
        advised->codes[advised->given++] = code;
    print_advice(attn_reason_advice(code));
}

/* "  CODE: text (kernels)", once for all kernels of which it holds. */
static void print_refusal(const struct attn_candidate *candidate, const struct attn_reason *reason,
                          bool *told, struct advised *advised)
{
    const char *said = reason->text[0] != '\0' ? reason->text : attn_reason_text(reason->code);
    char *kernels = kernels_with(candidate, reason, told);
    char *text = kernels[0] != '\0' ? need_format("%s (%s)", said, kernels) : need_copy(said);

    print_reason(candidate->accepted ? "  not taken: " : "  ", reason->code, text);
    if (!candidate->accepted || explain_has_generic(candidate))
        give_advice(reason->code, advised);
    free(text);
    free(kernels);
}

/* Specialisations for other types are no news where another kernel is of the right type, or the closest one
 * was told. */
static void print_other_types(const struct attn_candidate *candidate)
{
    const struct attn_reason *closest = find_closest(candidate);
    char *names = need_copy("");

    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        const struct attn_reason *reason = &candidate->reasons[i];
        bool told = reason->kernel[0] == '\0' || !is_of_other_type(candidate, reason->kernel);
        for (uint32_t j = 0; j < i; j++)
            told = told || strcmp(candidate->reasons[j].kernel, reason->kernel) == 0;
        told = told || (closest != NULL && same_words(closest, reason));
        if (told)
            continue;
        char *longer = need_format("%s%s%s", names, names[0] != '\0' ? ", " : "", reason->kernel);
        free(names);
        names = longer;
    }
    if (names[0] != '\0') {
        fputs("  other element types: ", output_stream());
        output_wrap(23, 4, names);
    }
    free(names);
}

/* The reasons of kernels that have `wanted` of them; 0: of the whole backend. */
static void print_level(const struct attn_candidate *candidate, unsigned wanted, bool *told,
                        struct advised *advised)
{
    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        const struct attn_reason *reason = &candidate->reasons[i];
        if (!told[i] && (reason->kernel[0] != '\0' ? reasons_of(candidate, reason->kernel) : 0) == wanted)
            print_refusal(candidate, reason, told, advised);
    }
}

void explain_print_reasons(const struct attn_candidate *candidate, struct advised *advised)
{
    bool *told = need_memory(NULL, candidate->reason_count, sizeof *told);
    bool right_type = candidate->accepted != 0;
    unsigned most = 0;

    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        const char *kernel = candidate->reasons[i].kernel;
        unsigned count = kernel[0] != '\0' ? reasons_of(candidate, kernel) : 0;
        told[i] = kernel[0] != '\0' && is_of_other_type(candidate, kernel);
        right_type = right_type || (count > 0 && !told[i]);
        most = count > most ? count : most;
    }
    for (uint32_t i = 0; i < candidate->reason_count && !right_type; i++)
        told[i] = false;
    const struct attn_reason *closest = find_closest(candidate);
    if (closest != NULL) {
        for (uint32_t i = 0; i < candidate->reason_count; i++)
            told[i] = told[i] && !same_words(closest, &candidate->reasons[i]);
        print_refusal(candidate, closest, told, advised);
    }
    for (unsigned wanted = 0; wanted <= most; wanted++)
        print_level(candidate, wanted, told, advised);
    if (right_type)
        print_other_types(candidate);
    free(told);
}
