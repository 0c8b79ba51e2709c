/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The code objects inside of the plugin: one for each module and architecture of the build. */
#ifndef ATTN_HIP_IMAGES_H
#define ATTN_HIP_IMAGES_H

#include "host.h"

struct hip_target {
    uint32_t arch; /* gfx90a: 0x90a */
    const unsigned char *images[GPU_MODULES + 1];
};

/* Written by the script `embed`: all targets, the last with an architecture of 0; and their names in text. */
extern const struct hip_target hip_targets[];
extern const char hip_targets_text[];

/*
 * The target of an architecture, or NULL. An object is for one architecture with any setting of its features
 * (sramecc, xnack), so what follows the first colon of a device's name decides nothing.
 */
const struct hip_target *hip_target_find(uint32_t arch);

#endif
