/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Threads that use the same objects at once, each with outputs and blocks of its own. */
#ifndef CROWD_H
#define CROWD_H

#include <stdatomic.h>

#include "fixture.h"

/* One thread. */
struct member {
    const struct target *target;
    const struct fixture *fixture;
    struct attn_backend *backend;
    const struct attn_plan *plan;
    struct attn_kv *kv; /* or NULL: the bare description */
    enum executor executor;
    uint32_t rounds;
    char directory[4096];
    _Atomic bool *go; /* all begin at once */
    /* Its own. */
    struct attn_tensors tensors;
    struct attn_kv_write_args write;
    struct attn_kv_desc write_kv;
    unsigned char *out, *lse, *cache;
    struct attn_span schedule, staging;
    struct attn_scratch scratch;
    void *stream;  /* of the backend, or NULL */
    char why[512]; /* empty: right */
};

/* Outputs, blocks and a cache to write into. False with a text in `why`. */
bool member_init(struct member *member);
void member_finish(struct member *member);
/* Prepares and runs once, and compares; then writes once, and compares. */
bool member_step(struct member *member);

#endif
