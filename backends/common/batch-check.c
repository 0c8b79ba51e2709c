/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Checks every array of a batch once a step, and finds the highest page or token that a run will read, so
 * that each layer compares one number with its cache.
 */
#include "check.h"

static int32_t fail_at(struct attn_error *err, const char *name, uint64_t index, int64_t value,
                       const char *wanted)
{
    return attn__fail(err, ATTN_E_INVALID, 0, name, "%s[%llu] is %lld; %s", name, (unsigned long long)index,
                      (long long)value, wanted);
}

/* A given array is aligned to its elements; a needed one is given. */
static int32_t check_array(const struct attn_buffer *buffer, uint32_t size, bool needed, const char *name,
                           struct attn_error *err)
{
    uintptr_t address = (uintptr_t)attn__address(buffer);

    if (address == 0 && needed)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; the plan needs it", name);
    if ((address & (size - 1)) != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "the address of %s is no multiple of %u", name, size);
    return ATTN_OK;
}

static int32_t check_scalars(const struct attn_problem *problem, const struct attn_batch *batch,
                             struct attn_error *err)
{
    const struct {
        const char *name;
        uint32_t value, most;
    } counts[] = {{"seqs", batch->seqs, problem->max_seqs},
                  {"rows", batch->rows, problem->max_rows},
                  {"max_q", batch->max_q, problem->max_q},
                  {"max_kv", batch->max_kv, problem->max_kv}};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].value > counts[i].most)
            return attn__fail(err, ATTN_E_INVALID, 0, counts[i].name,
                              "%s is %u; up to the plan's maximum %u is accepted", counts[i].name,
                              counts[i].value, counts[i].most);
    }
    return ATTN_OK;
}

static int32_t check_arrays(const struct attn_problem *problem, const struct attn_batch *batch, bool queries,
                            struct attn_error *err)
{
    bool any = batch->seqs > 0, cached = problem->kv_source != ATTN_KV_NEW;
    uint32_t index_size = problem->index_dtype == ATTN_INT64 ? 8 : 4;
    uint32_t position_size = batch->position_dtype == ATTN_INT64 ? 8 : 4;
    const struct {
        const struct attn_buffer *buffer;
        const char *name;
        uint32_t size;
        bool needed;
    } arrays[] = {
        {&batch->q_offsets, "q_offsets", 4, any && queries},
        {&batch->kv_lens, "kv_lens", 4, any && cached},
        {&batch->kv_offsets, "kv_offsets", 4, false},
        {&batch->csr_indptr, "csr_indptr", 4, any && cached && problem->addressing == ATTN_CSR},
        {&batch->csr_indices, "csr_indices", index_size, false},
        {&batch->table, "table", 4, false},
        {&batch->last_page_lens, "last_page_lens", 4, false},
        {&batch->q_positions, "q_positions", position_size, problem->positions != 0 && batch->rows > 0},
        {&batch->seq_causal, "seq_causal", 1, problem->seq_causal != 0 && any},
        {&batch->kv_global_lens, "kv_global_lens", 4, problem->cp != 0 && any},
    };

    if (batch->table_stride % 4 != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "table_stride",
                          "table_stride is %lld bytes, no multiple of 4", (long long)batch->table_stride);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        int32_t status = check_array(arrays[i].buffer, arrays[i].size, arrays[i].needed, arrays[i].name, err);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

struct attn_spread attn__spread_of(const struct attn_problem *problem, const struct attn_batch *batch)
{
    if (problem->cp == 0)
        return (struct attn_spread){0};
    return (struct attn_spread){batch->cp_rank, batch->cp_world, batch->cp_interleave};
}

/* Whether this may be one of the ranks that keys are spread over. */
static int32_t check_ranks(const struct attn_problem *problem, const struct attn_batch *batch,
                           struct attn_error *err)
{
    int64_t all;

    if (problem->cp == 0 || batch->seqs == 0)
        return ATTN_OK;
    if (batch->cp_rank >= batch->cp_world)
        return attn__fail(err, ATTN_E_INVALID, 0, "cp_rank", "cp_rank is %u of cp_world %u; it must be less",
                          batch->cp_rank, batch->cp_world);
    if (batch->cp_interleave == 0 ||
        (problem->addressing != ATTN_DENSE && problem->block % batch->cp_interleave != 0) ||
        __builtin_mul_overflow((int64_t)batch->cp_interleave, batch->cp_world, &all))
        return attn__fail(
            err, ATTN_E_INVALID, 0, "cp_interleave",
            "cp_interleave is %u; divisors of block %u are accepted whose product with cp_world "
            "%u fits 63 bits",
            batch->cp_interleave, problem->block, batch->cp_world);
    return ATTN_OK;
}

static const int32_t *array(const struct attn_buffer *buffer)
{
    return (const int32_t *)(const void *)attn__address(buffer);
}

/* Query offsets begin at 0, never fall, and end at rows. */
static int32_t check_queries(const struct attn_batch *batch, struct attn_error *err)
{
    const int32_t *offsets = array(&batch->q_offsets);

    if (batch->seqs == 0) {
        if (batch->rows != 0)
            return attn__fail(err, ATTN_E_INVALID, 0, "rows",
                              "rows is %u, but there are no sequences; 0 is accepted", batch->rows);
        return ATTN_OK;
    }
    if (offsets[0] != 0)
        return fail_at(err, "q_offsets", 0, offsets[0], "it begins at 0");
    for (uint32_t n = 0; n < batch->seqs; n++) {
        int64_t length = (int64_t)offsets[n + 1] - offsets[n];
        if (length < 0)
            return fail_at(err, "q_offsets", n + 1, offsets[n + 1], "it must not fall");
        if (length > batch->max_q)
            return fail_at(err, "q_offsets", n + 1, offsets[n + 1],
                           "the sequence has more query tokens than max_q");
    }
    if ((uint32_t)offsets[batch->seqs] != batch->rows)
        return fail_at(err, "q_offsets", batch->seqs, offsets[batch->seqs], "it must end at rows");
    return ATTN_OK;
}

/* `offsets`: where the tokens of a sequence begin, or NULL: a page is a sequence. */
static int32_t check_dense(const int32_t *offsets, uint32_t seq, int64_t kv_len, struct attn_extent *extent,
                           struct attn_error *err)
{
    int64_t last = seq;

    if (offsets != NULL) {
        if (offsets[seq] < 0)
            return fail_at(err, "kv_offsets", seq, offsets[seq], "it must not be negative");
        last = offsets[seq] + kv_len;
        if (last > offsets[seq + 1])
            return fail_at(err, "kv_offsets", (uint64_t)seq + 1, offsets[seq + 1],
                           "the sequence's kv_lens reaches beyond it");
        last--;
    }
    extent->last_key = last > extent->last_key ? last : extent->last_key;
    return ATTN_OK;
}

/* Highest entry of a row of pages, -1 if all are holes. */
static int64_t highest(const void *entries, uint32_t dtype, uint64_t first, uint64_t count)
{
    int64_t most = -1;

    if (dtype == ATTN_INT64) {
        const int64_t *wide = (const int64_t *)entries + first;
        for (uint64_t i = 0; i < count; i++)
            most = wide[i] > most ? wide[i] : most;
        return most;
    }
    const int32_t *narrow = (const int32_t *)entries + first;
    int32_t top = -1;
    for (uint64_t i = 0; i < count; i++)
        top = narrow[i] > top ? narrow[i] : top;
    return top;
}

static int32_t check_pages(const struct attn_problem *problem, const struct attn_batch *batch, uint32_t seq,
                           uint32_t kv_len, struct attn_extent *extent, struct attn_error *err)
{
    uint32_t needed = kv_len / problem->block + (kv_len % problem->block != 0);
    bool is_table = problem->addressing == ATTN_TABLE;
    const char *name = is_table ? "table" : "csr_indices", *entries = NULL;
    int64_t there = batch->table_width, most;
    uint64_t first = 0;

    if (is_table) {
        entries = attn__address(&batch->table);
    } else {
        const int32_t *indptr = array(&batch->csr_indptr);
        if (indptr[seq] < 0)
            return fail_at(err, "csr_indptr", seq, indptr[seq], "it must not be negative");
        there = (int64_t)indptr[seq + 1] - indptr[seq];
        first = (uint64_t)indptr[seq];
        entries = attn__address(&batch->csr_indices);
    }
    if (needed > there)
        return attn__fail(
            err, ATTN_E_INVALID, 0, is_table ? "table_width" : "csr_indptr",
            "sequence %u has %u keys in %u pages, but %lld page entries; as many as pages are needed", seq,
            kv_len, needed, (long long)there);
    if (entries == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, name, "%s is not given; the plan needs it", name);
    if (is_table)
        most = highest(entries + (int64_t)seq * batch->table_stride, ATTN_INT32, 0, needed);
    else
        most = highest(entries, problem->index_dtype, first, needed);
    if (batch->pages != 0 && most >= batch->pages)
        return attn__fail(err, ATTN_E_INVALID, 0, name,
                          "sequence %u has page %lld, the cache has %u pages; pages below that and holes "
                          "(negative) are accepted",
                          seq, (long long)most, batch->pages);
    extent->last_key = most > extent->last_key ? most : extent->last_key;
    return ATTN_OK;
}

/* Without a cache lengths may be left out, and follow from either offsets. */
static int64_t count_keys(const struct attn_batch *batch, uint32_t seq)
{
    const int32_t *offsets = array(batch->kv_offsets.data != NULL ? &batch->kv_offsets : &batch->q_offsets);

    if (batch->kv_lens.data != NULL)
        return array(&batch->kv_lens)[seq];
    return (int64_t)offsets[seq + 1] - offsets[seq];
}

/* What the new rows of a sequence ask of its length. */
static int32_t check_new(const struct attn_problem *problem, const struct attn_batch *batch, uint32_t seq,
                         int64_t kv_len, struct attn_error *err)
{
    const int32_t *offsets = array(&batch->q_offsets);

    if (problem->kv_source != ATTN_KV_NEW && problem->kv_source != ATTN_KV_CACHE_NEW)
        return ATTN_OK; /* a batch that only says where keys are has no queries */
    int64_t q_len = (int64_t)offsets[seq + 1] - offsets[seq];

    if (problem->kv_source == ATTN_KV_NEW && batch->kv_offsets.data == NULL && kv_len != q_len)
        return fail_at(err, "kv_lens", seq, kv_len, "without kv_offsets it is the number of query tokens");
    if (problem->kv_source == ATTN_KV_CACHE_NEW && kv_len < q_len)
        return fail_at(err, "kv_lens", seq, kv_len, "it must not be less than the number of query tokens");
    return ATTN_OK;
}

/* Of all keys of a sequence its length is what this rank holds. */
static int32_t check_share(const struct attn_problem *problem, const struct attn_batch *batch, uint32_t seq,
                           int64_t kv_len, struct attn_error *err)
{
    const struct attn_spread spread = attn__spread_of(problem, batch);

    if (problem->cp == 0)
        return ATTN_OK;
    int64_t all = array(&batch->kv_global_lens)[seq];
    if (all < 0)
        return fail_at(err, "kv_global_lens", seq, all, "it must not be negative");
    int64_t own = attn__spread_count(&spread, all);
    if (kv_len != own)
        return attn__fail(err, ATTN_E_INVALID, 0, "kv_lens",
                          "kv_lens[%u] is %lld, but of kv_global_lens[%u] = %lld keys rank %u of %u holds "
                          "%lld, which is accepted",
                          seq, (long long)kv_len, seq, (long long)all, batch->cp_rank, batch->cp_world,
                          (long long)own);
    return ATTN_OK;
}

static int32_t check_keys(const struct attn_problem *problem, const struct attn_batch *batch, uint32_t seq,
                          struct attn_extent *extent, struct attn_error *err)
{
    int64_t kv_len = count_keys(batch, seq);
    const int32_t *last_page_lens = array(&batch->last_page_lens);

    if (kv_len < 0 || kv_len > (int64_t)batch->max_kv)
        return fail_at(err, "kv_lens", seq, kv_len, "0 to max_kv is accepted");
    int32_t status = check_new(problem, batch, seq, kv_len, err);
    if (status == ATTN_OK)
        status = check_share(problem, batch, seq, kv_len, err);
    if (status != ATTN_OK)
        return status;
    extent->max_kv = (uint32_t)kv_len > extent->max_kv ? (uint32_t)kv_len : extent->max_kv;
    if (kv_len == 0)
        return ATTN_OK;
    if (problem->kv_source == ATTN_KV_NEW)
        return check_dense(array(batch->kv_offsets.data != NULL ? &batch->kv_offsets : &batch->q_offsets),
                           seq, kv_len, extent, err);
    if (problem->addressing == ATTN_DENSE)
        return check_dense(array(&batch->kv_offsets), seq, kv_len, extent, err);
    if (last_page_lens != NULL && (int64_t)last_page_lens[seq] != (kv_len - 1) % problem->block + 1)
        return fail_at(err, "last_page_lens", seq, last_page_lens[seq], "it contradicts kv_lens and block");
    return check_pages(problem, batch, seq, (uint32_t)kv_len, extent, err);
}

int32_t attn__batch_check_given(const struct attn_problem *problem, const struct attn_batch *batch,
                                struct attn_error *err)
{
    int32_t status = check_scalars(problem, batch, err);

    if (status == ATTN_OK)
        status = check_arrays(problem, batch, true, err);
    return status == ATTN_OK ? check_ranks(problem, batch, err) : status;
}

int32_t attn__batch_check(const struct attn_problem *problem, const struct attn_batch *batch,
                          struct attn_extent *out, struct attn_error *err)
{
    int32_t status = attn__batch_check_given(problem, batch, err);

    *out = (struct attn_extent){.last_key = -1};
    if (status == ATTN_OK)
        status = check_queries(batch, err);
    for (uint32_t n = 0; n < batch->seqs && status == ATTN_OK; n++)
        status = check_keys(problem, batch, n, out, err);
    return status;
}

int32_t attn__batch_check_keys(const struct attn_problem *problem, const struct attn_batch *batch,
                               struct attn_extent *out, struct attn_error *err)
{
    int32_t status = check_arrays(problem, batch, false, err);

    *out = (struct attn_extent){.last_key = -1};
    for (uint32_t n = 0; n < batch->seqs && status == ATTN_OK; n++)
        status = check_keys(problem, batch, n, out, err);
    return status;
}

int32_t attn__extent_check(const struct attn_problem *problem, const struct attn_batch *batch,
                           const struct attn_extent *extent, const struct attn_kv_desc *desc,
                           struct attn_error *err)
{
    bool run_of_tokens = problem->addressing == ATTN_DENSE && batch->kv_offsets.data != NULL;
    uint64_t there = run_of_tokens ? desc->block : desc->pages;

    if (extent->last_key >= 0 && (uint64_t)extent->last_key >= there)
        return attn__fail(err, ATTN_E_INVALID, 0, run_of_tokens ? "kv_offsets" : "pages",
                          "the batch reads %s %lld; of this cache those below %llu are accepted",
                          run_of_tokens ? "token" : "page", (long long)extent->last_key,
                          (unsigned long long)there);
    if (problem->addressing == ATTN_DENSE && !run_of_tokens && extent->max_kv > desc->block)
        return attn__fail(
            err, ATTN_E_INVALID, 0, "kv_lens",
            "a sequence has %u keys; up to the %u that the cache has room for per sequence are accepted",
            extent->max_kv, desc->block);
    return ATTN_OK;
}
