/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What one of many threads does: a step of its own with shared inputs, plan and cache. */
#define _GNU_SOURCE
#include "crowd.h"

#include <stdio.h>
#include <stdlib.h>

#include "attn/device.h"
#include "need.h"

static struct attn_span take_span(uint64_t size, uint32_t alignment)
{
    struct attn_span span = {{NULL, 0}, size};

    if (size > 0 && posix_memalign(&span.buffer.data, alignment > 64 ? alignment : 64, size) != 0)
        span.buffer.data = NULL;
    if (size > 0)
        memset(need(span.buffer.data), 0, size);
    return span;
}

/* The same view in memory of one's own. */
static void redirect(struct attn_tensor *tensor, const struct guarded *from, unsigned char *to)
{
    ptrdiff_t at = tensor_at(tensor, 0, 0) - from->data;

    tensor->buffer = (struct attn_buffer){to, (uint64_t)at};
}

bool member_init(struct member *member)
{
    const struct step *step = &member->fixture->step;
    struct attn_plan_sizes sizes;
    struct attn_error err;

    ATTN_INIT(&sizes);
    ATTN_INIT(&err);
    if (attn_plan_get_sizes(member->plan, &sizes, &err) != ATTN_OK) {
        snprintf(member->why, sizeof member->why, "sizes: %s", err.message);
        return false;
    }
    member->schedule = take_span(sizes.schedule, sizes.alignment);
    member->staging = take_span(sizes.staging, sizes.alignment);
    ATTN_INIT(&member->scratch);
    member->scratch.scratch = take_span(sizes.scratch, sizes.alignment);
    member->scratch.counters = take_span(sizes.counters, sizes.alignment);
    member->tensors = step->tensors;
    member->tensors.kv = member->kv;
    member->tensors.kv_desc = member->kv == NULL ? &step->kv : NULL;
    member->out = need(aligned_alloc(64, (step->out_memory->size + 127) / 64 * 64));
    redirect(&member->tensors.out, step->out_memory, member->out);
    if (step->lse_memory != NULL) {
        member->lse = need(aligned_alloc(64, (step->lse_memory->size + 127) / 64 * 64));
        redirect(&member->tensors.lse, step->lse_memory, member->lse);
    }
    member->cache = need(aligned_alloc(64, (member->fixture->write_memory->size + 127) / 64 * 64));
    member->write_kv = member->fixture->write_kv;
    member->write_kv.k.data = member->write_kv.v.data = member->cache;
    member->write = member->fixture->write;
    member->write.kv_desc = &member->write_kv;
    return true;
}

void member_finish(struct member *member)
{
    free(member->schedule.buffer.data);
    free(member->staging.buffer.data);
    free(member->scratch.scratch.buffer.data);
    free(member->scratch.counters.buffer.data);
    free(member->out);
    free(member->lse);
    free(member->cache);
}

static int32_t call_prepare(void *arg, void *stream, struct attn_error *err)
{
    struct member *member = arg;

    return attn_plan_prepare(member->plan, &member->fixture->step.batch, &member->schedule, &member->staging,
                             member->stream != NULL ? member->stream : stream, err);
}

static int32_t call_run(void *arg, void *stream, struct attn_error *err)
{
    struct member *member = arg;

    return attn_plan_run(member->plan, &member->fixture->step.batch, &member->tensors, &member->schedule,
                         &member->scratch, member->stream != NULL ? member->stream : stream, err);
}

static int32_t call_write(void *arg, void *stream, struct attn_error *err)
{
    struct member *member = arg;

    return attn_kv_write(member->backend, &member->write, member->stream != NULL ? member->stream : stream,
                         err);
}

/* The pattern that the fixture's outputs hold between runs. */
static void clear(const struct member *member)
{
    const struct step *step = &member->fixture->step;

    memcpy(member->out, step->out_memory->data, step->out_memory->size);
    if (member->lse != NULL)
        memcpy(member->lse, step->lse_memory->data, step->lse_memory->size);
    memset(member->cache, 0xff, member->fixture->write_memory->size);
}

static bool is_right(const struct member *member)
{
    const struct fixture *fixture = member->fixture;

    return !fixture->deterministic ||
           (memcmp(member->out, fixture->expected_out, fixture->step.out_memory->size) == 0 &&
            (member->lse == NULL ||
             memcmp(member->lse, fixture->expected_lse, fixture->step.lse_memory->size) == 0));
}

bool member_step(struct member *member)
{
    struct attn_error err;
    int32_t status;

    ATTN_INIT(&err);
    clear(member);
    status = executor_call(member->executor, call_prepare, member, &err);
    if (status == ATTN_OK)
        status = executor_call(member->executor, call_run, member, &err);
    if (status == ATTN_OK)
        status = executor_call(member->executor, call_write, member, &err);
    if (status == ATTN_OK && member->stream != NULL)
        status = attn_stream_synchronize(member->backend, member->stream, &err);
    if (status != ATTN_OK)
        snprintf(member->why, sizeof member->why, "%s: %s", executor_name(member->executor), err.message);
    else if (!is_right(member))
        snprintf(member->why, sizeof member->why, "%s: out or lse have other bits than alone",
                 executor_name(member->executor));
    else if (memcmp(member->cache, member->fixture->write_memory->data,
                    member->fixture->write_memory->size) != 0)
        snprintf(member->why, sizeof member->why, "%s: the written cache has other bits than alone",
                 executor_name(member->executor));
    else
        return true;
    return false;
}
