/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Rows of results, as text and as JSON. */
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

/* "name value unit", with a gap before it unless it is the first of its line. */
static void print_number(bool *first, const char *name, double value, const char *unit)
{
    if (isnan(value))
        return;
    fprintf(output_stream(), "%s%s %.4g%s", *first ? "  " : ", ", name, value, unit);
    *first = false;
}

static void print_pair(bool *first, const char *name, double value, double ceiling, const char *unit)
{
    if (isnan(value) || isnan(ceiling)) {
        print_number(first, name, !isnan(value) ? value : ceiling, unit);
        return;
    }
    fprintf(output_stream(), "%s%s %.4g of %.4g%s", *first ? "  " : ", ", name, value, ceiling, unit);
    *first = false;
}

static void print_text(const struct row *row)
{
    FILE *out = output_stream();
    bool first = true;

    fprintf(out, "%s", row->name);
    if (row->backend[0] != '\0' || row->kernel[0] != '\0')
        fprintf(out, "  (%s%s%s)", row->backend,
                row->backend[0] != '\0' && row->kernel[0] != '\0' ? ", " : "", row->kernel);
    fputc('\n', out);
    if (row->problem[0] != '\0') {
        fputs("  ", out);
        output_wrap(2, 2, row->problem);
    }
    if (row->batch[0] != '\0') {
        fputs("  batch ", out);
        output_wrap(8, 2, row->batch);
    }
    if (!isnan(row->us_median))
        fprintf(out, "  %.4g us (%.4g to %.4g)\n", row->us_median, row->us_min, row->us_max);
    print_pair(&first, "bandwidth", row->gbps, row->ceiling_gbps, " GB/s");
    print_pair(&first, "arithmetic", row->tflops, row->ceiling_tflops, " TFLOP/s");
    if (!first)
        fputc('\n', out);
    first = true;
    print_number(&first, "roof_us", row->roof_us, "");
    print_number(&first, "balance", row->balance, "");
    print_number(&first, "roof_ratio", row->roof_ratio, "");
    print_number(&first, "error", row->error, "");
    if (!first)
        fputc('\n', out);
    if (row->more != NULL)
        row->more(NULL, row->arg);
    fflush(out);
}

void bench_emit(struct bench *bench, const struct row *row)
{
    if (bench->json != NULL)
        emit_json(bench->json, row);
    else
        print_text(row);
}
