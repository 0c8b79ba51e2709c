/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One case of tools/gpu-bench: a problem on a batch, built by the same workload as attn-bench's. */
#include <math.h>
#include <stdlib.h>

#include "bridge-inner.h"

/* ---------------------------------------------------------------- making one */

static int32_t sequences_init(struct bench_case *measured, const uint32_t *lengths, uint32_t seqs)
{
    if (seqs == 0 || seqs > 1 << 20)
        return gpu_bench_refuse("seqs", "the batch has no sequence or too many; accepted are 1 to 1048576");
    measured->sequence = calloc(seqs, sizeof *measured->sequence);
    if (measured->sequence == NULL)
        return gpu_bench_refuse("seqs", "out of memory");
    measured->seqs = seqs;
    for (uint32_t i = 0; i < seqs; i++) {
        measured->sequence[i].q_len = lengths[2 * i];
        measured->sequence[i].ctx = lengths[2 * i + 1];
        if (lengths[2 * i] == 0 || lengths[2 * i] > lengths[2 * i + 1] || lengths[2 * i + 1] > INT32_MAX / 2)
            return gpu_bench_refuse(
                "lengths", "a sequence has no query token, more of them than keys, or too many keys");
    }
    return ATTN_OK;
}

/* Pages that all sequences begin with lie in a paged cache, and all have them. */
static int32_t check_prefix(const struct bench_case *measured)
{
    if (measured->prefix > 0 && measured->problem.addressing == ATTN_DENSE)
        return gpu_bench_refuse("prefix", "sequences of a dense cache share nothing; accepted is 0");
    for (uint32_t i = 0; i < measured->seqs; i++)
        if (measured->prefix > measured->sequence[i].ctx)
            return gpu_bench_refuse("prefix", "a sequence has fewer keys; accepted are as many as all have");
    return ATTN_OK;
}

struct gpu_case *gpu_case_create(struct gpu_bench *bench, const char *problem, const uint32_t *lengths,
                                 uint32_t seqs, uint32_t sets, uint32_t ordered, uint32_t prefix)
{
    struct gpu_case *the_case = calloc(1, sizeof *the_case);
    struct attn_error *err = gpu_bench_err();
    struct case_sizes sizes;
    int32_t status;

    if (the_case == NULL) {
        gpu_bench_refuse("", "out of memory");
        return NULL;
    }
    the_case->bench = bench;
    the_case->measured.name = "case";
    the_case->measured.mode = "decode"; /* flops and bytes of keys do not depend on it */
    the_case->measured.layers = sets;
    the_case->measured.ordered = ordered != 0;
    the_case->measured.prefix = prefix;
    status = sets != 0 ? attn_problem_parse(problem, &the_case->measured.problem, err)
                       : gpu_bench_refuse("sets", "no set of buffers; accepted is 1 at least");
    if (status == ATTN_OK)
        status = sequences_init(&the_case->measured, lengths, seqs);
    if (status == ATTN_OK)
        status = check_prefix(&the_case->measured);
    if (status == ATTN_OK)
        case_measure(&the_case->measured, &sizes);
    /* A page of a dense cache is a sequence. */
    if (status == ATTN_OK && the_case->measured.problem.addressing == ATTN_DENSE)
        the_case->measured.problem.block = sizes.max_kv;
    if (status == ATTN_OK)
        status = workload_init(&the_case->workload, &the_case->measured, bench->backend, err);
    ATTN_INIT(&the_case->info);
    if (status == ATTN_OK)
        status = attn_plan_describe(the_case->workload.plan, &the_case->info, err);
    if (status == ATTN_OK)
        status = attn_problem_format(&the_case->workload.problem, the_case->problem, sizeof the_case->problem,
                                     NULL, err);
    if (status == ATTN_OK)
        status = attn_stream_synchronize(bench->backend, the_case->workload.stream, err);
    if (status != ATTN_OK) {
        gpu_case_destroy(the_case);
        return NULL;
    }
    return the_case;
}

void gpu_case_destroy(struct gpu_case *the_case)
{
    if (the_case == NULL)
        return;
    if (the_case->workload.the_case != NULL) {
        gpu_case_kv_finish(the_case);
        workload_finish(&the_case->workload);
    }
    free(the_case->measured.sequence);
    free(the_case);
}

/* ---------------------------------------------------------------- using it */

int32_t gpu_case_run(struct gpu_case *the_case, uint32_t set, void *stream)
{
    struct workload *workload = &the_case->workload;
    struct attn_error *err = gpu_bench_err();

    if (set >= workload->layers)
        return gpu_bench_refuse("set", "there is no such set of buffers");
    workload->tensors.kv = workload->kv[set];
    int32_t status = attn_plan_run(workload->plan, &workload->batch, &workload->tensors, &workload->schedule,
                                   &workload->scratch, stream, err);
    workload->scratch.counters_dirty = 0;
    return status;
}

int32_t gpu_case_prepare(struct gpu_case *the_case, uint32_t host, void *stream)
{
    struct workload *workload = &the_case->workload;
    struct attn_batch batch = workload->batch;

    if (host == 0) {
        batch.given &= ~ATTN_GIVEN_HOST_COPIES;
        batch.host = NULL;
    }
    return attn_plan_prepare(workload->plan, &batch, &workload->schedule,
                             workload->staging.size != 0 ? &workload->staging : NULL, stream,
                             gpu_bench_err());
}

double gpu_case_judge(struct gpu_case *the_case)
{
    return judge(&the_case->workload);
}

double gpu_case_flops(const struct gpu_case *the_case)
{
    return case_flops(&the_case->measured);
}

double gpu_case_key_bytes(const struct gpu_case *the_case)
{
    return case_key_bytes(&the_case->measured);
}

/* ---------------------------------------------------------------- asking it */

const char *gpu_case_text(struct gpu_case *the_case, const char *name)
{
    if (strcmp(name, "problem") == 0)
        return the_case->problem;
    return strcmp(name, "kernels") == 0 ? the_case->info.kernels : NULL;
}

static int64_t address(const struct attn_buffer *buffer)
{
    return (int64_t)((uintptr_t)buffer->data + buffer->byte_offset);
}

/* Addresses of the keys or values of a set. */
static int64_t cache_address(const struct workload *workload, uint32_t set, uint64_t offset)
{
    return set < workload->layers ? address(&workload->cache[set]) + (int64_t)offset : -1;
}

int64_t gpu_case_number(struct gpu_case *the_case, const char *name, uint32_t set)
{
    const struct workload *w = &the_case->workload;
    const struct attn_kv_desc *desc = &w->desc;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"heads", w->problem.heads},
        {"kv_heads", w->problem.kv_heads},
        {"head_dim", w->problem.head_dim},
        {"head_dim_vo", w->problem.head_dim_vo},
        {"block", desc->block},
        {"rows", w->batch.num_tokens},
        {"seqs", w->batch.seqs},
        {"pages", desc->pages},
        {"table_width", w->batch.table_width},
        {"q_bytes", attn_dtype_size(w->problem.q_dtype)},
        {"out_bytes", attn_dtype_size(w->problem.out_dtype)},
        {"k_bytes", attn_dtype_size(w->problem.k_dtype)},
        {"v_bytes", attn_dtype_size(w->problem.v_dtype)},
        {"cache_bytes", (int64_t)w->shape.bytes},
        {"k_page_stride", desc->k_page_stride},
        {"k_token_stride", desc->k_token_stride},
        {"k_head_stride", desc->k_head_stride},
        {"v_page_stride", desc->v_page_stride},
        {"v_token_stride", desc->v_token_stride},
        {"v_head_stride", desc->v_head_stride},
        {"q", address(&w->tensors.q.buffer)},
        {"out", address(&w->tensors.out.buffer)},
        {"table", address(&w->batch.table)},
        {"k", cache_address(w, set, w->shape.k_offset)},
        {"v", cache_address(w, set, w->shape.v_offset)},
        {"cache", cache_address(w, set, 0)},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return numbers[i].value;
    gpu_bench_refuse("name", "the case has no number of this name");
    return -1;
}
