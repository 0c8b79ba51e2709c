/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Samples of bandwidth and arithmetic by a team of threads, over a set that no cache holds. */
#define _GNU_SOURCE
#include "ceilings.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine.h"
#include "output.h"
#include "team.h"

/* A sample reads so much (all threads together), and computes for about 2 ms at 100 GFLOP/s per thread, or by
 * tiles at 20 times as many. Threads take pieces of it one after the other, as those of a backend take its
 * work: with equal parts for all, a thread that shares its core would hold up the sample where it does not
 * hold up a kernel. */
#define LEAST_BYTES  (UINT64_C(8) << 20)
#define MOST_BYTES   (UINT64_C(128) << 20)
#define SAMPLE_FLOPS UINT64_C(200000000)
#define TILE_FLOPS   (20 * SAMPLE_FLOPS)
#define PIECES       16u /* of a sample, for each thread */
#define MOST_STREAMS 4u
#define HUGE_PAGE    (UINT64_C(2) << 20)
#define FIND_SAMPLES 5u
#define FIND_BYTES   32e6

static const struct way {
    enum ceiling_level level;
    unsigned streams;
    unsigned ahead; /* bytes */
    const char *name;
} ways[] = {
    {LEVEL_PLAIN, 1, 0, "plain, 1 stream"},    {LEVEL_PLAIN, 4, 1024, "plain, 4 streams, 1 KiB ahead"},
    {LEVEL_AVX2, 1, 0, "avx2, 1 stream"},      {LEVEL_AVX2, 1, 2048, "avx2, 1 stream, 2 KiB ahead"},
    {LEVEL_AVX2, 4, 0, "avx2, 4 streams"},     {LEVEL_AVX2, 4, 1024, "avx2, 4 streams, 1 KiB ahead"},
    {LEVEL_AVX512, 1, 0, "avx512, 1 stream"},  {LEVEL_AVX512, 2, 0, "avx512, 2 streams"},
    {LEVEL_AVX512, 4, 0, "avx512, 4 streams"}, {LEVEL_AVX512, 4, 1024, "avx512, 4 streams, 1 KiB ahead"},
};

struct ceilings {
    struct team *team;
    uint32_t threads;
    unsigned char *set;
    uint64_t bytes;
    uint64_t cursor; /* where the next sample begins */
    uint64_t most;   /* bytes of the largest sample */
    uint64_t piece;  /* bytes of a piece of the sample that runs */
    const struct way *way;
    const struct ceiling_functions *functions; /* of the sample that runs */
    uint64_t rounds;                           /* of a piece */
    _Atomic uint64_t taken;                    /* pieces of the sample that runs */
    _Atomic uint64_t sink;                     /* keeps results alive */
};

static const struct ceiling_functions *functions_of(enum ceiling_level level)
{
#if defined(__x86_64__)
    if (level == LEVEL_AMX)
        return &ceiling_amx;
    if (level == LEVEL_AVX512BF16)
        return &ceiling_avx512bf16;
    if (level == LEVEL_AVX512)
        return &ceiling_avx512;
    if (level == LEVEL_AVX2)
        return &ceiling_avx2;
#endif
    (void)level;
    return &ceiling_plain;
}

#if defined(__x86_64__)
/* Tiles and their products of bf16; Linux gives a process the room for tiles when it asks. */
static bool amx_is_there(void)
{
    const unsigned bf16_and_tile = 1u << 22 | 1u << 24;
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA */
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bf16_and_tile) == bf16_and_tile &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

bool level_is_there(enum ceiling_level level)
{
#if defined(__x86_64__)
    if (level == LEVEL_AMX)
        return amx_is_there();
    if (level == LEVEL_AVX512BF16)
        return __builtin_cpu_supports("avx512bf16") != 0;
    if (level == LEVEL_AVX512)
        return __builtin_cpu_supports("avx512f") != 0;
    if (level == LEVEL_AVX2)
        return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
#endif
    return level == LEVEL_PLAIN;
}

const char *level_name(enum ceiling_level level)
{
    static const char *const names[LEVELS] = {"plain", "avx2", "avx512", "avx512bf16", "amx"};

    return names[level];
}

enum ceiling_level level_of_kernel(const char *kernel)
{
    enum ceiling_level level = strstr(kernel, "amx") != NULL          ? LEVEL_AMX
                               : strstr(kernel, "avx512bf16") != NULL ? LEVEL_AVX512BF16
                               : strstr(kernel, "avx512") != NULL     ? LEVEL_AVX512
                               : strstr(kernel, "avx2") != NULL       ? LEVEL_AVX2
                                                                      : LEVEL_PLAIN;

    return level_is_there(level) ? level : LEVEL_PLAIN;
}

/* ---------------------------------------------------------------- what the team does */

static void touch_task(void *arg, uint32_t index, uint32_t count)
{
    struct ceilings *ceilings = arg;
    uint64_t part = ceilings->bytes / count;

    memset(ceilings->set + part * index, 1, part);
}

static void read_task(void *arg, uint32_t index, uint32_t count)
{
    struct ceilings *ceilings = arg;
    const unsigned streams = ceilings->way->streams;
    const uint64_t run = ceilings->piece / streams, pieces = (uint64_t)count * PIECES;
    const unsigned char *from = ceilings->set + ceilings->cursor;

    (void)index;
    for (uint64_t piece; (piece = atomic_fetch_add(&ceilings->taken, 1)) < pieces;)
        ceilings->sink |= ceilings->functions->read(from + piece * ceilings->piece, run, streams, run,
                                                    ceilings->way->ahead);
}

static void compute_task(void *arg, uint32_t index, uint32_t count)
{
    struct ceilings *ceilings = arg;

    (void)index;
    while (atomic_fetch_add(&ceilings->taken, 1) < (uint64_t)count * PIECES)
        ceilings->sink |= ceilings->functions->compute(ceilings->rounds) > 1.0f;
}

/* ---------------------------------------------------------------- samples */

double ceilings_read(struct ceilings *ceilings, double bytes)
{
    const double wanted = fmin(fmax(bytes, (double)LEAST_BYTES), (double)ceilings->most);
    const uint64_t pieces = (uint64_t)ceilings->threads * PIECES, unit = READ_LINE * ceilings->way->streams;

    ceilings->piece = (uint64_t)wanted / pieces / unit * unit;
    if (ceilings->piece == 0) /* of hundreds of threads, for which the set has room */
        ceilings->piece = unit;
    const uint64_t sample = ceilings->piece * pieces;
    if (ceilings->cursor + sample > ceilings->bytes)
        ceilings->cursor = 0;
    ceilings->functions = functions_of(ceilings->way->level);
    ceilings->taken = 0;
    double seconds = team_run(ceilings->team, read_task, ceilings);
    ceilings->cursor += (sample + 4095) / 4096 * 4096;
    return (double)sample / seconds * 1e-9;
}

double ceilings_compute(struct ceilings *ceilings, enum ceiling_level level)
{
    ceilings->functions = functions_of(level);
    ceilings->rounds = (level == LEVEL_AMX ? TILE_FLOPS : SAMPLE_FLOPS) / ceilings->functions->flops / PIECES;
    ceilings->taken = 0;
    double seconds = team_run(ceilings->team, compute_task, ceilings);
    double flops = (double)ceilings->rounds * ceilings->functions->flops * ceilings->threads * PIECES;
    return flops / seconds * 1e-12;
}

/* The way with the fastest sample: what else the machine does can only make a sample slower. */
static void find_way(struct ceilings *ceilings)
{
    const struct way *best = &ways[0];
    double most = 0;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!level_is_there(ways[i].level))
            continue;
        ceilings->way = &ways[i];
        for (unsigned j = 0; j < FIND_SAMPLES; j++) {
            double sample = ceilings_read(ceilings, FIND_BYTES);
            if (sample > most) {
                most = sample;
                best = &ways[i];
            }
        }
    }
    ceilings->way = best;
}

struct ceilings *ceilings_create(uint32_t threads)
{
    struct ceilings *ceilings = need_memory(NULL, 1, sizeof *ceilings);

    *ceilings = (struct ceilings){.threads = threads};
    const uint64_t least = (uint64_t)threads * PIECES * MOST_STREAMS * READ_LINE;
    const uint64_t wanted = machine_cold_set() > least ? machine_cold_set() : least;
    ceilings->bytes = (wanted + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    ceilings->most = ceilings->bytes < MOST_BYTES ? ceilings->bytes : MOST_BYTES;
    ceilings->set = aligned_alloc(HUGE_PAGE, ceilings->bytes);
    if (ceilings->set == NULL) {
        complain("no memory for the set of %llu MiB that the read bandwidth is measured over",
                 (unsigned long long)(ceilings->bytes >> 20));
        exit(EXIT_NO);
    }
    madvise(ceilings->set, ceilings->bytes, MADV_HUGEPAGE);
    ceilings->team = team_create(ceilings->threads);
    team_run(ceilings->team, touch_task, ceilings);
    find_way(ceilings);
    return ceilings;
}

void ceilings_destroy(struct ceilings *ceilings)
{
    if (ceilings == NULL)
        return;
    team_destroy(ceilings->team);
    free(ceilings->set);
    free(ceilings);
}

const char *ceilings_read_name(const struct ceilings *ceilings)
{
    return ceilings->way->name;
}

uint64_t ceilings_set_bytes(const struct ceilings *ceilings)
{
    return ceilings->bytes;
}

uint32_t ceilings_threads(const struct ceilings *ceilings)
{
    return ceilings->threads;
}
