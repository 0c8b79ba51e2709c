/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench dispatch: what attn_plan_run costs by itself, checks of all arguments included. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "machine.h"
#include "noop-context.h"
#include "workload.h"

enum { DEFAULT_REPS = 200, CALLS = 10000 };

static int32_t measure(struct workload *workload, double *seconds, uint32_t reps, struct attn_error *err)
{
    int32_t status = workload_run(workload, 0, err); /* sets the cache handle */

    for (uint32_t i = 0; i < reps && status == ATTN_OK; i++) {
        double begin = machine_now();
        for (uint32_t j = 0; j < CALLS && status == ATTN_OK; j++)
            status = attn_plan_run(workload->plan, &workload->batch, &workload->tensors, &workload->schedule,
                                   &workload->scratch, NULL, err);
        seconds[i] = (machine_now() - begin) / CALLS;
    }
    return status;
}

static int32_t measure_on(struct bench *bench, const struct bench_case *the_case,
                          struct attn_backend *backend, struct attn_error *err)
{
    uint32_t reps = bench->keys.reps != 0 ? bench->keys.reps : DEFAULT_REPS;
    double *seconds = need_memory(NULL, reps, sizeof *seconds);
    struct workload workload;
    struct row row;

    row_init(&row, "dispatch_noop", "dispatch");
    int32_t status = workload_init(&workload, the_case, backend, err);
    if (status == ATTN_OK)
        status = measure(&workload, seconds, reps, err);
    if (status == ATTN_OK) {
        snprintf(row.backend, sizeof row.backend, "%s", attn_backend_get_name(backend));
        snprintf(row.kernel, sizeof row.kernel, "noop");
        attn_problem_format(&workload.problem, row.problem, sizeof row.problem, NULL, NULL);
        row_set_times(&row, seconds, reps);
        bench_emit(bench, &row);
    }
    workload_finish(&workload);
    free(seconds);
    return status;
}

int dispatch_mode(struct bench *bench)
{
    enum { SEQS = 8 };
    struct bench_sequence sequence[SEQS];
    struct bench_case the_case = {
        .name = "dispatch_noop", .mode = "dispatch", .seqs = SEQS, .sequence = sequence, .layers = 1};
    const char *text = "heads=32 kv_heads=8 head_dim=128 q=bf16";
    struct attn_context *context = NULL;
    struct attn_decision *decision = NULL;
    struct attn_backend *backend = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    for (unsigned i = 0; i < SEQS; i++)
        sequence[i] = (struct bench_sequence){.ctx = 256, .q_len = 1};
    char *path = noop_path();
    if (path == NULL)
        return EXIT_MISSING;
    int32_t status = attn_problem_parse(text, &the_case.problem, &err);
    if (status == ATTN_OK)
        status = noop_context_create(dirname(path), &context, &err);
    if (status == ATTN_OK)
        status = attn_select(context, &the_case.problem, 1, NULL, &decision, &err);
    if (status == ATTN_OK)
        status = attn_backend_open(context, decision, NULL, &backend, &err);
    if (status == ATTN_OK)
        status = measure_on(bench, &the_case, backend, &err);
    if (status != ATTN_OK)
        bench_complain(bench, "dispatch", err.message);
    attn_backend_destroy(backend);
    attn_decision_destroy(decision);
    attn_context_destroy(context);
    free(path);
    return status == ATTN_OK ? EXIT_YES : EXIT_NO;
}
