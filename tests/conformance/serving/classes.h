/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The layer classes that a backend may claim: a product of what decides how a layer is served. */
#ifndef SERVING_CLASSES_H
#define SERVING_CLASSES_H

#include "flows.h"

struct served {
    char name[96];            /* without '=', so that it is no problem string */
    char texts[CLASSES][160]; /* the problems, without addressing and maxima */
    struct model_def def;     /* chunked is the flow's */
    uint32_t has;             /* FLOW_* */
};

/* How many there are. */
uint32_t class_count(void);
/* Class number `n`. `seed` deals types of queries and of 8-bit caches. */
void class_init(struct served *served, uint32_t n, uint64_t seed, uint32_t flavour);

#endif
