/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench decode and prefill: a plan's runs, each next to samples of the ceilings. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "machine.h"
#include "workload.h"

enum { DEFAULT_REPS = 30, LEAST_REPS = 3, WARM_UPS = 2 };
/* Repetitions that were not asked for end after so many seconds. */
#define CASE_SECONDS 4.0

/* What runs without keys; the same table stands in attn-bench(1). */
static const struct default_case {
    const char *mode;
    const char *name;
    const char *problem;
    uint32_t seqs, ctx, q_len;
} default_cases[] = {
    {"decode", "decode_f16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f16", 8, 2048, 1},
    {"decode", "decode_f16_gqa4_d128_8192", "heads=32 kv_heads=8 head_dim=128 q=f16", 4, 8192, 1},
    {"decode", "decode_f32_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f32", 8, 2048, 1},
    {"decode", "decode_bf16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=bf16", 8, 2048, 1},
    {"decode", "decode_f16_gqa4_d64_2048", "heads=32 kv_heads=8 head_dim=64 q=f16", 8, 2048, 1},
    {"prefill", "prefill_f16_gqa4_d128_512", "heads=32 kv_heads=8 head_dim=128 q=f16", 1, 512, 512},
    {"prefill", "prefill_f16_gqa4_d128_2048", "heads=32 kv_heads=8 head_dim=128 q=f16", 1, 2048, 2048},
    {"prefill", "prefill_f32_gqa4_d128_512", "heads=32 kv_heads=8 head_dim=128 q=f32", 1, 512, 512},
    {"prefill", "prefill_bf16_gqa4_d128_512", "heads=32 kv_heads=8 head_dim=128 q=bf16", 1, 512, 512},
};

struct run {
    struct bench *bench;
    struct attn_context *context;
    struct ceilings *ceilings; /* NULL: not a CPU */
};

/* ---------------------------------------------------------------- which problems can be measured */

/* Keys that would need data which this program does not make, and the values that do not. */
static bool case_is_measurable(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    const struct {
        bool good;
        const char *key, *accepted;
    } rules[] = {
        {problem->mask == ATTN_MASK_NONE, "mask", "none"},
        {problem->alibi != ATTN_ALIBI_MASK, "alibi", "none, key and distance"},
        {problem->kv_source == ATTN_KV_CACHE, "kv_source", "cache"},
        {problem->layout == ATTN_STRIDED, "layout", "strided"},
        {problem->k_dtype == problem->v_dtype, "v", "the type of k"},
        {problem->q_scale <= ATTN_SCALES_UNIT, "q_scale", "none and unit"},
        {problem->k_scale <= ATTN_SCALES_UNIT, "k_scale", "none and unit"},
        {problem->v_scale <= ATTN_SCALES_UNIT, "v_scale", "none and unit"},
        {problem->out_scale <= ATTN_SCALES_UNIT, "out_scale", "none and unit"},
        {problem->positions == 0, "positions", "0"},
        {problem->seq_causal == 0, "seq_causal", "0"},
        {problem->mla == 0, "mla", "0"},
        {problem->cp == 0, "cp", "0"},
        {(problem->max_seqs | problem->max_q | problem->max_kv | problem->max_rows) == 0, "max_...",
         "0; say seqs, q_len and ctx instead"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].good)
            continue;
        complain("mode %s does not measure this value of key %s; accepted: %s", the_case->mode, rules[i].key,
                 rules[i].accepted);
        return false;
    }
    return true;
}

static bool sizes_are_sane(const struct bench_case *the_case)
{
    const struct attn_problem *problem = &the_case->problem;
    uint64_t keys = (uint64_t)the_case->seqs * (the_case->ctx + (uint64_t)problem->block);
    uint64_t rows = (uint64_t)the_case->seqs * the_case->q_len;

    if (the_case->q_len > the_case->ctx) {
        complain("q_len=%u is more than ctx=%u; ctx counts the keys of this step too", the_case->q_len,
                 the_case->ctx);
        return false;
    }
    if (keys > INT32_MAX || rows * problem->heads > INT32_MAX) {
        complain("%" PRIu64 " keys and %" PRIu64 " rows of %u heads are too many; lower seqs, ctx or q_len",
                 keys, rows, problem->heads);
        return false;
    }
    return true;
}

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
        double read = run->ceilings != NULL ? ceilings_read(run->ceilings, bytes) : NAN;
        double start = machine_now();
        status = workload_run(workload, (i + WARM_UPS) % workload->layers, err);
        double seconds = machine_now() - start;
        double compute = run->ceilings != NULL ? ceilings_compute(run->ceilings, level) : NAN;
        samples->seconds[i] = seconds;
        samples->read[i] = read;
        samples->compute[i] = compute;
        samples->ratio[i] = fmax(bytes / (read * 1e9), flops / (compute * 1e12)) / seconds;
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

/* Threads of the ceilings: those of the backend, as given or by ATTN_THREADS; 0 = one per CPU. */
static uint32_t ceiling_threads(const struct run *run, const struct bench_case *the_case)
{
    const struct attn_variable_record *variable;

    if (the_case->threads != 0)
        return the_case->threads;
    for (uint32_t i = 0; (variable = attn_context_get_variable(run->context, i)) != NULL; i++) {
        if (strcmp(variable->name, "ATTN_THREADS") == 0)
            return (uint32_t)strtoul(variable->value, NULL, 10);
    }
    return 0;
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
            run->ceilings = ceilings_create(ceiling_threads(run, the_case));
        status = measure_on(run, the_case, backend, &err);
    }
    if (status != ATTN_OK)
        complain("%s: %s", the_case->name, err.message);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}

/* ---------------------------------------------------------------- cases */

static int run_given(struct run *run)
{
    const struct bench_keys *keys = &run->bench->keys;
    bool prefill = strcmp(run->bench->mode, "prefill") == 0;
    struct bench_case the_case = {
        .mode = run->bench->mode, .layers = keys->layers, .threads = keys->threads, .reps = keys->reps};
    struct attn_error err;

    ATTN_INIT(&err);
    const char *text = keys->problem[0] != '\0' ? keys->problem : default_cases[0].problem;
    if (attn_problem_parse(text, &the_case.problem, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_USAGE;
    }
    the_case.seqs = keys->seqs != 0 ? keys->seqs : prefill ? 1 : 8;
    the_case.q_len = keys->q_len != 0 ? keys->q_len : !prefill ? 1 : keys->ctx != 0 ? keys->ctx : 512;
    the_case.ctx = keys->ctx != 0 ? keys->ctx : prefill ? the_case.q_len : 2048;
    /* A page of a dense cache is a sequence. */
    if (the_case.problem.addressing == ATTN_DENSE)
        the_case.problem.block = the_case.ctx;
    if (!case_is_measurable(&the_case) || !sizes_are_sane(&the_case))
        return EXIT_USAGE;
    the_case.name = the_case.mode;
    return run_case(run, &the_case);
}

static int run_defaults(struct run *run)
{
    const struct bench_keys *keys = &run->bench->keys;
    int code = EXIT_YES;

    for (size_t i = 0; i < sizeof default_cases / sizeof *default_cases; i++) {
        const struct default_case *row = &default_cases[i];
        struct bench_case the_case = {.name = row->name,
                                      .mode = row->mode,
                                      .seqs = row->seqs,
                                      .ctx = row->ctx,
                                      .q_len = row->q_len,
                                      .threads = keys->threads,
                                      .reps = keys->reps};
        struct attn_error err;
        ATTN_INIT(&err);
        if (strcmp(row->mode, run->bench->mode) != 0)
            continue;
        if (attn_problem_parse(row->problem, &the_case.problem, &err) != ATTN_OK) {
            complain("%s: %s", row->name, err.message);
            return EXIT_NO;
        }
        if (run_case(run, &the_case) != EXIT_YES)
            code = EXIT_NO;
    }
    return code;
}

int attention_mode(struct bench *bench)
{
    const struct bench_keys *keys = &bench->keys;
    struct run run = {.bench = bench};
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_create(NULL, &run.context, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    bool given = keys->problem[0] != '\0' || (keys->seqs | keys->ctx | keys->q_len | keys->layers) != 0;
    int code = given ? run_given(&run) : run_defaults(&run);
    ceilings_destroy(run.ceilings);
    attn_context_destroy(run.context);
    return code;
}
