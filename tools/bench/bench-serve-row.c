/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-bench serve says of a trace that was replayed: members of a row, or lines and a table. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench-units.h"
#include "bench.h"
#include "serve.h"

/* Tokens that were found in the cache, of those that were looked for. */
static double hit_rate(const struct scheduler_counts *counts)
{
    return counts->asked_tokens > 0 ? (double)counts->hit_tokens / (double)counts->asked_tokens : 0;
}

static void add_times(struct jsonout *json, const char *name, const struct serve_times *times)
{
    jsonout_object(json, name);
    for (unsigned i = 0; i < SERVE_PARTS; i++) {
        jsonout_object(json, serve_part_names[i]);
        jsonout_real(json, "median", times_quantile(&times->part[i], 0.5));
        jsonout_real(json, "p99", times_quantile(&times->part[i], 0.99));
        jsonout_close(json);
    }
    jsonout_close(json);
}

static void add_row(struct jsonout *json, const struct serve *s)
{
    const struct scheduler_counts *counts = scheduler_get_counts(s->scheduler);
    const double seconds = 1e-9 * (double)(s->ended - s->began);
    char hash[20];

    snprintf(hash, sizeof hash, "%016" PRIx64, s->hash);
    jsonout_integer(json, "layers", s->options.shape.layers);
    jsonout_integer(json, "seqs", s->options.seqs);
    jsonout_integer(json, "blocks", s->options.shape.blocks);
    jsonout_integer(json, "requests", (int64_t)s->finished);
    jsonout_integer(json, "steps", (int64_t)s->steps);
    jsonout_integer(json, "steps_full", (int64_t)s->full->part[0].count);
    jsonout_integer(json, "tokens_computed", (int64_t)s->tokens_run);
    jsonout_integer(json, "tokens_generated", (int64_t)s->answered);
    jsonout_real(json, "seconds", seconds);
    jsonout_real(json, "steps_per_s", (double)s->steps / seconds);
    add_times(json, "host_us", s->all);
    add_times(json, "host_us_full", s->full);
    jsonout_real(json, "cache_use", s->use / (double)s->steps);
    jsonout_real(json, "cache_use_most", s->most_use);
    jsonout_integer(json, "preemptions", (int64_t)(counts->recomputed + counts->swapped));
    jsonout_integer(json, "swaps", (int64_t)counts->swapped);
    jsonout_integer(json, "prefix_hits", (int64_t)counts->hit_tokens);
    jsonout_real(json, "prefix_hit_rate", hit_rate(counts));
    jsonout_string(json, "schedule_hash", hash);
}

/* Host times of a step by its parts, of all steps and of those in which every batch slot was taken. */
static void print_times(const struct serve *s)
{
    enum { PART, MEDIAN, P99, FULL_MEDIAN, FULL_P99, CELLS };
    const bool full = s->full->part[0].count > 0;
    const unsigned width = sizeof "14.3 ms" - 1;
    const struct bench_column columns[CELLS] = {
        [PART] = {"part of a step", sizeof "schedule" - 1, 0, 0, true},
        [MEDIAN] = {"median", width, 0, 0, false},
        [P99] = {"p99", width, 0, 1, false},
        [FULL_MEDIAN] = {"full median", full ? width : 0, 0, 2, false},
        [FULL_P99] = {"full p99", full ? width : 0, 0, 3, false},
    };
    struct bench_table table;

    bench_table_init(&table, columns, CELLS);
    bench_table_titles(&table);
    for (unsigned i = 0; i < SERVE_PARTS; i++) {
        const struct times *times[2] = {&s->all->part[i], &s->full->part[i]};
        char text[4][UNIT_TEXT];
        const char *cells[CELLS] = {[PART] = serve_part_names[i]};

        for (unsigned j = 0; j < 4; j++) {
            const double us = times_quantile(times[j / 2], j % 2 == 0 ? 0.5 : 0.99);
            cells[MEDIAN + j] = unit_text(text[j], us, unit_of_time(us));
        }
        bench_table_row(&table, cells);
    }
}

static void print_row(const struct serve *s)
{
    const struct scheduler_counts *counts = scheduler_get_counts(s->scheduler);
    const double seconds = 1e-9 * (double)(s->ended - s->began);
    char time[UNIT_TEXT], use[UNIT_TEXT], most[UNIT_TEXT], hits[UNIT_TEXT];
    const struct {
        const char *title;
        char *text;
    } lines[] = {
        {"requests",
         need_format("%" PRIu64 " in %" PRIu64 " steps and %s; %.0f steps/s, %.0f tokens/s", s->finished,
                     s->steps, unit_text(time, 1e6 * seconds, unit_of_time(1e6 * seconds)),
                     (double)s->steps / seconds, (double)s->answered / seconds)},
        {"cache", need_format("%s of the blocks in use, %s at most; %" PRIu64 " preemptions, %" PRIu64
                              " of them to the host",
                              share_text(use, s->use / (double)s->steps), share_text(most, s->most_use),
                              counts->recomputed + counts->swapped, counts->swapped)},
        {"prefixes",
         need_format("%s of the tokens that were looked for were found", share_text(hits, hit_rate(counts)))},
        {"schedule", need_format("%016" PRIx64, s->hash)},
        {"host time",
         need_format("of %" PRIu64 " steps; full: of the %" PRIu64 " in which all batch slots are taken",
                     s->all->part[0].count, s->full->part[0].count)},
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const int column = fprintf(output_stream(), "%s: ", lines[i].title);
        output_wrap((unsigned)column, 4, lines[i].text);
        free(lines[i].text);
    }
    print_times(s);
}

void serve_say(struct jsonout *json, const void *arg)
{
    if (json != NULL)
        add_row(json, arg);
    else
        print_row(arg);
}
