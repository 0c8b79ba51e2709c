/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes every wrong call: refused, in words, and nothing written. */
#include <stdio.h>
#include <stdlib.h>

#include "need.h"
#include "offence.h"

static const int32_t *batch_array(const struct attn_buffer *buffer)
{
    return (const int32_t *)(const void *)oracle_address(buffer);
}

/* Copies of the pages of every sequence, so that they can be spoiled. */
static void copy_pages(struct arguments *a, const struct attn_batch *from)
{
    struct attn_batch *batch = &a->batch;

    if (a->problem.addressing == ATTN_TABLE) {
        for (uint32_t n = 0; n < from->seqs; n++) {
            const char *row = (const char *)batch_array(&from->table) + (int64_t)n * from->table_stride;
            memcpy(a->table + (size_t)n * from->table_width, row, (size_t)from->table_width * 4);
        }
        batch->table_stride = (int64_t)from->table_width * 4;
        batch->table = (struct attn_buffer){a->table, 0};
        a->host.table = a->table;
    }
    if (a->problem.addressing == ATTN_CSR) {
        const int32_t *indptr = batch_array(&from->csr_indptr);
        uint32_t count = (uint32_t)indptr[from->seqs];
        memcpy(a->table, indptr, (from->seqs + 1) * sizeof *indptr);
        memcpy(a->indices, batch_array(&from->csr_indices),
               (size_t)count * (a->problem.index_dtype == ATTN_INT64 ? 8 : 4));
        batch->csr_indptr = (struct attn_buffer){a->table, 0};
        batch->csr_indices = (struct attn_buffer){a->indices, 0};
        a->host.csr_indptr = a->table;
        a->host.csr_indices = a->indices;
    }
}

static void arguments_init(struct arguments *a, struct bench *bench, bool host)
{
    struct fixture *fixture = &bench->fixture;
    const struct attn_batch *from = &fixture->step.batch;

    memset(a, 0, sizeof *a);
    a->bench = bench;
    a->problem = fixture->step.problem;
    a->problem_given = &a->problem;
    a->batch = *from;
    a->batch_given = &a->batch;
    ATTN_INIT(&a->host);
    memcpy(a->q_offsets, batch_array(&from->q_offsets), (from->seqs + 1) * sizeof *a->q_offsets);
    memcpy(a->kv_lens, batch_array(&from->kv_lens), from->seqs * sizeof *a->kv_lens);
    a->host.q_offsets = a->q_offsets;
    a->host.kv_lens = a->kv_lens;
    a->batch.q_offsets = (struct attn_buffer){a->q_offsets, 0};
    a->batch.kv_lens = (struct attn_buffer){a->kv_lens, 0};
    a->batch.last_page_lens = (struct attn_buffer){NULL, 0};
    copy_pages(a, from);
    a->batch.given = host ? ATTN_GIVEN_HOST_COPIES : 0;
    a->batch.host = host ? &a->host : NULL;
    a->tensors = fixture->step.tensors;
    a->tensors_given = &a->tensors;
    a->kv = fixture->step.kv;
    a->schedule = fixture->schedule;
    a->schedule_given = &a->schedule;
    a->scratch = fixture->scratch;
    a->scratch_given = &a->scratch;
    a->write = fixture->write;
    a->write.kv_desc = NULL;
    memcpy(a->slots, fixture->slots, sizeof a->slots);
    a->write.slot_mapping.data = a->slots;
    a->write_batch = a->batch;
    a->merge = bench->merge;
    memcpy(a->parts, bench->parts, sizeof a->parts);
    a->merge.parts = a->parts;
    a->rescale = bench->rescale;
    memcpy(a->lses, bench->lses, sizeof a->lses);
    a->rescale.all = a->lses;
}

static int32_t call(struct arguments *a, enum offence_call which, struct attn_error *err)
{
    struct bench *bench = a->bench;
    struct attn_backend *backend = bench->target->backend;
    struct attn_plan *plan = NULL;
    struct attn_kv *kv = NULL;
    int32_t status = ATTN_OK;

    if (a->with_handle)
        status = attn_kv_create(backend, &a->kv, &kv, err);
    if (status != ATTN_OK)
        return status;
    a->tensors.kv = a->write.kv = kv;
    if (kv == NULL && !a->without_kv)
        a->tensors.kv_desc = a->write.kv_desc = &a->kv;
    switch (which) {
    case CALL_PREPARE:
        return attn_plan_prepare(bench->plan, a->batch_given, a->schedule_given, &bench->fixture.staging,
                                 NULL, err);
    case CALL_RUN:
        status = attn_plan_run(bench->plan, a->batch_given, a->tensors_given, a->schedule_given,
                               a->scratch_given, NULL, err);
        break;
    case CALL_WRITE:
        status = attn_kv_write(backend, &a->write, NULL, err);
        break;
    case CALL_MERGE:
        return attn_merge(backend, &a->merge, NULL, err);
    case CALL_RESCALE:
        return attn_rescale(backend, &a->rescale, NULL, err);
    case CALL_PLAN:
        status = attn_plan_create(backend, a->problem_given, &plan, err);
        attn_plan_destroy(plan);
        break;
    case CALL_KV:
        status = attn_kv_create(backend, &a->kv, &kv, err);
        break;
    }
    attn_kv_destroy(kv);
    return status;
}

/* Whether an offence can be committed here at all. */
static bool applies(const struct offence *offence, const struct bench *bench, int by)
{
    const struct attn_problem *problem = &bench->fixture.step.problem;
    const struct attn_merge_table *merge = bench->direct.table->merge;
    bool merges = merge != NULL && merge->merge != NULL && merge->rescale != NULL;

    return (offence->by & by) != 0 &&
           (merges || (offence->call != CALL_MERGE && offence->call != CALL_RESCALE)) &&
           (offence->needs != TABLE_PROBLEM || problem->addressing == ATTN_TABLE) &&
           (offence->needs != CSR_PROBLEM || problem->addressing == ATTN_CSR) &&
           (offence->needs != LSE_PROBLEM || problem->lse != 0) &&
           (offence->needs != WIDE_PROBLEM || oracle_size(problem->k_dtype) > 1) &&
           (offence->needs != SCHEDULE_PLAN || bench->fixture.schedule.size > 0) &&
           (offence->needs != SCRATCH_PLAN || bench->fixture.scratch.scratch.size > 0) &&
           (offence->needs != COUNTERS_PLAN || bench->fixture.scratch.counters.size > 0);
}

/* What a refused call may not touch. */
struct witness {
    unsigned char *cache, *merged;
};

static void witness_init(struct witness *witness, const struct bench *bench, size_t bytes)
{
    witness->cache = need(malloc(bytes));
    witness->merged = need(malloc(bench->merged->size));
    memcpy(witness->cache, bench->fixture.write_memory->data, bytes);
    memcpy(witness->merged, bench->merged->data, bench->merged->size);
}

static bool witness_agrees(const struct witness *witness, const struct bench *bench)
{
    const struct guarded *cache = bench->fixture.write_memory;

    return fixture_untouched(&bench->fixture) && memcmp(witness->cache, cache->data, cache->size) == 0 &&
           memcmp(witness->merged, bench->merged->data, bench->merged->size) == 0;
}

static void commit(struct bench *bench, const struct offence *offence, bool host,
                   const struct witness *witness, char *why, size_t size)
{
    struct arguments *a = need(malloc(sizeof *a));
    struct attn_error err;
    int32_t status = ATTN_OK, again = ATTN_OK;

    for (int with_error = 1; with_error >= 0; with_error--) {
        struct attn_error *own = with_error ? &err : NULL;
        arguments_init(a, bench, host);
        if (offence->call == CALL_WRITE)
            a->kv = bench->fixture.write_kv;
        if (own != NULL)
            ATTN_INIT(&err);
        attn_plan_prepare(bench->plan, &a->batch, &a->schedule, &bench->fixture.staging, NULL, NULL);
        offence->spoil(a);
        again = status;
        status = call(a, offence->call, own);
    }
    free(a);
    if (status == ATTN_OK)
        snprintf(why, size, "it is accepted");
    else if (status != again)
        snprintf(why, size, "%s with an error struct, %s without", attn_status_name(again),
                 attn_status_name(status));
    else if (strcmp(attn_status_name(status), "ATTN_E_UNKNOWN") == 0 || status == ATTN_E_MEMORY)
        snprintf(why, size, "it answers %d, %s", status, attn_status_name(status));
    else if (err.status != status || err.message[0] == '\0')
        snprintf(why, size, "it answers %s, but the error says %s: \"%s\"", attn_status_name(status),
                 attn_status_name(err.status), err.message);
    else if (err.field[0] == '\0' || strstr(err.field, offence->field) == NULL)
        snprintf(why, size, "the error's field is \"%s\", not %s: %s", err.field, offence->field,
                 err.message);
    else if (!witness_agrees(witness, bench))
        snprintf(why, size, "it is refused (%s), but something was written", err.message);
}

/* Those that `by` refuses. */
static void commit_all(struct bench *bench, const struct offence *list, int by, bool host, const char *text,
                       uint64_t seed)
{
    struct witness witness;

    witness_init(&witness, bench, bench->fixture.write_memory->size);
    for (const struct offence *offence = list; offence->name != NULL; offence++) {
        char why[768] = "";
        if (!applies(offence, bench, by))
            continue;
        tap_begin(bench->target, bench->kind, text, seed);
        commit(bench, offence, host, &witness, why, sizeof why);
        if (why[0] == '\0')
            tap_pass();
        else
            tap_fail("%s with %s: %s",
                     (const char *const[]){"prepare", "run", "kv write", "merge", "rescale", "plan create",
                                           "kv create"}[offence->call],
                     offence->name, why);
        fixture_clear(&bench->fixture);
    }
    free(witness.cache);
    free(witness.merged);
}

/* All that scalars and host copies tell. */
void faults_arguments(struct bench *bench, const char *text, uint64_t seed)
{
    commit_all(bench, batch_offences, BY_LIBRARY, true, text, seed);
    commit_all(bench, run_offences, BY_LIBRARY, false, text, seed);
    commit_all(bench, other_offences, BY_LIBRARY, false, text, seed);
}

void faults_distrust(struct bench *bench, const char *text, uint64_t seed)
{
    commit_all(bench, batch_offences, BY_PLUGIN, false, text, seed);
    commit_all(bench, run_offences, BY_PLUGIN, false, text, seed);
    commit_all(bench, other_offences, BY_PLUGIN, false, text, seed);
}
