/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the plugin serves: its own predicates for the capability engine. */
#include <stdio.h>

#include "cpu.h"

struct attn_planner cpu_planner(const struct attn_problem *problem, uint32_t units)
{
    return (struct attn_planner){.problem = problem,
                                 .decode_rows = CPU_DECODE_ROWS,
                                 .prefill_rows = CPU_PREFILL_ROWS / 2,
                                 .units = units};
}

static void check_counts(const struct attn_problem *problem, struct attn_reason *why)
{
    struct attn_planner planner = cpu_planner(problem, 1);
    struct attn_planner_bounds bounds;

    if (problem->max_seqs == 0 || problem->max_q == 0 || problem->max_kv == 0 || problem->max_rows == 0)
        return;
    if (!attn__planner_get_bounds(&planner, &bounds))
        attn__caps_refuse(why, ATTN_REASON_MAX_ROWS, "max_rows", "with max_seqs and heads",
                          "a schedule of less than 2^32 works");
}

static void check_flags(const void *row, uint32_t flags, struct attn_reason *why)
{
    const uint32_t needed = cpu_level_flags(((const struct cpu_kernel *)row)->level);
    char got[32], wanted[32];

    if ((flags & needed) == needed)
        return;
    cpu_flags_text(flags, got, sizeof got);
    if (flags == 0)
        snprintf(got, sizeof got, "none");
    cpu_flags_text(needed, wanted, sizeof wanted);
    attn__caps_refuse(why, ATTN_REASON_CPU_FLAGS, "cpu_flags", got, wanted);
}

static void check_row(const void *row, uint32_t flags, const struct attn_problem *problem,
                      struct attn_reason *why)
{
    const struct cpu_kernel *kernel = row;

    (void)flags;
    if (kernel->no_lse && problem->lse != 0)
        attn__caps_refuse(why, ATTN_REASON_LSE, "lse", "1", "0");
    if (!kernel->in_place)
        return;
    if (problem->head_dim < CPU_PLACE_DIMS || problem->head_dim_vo < CPU_PLACE_DIMS)
        attn__caps_refuse(why, ATTN_REASON_HEAD_DIM, "head_dim", "less than 16", "16 or more");
    if (problem->layout == ATTN_PAGED_X && problem->kv_source != ATTN_KV_NEW)
        attn__caps_refuse(why, ATTN_REASON_LAYOUT, "layout", "paged-x", "another one");
}

static struct attn__caps_table get_table(void)
{
    return (struct attn__caps_table){.rows = cpu_kernels,
                                     .row_size = sizeof cpu_kernels[0],
                                     .row_count = cpu_kernel_count,
                                     .decode_rows = CPU_DECODE_ROWS,
                                     .separator = " ",
                                     .check_limit = check_counts,
                                     .check_device = check_flags,
                                     .check_resources = check_row};
}

const struct cpu_kernel *cpu_dispatch(const struct attn_instance *instance,
                                      const struct attn_problem *problem, uint32_t phase)
{
    const struct attn__caps_table table = get_table();

    return attn__caps_find(&table, problem, instance->flags, phase);
}

int32_t cpu_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *problem, uint32_t cost_rank, struct attn_query *out)
{
    const struct attn__caps_table table = get_table();
    struct attn_reason why = {0};

    attn__caps_begin(out, cost_rank); /* a graph is a list of calls, and any call can be recorded */
    if (device != NULL && (device->type != ATTN_DEVICE_CPU || device->ordinal != 0)) {
        attn__caps_refuse(&why, ATTN_REASON_DEVICE, "device", "another one", "cpu:0");
        attn__caps_add(out, &why);
    }
    attn__caps_answer(&table, problem, instance->flags, out);
    return ATTN_OK;
}
