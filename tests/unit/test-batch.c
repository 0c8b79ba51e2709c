/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Checks of a batch: scalars, presence of arrays, and what host copies hold. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "dispatch/call.h"

/* Three sequences of 2, 0 and 5 queries over 20, 7 and 33 keys, on pages of 16. */
struct step {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_batch_host host;
    int32_t q_offsets[4];
    int32_t kv_lens[3];
    int32_t kv_offsets[4];
    int32_t table[3][4];
    int32_t indptr[4];
    int32_t indices[6];
    int64_t wide[6];
    int32_t last[3];
    uint8_t causal[3];
    int32_t global[3];
    int64_t positions[7];
};

static void give(struct attn_buffer *buffer, const void *data)
{
    buffer->data = (void *)(uintptr_t)data;
}

static void make(struct step *step, const char *keys)
{
    static const int32_t q_offsets[] = {0, 2, 2, 7};
    static const int32_t kv_lens[] = {20, 7, 33};
    static const int32_t table[3][4] = {{3, 4, -1, 99}, {5, 99, 99, 99}, {0, 1, 9, 99}};
    static const int32_t indptr[] = {0, 2, 3, 6};
    static const int32_t indices[] = {3, 4, 5, 0, -1, 9};
    memset(step, 0, sizeof *step);
    char text[256];
    snprintf(text, sizeof text, "heads=8 head_dim=64 q=bf16 max_seqs=4 max_q=8 max_kv=64 max_rows=16 %s",
             keys);
    struct attn_error err;
    ATTN_INIT(&err);
    cr_assert_eq(attn_problem_parse(text, &step->problem, &err), ATTN_OK, "%s", err.message);
    ATTN_INIT(&step->batch);
    ATTN_INIT(&step->host);
    memcpy(step->q_offsets, q_offsets, sizeof q_offsets);
    memcpy(step->kv_lens, kv_lens, sizeof kv_lens);
    memcpy(step->table, table, sizeof table);
    memcpy(step->indptr, indptr, sizeof indptr);
    memcpy(step->indices, indices, sizeof indices);
    step->batch.given = ATTN_GIVEN_HOST_COPIES;
    step->batch.host = &step->host;
    step->batch.seqs = 3;
    step->batch.num_tokens = 7;
    step->batch.max_q = 5;
    step->batch.max_kv = 40;
    step->batch.pages = 10;
    step->host.q_offsets = step->q_offsets;
    step->host.kv_lens = step->kv_lens;
    give(&step->batch.q_offsets, step->q_offsets);
    give(&step->batch.kv_lens, step->kv_lens);
    if (step->problem.addressing == ATTN_TABLE) {
        step->batch.table_width = 4;
        step->batch.table_stride = sizeof step->table[0];
        step->host.table = step->table[0];
        give(&step->batch.table, step->table);
    } else if (step->problem.addressing == ATTN_CSR) {
        step->host.csr_indptr = step->indptr;
        step->host.csr_indices = step->indices;
        give(&step->batch.csr_indptr, step->indptr);
        give(&step->batch.csr_indices, step->indices);
    }
}

/* field NULL: accepted. */
static void check(const struct step *step, const char *field, const char *piece)
{
    struct attn_error err;
    ATTN_INIT(&err);
    int32_t status = attn__batch_check(&step->problem, &step->batch, &err);
    if (status == ATTN_OK)
        status = attn__batch_check_host(&step->problem, &step->batch, &err);
    if (field == NULL) {
        cr_assert_eq(status, ATTN_OK, "%s: %s", err.field, err.message);
        return;
    }
    cr_assert_eq(status, ATTN_E_INVALID, "accepted, but %s: %s was expected", field, piece);
    cr_assert_str_eq(err.field, field, "%s: %s", err.field, err.message);
    cr_assert_not_null(strstr(err.message, piece), "'%s' is not in: %s", piece, err.message);
}

/* One change to a good step. */
#define REFUSED(keys, field, piece, ...)                                                                     \
    do {                                                                                                     \
        struct step s;                                                                                       \
        make(&s, keys);                                                                                      \
        __VA_ARGS__;                                                                                         \
        check(&s, field, piece);                                                                             \
    } while (0)
#define ACCEPTED(keys, ...) REFUSED(keys, NULL, NULL, __VA_ARGS__)

Test(batch, good_ones)
{
    ACCEPTED("", );
    ACCEPTED("addr=csr", );
    ACCEPTED("addr=dense", );
    ACCEPTED("", s.batch.given = 0; s.host.q_offsets = NULL);
    ACCEPTED("", s.batch.seqs = 0; s.batch.num_tokens = 0; s.batch.given = 0; s.batch.q_offsets.data = NULL);
    ACCEPTED("", s.batch.pages = 0; s.table[0][0] = 1000000);
    ACCEPTED("kv_source=new", s.kv_lens[0] = 2; s.kv_lens[1] = 0; s.kv_lens[2] = 5);
    ACCEPTED("kv_source=new", give(&s.batch.kv_lens, NULL); s.host.kv_lens = NULL);
    ACCEPTED("kv_source=cache+new", );
}

Test(batch, scalars)
{
    REFUSED("", "seqs", "is 5; accepted: up to the plan's maximum 4", s.batch.seqs = 5);
    REFUSED("", "num_tokens", "maximum 16", s.batch.num_tokens = 17);
    REFUSED("", "max_q", "maximum 8", s.batch.max_q = 9);
    REFUSED("", "max_kv", "maximum 64", s.batch.max_kv = 65);
    REFUSED("", "num_tokens", "accepted: up to", s.batch.max_q = 2);
    REFUSED("", "given", "0x6", s.batch.given = 7);
    REFUSED("cascade=7", "cascade", "batch.cascade is 2; accepted: 0 or 1", s.batch.cascade = 2);
    REFUSED("cascade=6", "cascade", "batch.num_tokens 7; accepted: up to cascade=6", s.batch.cascade = 1);
    REFUSED("", "cascade", "accepted: up to cascade=0", s.batch.cascade = 1);
    REFUSED("", "reserved", "batch.reserved is 5", s.batch.reserved = 5);
    REFUSED("", "table_stride", "multiples of 4", s.batch.table_stride = 18);
    REFUSED("", "position_dtype", "ATTN_INT64", s.batch.position_dtype = ATTN_F32);
}

Test(batch, presence)
{
    REFUSED("", "q_offsets", "not given", give(&s.batch.q_offsets, NULL));
    REFUSED("", "kv_lens", "not given", give(&s.batch.kv_lens, NULL));
    REFUSED("", "table", "addr=table", give(&s.batch.table, NULL));
    REFUSED("addr=csr", "csr_indptr", "addr=csr", give(&s.batch.csr_indptr, NULL));
    REFUSED("addr=csr", "csr_indices", "addr=csr", give(&s.batch.csr_indices, NULL));
    REFUSED("positions=1", "q_positions", "positions=1 needs it", );
    REFUSED("", "q_positions", "positions=0", give(&s.batch.q_positions, s.positions));
    REFUSED("seq_causal=1", "seq_causal", "needs it", );
    REFUSED("", "seq_causal", "seq_causal=0", give(&s.batch.seq_causal, s.causal));
    REFUSED("cp=1", "kv_global_lens", "cp=1", );
    REFUSED("", "kv_global_lens", "cp=0", give(&s.batch.kv_global_lens, s.global));
    REFUSED("", "host", "NULL", s.batch.host = NULL);
    REFUSED("", "kv_lens", "without a host copy", s.host.kv_lens = NULL);
    REFUSED("", "kv_offsets", "as a host copy alone", s.host.kv_offsets = s.kv_offsets);
}

Test(batch, lengths)
{
    REFUSED("", "q_offsets", "batch.q_offsets[0] is 1; accepted: exactly 0", s.q_offsets[0] = 1);
    REFUSED("", "q_offsets", "batch.q_offsets[2] is 1; accepted: not falling, at least 2",
            s.q_offsets[2] = 1);
    REFUSED("", "q_offsets", "[3] is 8; accepted: at most max_q above the one before, 7", s.q_offsets[3] = 8);
    REFUSED("", "q_offsets", "[3] is 6; accepted: the number of rows, 7", s.q_offsets[3] = 6);
    REFUSED("graph=uniform", "q_offsets", "[3] is 6; accepted: the number of rows, 7", s.q_offsets[3] = 6);
    REFUSED("graph=always", "q_offsets", "[3] is 7; accepted: up to the number of rows, 6",
            s.batch.num_tokens = 6);
    ACCEPTED("graph=always", s.q_offsets[3] = 6);
    REFUSED("", "kv_lens", "batch.kv_lens[1] is -7; accepted: at least 0", s.kv_lens[1] = -7);
    REFUSED("", "kv_lens", "batch.kv_lens[2] is 41; accepted: keys up to max_kv, 40", s.kv_lens[2] = 41);
    REFUSED("kv_source=cache+new", "kv_lens",
            "[2] is 4; accepted: with kv_source=cache+new at least the queries, 5", s.kv_lens[2] = 4);
    REFUSED("kv_source=new", "kv_lens", "without kv_offsets the number of queries, 2", );
}

static void give_starts(struct step *step, int32_t a, int32_t b, int32_t c, int32_t d)
{
    const int32_t starts[] = {a, b, c, d};
    memcpy(step->kv_offsets, starts, sizeof starts);
    step->host.kv_offsets = step->kv_offsets;
    give(&step->batch.kv_offsets, step->kv_offsets);
}

Test(batch, dense_starts)
{
    ACCEPTED("addr=dense", give_starts(&s, 0, 20, 27, 60));
    ACCEPTED("addr=dense", give_starts(&s, 5, 50, 60, 100));
    REFUSED("addr=dense", "kv_offsets", "[0] is -1", give_starts(&s, -1, 20, 27, 60));
    REFUSED("addr=dense", "kv_offsets", "[2] is 19; accepted: not falling, at least 20",
            give_starts(&s, 0, 20, 19, 60));
    REFUSED("addr=dense", "kv_lens", "[2] is 33; accepted: up to the next of kv_offsets, 32",
            give_starts(&s, 0, 20, 27, 59));
    REFUSED("kv_source=new", "kv_lens", "up to the next of kv_offsets, 19", give_starts(&s, 0, 19, 27, 60));
    REFUSED("kv_source=new", "kv_offsets", "[1] is 53", give_starts(&s, 0, 20, 73, 106);
            s.host.kv_lens = NULL; give(&s.batch.kv_lens, NULL));
}

Test(batch, tables)
{
    REFUSED("", "table_width", "is 2, but kv_lens[2]=33 takes 3 pages of 16", s.batch.table_width = 2);
    REFUSED("", "table", "batch.table[1] is 10; accepted: below the number of pages, 10", s.table[0][1] = 10);
    REFUSED("", "table", "batch.table[10] is 99", s.table[2][2] = 99);
    ACCEPTED("", s.table[2][0] = -1; s.table[2][3] = 500);
    ACCEPTED("", s.batch.table_stride = -(int64_t)sizeof s.table[0]; s.host.table = s.table[2];
             s.kv_lens[0] = 33; s.kv_lens[1] = 7; s.kv_lens[2] = 20);
}

Test(batch, csr)
{
    REFUSED("addr=csr", "csr_indptr", "[0] is -1", s.indptr[0] = -1);
    REFUSED("addr=csr", "csr_indptr", "[2] is 1; accepted: not falling, at least 2", s.indptr[2] = 1);
    REFUSED("addr=csr", "csr_indptr", "[3] is 5; accepted: room for the pages of kv_lens, at least 6",
            s.indptr[3] = 5);
    REFUSED("addr=csr", "csr_indices", "[5] is 10; accepted: below the number of pages, 10",
            s.indices[5] = 10);
    for (int large = 0; large < 2; large++) {
        struct step s;
        make(&s, "addr=csr index=i64");
        for (int i = 0; i < 6; i++)
            s.wide[i] = s.indices[i];
        s.host.csr_indices = s.wide;
        s.wide[5] = large ? (int64_t)1 << 33 : 9;
        check(&s, large ? "csr_indices" : NULL, "[5] is 8589934592");
    }
}

static void give_last(struct step *step, int32_t a, int32_t b, int32_t c)
{
    const int32_t last[] = {a, b, c};
    memcpy(step->last, last, sizeof last);
    step->host.last_page_lens = step->last;
    give(&step->batch.last_page_lens, step->last);
}

Test(batch, last_pages_follow_from_lengths)
{
    ACCEPTED("", give_last(&s, 4, 7, 1));
    ACCEPTED("", s.kv_lens[0] = 32; give_last(&s, 16, 7, 1));
    ACCEPTED("", s.kv_lens[1] = 0; give_last(&s, 4, 16, 1));
    REFUSED("", "last_page_lens", "[1] is 17", s.kv_lens[1] = 0; give_last(&s, 4, 17, 1));
    REFUSED("", "last_page_lens", "[2] is 2; accepted: what follows from kv_lens, 1", give_last(&s, 4, 7, 2));
    REFUSED("", "last_page_lens", "[0] is 0", s.kv_lens[0] = 32; give_last(&s, 0, 7, 1));
}

static void give_ranks(struct step *step, uint32_t rank, uint32_t world, uint32_t interleave, int32_t a,
                       int32_t b, int32_t c)
{
    const int32_t global[] = {a, b, c};
    memcpy(step->global, global, sizeof global);
    step->host.kv_global_lens = step->global;
    give(&step->batch.kv_global_lens, step->global);
    step->batch.cp_rank = rank;
    step->batch.cp_world = world;
    step->batch.cp_interleave = interleave;
}

Test(batch, ranks)
{
    /* rank 1 of 2, interleave 8: of 41 keys 8..15, 24..31 and 40 */
    ACCEPTED("cp=1", give_ranks(&s, 1, 2, 8, 40, 15, 65); s.kv_lens[0] = 16; s.kv_lens[1] = 7;
             s.kv_lens[2] = 32);
    ACCEPTED("cp=1", give_ranks(&s, 0, 2, 8, 41, 15, 65); s.kv_lens[0] = 24; s.kv_lens[1] = 8;
             s.kv_lens[2] = 33);
    REFUSED("cp=1", "kv_lens", "[0] is 20; accepted: what this rank holds of kv_global_lens, 16",
            give_ranks(&s, 1, 2, 8, 40, 15, 65));
    REFUSED("cp=1", "kv_global_lens", "[0] is -1; accepted: at least 0", give_ranks(&s, 1, 2, 8, -1, 15, 65));
    REFUSED("cp=1", "cp_rank", "rank < world", give_ranks(&s, 2, 2, 8, 40, 15, 65));
    REFUSED("cp=1", "cp_interleave", "1 or more", give_ranks(&s, 1, 2, 0, 40, 15, 65));
    REFUSED("cp=1", "cp_interleave", "a divisor of block=16", give_ranks(&s, 1, 2, 5, 40, 15, 65));
}

Test(batch, causal_flags)
{
    struct step s;
    make(&s, "seq_causal=1");
    s.host.seq_causal = s.causal;
    give(&s.batch.seq_causal, s.causal);
    s.causal[1] = 1;
    check(&s, NULL, NULL);
    s.causal[2] = 2;
    check(&s, "seq_causal", "[2] is 2; accepted: 0 or 1");
}
