/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The calls of a graph: copies arguments and what they point to, and makes the calls again at a launch. */
#include "graph.h"

/* Copies `size` bytes. NULL for 0 bytes, and without memory, in which case the graph has failed. */
static void *keep(struct attn_graph_impl *graph, const void *from, uint64_t size)
{
    void *kept = from != NULL ? cpu_graph_take(graph, size) : NULL;

    return kept != NULL ? memcpy(kept, from, size) : NULL;
}

/* Copies a host scale, because the caller may change it after the call. The strides tell how many values it
 * has. */
static void keep_scale(struct attn_graph_impl *graph, struct attn_scale *scale, uint64_t outers,
                       uint64_t heads)
{
    uint64_t count;

    if (scale->kind != ATTN_SCALE_HOST || scale->granularity == ATTN_SCALES_TOKEN_HEAD)
        return;
    outers = scale->outer_stride != 0 ? outers : 1;
    heads = scale->head_stride != 0 ? heads : 1;
    if (__builtin_mul_overflow(outers, heads, &count) || count > INT64_MAX / sizeof(float))
        count = INT64_MAX / sizeof(float);
    float *values = cpu_graph_take(graph, count * sizeof(float));
    if (values == NULL)
        return;
    const char *from = attn__address(&scale->buffer);
    for (uint64_t outer = 0; outer < outers; outer++) {
        for (uint64_t head = 0; head < heads; head++)
            memcpy(&values[outer * heads + head],
                   from + (int64_t)outer * scale->outer_stride + (int64_t)head * scale->head_stride,
                   sizeof(float));
    }
    scale->buffer = (struct attn_buffer){values, 0};
    scale->outer_stride = outers > 1 ? (int64_t)(heads * sizeof(float)) : 0;
    scale->head_stride = heads > 1 ? (int64_t)sizeof(float) : 0;
}

/* Copies descriptions of caches, as handles. */
static struct attn_kv_ref *keep_caches(struct attn_graph_impl *graph, const struct attn_kv_ref *caches,
                                       uint32_t count)
{
    struct attn_kv_ref *refs = keep(graph, caches, count * sizeof *refs);

    for (uint32_t i = 0; refs != NULL && i < count; i++) {
        const struct attn_kv_desc *desc = caches[i].kv != NULL ? &caches[i].kv->desc : caches[i].desc;
        struct attn_kv_impl *kv = cpu_graph_take(graph, sizeof *kv);
        if (kv == NULL)
            return NULL;
        kv->desc = *desc;
        keep_scale(graph, &kv->desc.k_scale, desc->pages, desc->kv_heads);
        keep_scale(graph, &kv->desc.v_scale, desc->pages, desc->kv_heads);
        refs[i] = (struct attn_kv_ref){kv, NULL};
    }
    return refs;
}

/* Refuses host scales per token, which would change from step to step. */
static int32_t check_scales(const struct attn_tensors *tensors, struct attn_error *err)
{
    const struct {
        const struct attn_scale *scale;
        const char *name;
    } scales[] = {{&tensors->q_scale, "tensors.q_scale"},
                  {&tensors->k_new_scale, "tensors.k_new_scale"},
                  {&tensors->v_new_scale, "tensors.v_new_scale"},
                  {&tensors->out_scale, "tensors.out_scale"}};

    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        if (scales[i].scale->kind == ATTN_SCALE_HOST &&
            (scales[i].scale->granularity == ATTN_SCALES_TOKEN_HEAD || scales[i].scale->token_stride != 0))
            return attn__fail(err, ATTN_E_UNSUPPORTED, ATTN_REASON_SCALES, scales[i].name,
                              "a graph keeps no host scales of single tokens; kind ATTN_SCALE_DEVICE is read "
                              "at every launch");
    }
    return ATTN_OK;
}

/* The tensors of a run: a cache comes as a handle, host scales are copied. */
static void keep_tensors(struct attn_graph_impl *graph, const struct cpu_call *call,
                         struct attn_tensors *tensors)
{
    const struct attn_problem *p = &call->plan->problem;
    const uint64_t seqs = call->batch->seqs;

    tensors->kv = NULL;
    tensors->kv_desc = NULL;
    keep_scale(graph, &tensors->q_scale, seqs, p->q_scale == ATTN_SCALES_KV_HEAD ? p->kv_heads : p->heads);
    keep_scale(graph, &tensors->k_new_scale, seqs, p->kv_heads);
    keep_scale(graph, &tensors->v_new_scale, seqs, p->kv_heads);
    keep_scale(graph, &tensors->out_scale, seqs, p->heads);
}

int32_t cpu_record(struct attn_graph_impl *graph, const struct cpu_call *call, struct attn_error *err)
{
    int32_t status = call->entry == CPU_CALL_RUN ? check_scales(call->args, err) : ATTN_OK;

    if (status != ATTN_OK)
        return status;
    struct cpu_call *kept = keep(graph, call, sizeof *call);
    if (kept != NULL) {
        void *args = keep(graph, call->args, call->args_size);
        kept->args = args;
        kept->batch = keep(graph, call->batch, sizeof *call->batch);
        kept->caches = keep_caches(graph, call->caches, call->cache_count);
        kept->list = keep(graph, call->list, call->list_size);
        if (args != NULL && call->entry == CPU_CALL_RUN)
            keep_tensors(graph, call, &((struct cpu_run_args *)args)->tensors);
    }
    if (graph->status != ATTN_OK)
        return attn__fail(err, ATTN_E_MEMORY, 0, "graph", "no memory to keep a call");
    if (kept->plan != NULL) /* the graph counts as a user of the plan */
        atomic_fetch_add_explicit(&((struct attn_plan_impl *)(uintptr_t)kept->plan)->refs, 1,
                                  memory_order_relaxed);
    kept->next = NULL;
    *graph->end = kept;
    graph->end = &kept->next;
    return ATTN_OK;
}

/* Calls the host function that the program has put into the graph. */
static int32_t call_host(struct attn_backend_impl *backend, const struct cpu_host_args *host, void *stream,
                         struct attn_error *err)
{
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status != ATTN_OK)
        return status;
    if (cpu_is_first(&executor))
        host->fn(host->arg);
    cpu_join(&executor);
    return ATTN_OK;
}

static int32_t call_plan(const struct cpu_call *call, void *stream, struct attn_error *err)
{
    if (call->entry == CPU_CALL_PREPARE)
        return cpu_prepare(call->plan, call->batch, call->args, NULL, stream, err);
    const struct cpu_run_args *run = call->args;
    return cpu_run_layer(call->plan, call->batch, &run->tensors,
                         call->caches != NULL ? call->caches->kv : NULL, NULL, &run->schedule, &run->scratch,
                         stream, err);
}

/* Calls whose arguments point to a batch or an array: points them at the graph's copies. */
static int32_t call_with_arrays(struct attn_backend_impl *backend, const struct cpu_call *call, void *stream,
                                struct attn_error *err)
{
    union {
        struct attn_kv_write_args write;
        struct attn_kv_slot_mapping_args slot_mapping;
        struct attn_kv_swap_blocks_args swap_blocks;
        struct attn_kv_gather_args gather;
        struct attn_merge_args merge;
        struct attn_rescale_args rescale;
    } args;

    memcpy(&args, call->args, call->args_size);
    switch (call->entry) {
    case CPU_CALL_WRITE:
        args.write.batch = call->batch;
        return cpu_kv_write(backend, &args.write, call->caches->kv, NULL, stream, err);
    case CPU_CALL_SLOT_MAPPING:
        args.slot_mapping.batch = call->batch;
        return cpu_kv_slot_mapping(backend, &args.slot_mapping, stream, err);
    case CPU_CALL_SWAP_BLOCKS:
        args.swap_blocks.pairs = call->list;
        return cpu_kv_swap_blocks(backend, &args.swap_blocks, &call->caches[0], &call->caches[1], stream,
                                  err);
    case CPU_CALL_GATHER:
        args.gather.batch = call->batch;
        return cpu_kv_gather(backend, &args.gather, call->caches, stream, err);
    case CPU_CALL_MERGE:
        args.merge.parts = call->list;
        return cpu_merge(backend, &args.merge, stream, err);
    default: /* CPU_CALL_RESCALE */
        args.rescale.all = call->list;
        return cpu_rescale(backend, &args.rescale, stream, err);
    }
}

int32_t cpu_call_again(struct attn_backend_impl *backend, const struct cpu_call *call, void *stream,
                       struct attn_error *err)
{
    const struct cpu_copy_args *copy = call->args;

    switch (call->entry) {
    case CPU_CALL_PREPARE:
    case CPU_CALL_RUN:
        return call_plan(call, stream, err);
    case CPU_CALL_COPY_SLOTS:
        return cpu_kv_copy_slots(backend, call->args, &call->caches[0], &call->caches[1], stream, err);
    case CPU_CALL_COPY_BLOCKS:
        return cpu_kv_copy_blocks(backend, call->args, call->caches, stream, err);
    case CPU_CALL_CONVERT:
        return cpu_kv_convert(backend, call->args, &call->caches[0], &call->caches[1], stream, err);
    case CPU_CALL_ADVANCE_STEP:
        return cpu_kv_advance_step(backend, call->args, stream, err);
    case CPU_CALL_COPY:
        return cpu_memory_table.copy(backend, &copy->to, &copy->from, copy->size, copy->kind, stream, err);
    case CPU_CALL_HOST:
        return call_host(backend, call->args, stream, err);
    default:
        return call_with_arrays(backend, call, stream, err);
    }
}
