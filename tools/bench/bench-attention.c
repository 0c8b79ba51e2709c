/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench decode, prefill and mixed: a plan's runs, each next to samples of the ceilings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench-cases.h"
#include "bench.h"
#include "machine.h"
#include "workload.h"

enum { DEFAULT_REPS = 30, LEAST_REPS = 3, WARM_UPS = 2 };
/* Repetitions that were not asked for end after so many seconds. */
#define CASE_SECONDS 4.0

struct run {
    struct bench *bench;
    struct attn_context *context;
    struct ceilings *ceilings; /* NULL: not a CPU */
};

/* ---------------------------------------------------------------- one case */

/* Of the plan's kernels the one that speaks of the mode, else all of them. */
static void row_set_kernel(struct row *row, const char *kernels)
{
    const char *start = strstr(kernels, row->mode);

    while (start != NULL && start > kernels && start[-1] != ',' && start[-1] != ' ')
        start--;
    if (start != NULL)
        snprintf(row->kernel, sizeof row->kernel, "%.*s", (int)strcspn(start, ", "), start);
    else
        snprintf(row->kernel, sizeof row->kernel, "%s", kernels);
}

/* Samples of one case. */
struct samples {
    uint32_t count;
    double *seconds, *read, *compute, *ratio;
};

static int32_t measure(struct run *run, struct workload *workload, const struct row *row,
                       struct samples *samples, struct attn_error *err)
{
    const struct bench_case *the_case = workload->the_case;
    uint32_t reps = the_case->reps != 0 ? the_case->reps : DEFAULT_REPS;
    double bytes = case_bytes(the_case), flops = case_flops(the_case), begin = machine_now();
    enum ceiling_level level = level_of_kernel(row->kernel);
    int32_t status = ATTN_OK;

    for (uint32_t i = 0; i < WARM_UPS && status == ATTN_OK; i++)
        status = workload_run(workload, i % workload->layers, err);
    for (uint32_t i = 0; i < reps && status == ATTN_OK; i++) {
        if (the_case->reps == 0 && i >= LEAST_REPS && machine_now() - begin > CASE_SECONDS)
            break;
        double read = NAN;
        if (run->ceilings != NULL)
            read = ceilings_read(run->ceilings, bytes);
        else
            status = workload_copy(workload, &read, err);
        if (status != ATTN_OK)
            break;
        double start = machine_now();
        status = workload_run(workload, (i + WARM_UPS) % workload->layers, err);
        double seconds = machine_now() - start;
        double compute = run->ceilings != NULL ? ceilings_compute(run->ceilings, level) : NAN;
        samples->seconds[i] = seconds;
        samples->read[i] = read;
        samples->compute[i] = compute;
        samples->ratio[i] =
            isnan(compute) ? NAN : fmax(bytes / (read * 1e9), flops / (compute * 1e12)) / seconds;
        samples->count = i + 1;
    }
    return status;
}

static void row_set_samples(struct row *row, const struct bench_case *the_case, struct samples *samples)
{
    double bytes = case_bytes(the_case), flops = case_flops(the_case);

    row_set_times(row, samples->seconds, samples->count);
    row->gbps = bytes / row->us_median * 1e-3;
    row->tflops = flops / row->us_median * 1e-6;
    row->ceiling_gbps = median(samples->read, samples->count);
    row->ceiling_tflops = median(samples->compute, samples->count);
    row->roof_ratio = median(samples->ratio, samples->count);
    if (isnan(row->roof_ratio))
        return;
    double by_bytes = bytes / row->ceiling_gbps * 1e-3, by_flops = flops / row->ceiling_tflops * 1e-6;
    row->roof_us = fmax(by_bytes, by_flops);
    row->balance = fmin(by_bytes, by_flops) / row->roof_us;
}

static int32_t measure_on(struct run *run, const struct bench_case *the_case, struct attn_backend *backend,
                          struct attn_error *err)
{
    struct samples samples = {0};
    struct workload workload;
    struct attn_plan_info info;
    struct row row;
    uint32_t reps = the_case->reps != 0 ? the_case->reps : DEFAULT_REPS;

    ATTN_INIT(&info);
    row_init(&row, the_case->name, the_case->mode);
    case_describe(the_case, row.batch, sizeof row.batch);
    row.threads = run->ceilings != NULL ? ceilings_threads(run->ceilings) : 0;
    snprintf(row.backend, sizeof row.backend, "%s", attn_backend_get_name(backend));
    samples.seconds = need_memory(NULL, reps, sizeof(double));
    samples.read = need_memory(NULL, reps, sizeof(double));
    samples.compute = need_memory(NULL, reps, sizeof(double));
    samples.ratio = need_memory(NULL, reps, sizeof(double));
    int32_t status = workload_init(&workload, the_case, backend, err);
    if (status == ATTN_OK) {
        if (attn_plan_describe(workload.plan, &info, NULL) == ATTN_OK)
            row_set_kernel(&row, info.kernels);
        attn_problem_format(&workload.problem, row.problem, sizeof row.problem, NULL, NULL);
        status = measure(run, &workload, &row, &samples, err);
    }
    if (status == ATTN_OK) {
        row_set_samples(&row, the_case, &samples);
        row.error = judge(&workload);
        bench_emit(run->bench, &row);
    }
    workload_finish(&workload);
    free(samples.seconds);
    free(samples.read);
    free(samples.compute);
    free(samples.ratio);
    return status;
}

/* Selects, opens and measures. An enum exit_code. */
static int run_case(struct run *run, const struct bench_case *the_case)
{
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_open_config config;
    struct attn_error err;

    ATTN_INIT(&config);
    ATTN_INIT(&err);
    config.threads = the_case->threads;
    int32_t status = attn_select(run->context, &the_case->problem, 1, NULL, &decision, &err);
    if (status == ATTN_OK)
        status = attn_backend_open(run->context, decision, &config, &backend, &err);
    if (status == ATTN_OK) {
        bool is_cpu = strncmp(attn_backend_get_device(backend), "cpu", 3) == 0;
        if (is_cpu && run->ceilings == NULL)
            run->ceilings = ceilings_create(bench_threads(run->context, the_case->threads));
        status = measure_on(run, the_case, backend, &err);
    }
    if (status != ATTN_OK)
        bench_complain(run->bench, the_case->name, err.message);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}

/* What the table has to leave room for. */
static void measure_texts(struct bench *bench, const struct bench_case *list, unsigned count)
{
    struct bench_text *text = &bench->text;
    char batch[256];

    text->name = text->batch = 0;
    text->listed = count > 1;
    for (unsigned i = 0; i < count; i++) {
        const unsigned name = (unsigned)strlen(name_without_mode(list[i].name, list[i].mode));
        case_describe(&list[i], batch, sizeof batch);
        text->name = name > text->name ? name : text->name;
        text->batch = strlen(batch) > text->batch ? (unsigned)strlen(batch) : text->batch;
    }
}

int attention_mode(struct bench *bench)
{
    struct run run = {.bench = bench};
    struct bench_case list[CASES_MOST];
    struct attn_error err;
    unsigned count = 0;

    ATTN_INIT(&err);
    int code = cases_make(bench, list, &count);
    if (code == EXIT_YES && attn_context_create(NULL, &run.context, &err) != ATTN_OK) {
        complain("%s", err.message);
        code = EXIT_NO;
    }
    measure_texts(bench, list, count);
    for (unsigned i = 0; code != EXIT_USAGE && run.context != NULL && i < count; i++) {
        const int one = run_case(&run, &list[i]);
        code = one != EXIT_YES ? one : code;
    }
    for (unsigned i = 0; i < count; i++)
        free(list[i].sequence);
    ceilings_destroy(run.ceilings);
    attn_context_destroy(run.context);
    return code;
}
