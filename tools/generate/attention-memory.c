/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Memory behind the attention layers: paged caches, block table, schedule, scratch and the tensors of a step.
 */
#include "attention-impl.h"

#include "rng.h"

#include <inttypes.h>
#include <stdlib.h>

/* Pages beyond what the sequence needs, so that the ones in use are never simply all of them. */
enum { SPARE_PAGES = 3 };

static int alloc(struct attention *a, const char *what, uint64_t size, struct attn_buffer *out,
                 struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_memory_alloc(a->backend, size, out, &error) < 0)
        return attention_fail(err, what, &error);
    return 0;
}

static int wait(struct attention *a, const char *what, struct failure *err)
{
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_stream_synchronize(a->backend, NULL, &error) < 0)
        return attention_fail(err, what, &error);
    return 0;
}

int attention_to_device(struct attention *a, const struct attn_buffer *to, const void *from, uint64_t size,
                        struct failure *err)
{
    struct attn_buffer host = {(void *)(uintptr_t)from, 0};
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_memory_copy(a->backend, to, &host, size, ATTN_COPY_TO_DEVICE, NULL, &error) < 0)
        return attention_fail(err, "copy to the backend", &error);
    return wait(a, "copy to the backend", err);
}

int attention_to_host(struct attention *a, void *to, const struct attn_buffer *from, uint64_t size,
                      struct failure *err)
{
    struct attn_buffer host = {to, 0};
    struct attn_error error;
    ATTN_INIT(&error);
    if (attn_memory_copy(a->backend, &host, from, size, ATTN_COPY_TO_HOST, NULL, &error) < 0)
        return attention_fail(err, "copy from the backend", &error);
    return wait(a, "copy from the backend", err);
}

static int alloc_span(struct attention *a, const char *what, uint64_t size, struct attn_span *out,
                      struct failure *err)
{
    out->size = size;
    return size ? alloc(a, what, size, &out->buffer, err) : 0;
}

static int alloc_plan_memory(struct attention *a, struct failure *err)
{
    struct attn_plan_sizes sizes;
    struct attn_error error;
    ATTN_INIT(&sizes);
    ATTN_INIT(&error);
    ATTN_INIT(&a->scratch);
    if (attn_plan_get_sizes(a->plan, &sizes, &error) < 0)
        return attention_fail(err, "plan", &error);
    if (alloc_span(a, "schedule", sizes.schedule, &a->schedule, err) < 0 ||
        alloc_span(a, "scratch", sizes.scratch, &a->scratch.scratch, err) < 0 ||
        alloc_span(a, "counters", sizes.counters, &a->scratch.counters, err) < 0)
        return -1;
    a->scratch.counters_dirty = sizes.counters != 0; /* the first run clears them */
    a->staging.size = sizes.staging;
    if (sizes.staging &&
        attn_memory_alloc_pinned(a->backend, sizes.staging, &a->staging.buffer.data, &error) < 0)
        return attention_fail(err, "staging", &error);
    return 0;
}

static int make_cache(struct attention *a, struct attention_cache *cache, struct failure *err)
{
    struct attn_kv_shape shape;
    struct attn_kv_desc desc;
    struct attn_error error;
    ATTN_INIT(&shape);
    ATTN_INIT(&error);
    if (attn_kv_get_shape(a->backend, &a->problem, a->pages, &shape, &error) < 0)
        return attention_fail(err, "cache shape", &error);
    if (alloc(a, "cache", shape.bytes, &cache->memory, err) < 0)
        return -1;
    attn_kv_desc_init(&desc, &shape, &cache->memory);
    if (attn_kv_create(a->backend, &desc, &cache->kv, &error) < 0)
        return attention_fail(err, "cache", &error);
    return 0;
}

/* Pages in random order: nothing may rely on neighbours in the table being neighbours in memory. */
static int make_table(struct attention *a, struct failure *err)
{
    uint64_t state = a->options.seed;
    a->table = calloc(a->pages, sizeof *a->table);
    a->slots = calloc(a->options.max_chunk, sizeof *a->slots);
    if (!a->table || !a->slots)
        return failure_set(err, "no memory for a block table of %" PRIu32 " pages", a->pages);
    for (uint32_t i = 0; i < a->pages; i++) {
        uint32_t j = (uint32_t)(rng_next(&state) % (i + 1));
        a->table[i] = a->table[j];
        a->table[j] = (int32_t)i;
    }
    if (alloc(a, "block table", a->pages * sizeof *a->table, &a->d_table, err) < 0)
        return -1;
    return attention_to_device(a, &a->d_table, a->table, a->pages * sizeof *a->table, err);
}

static int alloc_step(struct attention *a, struct failure *err)
{
    uint64_t rows = a->options.max_chunk;
    uint64_t q_bytes = rows * a->shape.heads * a->shape.head_dim * sizeof(float);
    uint64_t kv_bytes = rows * a->shape.kv_heads * a->shape.head_dim * sizeof(float);
    const struct {
        const char *what;
        uint64_t size;
        struct attn_buffer *buffer;
    } list[] = {
        {"slots", rows * sizeof *a->slots, &a->d_slots},
        {"offsets", sizeof a->q_offsets, &a->d_q_offsets},
        {"lengths", sizeof a->kv_lens, &a->d_kv_lens},
        {"queries", q_bytes, &a->d_q},
        {"keys", kv_bytes, &a->d_k},
        {"values", kv_bytes, &a->d_v},
        {"output", q_bytes, &a->d_out},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (alloc(a, list[i].what, list[i].size, list[i].buffer, err) < 0)
            return -1;
    return 0;
}

int attention_allocate(struct attention *a, struct failure *err)
{
    a->pages = (a->options.max_tokens + a->options.block - 1) / a->options.block + SPARE_PAGES;
    a->caches = calloc(a->shape.layers, sizeof *a->caches);
    if (!a->caches)
        return failure_set(err, "no memory for %" PRIu32 " caches", a->shape.layers);
    for (uint32_t i = 0; i < a->shape.layers; i++)
        if (make_cache(a, &a->caches[i], err) < 0)
            return -1;
    if (make_table(a, err) < 0 || alloc_step(a, err) < 0)
        return -1;
    return alloc_plan_memory(a, err);
}

void attention_free(struct attention *a)
{
    const struct attn_buffer *buffers[] = {
        &a->schedule.buffer,
        &a->scratch.scratch.buffer,
        &a->scratch.counters.buffer,
        &a->d_table,
        &a->d_slots,
        &a->d_q_offsets,
        &a->d_kv_lens,
        &a->d_q,
        &a->d_k,
        &a->d_v,
        &a->d_out,
    };
    for (uint32_t i = 0; a->caches && i < a->shape.layers; i++) {
        attn_kv_destroy(a->caches[i].kv);
        if (a->caches[i].memory.data)
            attn_memory_free(a->backend, &a->caches[i].memory);
    }
    for (size_t i = 0; a->backend && i < sizeof buffers / sizeof buffers[0]; i++)
        attn_memory_free(a->backend, buffers[i]);
    if (a->staging.buffer.data)
        attn_memory_free_pinned(a->backend, a->staging.buffer.data);
    free(a->caches);
    free(a->table);
    free(a->slots);
}
