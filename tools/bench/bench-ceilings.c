/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench ceilings: read bandwidth, and the arithmetic peak of every level that this CPU has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "machine.h"

enum { DEFAULT_REPS = 20 };
#define SAMPLE_BYTES 32e6

uint32_t bench_threads(struct attn_context *context, uint32_t given)
{
    const struct attn_variable_record *variable;
    const struct attn_backend_record *backend;
    struct attn_report *report;
    struct attn_error err;
    uint32_t threads = given;

    ATTN_INIT(&err);
    for (uint32_t i = 0; threads == 0 && (variable = attn_context_get_variable(context, i)) != NULL; i++)
        if (strcmp(variable->name, "ATTN_THREADS") == 0)
            threads = (uint32_t)strtoul(variable->value, NULL, 10);
    if (threads != 0 || attn_context_get_report(context, &report, &err) != ATTN_OK)
        return threads != 0 ? threads : machine_cpus();
    for (uint32_t i = 0; threads == 0 && (backend = attn_report_get_backend(report, i)) != NULL; i++)
        if (backend->has_device != 0 && backend->device_class == ATTN_CLASS_CPU)
            threads = backend->units;
    attn_report_destroy(report);
    return threads != 0 ? threads : machine_cpus();
}

/* The row of a ceiling: the middle, least and most of its samples. */
static void emit(struct bench *bench, const char *name, const char *how, double *samples, uint32_t count,
                 bool reads)
{
    struct row row;

    row_init(&row, name, "ceilings");
    const double middle = median(samples, count);
    if (reads)
        row.ceiling_gbps = middle;
    else
        row.ceiling_tflops = middle;
    row.ceiling_min = samples[0];
    row.ceiling_max = samples[count - 1];
    row.rounds = count;
    snprintf(row.kernel, sizeof row.kernel, "%s", how);
    bench_emit(bench, &row);
}

int ceilings_mode(struct bench *bench)
{
    uint32_t reps = bench->keys.reps != 0 ? bench->keys.reps : DEFAULT_REPS;
    struct attn_context *context;
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_create(NULL, &context, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    attn_context_load_all(context, NULL); /* without the CPU plugin its number of cores is not known */
    struct ceilings *ceilings = ceilings_create(bench_threads(context, bench->keys.threads));
    attn_context_destroy(context);
    double *samples = need_memory(NULL, reps, sizeof *samples);

    bench->text.name = sizeof "arithmetic_avx512" - 1;
    for (uint32_t i = 0; i < reps; i++)
        samples[i] = ceilings_read(ceilings, SAMPLE_BYTES);
    emit(bench, "read_bandwidth", ceilings_read_name(ceilings), samples, reps, true);
    for (enum ceiling_level level = LEVEL_PLAIN; level < LEVELS; level++) {
        if (!level_is_there(level))
            continue;
        char *name = need_format("arithmetic_%s", level_name(level));
        for (uint32_t i = 0; i < reps; i++)
            samples[i] = ceilings_compute(ceilings, level);
        emit(bench, name, level_name(level), samples, reps, false);
        free(name);
    }
    if (bench->json == NULL) {
        char *how = need_format("%u threads; each sample reads a part of %" PRIu64
                                " MiB, the last-level cache has %" PRIu64 " MiB",
                                ceilings_threads(ceilings), ceilings_set_bytes(ceilings) >> 20,
                                machine_cache() >> 20);
        output_wrap(0, 0, how);
        free(how);
    }
    free(samples);
    ceilings_destroy(ceilings);
    return EXIT_YES;
}
