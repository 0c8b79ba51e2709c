/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A launch under way and what a host thread needs to run its work-groups. */
#ifndef EMU_RUN_H
#define EMU_RUN_H

#include "emu-image.h"

#define WAVES_MAX 32

struct settings {
    uint32_t threads;
    uint32_t seed;
    uint64_t limit;
};

/* Buffers of one host thread, kept from launch to launch. */
struct worker {
    struct worker *next;
    struct wave *waves;  /* WAVES_MAX */
    uint32_t *registers; /* of all waves */
    size_t register_rows;
    uint8_t *scratch;
    size_t scratch_bytes;
    uint8_t *lds;
    uint32_t *shadow; /* two words per byte of LDS */
    size_t lds_bytes;
    struct group group;
};

struct running {
    const struct emu_launch *launch;
    const struct emu_kernel *kernel;
    const struct settings *settings;
    struct group model; /* what every group starts as */
    uint64_t poison;
    uint64_t groups, next; /* work-groups, and the first that nobody took */
    pthread_mutex_t lock;
    enum emu_result result;
    char *why;
    size_t why_size;
};

bool worker_prepare(struct worker *k, const struct running *r, uint32_t waves);
void worker_run(struct worker *k, const struct running *r, uint32_t waves, uint64_t *instructions);

#endif
