/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The end of the report: the failures once more, where they are found, and the closing line. */
#include <stdio.h>

#include "output.h"
#include "tap.h"

enum { MOST_REPEATED = 25 };

static void print_failures(void)
{
    char title[TITLE_SIZE], again[COMMAND_SIZE];
    uint32_t told = 0;

    for (uint32_t i = 0; i < tap->record_count && told < MOST_REPEATED; i++) {
        const struct record *record = &tap->records[i];
        if (record->state != STATE_FAILED)
            continue;
        if (told++ == 0)
            tap_note("failed:");
        record_title(record, title, sizeof title);
        record_command(record, again, sizeof again);
        tap_note("  %s", title);
        tap_note("    %s", record->text);
        tap_note("    again: %s", again);
    }
    if (tap->count[STATE_FAILED] > told)
        tap_note("  and %u more", tap->count[STATE_FAILED] - told);
}

static void print_pairs(void)
{
    const struct pair_counts *pairs = &tap->pairs;

    if (!pairs->known)
        return;
    tap_note("pairs: %u/%u", pairs->covered, pairs->possible);
    for (uint32_t i = 0; i < pairs->listed && i < MOST_REPEATED; i++)
        tap_note("  not covered: %s", pairs->missing[i]);
}

static void print_end(void)
{
    FILE *out = output_stream();

    if (!tap->finished)
        fprintf(out, "Bail out! the process that ran the cases is lost\n");
    fprintf(out, "1..%u\n", tap_number());
    print_pairs();
    print_failures();
    fprintf(out, "%u passed, %u failed, %u skipped\n", tap->count[STATE_PASSED], tap->count[STATE_FAILED],
            tap->count[STATE_SKIPPED]);
}

int report_finish(bool json, double seconds)
{
    bool printed = true;

    if (tap->code != 0)
        return tap->code;
#ifdef HAVE_JSON
    if (json)
        printed = report_json(seconds);
#else
    (void)seconds;
#endif
    if (!json)
        print_end();
    if (!printed)
        complain("the JSON object could not be made");
    if (tap->count[STATE_PASSED] == 0 && tap->count[STATE_FAILED] == 0)
        complain("no case was judged");
    return printed && tap->count[STATE_FAILED] == 0 && tap->count[STATE_PASSED] > 0 ? EXIT_YES : EXIT_NO;
}
