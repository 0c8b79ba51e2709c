/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of attn-replay share: a record, the memory that it is laid out in, and what came of it. */
#ifndef REPLAY_H
#define REPLAY_H

#include "common-options.h"
#include "record/record.h"
#include "step.h"

/* ---------------------------------------------------------------- record.c */

struct record {
    const char *path;
    void *data;
    struct attn__call call;
    struct attn_problem problem;
    bool failed; /* the call did, and there is no result */
    bool seeded; /* it has hashes of tensors alone, which their contents are made of */
};

/* False, with a message, if the file is no record. */
bool record_load(struct record *record, const char *path);
void record_finish(struct record *record);
/* Packed contents of a part: those of the record, or numbers that depend on their hash alone. For free(). */
unsigned char *record_contents(const struct record *record, uint32_t kind);

/* ---------------------------------------------------------------- layout.c, run.c: a record on a backend */

/* An array as it lay in the program's memory, on the host and on the device. */
struct image {
    struct attn__part part; /* counts and strides; absent = there is none */
    struct guarded host;    /* data and size alone; outputs hold the pattern before the run */
    uint64_t first;         /* bytes before the first vector */
    void *allocation;
    struct attn_buffer block; /* on the device */
    uint64_t lead;            /* bytes of the block before those of `host` */
};

struct rerun {
    const struct record *record;
    struct attn_backend *backend;
    void *stream;
    struct image images[ATTN__PARTS];
    /* What the backend gets, and the same in host memory, for the oracle. */
    struct view {
        struct attn_batch batch;
        struct attn_tensors tensors;
        struct attn_kv_desc desc;
    } device, host;
    struct attn_batch_host copies;
    struct attn_plan *plan;
    struct attn_plan_info info;
    uint32_t numerics; /* enum attn_numerics of the roughest kernel */
    int32_t status;    /* of the run */
    struct attn_error err;
};

/* Lays the record out in the memory of host and device. */
int32_t layout_make(struct rerun *rerun, struct attn_error *err);
void layout_free(struct rerun *rerun);
/* Copies an image to the device or back. */
int32_t image_copy(struct rerun *rerun, uint32_t kind, uint32_t direction, struct attn_error *err);
/* One vector of an image in host memory. */
unsigned char *image_at(const struct image *image, uint64_t i, uint64_t j, uint64_t k);
/* Packed contents into an image. */
void image_fill(const struct image *image, const unsigned char *packed);

/*
 * Plans, runs and waits; outputs are then in host memory. rerun->status is what the run returned; other
 * failures, as a refused problem, are returned.
 */
int32_t rerun_make(struct rerun *rerun, const struct record *record, struct attn_backend *backend,
                   struct attn_error *err);
void rerun_finish(struct rerun *rerun);

/* ---------------------------------------------------------------- compare.c */

/* What the oracle says of one result. */
struct judgement {
    bool judged;
    bool right;
    char why[384];
};

struct comparison {
    bool compared;      /* there are two results */
    uint64_t numbers;   /* of out and lse */
    uint64_t differing; /* in their bits */
    double largest;     /* difference; infinite where one is no number */
    const char *array;  /* where that is */
    uint32_t row, head, column;
    struct judgement recorded, replayed;
};

void compare(struct rerun *rerun, struct comparison *out);

/* ---------------------------------------------------------------- print.c */

void print_text(const struct rerun *rerun, const struct comparison *comparison);
bool print_json(const struct rerun *rerun, const struct comparison *comparison);

#endif
