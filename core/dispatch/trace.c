/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes the lines of ATTN_LOG=trace: call,backend,device,problem,kernels,sizes,time. */
#include "dispatch/trace.h"

#include <stdio.h>
#include <time.h>

#include "attn/attn.h"

uint64_t attn__trace_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + 1;
}

/* Fields are split at commas, so a comma inside one becomes a plus. */
static void join(char *text)
{
    for (; *text != '\0'; text++)
        if (*text == ',')
            *text = '+';
}

static void write_trace(const struct attn_backend *backend, uint64_t began, int32_t status, const char *call,
                        char *problem, char *kernels, const char *sizes)
{
    /* Not as a floating-point number: a locale may write a comma in it. */
    const unsigned long long us = (attn__trace_now() - began) / 1000;
    /* A call on another device than the CPU only puts work into a queue. */
    const bool queued = backend->entry->table.device_class != ATTN_CLASS_CPU;
    join(problem);
    join(kernels);
    attn__log_line(&backend->context->log, ATTN_LOG_TRACE, "call", "%s,%s,%s,%s,%s,%s,%s%s%s%llu.%03llu ms",
                   call, backend->entry->table.name, backend->device_name, problem, kernels, sizes,
                   status != ATTN_OK ? "failed with " : "", status != ATTN_OK ? attn_status_name(status) : "",
                   status != ATTN_OK ? " after "
                   : queued          ? "enqueued in "
                                     : "",
                   us / 1000, us % 1000);
}

void attn__trace_plan_line(const struct attn_plan *plan, uint64_t began, int32_t status, const char *call,
                           const struct attn_batch *batch)
{
    char problem[768], kernels[sizeof plan->answer.kernels], sizes[96];
    attn_problem_format(&plan->problem, problem, sizeof problem, NULL, NULL);
    memcpy(kernels, plan->answer.kernels, sizeof kernels);
    kernels[sizeof kernels - 1] = '\0';
    snprintf(sizes, sizeof sizes, "seqs=%u tokens=%u max_q=%u max_kv=%u%s", batch->seqs, batch->num_tokens,
             batch->max_q, batch->max_kv, batch->cascade != 0 ? " cascade=1" : "");
    write_trace(plan->backend, began, status, call, problem, kernels, sizes);
}

void attn__trace_line(const struct attn_backend *backend, uint64_t began, int32_t status, const char *call,
                      const struct attn_kv_desc *desc, const char *format, ...)
{
    char problem[128] = "", kernels[1] = "", sizes[96];
    va_list args;
    if (desc != NULL) {
        const char *k = attn_dtype_name(desc->k_dtype);
        const char *v = attn_dtype_name(desc->v_dtype != 0 ? desc->v_dtype : desc->k_dtype);
        snprintf(problem, sizeof problem, "kv_heads=%u head_dim=%u/%u k=%s v=%s block=%u", desc->kv_heads,
                 desc->head_dim, desc->head_dim_vo != 0 ? desc->head_dim_vo : desc->head_dim,
                 k != NULL ? k : "?", v != NULL ? v : "?", desc->block);
    }
    va_start(args, format);
    vsnprintf(sizes, sizeof sizes, format, args);
    va_end(args);
    write_trace(backend, began, status, call, problem, kernels, sizes);
}
