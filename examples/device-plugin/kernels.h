/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the host side of the plugin launches, and with which arguments. Nothing here points to host memory. */
#ifndef KERNELS_H
#define KERNELS_H

#include <attn/plugin-util.h>

/* A schedule: one item for each query token. */
struct item {
    int32_t seq, row;
    int64_t end; /* it sees keys [0, end) */
};

struct copy_work {
    struct attn_buffer to, from;
    uint64_t size;
};

struct schedule_work {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_buffer schedule;
};

struct write_work {
    struct attn_kv_write_args args;
    struct attn_batch batch;
    struct attn_kv_desc cache;
};

struct run_work {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc cache;
    struct attn_buffer schedule;
    struct attn_buffer counters;
    uint32_t counters_dirty;
};

/* The items of a step, on the host or on the device. */
void make_schedule(const struct attn_problem *problem, uint32_t seqs, const int32_t *q_offsets,
                   const int32_t *kv_lens, struct item *items);

void kernel_copy(void *work);
void kernel_schedule(void *work);
void kernel_write(void *work);
void kernel_run(void *work);

#endif
