/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The optional operations on caches of a mock: each says its name and what reached it, and fails on a stream.
 */
#ifndef MOCK_KV_H
#define MOCK_KV_H

static int32_t kv_answer(const void *stream)
{
    return stream == NULL ? ATTN_OK : ATTN_E_DEVICE;
}

static int32_t kv_slot_mapping(struct attn_backend_impl *backend,
                               const struct attn_kv_slot_mapping_args *args, void *stream,
                               struct attn_error *err)
{
    (void)backend, (void)args, (void)err;
    say("kv slot_mapping");
    return kv_answer(stream);
}

static int32_t kv_copy_slots(struct attn_backend_impl *backend, const struct attn_kv_copy_slots_args *args,
                             const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                             struct attn_error *err)
{
    (void)backend, (void)args, (void)err;
    say((from->kv != NULL) == (from->desc == NULL) && (to->kv != NULL) == (to->desc == NULL)
            ? "kv copy_slots"
            : "a reference that is not one cache");
    return kv_answer(stream);
}

static int32_t kv_copy_blocks(struct attn_backend_impl *backend, const struct attn_kv_copy_blocks_args *args,
                              const struct attn_kv_ref *caches, void *stream, struct attn_error *err)
{
    (void)backend, (void)err;
    for (uint32_t i = 0; i < args->layers; i++) {
        say((caches[i].kv != NULL) == (caches[i].desc == NULL) ? "kv copy_blocks of a layer"
                                                               : "a reference that is not one cache");
    }
    return kv_answer(stream);
}

static int32_t kv_swap_blocks(struct attn_backend_impl *backend, const struct attn_kv_swap_blocks_args *args,
                              const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                              struct attn_error *err)
{
    (void)backend, (void)args, (void)from, (void)to, (void)err;
    say("kv swap_blocks");
    return kv_answer(stream);
}

static int32_t kv_gather(struct attn_backend_impl *backend, const struct attn_kv_gather_args *args,
                         const struct attn_kv_ref *cache, void *stream, struct attn_error *err)
{
    (void)backend, (void)args, (void)cache, (void)err;
    say("kv gather");
    return kv_answer(stream);
}

static int32_t kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                          const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                          struct attn_error *err)
{
    (void)backend, (void)args, (void)from, (void)to, (void)err;
    say("kv convert");
    return kv_answer(stream);
}

#endif
