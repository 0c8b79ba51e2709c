/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The report as one JSON object. Its keys are described in attn-check(1). */
#include <stdlib.h>

#include "jsonout.h"
#include "output.h"
#include "tap.h"

static void add_counts(struct jsonout *json, const uint32_t *count)
{
    jsonout_integer(json, "passed", count[STATE_PASSED]);
    jsonout_integer(json, "failed", count[STATE_FAILED]);
    jsonout_integer(json, "skipped", count[STATE_SKIPPED]);
}

static void add_failure(struct jsonout *json, const struct record *record)
{
    char again[COMMAND_SIZE];

    record_command(record, again, sizeof again);
    jsonout_object(json, NULL);
    jsonout_string(json, "kind", record->kind);
    jsonout_string(json, "backend", record->backend);
    jsonout_string(json, "level", record->level);
    jsonout_string(json, "problem", record->problem);
    jsonout_integer(json, "seed", (int64_t)record->seed);
    jsonout_string(json, "text", record->text);
    jsonout_string(json, "command", again);
    jsonout_close(json);
}

static int compare_skips(const void *a, const void *b)
{
    const struct record *const *one = a, *const *other = b;
    int order = strcmp((*one)->kind, (*other)->kind);

    order = order != 0 ? order : strcmp((*one)->backend, (*other)->backend);
    order = order != 0 ? order : strcmp((*one)->text, (*other)->text);
    return order != 0 ? order : (*one > *other) - (*one < *other);
}

static bool same_skip(const struct record *a, const struct record *b)
{
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->backend, b->backend) == 0 &&
           strcmp(a->text, b->text) == 0;
}

/* One entry for all skips of a kind and backend with the same reason, with the first such case. */
static void add_skips(struct jsonout *json)
{
    const struct record **skips = need_memory(NULL, tap->record_count, sizeof *skips);
    uint32_t count = 0;

    for (uint32_t i = 0; i < tap->record_count; i++)
        if (tap->records[i].state == STATE_SKIPPED)
            skips[count++] = &tap->records[i];
    qsort(skips, count, sizeof *skips, compare_skips);
    jsonout_array(json, "skips");
    for (uint32_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && same_skip(skips[i], skips[next]);)
            next++;
        jsonout_object(json, NULL);
        jsonout_string(json, "kind", skips[i]->kind);
        jsonout_string(json, "backend", skips[i]->backend);
        jsonout_string(json, "reason", skips[i]->text);
        jsonout_integer(json, "count", next - i);
        jsonout_string(json, "problem", skips[i]->problem);
        jsonout_integer(json, "seed", (int64_t)skips[i]->seed);
        jsonout_close(json);
    }
    jsonout_close(json);
    free(skips);
}

/* null where no random cases of attention ran. */
static void add_pairs(struct jsonout *json)
{
    if (!tap->pairs.known) {
        jsonout_string(json, "pairs", NULL);
        return;
    }
    jsonout_object(json, "pairs");
    jsonout_integer(json, "covered", tap->pairs.covered);
    jsonout_integer(json, "possible", tap->pairs.possible);
    jsonout_array(json, "missing");
    for (uint32_t i = 0; i < tap->pairs.listed; i++)
        jsonout_string(json, NULL, tap->pairs.missing[i]);
    jsonout_close(json);
    jsonout_close(json);
}

bool report_json(double seconds)
{
    struct jsonout *json = jsonout_create("check");

    jsonout_string(json, "file", tap->file);
    jsonout_string(json, "mode", tap->full ? "full" : "quick");
    jsonout_bool(json, "finished", tap->finished);
    if (seconds >= 0)
        jsonout_real(json, "seconds", seconds);
    jsonout_object(json, "summary");
    add_counts(json, tap->count);
    jsonout_close(json);
    jsonout_array(json, "kinds");
    for (uint32_t i = 0; i < tap->kind_count; i++) {
        jsonout_object(json, NULL);
        jsonout_string(json, "kind", tap->kinds[i].name);
        add_counts(json, tap->kinds[i].count);
        jsonout_close(json);
    }
    jsonout_close(json);
    jsonout_array(json, "failures");
    for (uint32_t i = 0; i < tap->record_count; i++)
        if (tap->records[i].state == STATE_FAILED)
            add_failure(json, &tap->records[i]);
    jsonout_close(json);
    add_skips(json);
    add_pairs(json);
    jsonout_integer(json, "lost_records", tap->lost);
    return jsonout_finish(json, output_stream());
}
