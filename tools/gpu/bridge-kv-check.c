/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whether an operation on a cache did what it has to: every byte is compared on the host. */
#include <stdlib.h>

#include "bridge-inner.h"

/* A cache and rows in host memory. */
struct picture {
    unsigned char *cache, *before, *k, *v;
};

static int32_t download(struct gpu_case *the_case, const struct attn_buffer *from, uint64_t size,
                        unsigned char **out)
{
    *out = malloc(size);
    if (*out == NULL)
        return gpu_bench_refuse("check", "out of memory");
    return workload_download(&the_case->workload, from, *out, size, gpu_bench_err());
}

static int32_t take_cache(struct gpu_case *the_case, unsigned char **out)
{
    return download(the_case, &the_case->workload.cache[0], the_case->workload.shape.bytes, out);
}

/* The first byte of one head of one token; `value` picks the side. */
static uint64_t place(const struct attn_kv_desc *desc, uint64_t k_offset, uint64_t v_offset, bool value,
                      int64_t slot, uint32_t head)
{
    int64_t page = slot / desc->block, token = slot % desc->block;

    return value ? v_offset + (uint64_t)(page * desc->v_page_stride + token * desc->v_token_stride +
                                         head * desc->v_head_stride)
                 : k_offset + (uint64_t)(page * desc->k_page_stride + token * desc->k_token_stride +
                                         head * desc->k_head_stride);
}

static uint64_t own_place(const struct gpu_case *the_case, bool value, int64_t slot, uint32_t head)
{
    const struct workload *w = &the_case->workload;

    return place(&w->desc, w->shape.k_offset, w->shape.v_offset, value, slot, head);
}

/* Rows against the slots of the cache. */
static bool rows_match(const struct gpu_case *the_case, const struct picture *picture)
{
    const struct kv_room *room = &the_case->room;
    const uint32_t heads = the_case->workload.problem.kv_heads;
    const uint64_t size = room->row_bytes / heads;

    for (uint64_t row = 0; row < room->rows; row++)
        for (uint32_t head = 0; head < heads; head++)
            for (int value = 0; value < 2; value++) {
                const unsigned char *side = value ? picture->v : picture->k;
                if (memcmp(side + row * room->row_bytes + head * size,
                           picture->cache + own_place(the_case, value != 0, room->slot[row], head),
                           size) != 0)
                    return false;
            }
    return true;
}

/* Pages of the cache now, against pages of the cache as it was or of the host's: `target` of what it was. */
static bool pages_match(const struct gpu_case *the_case, const struct picture *picture, const char *name)
{
    const struct workload *w = &the_case->workload;
    const struct kv_room *room = &the_case->room;
    const struct attn_kv_desc *there = &room->host_desc;
    const uint64_t host_k = there->k.byte_offset, host_v = there->v.byte_offset;
    const uint64_t size = room->row_bytes / w->problem.kv_heads;
    const bool copy = strcmp(name, "copy pages") == 0;

    for (uint32_t i = 0; i < (copy ? room->count : room->swapped); i++)
        for (uint32_t at = 0; at < w->desc.block * w->problem.kv_heads * 2; at++) {
            const uint32_t token = at / 2 % w->desc.block, head = at / 2 / w->desc.block;
            const bool value = at % 2 != 0;
            const int64_t page = copy ? (int64_t)room->count + i : gpu_case_swapped(the_case, i);
            const unsigned char *mine =
                picture->cache + own_place(the_case, value, page * w->desc.block + token, head);
            const unsigned char *other =
                copy ? picture->before + own_place(the_case, value, (int64_t)i * w->desc.block + token, head)
                     : (const unsigned char *)room->host +
                           place(there, host_k, host_v, value, (int64_t)i * w->desc.block + token, head);
            if (memcmp(mine, other, size) != 0)
                return false;
        }
    return true;
}

int32_t gpu_case_kv_check(struct gpu_case *the_case, const char *name)
{
    const struct kv_room *room = &the_case->room;
    struct picture picture = {NULL, NULL, NULL, NULL};
    const bool by_rows = strcmp(name, "write") == 0 || strcmp(name, "gather") == 0;
    int32_t status = take_cache(the_case, &picture.before);

    for (uint64_t i = 0; i < room->host_bytes; i++)
        ((unsigned char *)room->host)[i] = (unsigned char)(i * 7 + i / 251);
    if (status == ATTN_OK) /* else a gather would find what a write has left */
        status = gpu_case_kv_refill(the_case, strlen(name));
    if (status == ATTN_OK)
        status = gpu_case_kv_run(the_case, name, the_case->workload.stream);
    if (status == ATTN_OK)
        status = take_cache(the_case, &picture.cache);
    if (status == ATTN_OK && by_rows)
        status = download(the_case, &room->k, room->rows * room->row_bytes, &picture.k);
    if (status == ATTN_OK && by_rows)
        status = download(the_case, &room->v, room->rows * room->row_bytes, &picture.v);
    if (status == ATTN_OK &&
        !(by_rows ? rows_match(the_case, &picture) : pages_match(the_case, &picture, name)))
        status = gpu_bench_refuse(name, "bytes are not where they belong");
    free(picture.before);
    free(picture.cache);
    free(picture.k);
    free(picture.v);
    return status;
}
