/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cases of one decode step in place: any of the arrays, padding, several tokens of a sequence. */
#include "cache.h"

#include "need.h"

enum { MOST_SEQS = 200, MOST_PAGES = 12, MOST_TOKENS = 4 };

/* What a step begins with. */
struct lengths {
    int32_t query_starts[MOST_SEQS + 1];
    int32_t accepted[MOST_SEQS];
    int32_t seq_lens[MOST_SEQS];
    uint64_t pages; /* that the sequences have after it */
};

/* An array that the step may write. */
static struct attn_buffer place_written(struct cache_case *c, const char *name, const void *from,
                                        size_t count, size_t size)
{
    struct guarded *memory = arena_add(&c->arena, name, count * size, size, 0x5a);

    if (from != NULL && count > 0)
        memcpy(memory->data, from, count * size);
    cache_track(c, memory);
    return buffer_at(memory->data, &c->rng);
}

static void pick_counts(struct cache_case *c, struct attn_kv_advance_step_args *args)
{
    static const uint32_t blocks[] = {1, 3, 16, 16, 32};

    args->block = rng_pick(&c->rng, blocks);
    args->table_width = 1 + rng_below(&c->rng, MOST_PAGES);
    args->seqs = 1 + rng_below(&c->rng, rng_chance(&c->rng, 40) ? MOST_SEQS : 6);
    args->queries = args->seqs - (rng_chance(&c->rng, 50) ? rng_below(&c->rng, args->seqs + 1) : 0);
    args->index_dtype = rng_chance(&c->rng, 50) ? ATTN_INT64 : rng_below(&c->rng, 2) * ATTN_INT32;
    args->keep_padding = rng_chance(&c->rng, 30);
    if (rng_chance(&c->rng, 30)) {
        args->windowed = rng_below(&c->rng, args->queries + 1);
        args->window = 1 + rng_below(&c->rng, MOST_TOKENS);
    }
}

static void pick_lengths(struct cache_case *c, struct attn_kv_advance_step_args *args, struct lengths *l,
                         bool starts, bool accepted)
{
    const uint32_t room = args->table_width * args->block;

    memset(l, 0, sizeof *l);
    for (uint32_t i = 0; i < args->seqs; i++) {
        const uint32_t len = 1 + rng_below(&c->rng, room), most = len < MOST_TOKENS ? len : MOST_TOKENS;
        const uint32_t grows = accepted ? rng_below(&c->rng, most + 1) : 1;
        const uint32_t tokens = starts ? rng_below(&c->rng, most + 1) : 1;
        l->accepted[i] = (int32_t)grows;
        l->seq_lens[i] = (int32_t)(len - grows);
        if (i < args->queries) {
            l->query_starts[i + 1] = l->query_starts[i] + (int32_t)tokens;
            l->pages += (len + args->block - 1) / args->block;
        }
    }
    args->num_tokens = (uint32_t)l->query_starts[args->queries] + rng_below(&c->rng, 5);
}

static void place_table(struct cache_case *c, struct attn_kv_advance_step_args *args)
{
    const uint32_t stride = args->table_width + rng_below(&c->rng, 3), count = stride * args->seqs;
    const uint32_t size = args->index_dtype == ATTN_INT64 ? 8 : 4;
    unsigned char *table = need(calloc(count, size));

    for (uint32_t i = 0; i < count; i++) {
        const int64_t page = rng_chance(&c->rng, 10) ? -1 - (int64_t)rng_below(&c->rng, 3)
                                                     : (int64_t)rng_below(&c->rng, 1u << 20);
        const int32_t narrow = (int32_t)page;
        memcpy(table + (size_t)i * size, size == 8 ? (const void *)&page : (const void *)&narrow, size);
    }
    args->table_stride = (int64_t)stride * size;
    args->table = cache_array(c, "table", table, (size_t)count * size, size);
    free(table);
}

static void place_csr(struct cache_case *c, struct attn_kv_advance_step_args *args, uint64_t pages)
{
    args->csr_capacity = pages + rng_below(&c->rng, 4);
    args->csr_indptr = place_written(c, "csr_indptr", NULL, args->seqs + 1, 4);
    args->csr_indices =
        place_written(c, "csr_indices", NULL, args->csr_capacity, args->index_dtype == ATTN_INT64 ? 8 : 4);
    args->last_page_lens = place_written(c, "last_page_lens", NULL, args->queries, 4);
    args->csr_pages = place_written(c, "csr_pages", NULL, args->queries, 4);
}

static void place_tokens(struct cache_case *c, struct attn_kv_advance_step_args *args)
{
    int64_t *sampled = need(calloc((size_t)args->num_tokens + 1, sizeof *sampled));

    for (uint32_t i = 0; i < args->num_tokens; i++)
        sampled[i] = rng_below(&c->rng, 1u << 17);
    args->tokens = place_written(c, "tokens", sampled, args->num_tokens, 8);
    if (rng_chance(&c->rng, 30))
        args->sampled = args->tokens;
    else if (rng_chance(&c->rng, 80))
        args->sampled = cache_array(c, "sampled", sampled, args->num_tokens * sizeof *sampled, 8);
    free(sampled);
}

static void init_step(struct cache_case *c)
{
    struct attn_kv_advance_step_args *args = &c->args.advance_step;
    const bool starts = rng_chance(&c->rng, 50), accepted = rng_chance(&c->rng, 50);
    const bool slots = rng_chance(&c->rng, 80), csr = rng_chance(&c->rng, 60);
    struct lengths l;

    pick_counts(c, args);
    pick_lengths(c, args, &l, starts, accepted);
    if (starts)
        args->query_starts =
            cache_array(c, "query_starts", l.query_starts, (args->queries + (size_t)1) * 4, 4);
    if (accepted)
        args->accepted = cache_array(c, "accepted", l.accepted, args->queries * (size_t)4, 4);
    if (slots || csr)
        place_table(c, args);
    if (csr)
        place_csr(c, args, l.pages);
    if (slots)
        args->slots = place_written(c, "slots", NULL, args->num_tokens, 8);
    if (rng_chance(&c->rng, 80))
        place_tokens(c, args);
    if (rng_chance(&c->rng, 80))
        args->positions = place_written(c, "positions", NULL, args->num_tokens, 8);
    if (rng_chance(&c->rng, 60))
        args->context_lens = place_written(c, "context_lens", NULL, args->queries, 4);
    if (rng_chance(&c->rng, 60))
        args->seq_starts = place_written(c, "seq_starts", NULL, args->seqs + 1, 4);
    args->seq_lens = place_written(c, "seq_lens", l.seq_lens, args->seqs, 4);
}

static int32_t call_step(void *the_case, void *stream, struct attn_error *err)
{
    struct cache_case *c = the_case;

    return attn_kv_advance_step(c->backend, &c->args.advance_step, stream, err);
}

/* ---------------------------------------------------------------- reference */

static const unsigned char *at(const struct attn_buffer *array, uint64_t index, size_t size)
{
    return (const unsigned char *)array->data + array->byte_offset + index * size;
}

/* A number of an array that is only read. */
static int64_t get(const struct attn_buffer *array, uint64_t index, size_t size)
{
    int64_t wide;
    int32_t narrow;

    memcpy(size == 8 ? (void *)&wide : (void *)&narrow, at(array, index, size), size);
    return size == 8 ? wide : narrow;
}

/* A number to an array, if that is given. */
static void put(struct cache_case *c, const struct attn_buffer *array, uint64_t index, size_t size,
                int64_t value)
{
    const int32_t narrow = (int32_t)value;

    if (array->data != NULL)
        memcpy(cache_mirror(c, at(array, index, size)),
               size == 8 ? (const void *)&value : (const void *)&narrow, size);
}

static int64_t page_of(const struct attn_kv_advance_step_args *args, uint32_t seq, int64_t index)
{
    struct attn_buffer row = args->table;

    row.byte_offset += (uint64_t)(args->table_stride * seq);
    return get(&row, (uint64_t)index, args->index_dtype == ATTN_INT64 ? 8 : 4);
}

/* One query token of a sequence of `len` keys; `left` follow it. */
static void reference_token(struct cache_case *c, uint32_t seq, uint32_t token, int64_t len, int64_t left,
                            int64_t tokens)
{
    const struct attn_kv_advance_step_args *args = &c->args.advance_step;
    const int64_t position = len - left - 1, block = args->block;
    int64_t slot = -1, next = 0;

    /* A window shows the last positions among those of the new tokens, counted from the sequence's first. */
    if (args->slots.data != NULL && (seq >= args->windowed || position >= tokens - (int64_t)args->window)) {
        const int64_t page = page_of(args, seq, position / block);
        slot = page < 0 ? -1 : page * block + position % block;
    }
    put(c, &args->positions, token, 8, position);
    put(c, &args->slots, token, 8, slot);
    if (args->sampled.data == NULL)
        return;
    memcpy(&next,
           args->sampled.data == args->tokens.data ? cache_mirror(c, at(&args->tokens, token, 8))
                                                   : at(&args->sampled, token, 8),
           sizeof next);
    put(c, &args->tokens, token, 8, next);
}

/* Grows a sequence; returns its pages. */
static int64_t reference_grow(struct cache_case *c, uint32_t seq, int64_t first_page)
{
    const struct attn_kv_advance_step_args *args = &c->args.advance_step;
    const bool starts = args->query_starts.data != NULL;
    const int64_t first = starts ? get(&args->query_starts, seq, 4) : seq;
    const int64_t end = starts ? get(&args->query_starts, (uint64_t)seq + 1, 4) : (int64_t)seq + 1;
    const int64_t block = args->block;
    int32_t before;

    memcpy(&before, cache_mirror(c, at(&args->seq_lens, seq, 4)), sizeof before);
    const int64_t len = before + (args->accepted.data != NULL ? get(&args->accepted, seq, 4) : 1);
    const int64_t pages = (len + block - 1) / block;
    put(c, &args->seq_lens, seq, 4, len);
    put(c, &args->context_lens, seq, 4, len - (end - first));
    put(c, &args->csr_pages, seq, 4, pages);
    put(c, &args->last_page_lens, seq, 4, len - (pages - 1) * block);
    for (int64_t token = first; token < end; token++)
        reference_token(c, seq, (uint32_t)token, len, end - token - 1, end - first);
    for (int64_t i = 0; i < pages && args->csr_indices.data != NULL; i++)
        put(c, &args->csr_indices, (uint64_t)(first_page + i), args->index_dtype == ATTN_INT64 ? 8 : 4,
            page_of(args, seq, i));
    return pages;
}

static void reference_step(struct cache_case *c)
{
    const struct attn_kv_advance_step_args *args = &c->args.advance_step;
    const bool starts = args->query_starts.data != NULL;
    uint32_t token = starts ? (uint32_t)get(&args->query_starts, args->queries, 4) : args->queries;
    int64_t pages = 0, keys = 0;

    put(c, &args->csr_indptr, 0, 4, 0);
    put(c, &args->seq_starts, 0, 4, 0);
    for (uint32_t i = 0; i < args->seqs; i++) {
        int32_t len;
        pages += i < args->queries ? reference_grow(c, i, pages) : 0;
        memcpy(&len, cache_mirror(c, at(&args->seq_lens, i, 4)), sizeof len);
        keys += len;
        put(c, &args->csr_indptr, (uint64_t)i + 1, 4, pages);
        put(c, &args->seq_starts, (uint64_t)i + 1, 4, keys);
    }
    for (; token < args->num_tokens && args->keep_padding == 0; token++) {
        put(c, &args->tokens, token, 8, 0);
        put(c, &args->positions, token, 8, 0);
        put(c, &args->slots, token, 8, -1);
    }
}

const struct cache_operation cache_advance_step = {"advance_step", init_step, call_step, reference_step};
