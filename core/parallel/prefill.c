/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Prefill whose query tokens are spread over ranks as their keys are: what can be spread, and memory for the
 * largest step.
 */
#include "parallel/prefill.h"

#include <stdlib.h>

#include "select/problem.h"
#include "visible.h"

/* ---------------------------------------------------------------- what can be spread */

static int32_t check_keys(const struct attn_problem *p, uint32_t pass, uint32_t size, struct attn_error *err)
{
    if (pass == ATTN_CP_PASS_QUERIES || pass == ATTN_CP_PASS_CHEAPER)
        return ATTN_OK;
    if (attn__keys_can_be(p) && pass == ATTN_CP_PASS_HEADS && !attn__heads_can_be(p, size))
        return attn__fail(
            err, ATTN_E_UNSUPPORTED, 0, "heads",
            "heads is %u and kv_heads %u for %u ranks%s; accepted with ATTN_CP_PASS_HEADS: multiples "
            "of 2 ranks and more, without MLA",
            p->heads, p->kv_heads, size, p->mla != 0 ? ", of MLA" : "");
    if (p->layout != ATTN_STRIDED)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "layout",
                          "layout is paged-x; accepted where keys are passed: strided, or "
                          "ATTN_CP_PASS_QUERIES");
    return attn__keys_can_be(p)
               ? ATTN_OK
               : attn__fail(err, ATTN_E_UNSUPPORTED, 0, "k",
                            "k is %s and v %s, whose blocks are only read; accepted where keys are passed: "
                            "other types, or ATTN_CP_PASS_QUERIES",
                            attn_dtype_name(p->k_dtype), attn_dtype_name(p->v_dtype));
}

static int32_t check_problem(const struct attn_problem *p, struct attn_error *err)
{
    const struct {
        bool good;
        const char *key, *accepted;
    } rules[] = {
        {p->positions != 0, "positions", "1, as query tokens of a rank do not follow each other"},
        {p->addressing == ATTN_TABLE, "addr", "table"},
        {p->mask == ATTN_MASK_NONE, "mask", "none, as rows of a mask are those of whole sequences"},
        {p->seq_causal == 0, "seq_causal", "0"},
        {attn__element_size(p->q_dtype) >= 2, "q", "f32, f16 or bf16"},
        {p->max_seqs > 0 && p->max_q > 0 && p->max_kv > 0 && p->max_rows > 0, "max_rows",
         "max_seqs, max_q, max_kv and max_rows of the largest step, all above 0"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].good)
            return attn__fail(err, ATTN_E_UNSUPPORTED, 0, rules[i].key,
                              "this %s of the problem is not served with ATTN_CP_TOKENS; accepted: %s",
                              rules[i].key, rules[i].accepted);
    return ATTN_OK;
}

static int32_t check_params(const struct attn_cp *cp, const struct attn_cp_params *params,
                            struct attn_error *err)
{
    const struct attn_problem *p = &cp->problem;
    int32_t status = check_problem(p, err);

    if (status == ATTN_OK && (params->interleave == 0 || p->block % params->interleave != 0))
        status =
            attn__fail(err, ATTN_E_INVALID, 0, "interleave",
                       "interleave is %u; accepted: a divisor of block=%u", params->interleave, p->block);
    if (status == ATTN_OK && params->pass > ATTN_CP_PASS_HEADS)
        status = attn__fail(err, ATTN_E_INVALID, 0, "pass",
                            "pass is %u; accepted: ATTN_CP_PASS_CHEAPER, ATTN_CP_PASS_KEYS, "
                            "ATTN_CP_PASS_QUERIES or ATTN_CP_PASS_HEADS",
                            params->pass);
    if (status == ATTN_OK && params->pass <= ATTN_CP_PASS_KEYS && cp->net.shift == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "collectives",
                            "shift is NULL; a function is accepted, or ATTN_CP_PASS_QUERIES");
    return status == ATTN_OK ? check_keys(p, params->pass, cp->net.size, err) : status;
}

/* ---------------------------------------------------------------- sizes */

/* The largest step on one rank, from the maxima of whole steps. */
static void find_maxima(struct attn_cp *cp, const struct attn_cp_params *params)
{
    struct attn__prefill *own = cp->prefill;
    const struct attn_problem *p = &cp->problem;
    const uint64_t size = cp->net.size, part = own->interleave;

    own->max_seqs = p->max_seqs;
    own->max_q = p->max_q;
    own->max_kv = p->max_kv;
    own->max_rows = p->max_rows;
    own->max_keys = params->max_keys != 0 ? params->max_keys : (uint64_t)p->max_seqs * p->max_kv;
    own->block = size == 1 ? p->max_rows : p->max_rows / size + own->max_seqs * part;
    if (own->block > p->max_rows)
        own->block = p->max_rows;
    const int64_t keys = attn_cp_count(0, cp->net.size, own->interleave, p->max_kv);
    own->width = (uint32_t)(((uint64_t)keys + p->block - 1) / p->block);
    own->slab = own->pass == ATTN_CP_PASS_QUERIES || size == 1 || !attn__keys_can_be(p)
                    ? 0
                    : own->max_keys / size + own->max_seqs * (part + p->block);
    own->problem = *p;
    own->problem.max_kv = (uint32_t)keys;
    own->problem.max_q = own->problem.max_rows = (uint32_t)own->block;
    own->plans[1].problem = own->problem;
    if (own->pass != ATTN_CP_PASS_KEYS) {
        own->problem.max_seqs = (uint32_t)(p->max_seqs * size);
        own->problem.max_rows = (uint32_t)(own->block * size);
    }
    own->plans[0].problem = own->problem;
    /* This rank's heads over all keys, of which a page is what a rank has in turn. */
    struct attn_problem *share = &own->plans[1].problem;
    share->cp = 0;
    share->heads = p->heads / cp->net.size;
    share->kv_heads = p->kv_heads / cp->net.size;
    share->block = own->interleave;
    share->max_kv = p->max_kv;
}

static bool wants_heads(const struct attn_cp *cp)
{
    const struct attn__prefill *own = cp->prefill;

    return (own->pass == ATTN_CP_PASS_CHEAPER || own->pass == ATTN_CP_PASS_HEADS) &&
           attn__heads_can_be(&own->problem, cp->net.size);
}

static int32_t check_maxima(const struct attn_cp *cp, struct attn_error *err)
{
    const struct attn__prefill *own = cp->prefill;
    const uint64_t size = cp->net.size;

    return own->max_seqs * size <= ATTN__COUNT_MAX && own->block * size <= ATTN__COUNT_MAX &&
                   own->slab <= ATTN__COUNT_MAX
               ? ATTN_OK
               : attn__fail(
                     err, ATTN_E_SIZE, 0, "max_rows",
                     "steps of max_seqs=%u, max_rows=%llu and max_keys=%llu on %u ranks have more than "
                     "%u rows, sequences or keys of a rank; lower maxima are accepted",
                     own->max_seqs, (unsigned long long)own->max_rows, (unsigned long long)own->max_keys,
                     cp->net.size, ATTN__COUNT_MAX);
}

/* ---------------------------------------------------------------- memory */

/* Elements of all arrays of a step; prefill-batches.c takes them. */
static uint64_t array_elements(const struct attn_cp *cp)
{
    const struct attn__prefill *own = cp->prefill;
    const uint64_t all = (uint64_t)own->max_seqs * cp->net.size;

    const uint64_t heads =
        wants_heads(cp)
            ? own->max_seqs * ((own->max_kv + (uint64_t)own->interleave - 1) / own->interleave + 1) + all
            : 0;

    return all * (3 + own->width) + own->block * cp->net.size + own->max_seqs * (5 + (uint64_t)own->width) +
           heads + 8 +
           /* each array begins at a multiple of the alignment */
           (8 + 2 * (uint64_t)cp->net.size) * ATTN__CP_ALIGNMENT;
}

static struct attn_buffer take(struct attn_buffer *rest, uint64_t bytes)
{
    const struct attn_buffer taken = *rest;

    rest->byte_offset += bytes;
    return taken;
}

static uint64_t rounded(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

/* What a plan needs, for a step of as many batches as there are ranks. */
static uint64_t plan_bytes(const struct attn__prefill_plan *plan, uint64_t size, uint64_t alignment)
{
    return plan->plan == NULL
               ? 0
               : rounded(plan->sizes.schedule, alignment) * size + rounded(plan->sizes.scratch, alignment) +
                     rounded(plan->sizes.counters, alignment);
}

static void place_plan(struct attn__prefill_plan *plan, uint64_t size, uint64_t alignment,
                       struct attn_buffer *rest)
{
    if (plan->plan == NULL)
        return;
    for (uint64_t i = 0; i < size; i++)
        plan->schedules[i] =
            (struct attn_span){take(rest, rounded(plan->sizes.schedule, alignment)), plan->sizes.schedule};
    plan->scratch.scratch =
        (struct attn_span){take(rest, rounded(plan->sizes.scratch, alignment)), plan->sizes.scratch};
    plan->scratch.counters =
        (struct attn_span){take(rest, rounded(plan->sizes.counters, alignment)), plan->sizes.counters};
    plan->scratch.counters_dirty = 1;
}

/* One block on the device for all buffers. */
static int32_t allocate_device(struct attn_cp *cp, uint64_t alignment, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t size = cp->net.size;
    const uint64_t arriving = own->pass == ATTN_CP_PASS_KEYS ? 0 : own->pass == ATTN_CP_PASS_HEADS ? 1 : size;
    const uint64_t arrays = rounded(own->capacity * sizeof(int32_t), alignment),
                   query = rounded(own->block * attn__prefill_query_bytes(p), alignment),
                   part = rounded(own->block * attn__prefill_part_bytes(p) + p->heads * ATTN__CP_ALIGNMENT,
                                  alignment),
                   slab = rounded(attn__slab_of(p, own->slab).bytes, alignment),
                   queries = arriving > 0 ? query * (arriving + 1) : 0,
                   own_parts = arriving > 0 ? part * size : 0;
    const int32_t status = attn_memory_alloc(cp->backend,
                                             plan_bytes(&own->plans[0], size, alignment) +
                                                 plan_bytes(&own->plans[1], size, alignment) + arrays +
                                                 queries + own_parts + part * size + 2 * slab + alignment,
                                             &own->memory, err);
    if (status != ATTN_OK)
        return status;
    struct attn_buffer rest = own->memory;
    place_plan(&own->plans[0], size, alignment, &rest);
    place_plan(&own->plans[1], size, alignment, &rest);
    own->arrays = take(&rest, arrays);
    own->queries = take(&rest, queries);
    own->parts = take(&rest, part * size);
    own->own_parts = take(&rest, own_parts);
    own->slabs[0] = take(&rest, slab);
    own->slabs[1] = take(&rest, slab);
    return ATTN_OK;
}

/* Pinned where the backend has such memory. */
static int32_t allocate_host(struct attn_cp *cp, uint64_t alignment, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const uint64_t arrays = rounded(own->capacity * sizeof *own->host, alignment);
    const uint64_t step = own->plans[0].sizes.staging > own->plans[1].sizes.staging
                              ? own->plans[0].sizes.staging
                              : own->plans[1].sizes.staging;
    const uint64_t bytes = arrays + rounded(step, alignment) * cp->net.size;
    struct attn_error pinned;

    attn__error_open(&pinned);
    const int32_t status = attn_memory_alloc_pinned(cp->backend, bytes, &own->pinned, &pinned);
    if (status != ATTN_OK && status != ATTN_E_UNSUPPORTED)
        return attn__fail(err, status, pinned.reason, pinned.field, "%s", pinned.message);
    own->host = own->pinned != NULL ? own->pinned : aligned_alloc(alignment, bytes);
    if (own->host == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for the arrays of a step");
    own->staging = (struct attn_buffer){own->host, arrays};
    own->staging_step = rounded(step, alignment);
    return ATTN_OK;
}

static int32_t make_plan(struct attn_cp *cp, struct attn__prefill_plan *plan, struct attn_error *err)
{
    int32_t status = attn_plan_create(cp->backend, &plan->problem, &plan->plan, err);

    ATTN_INIT(&plan->sizes);
    ATTN_INIT(&plan->scratch);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(plan->plan, &plan->sizes, err);
    if (status != ATTN_OK)
        return status;
    plan->schedules = calloc(cp->net.size, sizeof *plan->schedules);
    return plan->schedules != NULL ? ATTN_OK
                                   : attn__fail(err, ATTN_E_MEMORY, 0, "cp",
                                                "no memory for the schedules of %u ranks", cp->net.size);
}

static int32_t allocate(struct attn_cp *cp, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const uint32_t size = cp->net.size;
    int32_t status = ATTN_OK;

    if (own->pass != ATTN_CP_PASS_HEADS)
        status = make_plan(cp, &own->plans[0], err);
    if (status == ATTN_OK && wants_heads(cp))
        status = make_plan(cp, &own->plans[1], err);
    if (status != ATTN_OK)
        return status;
    own->capacity = array_elements(cp);
    own->batches = calloc(size, sizeof *own->batches);
    own->hosts = calloc(size, sizeof *own->hosts);
    if (own->batches == NULL || own->hosts == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for the batches of %u ranks", size);
    uint64_t alignment = 256;
    for (int i = 0; i < 2; i++)
        if (own->plans[i].sizes.alignment > alignment)
            alignment = own->plans[i].sizes.alignment;
    status = allocate_device(cp, alignment, err);
    if (status == ATTN_OK)
        status = allocate_host(cp, alignment, err);
    return status == ATTN_OK && cp->net.device != 0 ? attn_event_create(cp->backend, &own->copied, err)
                                                    : status;
}

int32_t attn__prefill_create(struct attn_cp *cp, const struct attn_cp_params *params, struct attn_error *err)
{
    int32_t status = check_params(cp, params, err);

    if (status != ATTN_OK)
        return status;
    cp->prefill = calloc(1, sizeof *cp->prefill);
    if (cp->prefill == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for a rank");
    cp->prefill->interleave = params->interleave;
    cp->prefill->pass = params->pass;
    find_maxima(cp, params);
    status = check_maxima(cp, err);
    return status == ATTN_OK ? allocate(cp, err) : status;
}

void attn__prefill_destroy(struct attn_cp *cp)
{
    struct attn__prefill *own = cp->prefill;

    if (own == NULL)
        return;
    attn_event_destroy(cp->backend, own->copied);
    if (own->pinned != NULL)
        attn_memory_free_pinned(cp->backend, own->pinned);
    else
        free(own->host);
    if (own->memory.data != NULL)
        attn_memory_free(cp->backend, &own->memory);
    for (int i = 0; i < 2; i++) {
        attn_plan_destroy(own->plans[i].plan);
        free(own->plans[i].schedules);
    }
    free(own->batches);
    free(own->hosts);
    free(own);
}
