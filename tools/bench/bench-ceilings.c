/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-bench ceilings: read bandwidth, and the arithmetic peak of every level that this CPU has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "machine.h"

enum { DEFAULT_REPS = 20 };
#define SAMPLE_BYTES 32e6

int ceilings_mode(struct bench *bench)
{
    uint32_t reps = bench->keys.reps != 0 ? bench->keys.reps : DEFAULT_REPS;
    struct ceilings *ceilings = ceilings_create(bench->keys.threads);
    double *samples = need_memory(NULL, reps, sizeof *samples);
    struct row row;

    for (uint32_t i = 0; i < reps; i++)
        samples[i] = ceilings_read(ceilings, SAMPLE_BYTES);
    row_init(&row, "read_bandwidth", "ceilings");
    row.ceiling_gbps = median(samples, reps);
    snprintf(row.kernel, sizeof row.kernel, "%s", ceilings_read_name(ceilings));
    bench_emit(bench, &row);
    for (enum ceiling_level level = LEVEL_PLAIN; level < LEVELS; level++) {
        if (!level_is_there(level))
            continue;
        char *name = need_format("arithmetic_%s", level_name(level));
        for (uint32_t i = 0; i < reps; i++)
            samples[i] = ceilings_compute(ceilings, level);
        row_init(&row, name, "ceilings");
        row.ceiling_tflops = median(samples, reps);
        snprintf(row.kernel, sizeof row.kernel, "%s", level_name(level));
        bench_emit(bench, &row);
        free(name);
    }
    if (bench->json == NULL)
        fprintf(output_stream(),
                "%u threads; a set of %" PRIu64 " MiB is read, the last-level cache has %" PRIu64 " MiB\n",
                ceilings_threads(ceilings), ceilings_set_bytes(ceilings) >> 20, machine_cache() >> 20);
    free(samples);
    ceilings_destroy(ceilings);
    return EXIT_YES;
}
