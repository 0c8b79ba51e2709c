/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The kinds of layers that go through the flows. */
#ifndef LAYER_KINDS_H
#define LAYER_KINDS_H

#include "flows.h"

struct kind {
    const char *name;
    uint32_t has;
    struct class_def classes[CLASSES];
    uint32_t windows[GROUPS];
};

extern const struct kind kinds[];
extern const uint32_t kind_count;

#endif
