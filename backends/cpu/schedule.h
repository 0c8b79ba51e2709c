/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The schedule, which prepare writes and run reads. It has no pointers, so that it may be copied. */
#ifndef ATTN_CPU_SCHEDULE_H
#define ATTN_CPU_SCHEDULE_H

#include "cpu.h"
#include "work-item.h"

#define CPU_SCHEDULE_MAGIC UINT32_C(0x41434b53)

/* The start of a schedule; the work items follow. */
struct cpu_schedule {
    uint32_t magic;
    uint32_t seqs;
    uint32_t num_tokens;
    uint32_t items;
    uint32_t counters;
    uint32_t max_kv;  /* keys of the longest sequence */
    int64_t last_key; /* highest page, or with kv_offsets highest token, that a run reads; -1: none */
    uint32_t problem; /* hash of the problem that it was made for */
    uint32_t lengths; /* hash of the lengths of its sequences */
    uint32_t reserved[6];
};

/* A hash of how many query tokens and keys each sequence of a batch has. */
uint32_t cpu_lengths_hash(const struct attn_batch *batch);

static inline struct attn_work_item *cpu_schedule_items(struct cpu_schedule *schedule)
{
    return (struct attn_work_item *)(void *)(schedule + 1);
}

#endif
