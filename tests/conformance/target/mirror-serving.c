/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Wrapped calls of builders, states and layers. */
#include "attn/layer.h"
#include "mirror-call.h"

/* Of the builder, state or layer that was made last: the checker has one model at a time. */
static struct attn_backend *serving;
static uint32_t groups;

WRAP(int32_t, attn_builder_create, struct attn_backend *backend, const struct attn_builder_params *params,
     struct attn_builder **out, struct attn_error *err)
{
    serving = backend;
    groups = params->groups;
    return __real_attn_builder_create(backend, params, out, err);
}

WRAP(int32_t, attn_builder_set_device, struct attn_builder *builder,
     const struct attn_builder_device_args *args, struct attn_error *err)
{
    enum { MOST = 8 };
    struct attn_builder_device_args copy;
    struct attn_batch batches[MOST];
    const struct attn_batch *pointers[MOST];
    struct call call;

    if (!call_begin(&call, serving, NULL, err))
        return __real_attn_builder_set_device(builder, args, err);
    copy = *args;
    copy.batches = pointers;
    for (uint32_t g = 0; g < groups && g < MOST; g++) {
        batches[g] = *args->batches[g];
        pointers[g] = &batches[g];
        call_batch(&call, &batches[g]);
    }
    call_buffer(&call, &copy.positions);
    return call_end(&call, call_ready(&call) ? __real_attn_builder_set_device(builder, &copy, err) : ATTN_OK);
}

WRAP(int32_t, attn_builder_build, struct attn_builder *builder, const struct attn_builder_build_args *args,
     void *stream, struct attn_metadata **out, struct attn_error *err)
{
    struct call call;

    if (!call_begin(&call, serving, stream, err))
        return __real_attn_builder_build(builder, args, stream, out, err);
    return call_end(&call, call_ready(&call) ? __real_attn_builder_build(builder, args, call.stream, out, err)
                                             : ATTN_OK);
}

WRAP(int32_t, attn_metadata_advance_step, struct attn_metadata *metadata,
     const struct attn_advance_args *args, void *stream, struct attn_error *err)
{
    struct attn_advance_args copy;
    struct call call;

    if (!call_begin(&call, serving, stream, err))
        return __real_attn_metadata_advance_step(metadata, args, stream, err);
    copy = *args;
    call_buffer(&call, &copy.accepted_device);
    call_buffer(&call, &copy.sampled);
    call_buffer(&call, &copy.tokens);
    call_buffer(&call, &copy.positions);
    return call_end(&call, call_ready(&call)
                               ? __real_attn_metadata_advance_step(metadata, &copy, call.stream, err)
                               : ATTN_OK);
}

WRAP(int32_t, attn_state_create, struct attn_backend *backend, const struct attn_layer_class *classes,
     uint32_t count, const struct attn_state_params *params, struct attn_state **out, struct attn_error *err)
{
    serving = backend;
    return __real_attn_state_create(backend, classes, count, params, out, err);
}

/* These take nothing but a stream, and read what twins hold. */
#define WRAP_STREAM(name, types, args)                                                                       \
    int32_t __real_##name types;                                                                             \
    int32_t __wrap_##name types;                                                                             \
    int32_t __wrap_##name types                                                                              \
    {                                                                                                        \
        struct call call;                                                                                    \
        if (!call_begin(&call, serving, stream, err))                                                        \
            return __real_##name args;                                                                       \
        stream = call.stream;                                                                                \
        return call_end(&call, call_ready(&call) ? __real_##name args : ATTN_OK);                            \
    }

WRAP_STREAM(attn_state_begin_capture,
            (struct attn_state * state, uint32_t max_batch, void *stream, struct attn_error *err),
            (state, max_batch, stream, err))
WRAP_STREAM(attn_state_get_capture_metadata,
            (struct attn_state * state, const struct attn_state_capture_args *args, void *stream,
             struct attn_metadata **out, struct attn_error *err),
            (state, args, stream, out, err))
WRAP_STREAM(attn_state_prepare,
            (struct attn_state * state, const struct attn_metadata *metadata, void *stream,
             struct attn_error *err),
            (state, metadata, stream, err))
WRAP_STREAM(attn_state_begin_forward,
            (struct attn_state * state, const struct attn_metadata *metadata, void *stream,
             struct attn_error *err),
            (state, metadata, stream, err))

WRAP(int32_t, attn_layer_create, struct attn_backend *backend, const struct attn_layer_desc *desc,
     struct attn_layer **out, struct attn_error *err)
{
    struct attn_layer_desc copy;
    struct call call;

    serving = backend;
    if (!call_begin(&call, backend, NULL, err))
        return __real_attn_layer_create(backend, desc, out, err);
    copy = *desc;
    call_buffer(&call, &copy.alibi_slopes);
    call_buffer(&call, &copy.sinks);
    mirror_unlock();
    return call.status == ATTN_OK ? __real_attn_layer_create(backend, &copy, out, err) : call.status;
}

WRAP(int32_t, attn_layer_forward, const struct attn_layer *layer, struct attn_state *state,
     const struct attn_metadata *metadata, struct attn_kv *kv, const struct attn_layer_tensors *tensors,
     void *stream, struct attn_error *err)
{
    struct attn_layer_tensors t;
    struct call call;

    if (!call_begin(&call, serving, stream, err))
        return __real_attn_layer_forward(layer, state, metadata, kv, tensors, stream, err);
    t = *tensors;
    struct attn_buffer *const all[] = {&t.q.buffer,     &t.q_rope.buffer, &t.k_new.buffer,
                                       &t.v_new.buffer, &t.k_rope.buffer, &t.out.buffer,
                                       &t.lse.buffer,   &t.mask,          &t.mask_starts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        call_buffer(&call, all[i]);
    struct attn_scale *const scales[] = {&t.q_scale, &t.k_new_scale, &t.v_new_scale, &t.out_scale};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        call_scale(&call, scales[i]);
    return call_end(&call, call_ready(&call)
                               ? __real_attn_layer_forward(layer, state, metadata, kv, &t, call.stream, err)
                               : ATTN_OK);
}
