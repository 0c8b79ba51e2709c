/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Advances arrays in host memory by one decode step. */
#include "advance.h"

#include "check.h"
#include "fail.h"
#include "slot-map.h"

static int32_t *ints(const struct attn_buffer *buffer)
{
    return (int32_t *)(void *)attn__address(buffer);
}

static int64_t *longs(const struct attn_buffer *buffer)
{
    return (int64_t *)(void *)attn__address(buffer);
}

struct attn_advance attn__advance_arrays(const struct attn_kv_advance_step_args *args)
{
    return (struct attn_advance){.seqs = args->seqs,
                                 .queries = args->queries,
                                 .num_tokens = args->num_tokens,
                                 .block = args->block,
                                 .keep_padding = args->keep_padding,
                                 .table_width = args->table_width,
                                 .index_size = args->index_dtype == ATTN_INT64 ? 8 : 4,
                                 .table_stride = args->table_stride,
                                 .table = attn__address(&args->table),
                                 .query_starts = ints(&args->query_starts),
                                 .accepted = ints(&args->accepted),
                                 .sampled = longs(&args->sampled),
                                 .tokens = longs(&args->tokens),
                                 .positions = longs(&args->positions),
                                 .slots = longs(&args->slots),
                                 .seq_lens = ints(&args->seq_lens),
                                 .context_lens = ints(&args->context_lens),
                                 .seq_starts = ints(&args->seq_starts),
                                 .csr_capacity = args->csr_capacity,
                                 .csr_indptr = ints(&args->csr_indptr),
                                 .csr_indices = attn__address(&args->csr_indices),
                                 .csr_last_page_lens = ints(&args->last_page_lens),
                                 .csr_pages = ints(&args->csr_pages),
                                 .windowed = args->windowed,
                                 .window = args->window};
}

static int64_t first_token(const struct attn_advance *a, uint32_t seq)
{
    return a->query_starts != NULL ? a->query_starts[seq] : (int64_t)seq;
}

static int64_t grown(const struct attn_advance *a, uint32_t seq)
{
    return (int64_t)a->seq_lens[seq] + (a->accepted != NULL ? a->accepted[seq] : 1);
}

static const void *table_row(const struct attn_advance *a, uint32_t seq)
{
    return (const char *)a->table + a->table_stride * (int64_t)seq;
}

static int64_t page_at(const struct attn_advance *a, uint32_t seq, int64_t index)
{
    if (a->index_size == sizeof(int64_t))
        return ((const int64_t *)table_row(a, seq))[index];
    return ((const int32_t *)table_row(a, seq))[index];
}

/* Number of a position's key on this rank; -1: another has it. */
static int64_t key_at(const struct attn_advance *a, int64_t position)
{
    const int64_t key = attn__cp_count(&a->shard, position);

    return attn__cp_count(&a->shard, position + 1) > key ? key : -1;
}

static int64_t pages_of(const struct attn_advance *a, int64_t len)
{
    return len / a->block + (len % a->block != 0);
}

/* ---------------------------------------------------------------- checks */

/* Page numbers may be so large that a slot does not fit 64 bits. */
static int32_t check_slots(const struct attn_advance *a, uint32_t seq, struct attn_error *err)
{
    const int64_t len = grown(a, seq), tokens = first_token(a, seq + 1) - first_token(a, seq);

    for (int64_t position = len - tokens; position < len; position++) {
        const int64_t key = key_at(a, position), page = key < 0 ? -1 : page_at(a, seq, key / a->block);
        if (page > (INT64_MAX - a->block) / a->block)
            return attn__fail(err, ATTN_E_INVALID, 0, "block_tables",
                              "page %lld of %u tokens has no slots of 64 bits", (long long)page, a->block);
    }
    return ATTN_OK;
}

static int32_t check_one(const struct attn_advance *a, uint32_t seq, struct attn_error *err)
{
    const int64_t len = grown(a, seq), tokens = first_token(a, seq + 1) - first_token(a, seq);
    const int64_t room = (int64_t)a->table_width * a->block;

    if (a->seq_lens[seq] < 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens", "seq_lens[%u] is %d; accepted: 0 and more", seq,
                          a->seq_lens[seq]);
    if (a->accepted != NULL && a->accepted[seq] < 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "accepted", "accepted[%u] is %d; accepted: 0 and more", seq,
                          a->accepted[seq]);
    if (tokens < 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "query_start_loc",
                          "query_start_loc falls from %lld to %lld at %u", (long long)first_token(a, seq),
                          (long long)first_token(a, seq + 1), seq);
    if (len > INT32_MAX || len < tokens)
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens",
                          "seq_lens[%u] grows to %lld; accepted: from its %lld query tokens to %d", seq,
                          (long long)len, (long long)tokens, INT32_MAX);
    if (a->table != NULL && attn__cp_count(&a->shard, len) > room)
        return attn__fail(err, ATTN_E_INVALID, 0, "block_tables",
                          "sequence %u grows to %lld tokens, but its row of block_tables has %u pages of %u",
                          seq, (long long)len, a->table_width, a->block);
    return a->slots != NULL ? check_slots(a, seq, err) : ATTN_OK;
}

/* Checks the sums that are written as start locations and to csr_indptr. */
static int32_t check_sums(const struct attn_advance *a, struct attn_error *err)
{
    int64_t tokens = 0, pages = 0;

    for (uint32_t i = 0; i < a->seqs; i++) {
        tokens += i < a->queries ? grown(a, i) : a->seq_lens[i];
        pages += i < a->queries ? pages_of(a, grown(a, i)) : 0;
    }
    if (a->seq_starts != NULL && tokens > INT32_MAX)
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens",
                          "seq_lens grow to %lld tokens together; accepted: up to %d", (long long)tokens,
                          INT32_MAX);
    if (a->csr_indptr != NULL && ((uint64_t)pages > a->csr_capacity || pages > INT32_MAX))
        return attn__fail(err, ATTN_E_INVALID, 0, "paged_kv_indices",
                          "the sequences grow to %lld pages together, but paged_kv_indices has room for %llu",
                          (long long)pages, (unsigned long long)a->csr_capacity);
    return ATTN_OK;
}

static int32_t check_shape(const struct attn_advance *a, struct attn_error *err)
{
    if (a->seqs < a->queries)
        return attn__fail(err, ATTN_E_INVALID, 0, "seqs", "seqs is %u; accepted: queries, %u, and more",
                          a->seqs, a->queries);
    if (a->block == 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "block", "block is 0; accepted: 1 and more tokens");
    if (a->seq_lens == NULL)
        return attn__fail(err, ATTN_E_INVALID, 0, "seq_lens", "seq_lens is not given");
    if (a->table == NULL && (a->slots != NULL || a->csr_indptr != NULL))
        return attn__fail(err, ATTN_E_INVALID, 0, "block_tables", "block_tables is not given");
    if (a->csr_indptr != NULL &&
        (a->csr_indices == NULL || a->csr_last_page_lens == NULL || a->csr_pages == NULL))
        return attn__fail(err, ATTN_E_INVALID, 0, "paged_kv_indptr",
                          "paged_kv_indptr is given without paged_kv_indices, paged_kv_last_page_len or "
                          "block_table_bound");
    if (first_token(a, 0) != 0)
        return attn__fail(err, ATTN_E_INVALID, 0, "query_start_loc",
                          "query_start_loc begins with %lld; accepted: 0", (long long)first_token(a, 0));
    return ATTN_OK;
}

int32_t attn__advance_check(const struct attn_advance *a, struct attn_error *err)
{
    int32_t status = check_shape(a, err);

    for (uint32_t i = 0; i < a->queries && status == ATTN_OK; i++)
        status = check_one(a, i, err);
    if (status == ATTN_OK && first_token(a, a->queries) > a->num_tokens)
        status = attn__fail(err, ATTN_E_INVALID, 0, "query_start_loc",
                            "query_start_loc ends with %lld, but there are %u query tokens",
                            (long long)first_token(a, a->queries), a->num_tokens);
    return status == ATTN_OK ? check_sums(a, err) : status;
}

/* ---------------------------------------------------------------- writes */

static void write_tokens(const struct attn_advance *a, uint32_t seq, int64_t len)
{
    const int64_t first = first_token(a, seq), end = first_token(a, seq + 1);
    const int64_t start = seq < a->windowed ? end - first - a->window : 0; /* first position with a slot */

    for (int64_t t = first; t < end; t++) {
        const int64_t position = len - (end - t);
        if (a->positions != NULL)
            a->positions[t] = position;
        if (a->slots != NULL) {
            const int64_t key = position < start ? -1 : key_at(a, position);
            a->slots[t] =
                key < 0 ? -1 : attn__slot_of(page_at(a, seq, key / a->block), key % a->block, a->block);
        }
    }
    if (a->context_lens != NULL)
        a->context_lens[seq] = (int32_t)(len - (end - first));
}

static void write_csr(const struct attn_advance *a, uint32_t seq, int64_t len)
{
    const int32_t pages = (int32_t)pages_of(a, len), first = a->csr_indptr[seq];
    const int32_t rest = (int32_t)(len % a->block);

    a->csr_pages[seq] = pages;
    a->csr_last_page_lens[seq] = rest != 0 ? rest : (int32_t)a->block;
    a->csr_indptr[seq + 1] = first + pages;
    if (pages > 0)
        memcpy((char *)a->csr_indices + (size_t)first * a->index_size, table_row(a, seq),
               (size_t)pages * a->index_size);
}

static void write_padding(const struct attn_advance *a)
{
    for (int64_t t = first_token(a, a->queries); t < a->num_tokens && a->keep_padding == 0; t++) {
        if (a->tokens != NULL)
            a->tokens[t] = 0;
        if (a->positions != NULL)
            a->positions[t] = 0;
        if (a->slots != NULL)
            a->slots[t] = -1;
    }
    for (uint32_t i = a->queries; i < a->seqs && a->csr_indptr != NULL; i++)
        a->csr_indptr[i + 1] = a->csr_indptr[a->queries];
}

void attn__advance_write(const struct attn_advance *a)
{
    if (a->tokens != NULL && a->sampled != NULL)
        memmove(a->tokens, a->sampled, (size_t)first_token(a, a->queries) * sizeof *a->tokens);
    if (a->csr_indptr != NULL)
        a->csr_indptr[0] = 0;
    for (uint32_t i = 0; i < a->queries; i++) {
        const int64_t len = grown(a, i);
        write_tokens(a, i, len);
        if (a->csr_indptr != NULL)
            write_csr(a, i, len);
        a->seq_lens[i] = (int32_t)len;
        if (a->rank_lens != NULL)
            a->rank_lens[i] = (int32_t)attn__cp_count(&a->shard, len);
    }
    write_padding(a);
    if (a->seq_starts != NULL)
        a->seq_starts[0] = 0;
    for (uint32_t i = 0; i < a->seqs && a->seq_starts != NULL; i++)
        a->seq_starts[i + 1] = a->seq_starts[i] + a->seq_lens[i];
}
