/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Plugin files that are replaced before, while and after they are loaded. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "place.h"

static struct attn_context *context_of(const struct place *place)
{
    return malformed_context(&place->malformed, place->variables);
}

static const struct attn_file_record *find(struct attn_context *context, const char *name,
                                           struct attn_report **report)
{
    if (attn_context_get_report(context, report, NULL) != ATTN_OK)
        exit(99);
    return malformed_file(*report, name);
}

static bool has_reason(struct attn_context *context, const char *name, uint32_t reason)
{
    struct attn_report *report;
    const struct attn_file_record *record = find(context, name, &report);
    const bool right = record != NULL && record->reason == reason && record->text[0] != '\0';

    if (!right)
        tap_note("%s: %s: %s", name, record != NULL ? attn_reason_name(record->reason) : "none",
                 record != NULL ? record->text : "");
    attn_report_destroy(report);
    return right;
}

/* ---------------------------------------------------------------- after its note was read */

static void check_before(const void *arg)
{
    const struct place *place = arg;
    struct attn_context *context = context_of(place);

    malformed_add(&place->malformed, "second", "libattn-a.so");
    if (attn_context_load_all(context, NULL) != ATTN_OK)
        exit(99);
    tap_check(has_reason(context, "libattn-a.so", ATTN_REASON_CHANGED_WHILE_LOADING),
              "a file that was replaced since its note was read");
    tap_check(place_serves(context), "the sane plugin serves");
    attn_context_destroy(context);
    context = context_of(place);
    if (truncate(malformed_path(&place->malformed, "libattn-a.so"), 5000) != 0 ||
        attn_context_load_all(context, NULL) != ATTN_OK)
        exit(99);
    tap_check(has_reason(context, "libattn-a.so", ATTN_REASON_CHANGED_WHILE_LOADING),
              "a file that was cut since its note was read");
    tap_check(attn_context_rescan(context, NULL) == ATTN_OK && place_serves(context) &&
                  has_reason(context, "libattn-a.so", ATTN_REASON_TRUNCATED),
              "a rescan sees what it is now");
    attn_context_destroy(context);
}

/* A constructor that touches its own file stands for somebody who replaces it while the linker reads. */
static void check_while(const void *arg)
{
    const struct place *place = arg;

    malformed_add(&place->malformed, "trouble-touch", "libattn-a.so");
    struct attn_context *context = context_of(place);
    if (attn_context_load_all(context, NULL) != ATTN_OK)
        exit(99);
    tap_check(has_reason(context, "libattn-a.so", ATTN_REASON_CHANGED_WHILE_LOADING),
              "a file that changed while it was loaded");
    tap_check(place_serves(context), "the sane plugin serves");
    attn_context_destroy(context);
}

/* ---------------------------------------------------------------- after it was loaded */

/* The loaded plugin goes on serving, whatever takes its file's name. */
static void check_after(const void *arg)
{
    const struct place *place = arg;
    static const char nonsense[64] = "no plugin at all";
    struct attn_context *context = context_of(place);

    tap_check(place_serves(context), "a plugin serves before its file is replaced");
    malformed_write(&place->malformed, SANE_FILE, nonsense, sizeof nonsense);
    tap_check(place_serves(context), "and after something else took its name");
    tap_check(attn_context_rescan(context, NULL) == ATTN_OK && place_serves(context), "and after a rescan");
    struct attn_context *later = context_of(place);
    tap_check(!place_serves(later) && has_reason(later, SANE_FILE, ATTN_REASON_NOT_ELF),
              "a later context sees what the file is now");
    attn_context_destroy(later);
    malformed_add(&place->malformed, "sane", SANE_FILE);
    later = context_of(place);
    tap_check(!place_serves(later) && has_reason(later, SANE_FILE, ATTN_REASON_REPLACED_AFTER_LOADING),
              "a new file of that name waits for the next process");
    attn_context_destroy(later);
    tap_check(place_serves(context), "the first context goes on");
    attn_context_destroy(context);
}

/* ---------------------------------------------------------------- all the time */

enum { READERS = 4, SECONDS = 2 };

struct storm {
    const struct place *place;
    unsigned char *bytes;
    size_t size;
    _Atomic bool stop;
    _Atomic unsigned wrong, answers, loads;
};

static void replace(struct storm *storm)
{
    malformed_write(&storm->place->malformed, "libattn-a.so", storm->bytes, storm->size);
}

static void *write_on(void *arg)
{
    struct storm *storm = arg;
    uint32_t seed = 1;

    while (!storm->stop) {
        replace(storm);
        seed = seed * 1664525 + 1013904223;
        usleep(seed >> 17); /* up to 32 ms: probes must have time to end in between */
    }
    return NULL;
}

static void *read_on(void *arg)
{
    struct storm *storm = arg;

    while (!storm->stop) {
        struct attn_context *context = context_of(storm->place);
        struct attn_report *report;
        storm->wrong += attn_context_load_all(context, NULL) != ATTN_OK;
        const struct attn_file_record *record = find(context, "libattn-a.so", &report);
        storm->loads += record != NULL && record->stage == ATTN_STAGE_READY;
        storm->wrong += record != NULL && record->stage != ATTN_STAGE_READY && record->text[0] == '\0';
        attn_report_destroy(report);
        storm->wrong += !place_serves(context);
        storm->answers++;
        attn_context_destroy(context);
    }
    return NULL;
}

static void check_storm(const struct place *place, const char *name)
{
    struct storm storm = {.place = place};
    pthread_t writer, readers[READERS];

    storm.bytes = malformed_read("good", &storm.size);
    malformed_write(&place->malformed, "libattn-a.so", storm.bytes, storm.size);
    if (pthread_create(&writer, NULL, write_on, &storm) != 0)
        exit(99);
    for (int i = 0; i < READERS; i++)
        if (pthread_create(&readers[i], NULL, read_on, &storm) != 0)
            exit(99);
    sleep(SECONDS);
    storm.stop = true;
    pthread_join(writer, NULL);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    free(storm.bytes);
    tap_check(storm.wrong == 0 && storm.answers > 0, "a file that is %s all the time", name);
    tap_note("%u contexts, %u loaded it", storm.answers, storm.loads);
}

static void check_replacing(const void *arg)
{
    check_storm(arg, "replaced");
}

static void run(const char *name, const char *variable, void (*work)(const void *arg))
{
    struct place place;

    place_create(&place, variable);
    malformed_add(&place.malformed, "sane", SANE_FILE);
    malformed_add(&place.malformed, "good", "libattn-a.so");
    tap_in_child(name, 60, work, &place);
    place_remove(&place);
}

int main(void)
{
    tap_begin();
    run("before loading", NULL, check_before);
    run("while loading", "ATTN_PROBE=never", check_while);
    run("after loading", NULL, check_after);
    run("replaced while loading", NULL, check_replacing);
    return tap_end();
}
