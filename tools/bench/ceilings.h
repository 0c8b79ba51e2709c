/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the machine can do at most, right now: read bandwidth beyond the caches, and arithmetic per level. */
#ifndef CEILINGS_H
#define CEILINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ceiling_level { LEVEL_PLAIN, LEVEL_AVX2, LEVEL_AVX512, LEVEL_AVX512BF16, LEVEL_AMX, LEVELS };

struct ceilings;

/* Takes and fills the set to be read, and finds the fastest way to read it. */
struct ceilings *ceilings_create(uint32_t threads);
void ceilings_destroy(struct ceilings *ceilings);

/*
 * One sample each: GB/s of reading a part of the set that was not read lately, about `bytes` large so that
 * it meets the same interruptions as what it is compared with; TFLOP/s of a
 * level.
 */
double ceilings_read(struct ceilings *ceilings, double bytes);
double ceilings_compute(struct ceilings *ceilings, enum ceiling_level level);

const char *ceilings_read_name(const struct ceilings *ceilings);
uint64_t ceilings_set_bytes(const struct ceilings *ceilings);
uint32_t ceilings_threads(const struct ceilings *ceilings);

/* The level that a kernel's name speaks of. */
enum ceiling_level level_of_kernel(const char *kernel);
const char *level_name(enum ceiling_level level);
/* Whether this process may use it. */
bool level_is_there(enum ceiling_level level);

/* ---------------------------------------------------------------- one implementation per level */

enum { READ_LINE = 512 };

/*
 * read: reads `size` bytes (a multiple of READ_LINE) of each of `streams` runs, `apart` bytes from one to the
 * next, asking for what lies `ahead` bytes further (0: leave that to the hardware), and returns a value that
 * depends on all of them.
 * compute: `rounds` rounds of `flops` floating-point operations each.
 */
struct ceiling_functions {
    uint64_t (*read)(const unsigned char *from, size_t size, unsigned streams, size_t apart, size_t ahead);
    float (*compute)(uint64_t rounds);
    uint32_t flops; /* of a round */
};
extern const struct ceiling_functions ceiling_plain;
#if defined(__x86_64__)
extern const struct ceiling_functions ceiling_avx2;
extern const struct ceiling_functions ceiling_avx512;
extern const struct ceiling_functions ceiling_avx512bf16; /* read is NULL, as of the next */
extern const struct ceiling_functions ceiling_amx;
#endif

#endif
