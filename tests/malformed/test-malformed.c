/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Every kind of file beside a plugin that is fine: it has its own reason, the other one serves, the host
 * lives; first one thread, then, unless --alone is given, sixteen at once.
 */
#define _GNU_SOURCE
#include "cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 16, SECONDS_MOST = 120 };

/* A case on its way. */
struct visit {
    const struct malformed_case *row;
    const struct place *place;
    bool alone;
    struct attn_context *shared;
    pthread_barrier_t barrier;
    _Atomic unsigned wrong;
};

static bool is_of_probe(uint32_t reason)
{
    return reason == ATTN_REASON_CRASHED || reason == ATTN_REASON_EXITED || reason == ATTN_REASON_TIMED_OUT;
}

/* Under threads a file may be on its way still, or have been tried by another context. */
static bool is_right(const struct malformed_case *row, const struct attn_file_record *record, bool alone)
{
    if (record == NULL)
        return false;
    if (record->reason == row->reason && (record->stage == row->stage || !alone))
        return strstr(record->text, row->word) != NULL || (!alone && record->reason == 0);
    return !alone &&
           (record->reason == 0 || (record->reason == ATTN_REASON_QUARANTINED && is_of_probe(row->reason)));
}

static void tell(const struct attn_file_record *record)
{
    if (record == NULL)
        tap_note("the report has no such file");
    else
        tap_note("%s at stage %s: %s (%s)", attn_reason_name(record->reason), attn_stage_name(record->stage),
                 record->text, record->linker);
}

static struct attn_report *report_of(struct attn_context *context)
{
    struct attn_report *report = NULL;

    if (attn_context_get_report(context, &report, NULL) != ATTN_OK)
        exit(99);
    return report;
}

/* What one thread sees of a place that nobody else uses. */
static void check_alone(const struct visit *visit)
{
    const struct malformed_case *row = visit->row;
    struct attn_context *context = malformed_context(&visit->place->malformed, visit->place->variables);

    if (attn_context_load_all(context, NULL) != ATTN_OK)
        exit(99);
    struct attn_report *report = report_of(context);
    const struct attn_file_record *record = malformed_file(report, CASE_FILE);
    bool good = is_right(row, record, true);
    tap_check(good, "%s: %s", row->name, row->reason != 0 ? attn_reason_name(row->reason) : "is accepted");
    if (!good)
        tell(record);
    tap_check(record != NULL && (record->reason == 0) == (record->advice[0] == '\0'), "%s: advice",
              row->name);
    attn_report_destroy(report);
    tap_check(place_serves(context), "%s: the sane plugin serves", row->name);
    if ((row->flags & (CASE_SLOW | CASE_ALONE)) == 0)
        tap_check(attn_context_rescan(context, NULL) == ATTN_OK && place_serves(context),
                  "%s: the sane plugin serves after a rescan", row->name);
    attn_context_destroy(context);
}

static void look(struct visit *visit, struct attn_context *context)
{
    bool serves = place_serves(context);
    struct attn_report *report = report_of(context);

    if (!serves || !is_right(visit->row, malformed_file(report, CASE_FILE), false)) {
        if (visit->wrong++ == 0) {
            tap_note(serves ? "wrong reason" : "the sane plugin does not serve");
            tell(malformed_file(report, CASE_FILE));
            if (!serves)
                tell(malformed_file(report, SANE_FILE));
        }
    }
    attn_report_destroy(report);
}

static void *crowd(void *arg)
{
    struct visit *visit = arg;
    const int rounds = (visit->row->flags & CASE_SLOW) != 0 ? 1 : 2;

    for (int i = 0; i < rounds; i++) {
        pthread_barrier_wait(&visit->barrier);
        struct attn_context *own = malformed_context(&visit->place->malformed, visit->place->variables);
        look(visit, own);
        look(visit, visit->shared);
        visit->wrong += attn_context_rescan(visit->shared, NULL) != ATTN_OK;
        look(visit, visit->shared);
        attn_context_destroy(own);
    }
    return NULL;
}

static void check_crowd(struct visit *visit)
{
    pthread_t threads[THREADS];
    double start = seconds_now();

    visit->shared = malformed_context(&visit->place->malformed, visit->place->variables);
    pthread_barrier_init(&visit->barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, crowd, visit) != 0)
            exit(99);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&visit->barrier);
    attn_context_destroy(visit->shared);
    tap_check(visit->wrong == 0, "%s: %d threads at once (%.3f s)", visit->row->name, THREADS,
              seconds_now() - start);
}

static void check_case(const void *arg)
{
    struct visit visit = *(const struct visit *)arg;

    malformed_add(&visit.place->malformed, "sane", SANE_FILE);
    visit.row->make(&visit.place->malformed, visit.row->kind);
    check_alone(&visit);
    if (!visit.alone && (visit.row->flags & CASE_ALONE) == 0)
        check_crowd(&visit);
}

static void check_list(const struct malformed_case *rows, bool alone, const char *only)
{
    for (const struct malformed_case *row = rows; row->name != NULL; row++) {
        struct place place;
        if (only != NULL && strcmp(only, row->name) != 0)
            continue;
        if ((row->flags & CASE_ROOT) != 0 && geteuid() != 0) {
            tap_skip(row->name, "only root can make such a file");
            continue;
        }
        if ((row->flags & CASE_DATA) != 0 && SANITIZED) {
            tap_skip(row->name, "a sanitizer maps memory of its own");
            continue;
        }
        if ((row->flags & CASE_VFORK) != 0 && VFORK_IS_FORK) {
            tap_skip(row->name, "the thread sanitizer makes vfork a fork");
            continue;
        }
        place_create(&place, NULL);
        const struct visit visit = {.row = row, .place = &place, .alone = alone};
        tap_in_child(row->name, SECONDS_MOST, check_case, &visit);
        place_remove(&place);
    }
}

/* test-malformed [--alone] [CASE] */
int main(int argc, char **argv)
{
    static const char variable[] = "GLIBC_TUNABLES", value[] = "glibc.cpu.hwcaps=-AVX512F";

    /* So that every machine refuses the plugin of the highest CPU level. */
    if (getenv(variable) == NULL && setenv(variable, value, 1) == 0)
        (void)execv("/proc/self/exe", argv);
    const bool alone = argc > 1 && strcmp(argv[1], "--alone") == 0;
    const char *only = argc > 1 + alone ? argv[1 + alone] : NULL;
    tap_begin();
    check_list(mock_cases, alone, only);
    check_list(file_cases, alone, only);
    check_list(note_cases, alone, only);
    check_list(elf_cases, alone, only);
    return tap_end();
}
