/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Prefill whose query tokens are spread over ranks as their keys are: making it, and one layer.
 *
 * Either keys go round a ring, and a rank attends to those of one rank after the other; or all ranks gather
 * the queries, attend with each to their own keys, and send the parts back. Parts are merged in the order of
 * ranks. A rank's tokens lie one behind the other in what is exchanged, each with all heads, and the LSEs of
 * a token follow its partial results.
 */
#include "parallel/prefill.h"

#include <stdlib.h>

#include "select/problem.h"
#include "visible.h"

/* ---------------------------------------------------------------- what can be spread */

static int32_t check_keys(const struct attn_problem *p, uint32_t pass, struct attn_error *err)
{
    if (pass == ATTN_CP_PASS_QUERIES)
        return ATTN_OK;
    if (p->layout != ATTN_STRIDED)
        return attn__fail(err, ATTN_E_UNSUPPORTED, 0, "layout",
                          "layout is paged-x; accepted where keys are passed: strided, or "
                          "ATTN_CP_PASS_QUERIES");
    return attn_block_bytes(p->k_dtype) == 0 && attn_block_bytes(p->v_dtype) == 0
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
    if (status == ATTN_OK && params->pass > ATTN_CP_PASS_QUERIES)
        status = attn__fail(err, ATTN_E_INVALID, 0, "pass",
                            "pass is %u; accepted: ATTN_CP_PASS_CHEAPER, ATTN_CP_PASS_KEYS or "
                            "ATTN_CP_PASS_QUERIES",
                            params->pass);
    if (status == ATTN_OK && params->pass != ATTN_CP_PASS_QUERIES && cp->net.shift == NULL)
        status = attn__fail(err, ATTN_E_INVALID, 0, "collectives",
                            "shift is NULL; a function is accepted, or ATTN_CP_PASS_QUERIES");
    return status == ATTN_OK ? check_keys(p, params->pass, err) : status;
}

/* ---------------------------------------------------------------- sizes */

/* Bytes of the scales of tokens of one side; other scales are the caller's. */
static uint64_t scale_bytes(const struct attn_problem *p, uint32_t granularity, uint64_t keys)
{
    return granularity == ATTN_SCALES_TOKEN_HEAD ? attn__cp_round(keys * p->kv_heads * sizeof(float)) : 0;
}

struct attn__slab attn__slab_of(const struct attn_problem *p, uint64_t keys)
{
    const uint64_t k = keys * p->kv_heads * attn__cp_vector(p->k_dtype, p->head_dim);
    const uint64_t v = p->mla != 0 ? 0 : keys * p->kv_heads * attn__cp_vector(p->v_dtype, p->head_dim_vo);
    struct attn__slab slab = {.v = k, .k_scales = k + v};

    slab.v_scales = slab.k_scales + scale_bytes(p, p->k_scale, keys);
    slab.bytes = slab.v_scales + (p->mla != 0 ? 0 : scale_bytes(p, p->v_scale, keys));
    return slab;
}

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
    own->slab = own->pass == ATTN_CP_PASS_QUERIES || size == 1
                    ? 0
                    : own->max_keys / size + own->max_seqs * (part + p->block);
    own->problem = *p;
    own->problem.max_kv = (uint32_t)keys;
    own->problem.max_q = (uint32_t)own->block;
    if (own->pass == ATTN_CP_PASS_KEYS) {
        own->problem.max_rows = (uint32_t)own->block;
        return;
    }
    own->problem.max_seqs = (uint32_t)(p->max_seqs * size);
    own->problem.max_rows = (uint32_t)(own->block * size);
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

/* Elements of all arrays of a step; prefill-step.c takes them. */
static uint64_t array_elements(const struct attn_cp *cp)
{
    const struct attn__prefill *own = cp->prefill;
    const uint64_t all = (uint64_t)own->max_seqs * cp->net.size;

    return all * (3 + own->width) + own->block * cp->net.size + 4 * (uint64_t)own->max_seqs + 8 +
           /* each array begins at a multiple of the alignment */
           (5 + 2 * (uint64_t)cp->net.size) * ATTN__CP_ALIGNMENT;
}

static struct attn_buffer take(struct attn_buffer *rest, uint64_t bytes)
{
    const struct attn_buffer taken = *rest;

    rest->byte_offset += bytes;
    return taken;
}

/* One block on the device for all buffers. */
static int32_t allocate_device(struct attn_cp *cp, uint64_t alignment, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t size = cp->net.size;
    const bool gathers = own->pass != ATTN_CP_PASS_KEYS;
#define ROUNDED(bytes) (((bytes) + alignment - 1) / alignment * alignment)
    const uint64_t schedule = ROUNDED(own->sizes.schedule), scratch = ROUNDED(own->sizes.scratch),
                   counters = ROUNDED(own->sizes.counters), arrays = ROUNDED(own->capacity * sizeof(int32_t)),
                   query = gathers ? ROUNDED(own->block * attn__prefill_query_bytes(p)) : 0,
                   part = ROUNDED(own->block * attn__prefill_part_bytes(p)),
                   slab = ROUNDED(attn__slab_of(p, own->slab).bytes);
#undef ROUNDED
    const int32_t status =
        attn_memory_alloc(cp->backend,
                          schedule * size + scratch + counters + arrays + query * (size + 1) +
                              part * size * (gathers ? 2 : 1) + 2 * slab + alignment,
                          &own->memory, err);
    if (status != ATTN_OK)
        return status;
    struct attn_buffer rest = own->memory;
    for (uint64_t i = 0; i < size; i++)
        own->schedules[i] = (struct attn_span){take(&rest, schedule), own->sizes.schedule};
    own->scratch.scratch = (struct attn_span){take(&rest, scratch), own->sizes.scratch};
    own->scratch.counters = (struct attn_span){take(&rest, counters), own->sizes.counters};
    own->scratch.counters_dirty = 1;
    own->arrays = take(&rest, arrays);
    own->queries = take(&rest, query * (size + 1));
    own->parts = take(&rest, part * size);
    own->own_parts = take(&rest, gathers ? part * size : 0);
    own->slabs[0] = take(&rest, slab);
    own->slabs[1] = take(&rest, slab);
    return ATTN_OK;
}

/* Pinned where the backend has such memory. */
static int32_t allocate_host(struct attn_cp *cp, uint64_t alignment, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const uint64_t arrays = (own->capacity * sizeof *own->host + alignment - 1) / alignment * alignment;
    const uint64_t staging = own->sizes.staging * cp->net.size, bytes = arrays + staging + alignment;
    struct attn_error pinned;

    attn__error_open(&pinned);
    const int32_t status = attn_memory_alloc_pinned(cp->backend, bytes, &own->pinned, &pinned);
    if (status != ATTN_OK && status != ATTN_E_UNSUPPORTED)
        return attn__fail(err, status, pinned.reason, pinned.field, "%s", pinned.message);
    own->host = own->pinned != NULL ? own->pinned : malloc(bytes);
    if (own->host == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for the arrays of a step");
    own->staging = (struct attn_span){{own->host, arrays}, staging};
    return ATTN_OK;
}

static int32_t allocate(struct attn_cp *cp, struct attn_error *err)
{
    struct attn__prefill *own = cp->prefill;
    const uint32_t size = cp->net.size;

    ATTN_INIT(&own->sizes);
    ATTN_INIT(&own->scratch);
    int32_t status = attn_plan_create(cp->backend, &own->problem, &own->plan, err);
    if (status == ATTN_OK)
        status = attn_plan_get_sizes(own->plan, &own->sizes, err);
    if (status != ATTN_OK)
        return status;
    own->capacity = array_elements(cp);
    own->schedules = calloc(size, sizeof *own->schedules);
    own->batches = calloc(size, sizeof *own->batches);
    own->hosts = calloc(size, sizeof *own->hosts);
    if (own->schedules == NULL || own->batches == NULL || own->hosts == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "cp", "no memory for the batches of %u ranks", size);
    const uint64_t alignment = own->sizes.alignment > 256 ? own->sizes.alignment : 256;
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
    free(own->schedules);
    free(own->batches);
    free(own->hosts);
    attn_plan_destroy(own->plan);
    free(own);
}

/* ---------------------------------------------------------------- a layer */

struct run {
    struct attn_cp *cp;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;          /* of the caller's cache */
    const struct attn_kv_desc *bare; /* NULL: it was given as a handle */
    void *stream;
    bool sent; /* others wait for this rank, or will */
};

static int32_t check_run(struct run *run, const struct attn_tensors *given, struct attn_error *err)
{
    const struct attn_cp *cp = run->cp;
    int32_t status = attn__take(&run->tensors, sizeof run->tensors, given, ATTN__ARGS_MIN, "tensors", err);

    if (status != ATTN_OK)
        return status;
    const struct attn_tensors *t = &run->tensors;
    if (t->q_rope.buffer.data != NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "q_rope",
                          "q_rope is given; accepted with ATTN_CP_TOKENS: q with all of its columns");
    if ((t->kv != NULL) == (t->kv_desc != NULL))
        return attn__fail(err, ATTN_E_INVALID, 0, "kv",
                          "kv and kv_desc are %s given; one of them is accepted",
                          t->kv != NULL ? "both" : "not");
    if (t->kv != NULL)
        run->kv = t->kv->desc;
    else
        status = attn__take(&run->kv, sizeof run->kv, t->kv_desc, ATTN__ARGS_MIN, "kv_desc", err);
    run->bare = t->kv != NULL ? NULL : &run->kv;
    return status == ATTN_OK && cp->prefill->step.tokens > 0
               ? attn__cp_check_tensors(cp, t, cp->prefill->step.tokens, 0, err)
               : status;
}

/* Partial results of rank `rank`: of the keys of that rank, or of its queries. */
static struct attn_merge_part part_at(const struct run *run, const struct attn_buffer *parts, uint64_t rank)
{
    const struct attn__prefill *own = run->cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t vector = attn__cp_vector(p->out_dtype, p->head_dim_vo),
                   token = attn__prefill_part_bytes(p);
    const struct attn_buffer from = attn__cp_at(parts, rank * own->step.block * token);

    return (struct attn_merge_part){
        .out = {.buffer = from, .token_stride = (int64_t)token, .head_stride = (int64_t)vector},
        .lse = {.buffer = attn__cp_at(&from, p->heads * vector),
                .token_stride = (int64_t)token,
                .head_stride = sizeof(float)}};
}

/* Attends with batch `number` of the step; what is given replaces q, out and the cache of the caller. */
static int32_t attend(struct run *run, uint32_t number, const struct attn_tensor *q,
                      const struct attn_merge_part *part, const struct attn_kv_desc *kv,
                      struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    struct attn_tensors tensors = run->tensors;

    tensors.q = *q;
    tensors.out = part->out;
    tensors.lse = part->lse;
    if (kv != NULL) {
        tensors.kv = NULL;
        tensors.kv_desc = kv;
    }
    const int32_t status = attn_plan_run(own->plan, &own->batches[number], &tensors, &own->schedules[number],
                                         &own->scratch, run->stream, err);
    own->scratch.counters_dirty = status != ATTN_OK;
    return status;
}

static int32_t merge(struct run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;

    for (uint32_t i = 0; i < cp->net.size; i++)
        cp->merged[i] = part_at(run, &cp->prefill->parts, i);
    return cp->prefill->step.tokens > 0 ? attn__cp_merge(cp, &run->tensors.out, &run->tensors.lse,
                                                         cp->prefill->step.tokens, run->stream, err)
                                        : ATTN_OK;
}

/* ---------------------------------------------------------------- keys go round */

/* Scales of tokens are in the slab. */
static void place_scale(const struct attn_problem *p, uint32_t granularity, struct attn_scale *scale,
                        const struct attn_buffer *memory, uint64_t offset)
{
    if (granularity != ATTN_SCALES_TOKEN_HEAD)
        return;
    scale->buffer = attn__cp_at(memory, offset);
    scale->head_stride = sizeof(float);
    scale->token_stride = p->kv_heads * (int64_t)sizeof(float);
    scale->outer_stride = p->block * scale->token_stride;
}

/* A slab as a cache; its other scales are the caller's. */
static struct attn_kv_desc slab_desc(const struct run *run, const struct attn_buffer *memory)
{
    const struct attn__prefill *own = run->cp->prefill;
    const struct attn_problem *p = &own->problem;
    const struct attn__slab slab = attn__slab_of(p, own->step.slab);
    const int64_t k = (int64_t)attn__cp_vector(p->k_dtype, p->head_dim),
                  v = (int64_t)attn__cp_vector(p->v_dtype, p->head_dim_vo), heads = p->kv_heads;
    struct attn_kv_desc desc = run->kv;

    desc.pages = (uint32_t)(own->step.slab / p->block);
    desc.k = *memory;
    desc.k_head_stride = k;
    desc.k_token_stride = k * heads;
    desc.k_page_stride = k * heads * p->block;
    place_scale(p, p->k_scale, &desc.k_scale, memory, slab.k_scales);
    if (p->mla != 0)
        return desc;
    desc.v = attn__cp_at(memory, slab.v);
    desc.v_head_stride = v;
    desc.v_token_stride = v * heads;
    desc.v_page_stride = v * heads * p->block;
    place_scale(p, p->v_scale, &desc.v_scale, memory, slab.v_scales);
    return desc;
}

static struct attn_tensor rows_of(const struct attn_buffer *buffer, int64_t token, int64_t head)
{
    return (struct attn_tensor){.buffer = *buffer, .token_stride = token, .head_stride = head};
}

/* This rank's keys of the step's sequences, page after page. */
static int32_t pack_keys(struct run *run, struct attn_error *err)
{
    struct attn__prefill *own = run->cp->prefill;
    const struct attn_kv_desc to = slab_desc(run, &own->slabs[0]);
    struct attn_kv_gather_args args;

    ATTN_INIT(&args);
    args.tokens = (uint32_t)own->step.slab;
    args.k_dtype = own->problem.k_dtype;
    args.v_dtype = own->problem.v_dtype;
    args.addressing = ATTN_TABLE;
    args.index_dtype = ATTN_INT32;
    args.kv = run->tensors.kv;
    args.kv_desc = run->bare;
    args.batch = &own->step.packed;
    args.offsets = own->step.offsets;
    args.k = rows_of(&to.k, to.k_token_stride, to.k_head_stride);
    if (own->problem.k_scale == ATTN_SCALES_TOKEN_HEAD)
        args.k_scales = rows_of(&to.k_scale.buffer, to.k_scale.token_stride, to.k_scale.head_stride);
    if (own->problem.mla == 0)
        args.v = rows_of(&to.v, to.v_token_stride, to.v_head_stride);
    if (own->problem.mla == 0 && own->problem.v_scale == ATTN_SCALES_TOKEN_HEAD)
        args.v_scales = rows_of(&to.v_scale.buffer, to.v_scale.token_stride, to.v_scale.head_stride);
    return attn_kv_gather(run->cp->backend, &args, run->stream, err);
}

/* The keys of rank r - 1 arrive, then those of r - 2, ... */
static int32_t pass_keys(struct run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const uint32_t size = cp->net.size;
    const uint64_t bytes = attn__slab_of(&own->problem, own->step.slab).bytes;
    int32_t status = size > 1 && bytes > 0 ? pack_keys(run, err) : ATTN_OK;

    for (uint32_t i = 0; i < size && status == ATTN_OK; i++) {
        const uint32_t from = (cp->net.rank + size - i) % size;
        const struct attn_merge_part part = part_at(run, &own->parts, from);
        const struct attn_kv_desc kv = slab_desc(run, &own->slabs[i % 2]);
        if (i > 0)
            status = cp->net.shift(cp->net.arg, &own->slabs[(i - 1) % 2], &own->slabs[i % 2], bytes,
                                   run->stream, err);
        if (status == ATTN_OK && own->step.tokens > 0)
            status = attend(run, from, &run->tensors.q, &part, i > 0 ? &kv : NULL, err);
    }
    return status == ATTN_OK ? merge(run, err) : status;
}

/* ---------------------------------------------------------------- queries are gathered */

static int32_t gather_queries(struct run *run, struct attn_tensor *all, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const struct attn_problem *p = &own->problem;
    const uint64_t token = attn__prefill_query_bytes(p), bytes = own->step.block * token;
    const int64_t vector = (int64_t)attn__cp_vector(p->q_dtype, p->head_dim);
    const struct attn_tensor mine = rows_of(&own->queries, (int64_t)token, vector);
    const struct attn_buffer receive = attn__cp_at(&own->queries, bytes);
    const int32_t status = own->step.tokens > 0 ? attn__cp_move(cp, &run->tensors.q, &mine, own->step.tokens,
                                                                p->heads, p->head_dim, run->stream, err)
                                                : ATTN_OK;

    *all = rows_of(&receive, (int64_t)token, vector);
    return status == ATTN_OK
               ? cp->net.all_gather(cp->net.arg, &own->queries, &receive, bytes, run->stream, err)
               : status;
}

static int32_t pass_queries(struct run *run, struct attn_error *err)
{
    struct attn_cp *cp = run->cp;
    struct attn__prefill *own = cp->prefill;
    const struct attn_merge_part parts = part_at(run, &own->own_parts, 0);
    struct attn_tensor all;
    int32_t status = gather_queries(run, &all, err);

    if (status == ATTN_OK)
        status = attend(run, 0, &all, &parts, NULL, err);
    if (status == ATTN_OK)
        status =
            cp->net.all_to_all(cp->net.arg, &own->own_parts, &own->parts,
                               own->step.block * attn__prefill_part_bytes(&own->problem), run->stream, err);
    return status == ATTN_OK ? merge(run, err) : status;
}

int32_t attn_cp_prefill_run(struct attn_cp *cp, const struct attn_tensors *tensors, void *stream,
                            struct attn_error *err)
{
    struct run run = {.cp = cp, .stream = stream};
    struct attn_error own;

    int32_t status = attn__prefill_take(cp, "attn_cp_prefill_run", true, err);

    if (status != ATTN_OK)
        return status;
    attn__error_open(&own);
    status = check_run(&run, tensors, &own);
    run.sent = status == ATTN_OK;
    if (status == ATTN_OK && cp->prefill->step.block > 0)
        status = cp->prefill->step.info.pass == ATTN_CP_PASS_KEYS ? pass_keys(&run, &own)
                                                                  : pass_queries(&run, &own);
    return attn__cp_end(cp, status, run.sent, &own, err);
}
