/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One layer of one step of a session: makes a batch of lengths and tables, writes new keys, runs the plan. */
#include <math.h>
#include <stdlib.h>

#include "cascade.h"
#include "session/session.h"

/* ---------------------------------------------------------------- lengths */

/* What a step has, from its lengths. */
struct step {
    uint32_t tokens, max_q, max_kv;
    int64_t keys;   /* of all sequences */
    bool has_keys;  /* lengths of keys differ from those of the queries */
    bool has_table; /* and rows of pages */
    uint64_t words; /* numbers of 32 bits that its arrays have */
};

static int32_t check_length(const char *name, uint32_t i, int64_t length, int64_t least,
                            struct attn_error *err)
{
    return length >= least
               ? ATTN_OK
               : attn__fail(err, ATTN_E_INVALID, 0, name, "%s[%u] is %lld; accepted: at least %lld", name, i,
                            (long long)length, (long long)least);
}

/* A sequence of the step: its query tokens and keys. */
static int32_t add_lengths(const struct attn_session *session, const struct attn_forward_args *args,
                           uint32_t i, struct step *step, struct attn_error *err)
{
    const int64_t queries = args->q_lens != NULL ? args->q_lens[i] : 1;
    const int64_t keys = args->kv_lens != NULL ? args->kv_lens[i] : queries;
    const bool cached = session->problem.kv_source != ATTN_KV_NEW;
    int32_t status = check_length("q_lens", i, queries, 0, err);
    if (status == ATTN_OK) /* the new tokens are among the keys, except in cross-attention */
        status = check_length("kv_lens", i, keys,
                              cached && session->problem.type == ATTN_DECODER ? queries : 0, err);
    if (status != ATTN_OK)
        return status;
    if (step->tokens + queries > INT32_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "q_lens",
                          "q_lens has more than %d tokens up to sequence %u; split the step", INT32_MAX, i);
    if (!cached && step->keys + keys > INT32_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_lens",
                          "kv_lens has more than %d keys up to sequence %u; split the step", INT32_MAX, i);
    step->tokens += (uint32_t)queries;
    step->keys += keys;
    step->max_q = queries > step->max_q ? (uint32_t)queries : step->max_q;
    step->max_kv = keys > step->max_kv ? (uint32_t)keys : step->max_kv;
    return ATTN_OK;
}

static int32_t measure(const struct attn_session *session, const struct attn_forward_args *args,
                       struct step *step, struct attn_error *err)
{
    const bool cached = session->problem.kv_source != ATTN_KV_NEW;
    *step = (struct step){.has_keys = cached || args->kv_lens != NULL,
                          .has_table = cached && session->problem.addressing == ATTN_TABLE};
    if (args->seqs == 0 || args->seqs > INT32_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs", "seqs is %u; accepted: 1 to %d", args->seqs,
                          INT32_MAX);
    for (uint32_t i = 0; i < args->seqs; i++) {
        const int32_t status = add_lengths(session, args, i, step, err);
        if (status != ATTN_OK)
            return status;
    }
    if (step->has_table && (args->table == NULL || args->table_width == 0))
        return attn__fail(err, ATTN_E_INVALID, 0, "table",
                          "table is not given; a cache with addr=table needs rows of table_width pages");
    step->words = (uint64_t)args->seqs + 1;
    if (step->has_keys) /* lengths; of new keys also where those of a sequence begin */
        step->words += args->seqs + (cached ? 0 : (uint64_t)args->seqs + 1);
    if (step->has_table)
        step->words += (uint64_t)args->seqs * args->table_width;
    return ATTN_OK;
}

/* ---------------------------------------------------------------- the arrays of a step */

/* Sums before each length, and all of them at the end. */
static int32_t *write_sums(int32_t *to, const int32_t *lengths, uint32_t count)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        *to++ = sum;
        sum += lengths != NULL ? lengths[i] : 1;
    }
    *to++ = sum;
    return to;
}

static int32_t write_arrays(struct attn_session *session, const struct attn_forward_args *args,
                            const struct step *step, struct attn_error *err)
{
    if (session->next_words < step->words) {
        int32_t *more = realloc(session->next, 2 * step->words * sizeof *more);
        if (more == NULL)
            return attn__fail(err, ATTN_E_MEMORY, 0, "session", "no memory for the arrays of a step");
        session->next = more;
        session->next_words = 2 * step->words;
    }
    const int32_t *keys = args->kv_lens != NULL ? args->kv_lens : args->q_lens;
    int32_t *to = write_sums(session->next, args->q_lens, args->seqs);
    for (uint32_t i = 0; step->has_keys && i < args->seqs; i++)
        *to++ = keys != NULL ? keys[i] : 1;
    if (step->has_keys && session->problem.kv_source == ATTN_KV_NEW)
        to = write_sums(to, keys, args->seqs);
    if (step->has_table)
        memcpy(to, args->table, (size_t)args->seqs * args->table_width * sizeof *to);
    return ATTN_OK;
}

/* The next `count` numbers on the device and on the host. */
static const int32_t *take(const struct attn_session *session, uint64_t *at, uint64_t count,
                           struct attn_buffer *out)
{
    const int32_t *host = (const int32_t *)session->arrays.data + *at;
    *out = session->device_arrays.buffer;
    out->byte_offset += *at * sizeof(int32_t);
    *at += count;
    return host;
}

static void fill_batch(struct attn_session *session, const struct attn_forward_args *args,
                       const struct step *step)
{
    struct attn_batch *batch = &session->batch;
    struct attn_batch_host *host = &session->copies;
    uint64_t at = 0;
    ATTN_INIT(batch);
    ATTN_INIT(host);
    batch->given = ATTN_GIVEN_HOST_COPIES;
    batch->host = host;
    batch->seqs = args->seqs;
    batch->num_tokens = step->tokens;
    batch->max_q = step->max_q;
    batch->max_kv = step->max_kv;
    host->q_offsets = take(session, &at, (uint64_t)args->seqs + 1, &batch->q_offsets);
    if (step->has_keys)
        host->kv_lens = take(session, &at, args->seqs, &batch->kv_lens);
    if (step->has_keys && session->problem.kv_source == ATTN_KV_NEW)
        host->kv_offsets = take(session, &at, (uint64_t)args->seqs + 1, &batch->kv_offsets);
    if (!step->has_table)
        return;
    host->table = take(session, &at, (uint64_t)args->seqs * args->table_width, &batch->table);
    batch->table_width = args->table_width;
    batch->table_stride = (int64_t)args->table_width * (int64_t)sizeof(int32_t);
    batch->pages = args->pages;
    batch->cascade = attn__batch_has_cascade(&session->problem, batch, host);
}

/* Whether the last step had the same lengths and tables, so that its schedule serves. */
static bool is_same(const struct attn_session *session, const struct attn_forward_args *args,
                    const struct step *step)
{
    const struct attn_batch *batch = &session->batch;
    return session->prepared && batch->seqs == args->seqs && batch->num_tokens == step->tokens &&
           (!step->has_table || (batch->table_width == args->table_width && batch->pages == args->pages)) &&
           (batch->kv_lens.data != NULL) == step->has_keys &&
           memcmp(session->arrays.data, session->next, step->words * sizeof(int32_t)) == 0;
}

static int32_t prepare(struct attn_session *session, const struct attn_forward_args *args, void *stream,
                       struct attn_error *err)
{
    struct step step;
    session->stream = stream;
    int32_t status = measure(session, args, &step, err);
    if (status == ATTN_OK)
        status = write_arrays(session, args, &step, err);
    if (status != ATTN_OK || is_same(session, args, &step))
        return status;
    status = attn__session_wait(session, err);
    if (status == ATTN_OK)
        status = attn__session_room(session, step.words, err);
    if (status != ATTN_OK)
        return status;
    const uint64_t size = step.words * sizeof(int32_t);
    const struct attn_buffer host = {session->arrays.data, 0};
    session->prepared = false;
    memcpy(session->arrays.data, session->next, size);
    fill_batch(session, args, &step);
    status = attn__session_plan(session, err);
    if (status != ATTN_OK)
        return status;
    const struct attn_span staging = {{session->staging.data, 0}, session->staging.size};
    status = attn_memory_copy(session->backend, &session->device_arrays.buffer, &host, size,
                              ATTN_COPY_TO_DEVICE, stream, err);
    if (status == ATTN_OK)
        status = attn_plan_prepare(session->plan, &session->batch, &session->schedule, &staging, stream, err);
    const int32_t marked = attn__session_mark(session, status == ATTN_OK ? err : NULL);
    status = status == ATTN_OK ? marked : status;
    session->prepared = status == ATTN_OK;
    return status;
}

/* ---------------------------------------------------------------- the cache */

static int32_t check_cache(const struct attn_session *session, const struct attn_forward_args *args,
                           struct attn_error *err)
{
    const struct attn_problem *problem = &session->problem;
    const bool given = args->k_cache.data != NULL || args->v_cache.data != NULL || args->kv != NULL;
    if (problem->kv_source != ATTN_KV_CACHE &&
        (args->k.buffer.data == NULL || (args->v.buffer.data == NULL) != (problem->mla != 0)))
        return attn__fail(err, ATTN_E_INVALID, 0, args->k.buffer.data == NULL ? "k" : "v",
                          "kv_source=%s needs new keys: give k%s",
                          problem->kv_source == ATTN_KV_NEW ? "new" : "cache+new",
                          problem->mla != 0 ? " alone" : " and v");
    if (problem->kv_source == ATTN_KV_NEW)
        return !given ? ATTN_OK
                      : attn__fail(err, ATTN_E_INVALID, 0, "k_cache",
                                   "a cache is given, but the problem says kv_source=new; leave it out");
    if (problem->type == ATTN_ENCODER_DECODER && args->k.buffer.data != NULL)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "k",
            "k is given, but the keys of cross-attention are not those of the query tokens; write "
            "them with attn_kv_write, and leave k out");
    if (args->kv != NULL)
        return args->k_cache.data == NULL && args->v_cache.data == NULL
                   ? ATTN_OK
                   : attn__fail(err, ATTN_E_INVALID, 0, "kv",
                                "k_cache and kv are both given; one of them is accepted");
    if (args->k_cache.data == NULL || (args->v_cache.data == NULL) != (problem->mla != 0))
        return attn__fail(err, ATTN_E_INVALID, 0, args->k_cache.data == NULL ? "k_cache" : "v_cache", "%s",
                          problem->mla != 0 ? "mla=1 needs k_cache alone, or kv"
                                            : "k_cache and v_cache are needed, or kv");
    if (problem->layout != ATTN_STRIDED || problem->k_scale > ATTN_SCALES_UNIT ||
        problem->v_scale > ATTN_SCALES_UNIT)
        return attn__fail(err, ATTN_E_INVALID, 0, "k_cache",
                          "k_cache is contiguous and has no scales; with layout=paged-x or scales give kv");
    return ATTN_OK;
}

static void describe_cache(const struct attn_session *session, const struct attn_forward_args *args,
                           struct attn_kv_desc *desc)
{
    const struct attn_problem *problem = &session->problem;
    const int64_t k_head = (int64_t)attn_row_bytes(problem->k_dtype, problem->head_dim);
    const int64_t v_head = (int64_t)attn_row_bytes(problem->v_dtype, problem->head_dim_vo);
    ATTN_INIT(desc);
    desc->k_dtype = problem->k_dtype;
    desc->v_dtype = problem->v_dtype;
    desc->pages = args->pages;
    desc->block = args->block != 0 ? args->block : problem->block;
    desc->kv_heads = problem->kv_heads;
    desc->head_dim = problem->head_dim;
    desc->head_dim_vo = problem->head_dim_vo;
    desc->k = args->k_cache;
    desc->k_head_stride = k_head;
    desc->k_token_stride = k_head * problem->kv_heads;
    desc->k_page_stride = desc->k_token_stride * desc->block;
    desc->k_scale.kind = problem->k_scale == ATTN_SCALES_UNIT ? ATTN_SCALE_UNIT : 0;
    if (problem->mla != 0)
        return;
    desc->v = args->v_cache;
    desc->v_head_stride = v_head;
    desc->v_token_stride = v_head * problem->kv_heads;
    desc->v_page_stride = desc->v_token_stride * desc->block;
    desc->v_scale.kind = problem->v_scale == ATTN_SCALES_UNIT ? ATTN_SCALE_UNIT : 0;
}

static int32_t write_keys(const struct attn_session *session, const struct attn_forward_args *args,
                          const struct attn_kv_desc *desc, void *stream, struct attn_error *err)
{
    const struct attn_problem *problem = &session->problem;
    struct attn_kv_write_args write;
    ATTN_INIT(&write);
    write.k_dtype = args->k.dtype != 0 ? args->k.dtype : problem->q_dtype;
    write.v_dtype = args->v.dtype != 0 ? args->v.dtype : problem->q_dtype;
    write.num_tokens = session->batch.num_tokens;
    write.k_new = args->k;
    write.v_new = args->v;
    write.kv = args->kv;
    write.kv_desc = args->kv == NULL ? desc : NULL;
    write.addressing = problem->addressing;
    write.batch = &session->batch;
    return attn_kv_write(session->backend, &write, stream, err);
}

/* ---------------------------------------------------------------- the call */

static int32_t fill_tensors(const struct attn_session *session, const struct attn_forward_args *args,
                            const struct attn_kv_desc *desc, struct attn_tensors *out, struct attn_error *err)
{
    const struct attn_problem *problem = &session->problem;
    ATTN_INIT(out);
    if (args->extras != NULL) {
        const int32_t status = attn__take(out, sizeof *out, args->extras, sizeof *out, "extras", err);
        if (status != ATTN_OK)
            return status;
    }
    if (args->softmax_scale == 0 && problem->mla != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "softmax_scale",
                          "softmax_scale is 0; mla=1 needs that of the model, for head_dim=%u is not its own",
                          problem->head_dim);
    out->softmax_scale =
        args->softmax_scale != 0 ? args->softmax_scale : 1.0F / sqrtf((float)problem->head_dim);
    out->q = args->q;
    out->out = args->out;
    out->lse = args->lse;
    out->k_new = out->v_new = (struct attn_tensor){.dtype = 0};
    if (problem->kv_source != ATTN_KV_CACHE) {
        out->k_new = args->k;
        out->v_new = args->v;
    }
    out->kv = args->kv;
    out->kv_desc = args->kv == NULL && problem->kv_source != ATTN_KV_NEW ? desc : NULL;
    return ATTN_OK;
}

int32_t attn_forward(struct attn_session *session, const struct attn_forward_args *args, void *stream,
                     struct attn_error *err)
{
    struct attn_forward_args known;
    struct attn_tensors tensors;
    struct attn_kv_desc desc;
    if (session == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "session",
                          "attn_forward: the session is NULL; one that attn_open made is accepted");
    int32_t status = attn__take(&known, sizeof known, args, sizeof known, "args", err);
    if (status == ATTN_OK)
        status = check_cache(session, &known, err);
    if (status != ATTN_OK)
        return status;
    describe_cache(session, &known, &desc);
    status = fill_tensors(session, &known, &desc, &tensors, err);
    if (status == ATTN_OK)
        status = prepare(session, &known, stream, err);
    if (status == ATTN_OK && known.k.buffer.data != NULL && session->problem.kv_source != ATTN_KV_NEW)
        status = write_keys(session, &known, &desc, stream, err);
    if (status != ATTN_OK)
        return status;
    status = attn_plan_run(session->plan, &session->batch, &tensors, &session->schedule, &session->scratch,
                           stream, err);
    session->scratch.counters_dirty = status != ATTN_OK;
    return status;
}
