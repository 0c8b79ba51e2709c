/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Calls on caches in a graph: descriptions, batches and host arrays are copied. */
#include "graph.h"

/* ---------------------------------------------------------------- write, slot_mapping */

struct write_call {
    struct attn_kv_write_args args;
    const struct attn_kv_impl *kv;
};

static int32_t write_again(struct attn_backend_impl *backend, const void *args, void *stream,
                           struct attn_error *err)
{
    const struct write_call *call = args;

    return cpu_kv_write(backend, &call->args, call->kv, NULL, stream, err);
}

int32_t cpu_record_write(struct attn_graph_impl *graph, const struct attn_kv_write_args *args,
                         const struct attn_kv_desc *desc, struct attn_error *err)
{
    struct write_call *call = cpu_graph_take(graph, sizeof *call);

    if (call != NULL) {
        *call = (struct write_call){*args, cpu_keep_kv(graph, desc)};
        if (args->batch != NULL)
            call->args.batch = cpu_keep_batch(graph, args->batch);
        if (call->kv == NULL || (args->batch != NULL && call->args.batch == NULL))
            call = NULL;
    }
    return cpu_graph_add(graph, write_again, call, NULL, err);
}

static int32_t slot_mapping_again(struct attn_backend_impl *backend, const void *args, void *stream,
                                  struct attn_error *err)
{
    return cpu_kv_slot_mapping(backend, args, stream, err);
}

int32_t cpu_record_slot_mapping(struct attn_graph_impl *graph, const struct attn_kv_slot_mapping_args *args,
                                struct attn_error *err)
{
    struct attn_kv_slot_mapping_args *call = cpu_graph_take(graph, sizeof *call);

    if (call != NULL) {
        *call = *args;
        call->batch = cpu_keep_batch(graph, args->batch);
        call = call->batch != NULL ? call : NULL;
    }
    return cpu_graph_add(graph, slot_mapping_again, call, NULL, err);
}

/* ---------------------------------------------------------------- between two caches */

/* The arguments of one of the three, and its caches. */
struct pair_call {
    union {
        struct attn_kv_copy_slots_args copy_slots;
        struct attn_kv_swap_blocks_args swap_blocks;
        struct attn_kv_convert_args convert;
    } args;
    struct attn_kv_ref from;
    struct attn_kv_ref to;
};

static struct pair_call *take_pair(struct attn_graph_impl *graph, const struct attn_kv_desc *from,
                                   const struct attn_kv_desc *to)
{
    struct pair_call *call = cpu_graph_take(graph, sizeof *call);

    if (call == NULL)
        return NULL;
    call->from = (struct attn_kv_ref){cpu_keep_kv(graph, from), NULL};
    call->to = (struct attn_kv_ref){cpu_keep_kv(graph, to), NULL};
    return call->from.kv != NULL && call->to.kv != NULL ? call : NULL;
}

static int32_t copy_slots_again(struct attn_backend_impl *backend, const void *args, void *stream,
                                struct attn_error *err)
{
    const struct pair_call *call = args;

    return cpu_kv_copy_slots(backend, &call->args.copy_slots, &call->from, &call->to, stream, err);
}

int32_t cpu_record_copy_slots(struct attn_graph_impl *graph, const struct attn_kv_copy_slots_args *args,
                              const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                              struct attn_error *err)
{
    struct pair_call *call = take_pair(graph, from, to);

    if (call != NULL)
        call->args.copy_slots = *args;
    return cpu_graph_add(graph, copy_slots_again, call, NULL, err);
}

static int32_t swap_blocks_again(struct attn_backend_impl *backend, const void *args, void *stream,
                                 struct attn_error *err)
{
    const struct pair_call *call = args;

    return cpu_kv_swap_blocks(backend, &call->args.swap_blocks, &call->from, &call->to, stream, err);
}

int32_t cpu_record_swap_blocks(struct attn_graph_impl *graph, const struct attn_kv_swap_blocks_args *args,
                               const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                               struct attn_error *err)
{
    struct pair_call *call = take_pair(graph, from, to);
    uint64_t bytes = (uint64_t)args->count * 2 * sizeof(int64_t);
    int64_t *pairs = call != NULL ? cpu_graph_take(graph, bytes) : NULL;

    if (pairs != NULL) {
        memcpy(pairs, args->pairs, bytes);
        call->args.swap_blocks = *args;
        call->args.swap_blocks.pairs = pairs;
    }
    return cpu_graph_add(graph, swap_blocks_again, pairs != NULL ? call : NULL, NULL, err);
}

static int32_t convert_again(struct attn_backend_impl *backend, const void *args, void *stream,
                             struct attn_error *err)
{
    const struct pair_call *call = args;

    return cpu_kv_convert(backend, &call->args.convert, &call->from, &call->to, stream, err);
}

int32_t cpu_record_convert(struct attn_graph_impl *graph, const struct attn_kv_convert_args *args,
                           const struct attn_kv_desc *from, const struct attn_kv_desc *to,
                           struct attn_error *err)
{
    struct pair_call *call = take_pair(graph, from, to);

    if (call != NULL)
        call->args.convert = *args;
    return cpu_graph_add(graph, convert_again, call, NULL, err);
}

/* ---------------------------------------------------------------- copy_blocks, gather, advance_step */

struct blocks_call {
    struct attn_kv_copy_blocks_args args;
    struct attn_kv_ref *caches;
};

static int32_t copy_blocks_again(struct attn_backend_impl *backend, const void *args, void *stream,
                                 struct attn_error *err)
{
    const struct blocks_call *call = args;

    return cpu_kv_copy_blocks(backend, &call->args, call->caches, stream, err);
}

int32_t cpu_record_copy_blocks(struct attn_graph_impl *graph, const struct attn_kv_copy_blocks_args *args,
                               const struct attn_kv_ref *caches, struct attn_error *err)
{
    struct blocks_call *call = cpu_graph_take(graph, sizeof *call);
    struct attn_kv_ref *refs = call != NULL ? cpu_graph_take(graph, args->layers * sizeof *refs) : NULL;

    for (uint32_t i = 0; refs != NULL && i < args->layers; i++) {
        refs[i] = (struct attn_kv_ref){
            cpu_keep_kv(graph, caches[i].kv != NULL ? &caches[i].kv->desc : caches[i].desc), NULL};
        refs = refs[i].kv != NULL ? refs : NULL;
    }
    if (refs != NULL)
        *call = (struct blocks_call){*args, refs};
    return cpu_graph_add(graph, copy_blocks_again, refs != NULL ? call : NULL, NULL, err);
}

struct gather_call {
    struct attn_kv_gather_args args;
    struct attn_kv_ref cache;
};

static int32_t gather_again(struct attn_backend_impl *backend, const void *args, void *stream,
                            struct attn_error *err)
{
    const struct gather_call *call = args;

    return cpu_kv_gather(backend, &call->args, &call->cache, stream, err);
}

int32_t cpu_record_gather(struct attn_graph_impl *graph, const struct attn_kv_gather_args *args,
                          const struct attn_kv_desc *desc, struct attn_error *err)
{
    struct gather_call *call = cpu_graph_take(graph, sizeof *call);

    if (call != NULL) {
        *call = (struct gather_call){*args, {cpu_keep_kv(graph, desc), NULL}};
        call->args.batch = cpu_keep_batch(graph, args->batch);
        call = call->cache.kv != NULL && call->args.batch != NULL ? call : NULL;
    }
    return cpu_graph_add(graph, gather_again, call, NULL, err);
}

static int32_t advance_step_again(struct attn_backend_impl *backend, const void *args, void *stream,
                                  struct attn_error *err)
{
    return cpu_kv_advance_step(backend, args, stream, err);
}

int32_t cpu_record_advance_step(struct attn_graph_impl *graph, const struct attn_kv_advance_step_args *args,
                                struct attn_error *err)
{
    struct attn_kv_advance_step_args *call = cpu_graph_take(graph, sizeof *call);

    if (call != NULL)
        *call = *args;
    return cpu_graph_add(graph, advance_step_again, call, NULL, err);
}
