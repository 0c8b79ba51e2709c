/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Where single elements lie: caches in either layout, MLA caches without values, queries in two tensors. */
#include "conform.h"

#include "need.h"

enum { CHUNK_BYTES = 16 };

uint32_t paged_x_elements(uint32_t dtype)
{
    return CHUNK_BYTES / oracle_size(dtype);
}

unsigned char *vector_room(uint32_t which, uint32_t count)
{
    static unsigned char *rooms[2];
    static uint32_t sizes[2];

    if (sizes[which] < count) {
        rooms[which] = need(realloc(rooms[which], (size_t)count * sizeof(float)));
        sizes[which] = count;
    }
    return rooms[which];
}

unsigned char *key_element(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
                           uint32_t d)
{
    uint32_t size = oracle_size(kv->k_dtype), x = CHUNK_BYTES / size;

    if (kv->layout != ATTN_PAGED_X)
        return key_at(kv, page, token, head) + (size_t)d * size;
    return (unsigned char *)kv->k.data + kv->k.byte_offset + page * kv->k_page_stride +
           (int64_t)head * kv->k_head_stride + (((int64_t)(d / x) * kv->block + token) * x + d % x) * size;
}

unsigned char *value_element(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
                             uint32_t d)
{
    uint32_t size = oracle_size(kv->v_dtype);

    if (kv->layout != ATTN_PAGED_X)
        return value_at(kv, page, token, head) + (size_t)d * size;
    return (unsigned char *)kv->v.data + kv->v.byte_offset + page * kv->v_page_stride +
           (int64_t)head * kv->v_head_stride + ((int64_t)d * kv->block + token) * size;
}

void put_key(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
             const unsigned char *vector)
{
    uint32_t size = oracle_size(kv->k_dtype);

    if (oracle_has_blocks(kv->k_dtype))
        memcpy(key_at(kv, page, token, head), vector, oracle_row_bytes(kv->k_dtype, kv->head_dim));
    for (uint32_t d = 0; size != 0 && d < kv->head_dim; d++)
        memcpy(key_element(kv, page, token, head, d), vector + (size_t)d * size, size);
}

void put_value(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
               const unsigned char *vector)
{
    uint32_t size = oracle_size(kv->v_dtype);

    if (oracle_has_blocks(kv->v_dtype))
        memcpy(value_at(kv, page, token, head), vector, oracle_row_bytes(kv->v_dtype, kv->head_dim_vo));
    for (uint32_t d = 0; size != 0 && d < kv->head_dim_vo; d++)
        memcpy(value_element(kv, page, token, head, d), vector + (size_t)d * size, size);
}

void get_key(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head, unsigned char *to)
{
    uint32_t size = oracle_size(kv->k_dtype);

    for (uint32_t d = 0; d < kv->head_dim; d++)
        memcpy(to + (size_t)d * size, key_element(kv, page, token, head, d), size);
}

void get_value(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head, unsigned char *to)
{
    uint32_t size = oracle_size(kv->v_dtype);

    for (uint32_t d = 0; d < kv->head_dim_vo; d++)
        memcpy(to + (size_t)d * size, value_element(kv, page, token, head, d), size);
}

void put_query(const struct step *step, uint32_t row, uint32_t head, const unsigned char *vector)
{
    const struct attn_problem *problem = &step->problem;
    bool apart = step->tensors.q_rope.buffer.data != NULL;
    size_t size = oracle_size(problem->q_dtype), first = apart ? problem->head_dim_vo : problem->head_dim;

    memcpy(tensor_at(&step->tensors.q, row, head), vector, first * size);
    if (apart)
        memcpy(tensor_at(&step->tensors.q_rope, row, head), vector + first * size,
               (problem->head_dim - first) * size);
}

void step_place_queries(struct step *step, uint32_t rows, struct rng *rng)
{
    const struct attn_problem *problem = &step->problem;
    bool apart = problem->mla != 0 && problem->head_dim > problem->head_dim_vo && rng_chance(rng, 50);
    uint32_t first = apart ? problem->head_dim_vo : problem->head_dim, size = oracle_size(problem->q_dtype);
    const uint32_t q_shape[3] = {rows, problem->heads, first};
    const uint32_t rope_shape[3] = {rows, problem->heads, problem->head_dim - first};
    struct attn_tensor *const tensors[] = {&step->tensors.q, &step->tensors.q_rope};
    uint8_t poison = case_poison(step->the_case, problem->q_dtype);

    step->q_memory =
        tensor_init(&step->tensors.q, &step->arena, "q", q_shape, size, &step->layout, rng, poison);
    if (apart)
        step->rope_memory = tensor_init(&step->tensors.q_rope, &step->arena, "q_rope", rope_shape, size,
                                        &step->layout, rng, poison);
    for (uint32_t i = 0; i < (apart ? 2 : 1); i++) {
        if (rows == 0 || !rng_chance(rng, 10))
            continue;
        /* Rows backwards: inputs may have negative strides. */
        tensors[i]->buffer.byte_offset += (uint64_t)tensors[i]->token_stride * (rows - 1);
        tensors[i]->token_stride = -tensors[i]->token_stride;
    }
}

/* Strides of keys or values whose vectors lie in chunks; returns the bytes of a page. Tokens have none. */
static uint64_t chunk_strides(const struct step *step, struct rng *rng, uint32_t element, uint32_t dim,
                              int64_t *out_token, int64_t *out_head)
{
    uint64_t unit = element > step->layout.stride_multiple ? element : step->layout.stride_multiple;
    uint64_t head = (uint64_t)dim * element * step->kv.block;

    head = (head + unit - 1) / unit * unit + (rng_chance(rng, 50) ? unit * rng_below(rng, 4) : 0);
    *out_head = (int64_t)head;
    *out_token = 1 + (int64_t)rng_below(rng, 99);
    return head * step->kv.kv_heads + (rng_chance(rng, 50) ? unit * rng_below(rng, 4) : 0);
}

uint64_t paged_x_strides(const struct step *step, struct rng *rng, bool values, int64_t *out_token,
                         int64_t *out_head)
{
    const struct attn_kv_desc *kv = &step->kv;

    if (values)
        return chunk_strides(step, rng, oracle_size(kv->v_dtype), kv->head_dim_vo, out_token, out_head);
    return chunk_strides(step, rng, oracle_size(kv->k_dtype), kv->head_dim, out_token, out_head);
}
