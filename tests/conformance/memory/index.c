/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The arrays of a batch: order of sequences, lengths, page numbers, and rubbish where nothing is looked at.
 */
#include <stdlib.h>

#include "conform.h"
#include "need.h"

/* A protected array of the batch. */
static struct attn_buffer place_array(struct step *step, const char *name, const void *from, size_t count,
                                      uint32_t element, struct rng *rng)
{
    struct guarded *memory = arena_add(&step->arena, name, count * element, element, 0xff);

    if (count > 0)
        memcpy(memory->data, from, count * element);
    guarded_protect(memory);
    return buffer_at(memory->data, rng);
}

struct attn_buffer step_add_array(struct step *step, const char *name, const void *from, size_t count,
                                  uint32_t element, struct rng *rng)
{
    return place_array(step, name, from, count, element, rng);
}

static const struct sequence *sequence_of(const struct step *step, uint32_t index)
{
    return step->source[index] < 0 ? NULL : &step->the_case->sequences[step->source[index]];
}

static uint32_t pages_of(const struct step *step, uint32_t index)
{
    const struct sequence *s = sequence_of(step, index);

    return s == NULL ? 0 : s->pages;
}

/* Page number b of a sequence: physical, or a hole. */
static int32_t entry_of(const struct step *step, uint32_t index, uint32_t b)
{
    const struct sequence *s = sequence_of(step, index);
    int32_t page = step->the_case->pages[s->first_page + b];

    return page < 0 ? -1 - (int32_t)(step->layout.seed % 3) : (int32_t)step->physical[page];
}

/* Rows that lie apart: each ends where a forbidden page begins. */
static void forbid_gaps(const struct step *step, const struct guarded *memory)
{
    size_t row = (size_t)step->batch.table_width * 4, stride = (size_t)step->batch.table_stride;

    for (uint32_t n = 0; n + 1 < step->seqs; n++)
        guarded_forbid(memory, n * stride + row, (n + 1) * stride);
}

static void place_table(struct step *step, struct rng *rng)
{
    /* What stands beyond a sequence's pages is never looked at: no page, a poisoned page, or nonsense. */
    const int32_t rubbish[] = {-1, 0, (int32_t)step->spare, INT32_MAX};
    int32_t filler = rng_pick(rng, rubbish);
    uint32_t width = 1;

    for (uint32_t n = 0; n < step->seqs; n++)
        width = pages_of(step, n) > width ? pages_of(step, n) : width;
    bool apart = !step->arena.before && rng_chance(rng, 50);
    width += apart ? 0 : rng_below(rng, 3);
    uint32_t stride = width + (rng_chance(rng, 50) ? rng_below(rng, 5) : 0);
    if (apart)
        stride = (uint32_t)guarded_gap((size_t)width * 4) / 4;
    int32_t *table = need(calloc((size_t)stride * step->seqs + 1, sizeof *table));
    for (size_t i = 0; i < (size_t)stride * step->seqs; i++)
        table[i] = filler;
    for (uint32_t n = 0; n < step->seqs; n++)
        for (uint32_t b = 0; b < pages_of(step, n); b++)
            table[(size_t)n * stride + b] = entry_of(step, n, b);
    step->batch.table_width = width;
    step->batch.table_stride = (int64_t)stride * 4;
    step->batch.table = place_array(step, "table", table,
                                    step->seqs == 0 ? 0 : (size_t)stride * (step->seqs - 1) + width, 4, rng);
    if (apart)
        forbid_gaps(step, &step->arena.buffers[step->arena.count - 1]);
    step->host.table = (const int32_t *)oracle_address(&step->batch.table);
    free(table);
}

static void place_csr(struct step *step, struct rng *rng)
{
    int32_t indptr[STEP_SEQS + 1] = {0};
    bool more = rng_chance(rng, 30), wide = step->problem.index_dtype == ATTN_INT64;
    size_t room = step->seqs * 2 + 1, used = 0;

    for (uint32_t n = 0; n < step->seqs; n++)
        room += pages_of(step, n);
    int64_t *indices = need(calloc(room, sizeof *indices));
    int32_t *narrow = need(calloc(room, sizeof *narrow));
    for (uint32_t n = 0; n < step->seqs; n++) {
        for (uint32_t b = 0; b < pages_of(step, n); b++)
            indices[used++] = entry_of(step, n, b);
        if (more && rng_chance(rng, 50)) /* a page taken ahead of its tokens */
            indices[used++] = (int64_t)step->spare;
        indptr[n + 1] = (int32_t)used;
    }
    for (size_t i = 0; i < used; i++)
        narrow[i] = (int32_t)indices[i];
    step->batch.csr_indptr = place_array(step, "csr_indptr", indptr, (size_t)step->seqs + 1, 4, rng);
    step->batch.csr_indices =
        place_array(step, "csr_indices", wide ? (void *)indices : (void *)narrow, used, wide ? 8 : 4, rng);
    step->host.csr_indptr = (const int32_t *)oracle_address(&step->batch.csr_indptr);
    step->host.csr_indices = oracle_address(&step->batch.csr_indices);
    free(indices);
    free(narrow);
}

/* Rows of k_new and v_new: those of the queries, or runs of their own, with or without gaps. */
static void place_new(struct step *step, struct rng *rng)
{
    const struct conform_case *c = step->the_case;
    int32_t offsets[STEP_SEQS + 1] = {0};
    bool lengths = rng_chance(rng, 50);
    int32_t end = rng_chance(rng, 30) ? (int32_t)rng_below(rng, 5) : 0;

    for (uint32_t n = 0; n < step->seqs; n++)
        step->new_row[n] = step->first_row[n];
    step->new_rows = step->batch.num_tokens;
    if (c->problem.kv_source == ATTN_KV_CACHE_NEW)
        return;
    if (c->equal && rng_chance(rng, 50)) {
        if (lengths)
            return;
    } else {
        for (uint32_t n = 0; n < step->seqs; n++) {
            const struct sequence *s = sequence_of(step, n);
            offsets[n] = end;
            step->new_row[n] = (uint32_t)end;
            end += s == NULL ? 0 : (int32_t)s->kv_len;
            end += lengths && rng_chance(rng, 40) ? (int32_t)rng_below(rng, 5) : 0;
        }
        offsets[step->seqs] = end;
        step->new_rows = (uint32_t)end;
        step->batch.kv_offsets = place_array(step, "kv_offsets", offsets, (size_t)step->seqs + 1, 4, rng);
        step->host.kv_offsets = (const int32_t *)oracle_address(&step->batch.kv_offsets);
    }
    if (!lengths) { /* they follow */
        step->batch.kv_lens = (struct attn_buffer){NULL, 0};
        step->host.kv_lens = NULL;
    }
}

/* Tokens of a dense sequence without offsets are a page of their own. */
static void place_dense(struct step *step, struct rng *rng)
{
    int32_t offsets[STEP_SEQS + 1] = {0};
    uint32_t longest = 1;
    int32_t end = 0;

    for (uint32_t n = 0; n < step->seqs; n++) {
        const struct sequence *s = sequence_of(step, n);
        uint32_t length = s == NULL ? 0 : s->kv_len;
        longest = length > longest ? length : longest;
        offsets[n] = end;
        end += (int32_t)(length + (rng_chance(rng, 40) ? rng_below(rng, 5) : 0));
    }
    offsets[step->seqs] = end;
    if (rng_chance(rng, 50)) {
        step->kv.pages = step->seqs + rng_below(rng, 2);
        step->kv.block = longest + rng_below(rng, 3);
        return;
    }
    step->kv.pages = 1;
    step->kv.block = end == 0 ? 1 : (uint32_t)end;
    step->batch.kv_offsets = place_array(step, "kv_offsets", offsets, (size_t)step->seqs + 1, 4, rng);
    step->host.kv_offsets = (const int32_t *)oracle_address(&step->batch.kv_offsets);
}

void step_place(const struct step *step, uint32_t index, uint32_t j, int64_t *out_page, int64_t *out_token)
{
    uint32_t block = step->problem.block;

    if (step->problem.addressing != ATTN_DENSE) {
        *out_page = entry_of(step, index, j / block);
        *out_token = j % block;
    } else if (step->batch.kv_offsets.data != NULL) {
        *out_page = 0;
        *out_token = step->host.kv_offsets[index] + (int64_t)j;
    } else {
        *out_page = index;
        *out_token = j;
    }
}

/* What a problem may ask for beside lengths: positions of query tokens, causality of each sequence. */
static void place_rules(struct step *step, struct rng *rng)
{
    const struct conform_case *c = step->the_case;
    size_t rows = step->batch.num_tokens;
    int64_t *wide = need(calloc(rows + 1, sizeof *wide));
    int32_t *narrow = need(calloc(rows + 1, sizeof *narrow));
    uint8_t causal[STEP_SEQS] = {0};

    for (uint32_t n = 0; n < step->seqs; n++) {
        const struct sequence *s = sequence_of(step, n);
        causal[n] = s == NULL ? 0 : s->causal;
        for (uint32_t i = 0; s != NULL && c->positions != NULL && i < s->q_len; i++)
            wide[step->first_row[n] + i] = narrow[step->first_row[n] + i] = c->positions[s->first_query + i];
    }
    if (step->problem.positions != 0) {
        bool is_wide = rng_chance(rng, 50);
        step->batch.position_dtype = is_wide ? ATTN_INT64 : rng_chance(rng, 50) ? ATTN_INT32 : 0;
        step->batch.q_positions = place_array(step, "q_positions", is_wide ? (void *)wide : (void *)narrow,
                                              rows, is_wide ? 8 : 4, rng);
        step->host.q_positions = oracle_address(&step->batch.q_positions);
    }
    if (step->problem.seq_causal != 0) {
        step->batch.seq_causal = place_array(step, "seq_causal", causal, step->seqs, 1, rng);
        step->host.seq_causal = oracle_address(&step->batch.seq_causal);
    }
    free(wide);
    free(narrow);
}

/* Order of the sequences, with padding ones between them, and the arrays of lengths. */
static void place_lengths(struct step *step, struct rng *rng)
{
    int32_t q_offsets[STEP_SEQS + 1] = {0}, kv_lens[STEP_SEQS] = {0};
    uint32_t padding = step->layout.padding, taken = 0, max_q = 0, max_kv = 0;

    while (taken < step->layout.count || padding > 0) {
        bool pad = padding > 0 && (taken == step->layout.count || rng_chance(rng, 30));
        step->source[step->seqs++] = pad ? -1 : (int32_t)step->layout.order[taken++];
        padding -= pad;
    }
    for (uint32_t n = 0; n < step->seqs; n++) {
        const struct sequence *s = sequence_of(step, n);
        uint32_t q_len = s == NULL ? 0 : s->q_len;
        step->first_row[n] = (uint32_t)q_offsets[n];
        q_offsets[n + 1] = q_offsets[n] + (int32_t)q_len;
        kv_lens[n] = s == NULL ? 0 : (int32_t)s->kv_len;
        max_q = q_len > max_q ? q_len : max_q;
        max_kv = s != NULL && s->kv_len > max_kv ? s->kv_len : max_kv;
    }
    step->batch.seqs = step->seqs;
    step->batch.num_tokens = (uint32_t)q_offsets[step->seqs];
    step->batch.max_q = max_q + (rng_chance(rng, 30) ? rng_below(rng, 9) : 0);
    step->batch.max_kv = max_kv + (rng_chance(rng, 30) ? rng_below(rng, 99) : 0);
    step->batch.q_offsets = place_array(step, "q_offsets", q_offsets, (size_t)step->seqs + 1, 4, rng);
    step->batch.kv_lens = place_array(step, "kv_lens", kv_lens, step->seqs, 4, rng);
    step->host.q_offsets = (const int32_t *)oracle_address(&step->batch.q_offsets);
    step->host.kv_lens = (const int32_t *)oracle_address(&step->batch.kv_lens);
    step->problem.max_seqs = step->seqs + rng_below(rng, 2);
    step->problem.max_q = step->batch.max_q > 0 ? step->batch.max_q : 1;
    step->problem.max_kv = step->batch.max_kv > 0 ? step->batch.max_kv : 1;
    step->problem.max_rows = step->batch.num_tokens > 0 ? step->batch.num_tokens : 1;
    if (step->problem.max_rows < step->problem.max_q)
        step->problem.max_rows = step->problem.max_q;
    step->batch.cascade = step->problem.cascade > 0 && step->batch.num_tokens <= step->problem.cascade;
}

static void place_pages(struct step *step, struct rng *rng)
{
    uint32_t pages = step->the_case->logical_pages + 1 + rng_below(rng, 4);

    step->kv.pages = pages;
    step->kv.block = step->problem.block;
    step->physical = need(calloc(pages, sizeof *step->physical));
    rng_shuffle(rng, step->physical, pages);
    step->spare = step->physical[step->the_case->logical_pages];
}

void step_place_batch(struct step *step, struct rng *rng)
{
    place_lengths(step, rng);
    place_rules(step, rng);
    step_place_ranks(step, rng);
    if (step->problem.kv_source != ATTN_KV_CACHE)
        place_new(step, rng);
    if (step->problem.kv_source == ATTN_KV_NEW)
        return;
    if (step->problem.addressing == ATTN_DENSE) {
        place_dense(step, rng);
        return;
    }
    place_pages(step, rng);
    if (step->problem.addressing == ATTN_TABLE)
        place_table(step, rng);
    else
        place_csr(step, rng);
}
