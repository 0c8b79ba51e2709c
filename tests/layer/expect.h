/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Refusals, counted: their status, field and words. */
#ifndef LAYER_EXPECT_H
#define LAYER_EXPECT_H

#include "model.h"

#define HEADS "heads=4 kv_heads=2 head_dim=32 "

/* A layer's description with all that it points to. */
struct create {
    struct attn_problem problem;
    struct attn_layer_class layer_class;
    struct attn_layer_desc desc;
};

/* Opens a backend of the CPU; false if there is none of that name. */
bool fixture_open(const char *name, struct attn_context **out_context, struct attn_backend **out);
/* One answer: of this status and field, and with these words. */
void expect(int32_t status, const struct attn_error *err, int32_t wanted, const char *field,
            const char *words, const char *what);
/* The plan, and the exit status. */
int expect_end(void);
/* A description that is right, if the problem is. */
void create_init(struct create *create, const char *problem);

#endif
