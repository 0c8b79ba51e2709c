/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which steps ask for a shared prefix to be computed once. */
#include <criterion/criterion.h>

#include "cascade.h"

enum { SEQS = 64, WIDTH = 400, SHARED = 300, BLOCK = 16 };

/* 64 sequences, whose first 300 pages of 16 tokens are the same; 196,608 keys read less are 196 pages. */
static struct {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_batch_host host;
    int32_t table[SEQS][WIDTH], indptr[SEQS + 1], kv_lens[SEQS];
    int64_t wide[SEQS * WIDTH];
} step;

static void begin(uint32_t addressing)
{
    memset(&step, 0, sizeof step);
    step.problem.cascade = SEQS;
    step.problem.block = BLOCK;
    step.problem.addressing = addressing;
    step.problem.index_dtype = ATTN_INT64;
    step.batch.seqs = step.batch.num_tokens = SEQS;
    step.batch.max_q = 1;
    step.host.kv_lens = step.kv_lens;
    for (int32_t i = 0; i < SEQS; i++) {
        step.kv_lens[i] = WIDTH * BLOCK;
        step.indptr[i + 1] = (i + 1) * WIDTH;
        for (int32_t j = 0; j < WIDTH; j++) {
            step.table[i][j] = j < SHARED ? 5 * j : 5 * (i * WIDTH + j);
            step.wide[i * WIDTH + j] = step.table[i][j];
        }
    }
    if (addressing == ATTN_TABLE) {
        step.batch.table.data = step.table;
        step.batch.table_stride = sizeof step.table[0];
        step.host.table = step.table[0];
    } else {
        step.batch.csr_indices.data = step.wide;
        step.host.csr_indices = step.wide;
        step.host.csr_indptr = step.indptr;
    }
}

static uint32_t answer(void)
{
    return attn__batch_has_cascade(&step.problem, &step.batch, &step.host);
}

Test(cascade, equal_pages)
{
    static const uint32_t addressings[] = {ATTN_TABLE, ATTN_CSR};
    for (uint32_t i = 0; i < 2; i++) {
        begin(addressings[i]);
        cr_assert_eq(answer(), 1);
        step.table[63][195] = 7;
        step.wide[63 * WIDTH + 195] = 7;
        cr_assert_eq(answer(), 0, "the last page that counts differs");
        begin(addressings[i]);
        step.table[63][196] = 7;
        step.wide[63 * WIDTH + 196] = 7;
        cr_assert_eq(answer(), 1, "one behind it");
    }
}

Test(cascade, what_is_allowed)
{
    begin(ATTN_TABLE);
    step.problem.cascade = SEQS - 1;
    cr_assert_eq(answer(), 0, "more tokens than the problem allows");
    begin(ATTN_TABLE);
    step.problem.cascade = 0;
    cr_assert_eq(answer(), 0);
    begin(ATTN_TABLE);
    step.batch.seqs = step.batch.num_tokens = 1;
    cr_assert_eq(answer(), 0, "nobody to share with");
    begin(ATTN_TABLE);
    step.batch.seqs = step.batch.num_tokens = 16;
    cr_assert_eq(answer(), 0, "16 sequences would have to share 820 pages");
    begin(ATTN_TABLE);
    step.batch.table.data = NULL;
    cr_assert_eq(answer(), 0, "a step over new keys alone");
}

Test(cascade, lengths)
{
    begin(ATTN_TABLE);
    step.kv_lens[9] = 196 * BLOCK + 1;
    cr_assert_eq(answer(), 1);
    step.kv_lens[9] = 196 * BLOCK;
    cr_assert_eq(answer(), 0, "its own query sees no more than these");
}

Test(cascade, nobody_can_look)
{
    begin(ATTN_TABLE);
    cr_assert_eq(attn__batch_has_cascade(&step.problem, &step.batch, NULL), 1);
    step.host.kv_lens = NULL;
    cr_assert_eq(answer(), 1);
    step.problem.cascade = 0;
    cr_assert_eq(answer(), 0);
}
