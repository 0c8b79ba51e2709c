/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Converts pages of a cache to another element type or layout. */
#include "graph.h"
#include "row.h"

/* Tokens of a page in one task. */
#define PART_TOKENS 16u

struct convert {
    struct cpu_kv_side from[2], to[2];
    bool moved[2];        /* elements and scales are copied, not converted */
    const int64_t *pairs; /* or NULL: each page to the page of the same number */
    uint32_t count;
    uint32_t heads;
    uint32_t block;
    uint32_t parts; /* tasks of keys, or of values */
};

static void convert_row(const struct convert *convert, uint32_t side, int64_t from_page, int64_t to_page,
                        uint32_t token, uint32_t head)
{
    const struct cpu_kv_side *from = &convert->from[side], *to = &convert->to[side];
    const struct cpu_row row = cpu_row_of(from, from_page, token, head);

    if (!convert->moved[side]) {
        cpu_row_write(&row, to, to_page, token, head);
        return;
    }
    cpu_row_copy(&row, to, to_page, token, head);
    if (from->token_head)
        memcpy(cpu_scale_place(&to->scale, to_page, token, head), &row.scale, sizeof row.scale);
}

/* Pairs are converted in order, so that of two with the same target the last one wins. */
static void convert_task(void *arg, uint32_t task, uint32_t worker)
{
    const struct convert *convert = arg;
    uint32_t side = task / convert->parts, first = task % convert->parts * PART_TOKENS;
    uint32_t end = convert->block - first < PART_TOKENS ? convert->block : first + PART_TOKENS;

    (void)worker;
    for (uint32_t i = 0; i < convert->count; i++) {
        int64_t from = convert->pairs != NULL ? convert->pairs[2 * (size_t)i] : (int64_t)i;
        int64_t to = convert->pairs != NULL ? convert->pairs[2 * (size_t)i + 1] : (int64_t)i;
        if (from < 0 || to < 0)
            continue;
        for (uint32_t token = first; token < end; token++)
            for (uint32_t head = 0; head < convert->heads; head++)
                convert_row(convert, side, from, to, token, head);
    }
}

static uint32_t granularity(const struct attn_scale *scale)
{
    return scale->kind == ATTN_SCALE_UNIT ? (uint32_t)ATTN_SCALES_UNIT : scale->granularity;
}

static bool is_moved(const struct attn_kv_desc *from, const struct attn_kv_desc *to, bool values)
{
    uint32_t from_dtype = values ? from->v_dtype : from->k_dtype;
    uint32_t to_dtype = values ? to->v_dtype : to->k_dtype;

    if (from_dtype != to_dtype)
        return false;
    return attn__dtype_size(from_dtype) != 1 || granularity(values ? &from->v_scale : &from->k_scale) ==
                                                    granularity(values ? &to->v_scale : &to->k_scale);
}

static int32_t check_pairs(const struct convert *convert, const struct attn_kv_desc *from,
                           const struct attn_kv_desc *to, struct attn_error *err)
{
    if ((uintptr_t)convert->pairs % sizeof *convert->pairs != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "pairs", "the address of pairs is no multiple of 8");
    for (uint32_t i = 0; convert->pairs != NULL && i < convert->count; i++) {
        int64_t a = convert->pairs[2 * (size_t)i], b = convert->pairs[2 * (size_t)i + 1];
        if (a >= 0 && b >= 0 && (a >= (int64_t)from->pages || b >= (int64_t)to->pages))
            return attn__fail(
                err, ATTN_E_INVALID, 0, "pairs",
                "pairs[%u] is %lld to %lld; the source has %u pages, the target %u: pages below "
                "that are accepted",
                i, (long long)a, (long long)b, from->pages, to->pages);
    }
    return ATTN_OK;
}

int32_t cpu_kv_convert(struct attn_backend_impl *backend, const struct attn_kv_convert_args *args,
                       const struct attn_kv_ref *from, const struct attn_kv_ref *to, void *stream,
                       struct attn_error *err)
{
    struct convert convert = {.pairs = (const int64_t *)(const void *)attn__address(&args->pairs),
                              .count = args->count};
    const struct attn_kv_desc *source = NULL, *target = NULL;
    struct cpu_executor executor;
    int32_t status = cpu_executor_init(&executor, backend, stream, err);

    if (status == ATTN_OK)
        status = attn__kv_resolve(from, &source, err);
    if (status == ATTN_OK)
        status = attn__kv_resolve(to, &target, err);
    const struct attn_kv_ref caches[] = {*from, *to};
    const struct cpu_call call = {CPU_CALL_CONVERT, .args = args, .args_size = sizeof *args, .caches = caches,
                                  .cache_count = 2};
    if (status == ATTN_OK && executor.recording != NULL)
        return cpu_record(executor.recording, &call, err);
    if (status == ATTN_OK)
        status = check_pairs(&convert, source, target, err);
    if (status != ATTN_OK)
        return status;
    convert.count = convert.pairs != NULL ? args->count : source->pages;
    convert.heads = source->kv_heads;
    convert.block = source->block;
    convert.parts = source->block / PART_TOKENS + (source->block % PART_TOKENS != 0);
    for (uint32_t i = 0; i < cpu_kv_sides(source); i++) {
        convert.from[i] = cpu_kv_side_of(source, i == 1);
        convert.to[i] = cpu_kv_side_of(target, i == 1);
        convert.moved[i] = is_moved(source, target, i == 1);
    }
    return cpu_execute(&executor, NULL, convert.parts * cpu_kv_sides(source), convert_task, &convert, err);
}
