/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Results as text: a heading for each mode and backend, a line for each row, and what the columns mean. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench-units.h"
#include "bench.h"

enum { KERNEL_LEAST = 12, NAME_LEAST = 12 };
enum cell { NAME, BATCH, MEDIAN, RANGE, ROUNDS, MEMORY, COMPUTE, SHARE, ERROR, KERNEL, CELLS };

const char *name_without_mode(const char *name, const char *mode)
{
    const size_t size = strlen(mode);

    if (strncmp(name, mode, size) != 0 || (name[size] != '_' && name[size] != '\0'))
        return name;
    return name + size + (name[size] == '_');
}

static bool is_ceiling(const struct row *row)
{
    return isnan(row->us_median);
}

/* "memory" or "compute", whichever takes longer at its ceiling. */
static const char *bound_of(const struct row *row)
{
    return row->gbps / row->ceiling_gbps >= row->tflops / row->ceiling_tflops ? "memory" : "compute";
}

/* ---------------------------------------------------------------- headings */

static unsigned longest(unsigned known, const char *text)
{
    const unsigned size = (unsigned)strlen(text);

    return size > known ? size : known;
}

static void choose_columns(struct bench_text *text, const struct row *row)
{
    const bool computes = !isnan(row->gbps), shares = !isnan(row->roof_ratio);
    const bool limits = !isnan(row->ceiling_gbps);
    const struct bench_column columns[CELLS] = {
        [NAME] = {"case", longest(text->name, name_without_mode(row->name, row->mode)), NAME_LEAST, 0, true},
        /* A row whose name says nothing is told by its batch. */
        [BATCH] = {"batch", longest(text->batch, row->batch), NAME_LEAST, text->listed ? 7 : 0, true},
        [MEDIAN] = {"median", is_ceiling(row) ? sizeof "26.3 GFLOP/s" - 1 : sizeof "14.3 ms" - 1, 0, 0,
                    false},
        [RANGE] = {"min-max", is_ceiling(row) ? sizeof "26.3-57.1 GFLOP/s" - 1 : sizeof "7.10-15.6 ms" - 1, 0,
                   1, false},
        [ROUNDS] = {"rounds", row->rounds != 0 ? 1 : 0, 0, 3, false},
        [MEMORY] = {"memory",
                    !computes ? 0
                    : limits  ? sizeof "6.80 of 13.6 GB/s" - 1
                              : sizeof "4.03 TB/s" - 1,
                    0, shares ? 4 : 0, false},
        [COMPUTE] = {"compute",
                     !computes ? 0
                     : shares  ? sizeof "27.2 of 73.6 GFLOP/s" - 1
                               : sizeof "3.20 TFLOP/s" - 1,
                     0, 5, false},
        [SHARE] = {"of ceiling", shares ? sizeof "100 % compute" - 1 : 0, 0, 0, true},
        [ERROR] = {"error", computes ? sizeof "2.1e-04" - 1 : 0, 0, 6, false},
        [KERNEL] = {is_ceiling(row) ? "measured with" : "kernel",
                    row->kernel[0] != '\0' ? longest(sizeof "paged_decode_bf16_avx2" - 1, row->kernel) : 0,
                    KERNEL_LEAST, 2, true},
    };

    bench_table_init(&text->table, columns, CELLS);
    text->narrowed = text->narrowed || text->table.narrowed;
}

/* "decode on cpu/flash-attn, 2 threads", and the problem where no name tells it. */
static void print_heading(struct bench_text *text, const struct row *row)
{
    FILE *out = output_stream();
    char threads[32] = "";

    if (text->begun)
        fputc('\n', out);
    if (row->threads != 0)
        snprintf(threads, sizeof threads, ", %" PRIu32 " thread%s", row->threads,
                 row->threads == 1 ? "" : "s");
    char *heading =
        need_format("%s%s%s%s", row->mode, row->backend[0] != '\0' ? " on " : "", row->backend, threads);
    style_print(out, STYLE_TITLE, heading);
    fputc('\n', out);
    free(heading);
    if (!text->listed && row->problem[0] != '\0') {
        fputs("problem: ", out);
        output_wrap(9, 9, row->problem);
    }
}

/* ---------------------------------------------------------------- rows */

static void print_cells(const struct bench_text *text, const struct row *row)
{
    const struct unit time = unit_of_time(row->us_median);
    const bool reads = !isnan(row->ceiling_gbps);
    const struct unit rate =
        reads ? unit_of_bandwidth(row->ceiling_gbps) : unit_of_compute(row->ceiling_tflops);
    char median[UNIT_TEXT], range[UNIT_TEXT], memory[UNIT_TEXT], compute[UNIT_TEXT], share[UNIT_TEXT];
    char rounds[16], error[16] = "-", of_ceiling[2 * UNIT_TEXT] = "-";

    snprintf(rounds, sizeof rounds, "%" PRIu32, row->rounds);
    if (!isnan(row->error))
        snprintf(error, sizeof error, "%.1e", row->error);
    if (!isnan(row->roof_ratio))
        snprintf(of_ceiling, sizeof of_ceiling, "%5s %s", share_text(share, row->roof_ratio), bound_of(row));
    const char *cells[CELLS] = {
        [NAME] = name_without_mode(row->name, row->mode),
        [BATCH] = row->batch,
        [MEDIAN] = is_ceiling(row) ? unit_text(median, reads ? row->ceiling_gbps : row->ceiling_tflops, rate)
                                   : unit_text(median, row->us_median, time),
        [RANGE] = is_ceiling(row) ? unit_range(range, row->ceiling_min, row->ceiling_max, rate)
                                  : unit_range(range, row->us_min, row->us_max, time),
        [ROUNDS] = rounds,
        [MEMORY] = unit_pair(memory, row->gbps, row->ceiling_gbps, unit_of_bandwidth),
        [COMPUTE] = unit_pair(compute, row->tflops, row->ceiling_tflops, unit_of_compute),
        [SHARE] = of_ceiling,
        [ERROR] = error,
        [KERNEL] = row->kernel,
    };
    bench_table_row(&text->table, cells);
}

/* A heading stands for the rows below it until a mode or a backend is another one. */
void text_row(struct bench *bench, const struct row *row)
{
    struct bench_text *text = &bench->text;

    if (!text->begun || text->mode != row->mode || strcmp(text->backend, row->backend) != 0) {
        print_heading(text, row);
        text->begun = true;
        text->mode = row->mode;
        snprintf(text->backend, sizeof text->backend, "%s", row->backend);
        if (row->more == NULL) {
            choose_columns(text, row);
            bench_table_titles(&text->table);
        }
    }
    if (row->more != NULL) {
        row->more(NULL, row->arg);
        fflush(output_stream());
        return;
    }
    print_cells(text, row);
    if (!isnan(row->gbps)) {
        if (text->least_rounds == 0 || row->rounds < text->least_rounds)
            text->least_rounds = row->rounds;
        text->most_rounds = row->rounds > text->most_rounds ? row->rounds : text->most_rounds;
        text->shares = text->shares || !isnan(row->roof_ratio);
    }
}

void text_end(const struct bench *bench)
{
    const struct bench_text *text = &bench->text;
    const uint32_t least = text->least_rounds, most = text->most_rounds;
    const char *shares = "";
    char rounds[96] = "";

    if (least != 0 && least == most)
        snprintf(rounds, sizeof rounds, "median and min-max: of %" PRIu32 " round%s. ", most,
                 most == 1 ? "" : "s");
    else if (least != 0)
        snprintf(rounds, sizeof rounds, "median and min-max: of %" PRIu32 " to %" PRIu32 " rounds. ", least,
                 most);
    if (least != 0)
        shares = text->shares
                     ? "of ceiling: the share that was reached of what the machine can do; bound: memory or "
                       "compute, "
                       "whichever takes longer at its ceiling. Ceilings are sampled beside each round. "
                     : "Memory: of what a copy on the device reads and writes, sampled beside each round. "
                       "The device's "
                       "arithmetic peak is not measured; of GPUs tools/gpu-bench measures it. ";
    char *legend =
        need_format("%s%s%s", rounds, shares,
                    text->narrowed ? "Columns were left out; COLUMNS=200 before the command shows all." : "");
    if (legend[0] != '\0') {
        fputc('\n', output_stream());
        output_wrap(0, 0, legend);
    }
    free(legend);
}
