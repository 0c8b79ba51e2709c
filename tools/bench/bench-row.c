/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rows of results, and how they go into a JSON document. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "machine.h"

void row_init(struct row *row, const char *name, const char *mode)
{
    *row = (struct row){.mode = mode,
                        .us_min = NAN,
                        .us_median = NAN,
                        .us_max = NAN,
                        .gbps = NAN,
                        .tflops = NAN,
                        .ceiling_gbps = NAN,
                        .ceiling_tflops = NAN,
                        .ceiling_min = NAN,
                        .ceiling_max = NAN,
                        .roof_us = NAN,
                        .balance = NAN,
                        .roof_ratio = NAN,
                        .error = NAN};
    snprintf(row->name, sizeof row->name, "%s", name);
}

void row_set_times(struct row *row, double *seconds, uint32_t count)
{
    row->us_median = 1e6 * median(seconds, count);
    row->us_min = 1e6 * seconds[0];
    row->us_max = 1e6 * seconds[count - 1];
    row->rounds = count;
}

static void emit_json(struct jsonout *json, const struct row *row)
{
    jsonout_object(json, NULL);
    jsonout_string(json, "name", row->name);
    jsonout_string(json, "mode", row->mode);
    jsonout_string(json, "backend", row->backend[0] != '\0' ? row->backend : NULL);
    jsonout_string(json, "kernel", row->kernel[0] != '\0' ? row->kernel : NULL);
    jsonout_string(json, "problem", row->problem[0] != '\0' ? row->problem : NULL);
    jsonout_string(json, "batch", row->batch[0] != '\0' ? row->batch : NULL);
    if (row->threads != 0)
        jsonout_integer(json, "threads", row->threads);
    else
        jsonout_string(json, "threads", NULL);
    jsonout_object(json, "us");
    jsonout_real(json, "min", row->us_min);
    jsonout_real(json, "median", row->us_median);
    jsonout_real(json, "max", row->us_max);
    jsonout_close(json);
    if (row->rounds != 0)
        jsonout_integer(json, "rounds", row->rounds);
    else
        jsonout_string(json, "rounds", NULL);
    jsonout_real(json, "gbps", row->gbps);
    jsonout_real(json, "tflops", row->tflops);
    jsonout_real(json, "ceiling_gbps", row->ceiling_gbps);
    jsonout_real(json, "ceiling_tflops", row->ceiling_tflops);
    jsonout_real(json, "roof_us", row->roof_us);
    jsonout_real(json, "balance", row->balance);
    jsonout_real(json, "roof_ratio", row->roof_ratio);
    jsonout_real(json, "error", row->error);
    if (row->more != NULL)
        row->more(json, row->arg);
    jsonout_close(json);
}

void bench_emit(struct bench *bench, const struct row *row)
{
    if (bench->json != NULL)
        emit_json(bench->json, row);
    else
        text_row(bench, row);
}

/* What keeps one case from running mostly keeps the others too. */
void bench_complain(struct bench *bench, const char *what, const char *message)
{
    if (bench->failure != NULL && strcmp(bench->failure, message) == 0)
        return;
    complain("%s: %s", what, message);
    free(bench->failure);
    bench->failure = need_copy(message);
}
