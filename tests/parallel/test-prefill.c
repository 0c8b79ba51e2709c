/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tests which query tokens a rank has, what prefill over ranks refuses, and what it says it moves. Results:
 * attn-check --kind cp. */
#include <stdio.h>
#include <string.h>

#include "../cpu/shape-fixture.h"
#include "ranks.h"

enum { HEADS = 4, DIM = 16, BLOCK = 4, PAGES = 8, TOKENS = 12 };

static struct shape_fixture cpu;

static void open_cpu(void)
{
    fixture_open(&cpu, NULL);
}

static void close_cpu(void)
{
    fixture_close(&cpu);
}

TestSuite(prefill, .init = open_cpu, .fini = close_cpu);

/* The fixture adds maxima, which are then these. */
#define PROBLEM "heads=4 kv_heads=1 head_dim=16 q=f32 block=4 cp=1 lse=1 positions=1"

static void parse(const char *text, struct attn_problem *problem)
{
    fixture_problem(text, problem);
    problem->max_seqs = 2;
    problem->max_q = problem->max_rows = 12;
    problem->max_kv = 16;
}

/* ---------------------------------------------------------------- which tokens */

Test(prefill, a_rank_has_the_queries_whose_keys_it_holds)
{
    /* Three ranks, two keys in turn: 0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11; the last seven are queries. */
    int32_t positions[8] = {-7, -7, -7, -7, -7, -7, -7, -7};

    cr_assert_eq(attn_cp_tokens(0, 3, 2, 7, 12, positions, 8), 2);
    cr_assert_eq(positions[0], 6);
    cr_assert_eq(positions[1], 7);
    cr_assert_eq(positions[2], -7);
    cr_assert_eq(attn_cp_tokens(2, 3, 2, 7, 12, positions, 2), 3);
    cr_assert_eq(positions[0], 5);
    cr_assert_eq(positions[1], 10);
    cr_assert_eq(positions[2], -7);
    cr_assert_eq(attn_cp_tokens(1, 3, 2, 0, 12, NULL, 0), 0);
    cr_assert_eq(attn_cp_tokens(0, 1, 5, 7, 12, NULL, 0), 7);
    cr_assert_eq(attn_cp_tokens(3, 3, 2, 7, 12, NULL, 0), -1);
    cr_assert_eq(attn_cp_tokens(0, 3, 0, 7, 12, NULL, 0), -1);
    cr_assert_eq(attn_cp_tokens(0, 3, 2, 13, 12, NULL, 0), -1);
    cr_assert_eq(attn_cp_tokens(0, 3, 2, -1, 12, NULL, 0), -1);
}

/* ---------------------------------------------------------------- what is moved */

static void check_estimate(uint32_t size, int32_t q_len, int32_t kv_len, uint32_t pass, uint64_t keys_bytes,
                           uint64_t queries_bytes, bool heads)
{
    struct attn_cp_prefill_info info;
    struct attn_problem problem;
    struct attn_cp_step step;
    struct attn_error err;

    ATTN_INIT(&info);
    ATTN_INIT(&step);
    ATTN_INIT(&err);
    fixture_problem("heads=32 kv_heads=8 head_dim=128 q=bf16 block=16 cp=1 lse=1", &problem);
    step.seqs = 1;
    step.q_lens = &q_len;
    step.kv_lens = &kv_len;
    cr_assert_eq(attn_cp_estimate(&problem, size, 16, &step, &info, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(info.keys_bytes, keys_bytes);
    cr_assert_eq(info.queries_bytes, queries_bytes);
    cr_assert_eq(info.heads_bytes, heads ? (keys_bytes + queries_bytes) / size : 0);
    cr_assert_eq(info.pass, pass);
}

Test(prefill, what_moves_less_is_passed)
{
    /* A key and its value have 8 heads of 256 bytes each; a query and its result 32, and 32 LSEs. */
    const uint64_t key = 2 * 8 * 256, query = 2 * 32 * 256 + 32 * 4;

    check_estimate(2, 65536, 65536, ATTN_CP_PASS_KEYS, 32768 * key, 32768 * query, true);
    check_estimate(8, 65536, 65536, ATTN_CP_PASS_HEADS, 7 * 8192 * key, 7 * 8192 * query, true);
    check_estimate(8, 2048, 65536, ATTN_CP_PASS_QUERIES, 7 * 8192 * key, 7 * 256 * query, true);
    check_estimate(6, 65520, 65520, ATTN_CP_PASS_KEYS, 5 * 10928 * key, 5 * 10928 * query, false);
    /* A ring of many ranks makes many calls. */
    check_estimate(128, 2048, 2048, ATTN_CP_PASS_QUERIES, UINT64_C(127) * 16 * key,
                   UINT64_C(127) * 16 * query, false);
    check_estimate(1, 2048, 2048, ATTN_CP_PASS_KEYS, 0, 0, false);
}

Test(prefill, keys_in_blocks_are_not_passed)
{
    const int32_t len = 4096;
    struct attn_cp_prefill_info info;
    struct attn_problem problem;
    struct attn_cp_step step;
    struct attn_error err;

    ATTN_INIT(&info);
    ATTN_INIT(&step);
    ATTN_INIT(&err);
    fixture_problem("heads=32 kv_heads=8 head_dim=128 q=bf16 kv=q8_0 block=16 cp=1 lse=1", &problem);
    step.seqs = 1;
    step.q_lens = step.kv_lens = &len;
    cr_assert_eq(attn_cp_estimate(&problem, 2, 16, &step, &info, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(info.keys_bytes, 0u);
    cr_assert_eq(info.heads_bytes, 0u);
    cr_assert_eq(info.pass, ATTN_CP_PASS_QUERIES);
}

Test(prefill, an_estimate_names_what_is_wrong)
{
    const int32_t q_len = 3, kv_len = 2;
    struct attn_cp_prefill_info info;
    struct attn_problem problem;
    struct attn_cp_step step;
    struct attn_error err;

    ATTN_INIT(&info);
    ATTN_INIT(&step);
    ATTN_INIT(&err);
    parse(PROBLEM, &problem);
    step.seqs = 1;
    cr_assert_eq(attn_cp_estimate(&problem, 0, 2, &step, &info, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.message, "size is 0; accepted: 1 and more");
    cr_assert_eq(attn_cp_estimate(&problem, 2, 2, &step, &info, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.field, "q_lens");
    step.q_lens = &q_len;
    step.kv_lens = &kv_len;
    cr_assert_eq(attn_cp_estimate(&problem, 2, 2, &step, &info, &err), ATTN_E_INVALID);
    cr_assert_str_eq(err.message, "q_lens[0] is 3; accepted: 0 to kv_lens[0]=2");
}

/* ---------------------------------------------------------------- a step of one rank */

struct prefill {
    float q[TOKENS][HEADS][DIM], out[TOKENS][HEADS][DIM], k[PAGES][BLOCK][DIM];
    int32_t q_lens[2], kv_lens[2], table[2][3];
    struct attn_problem problem;
    struct attn_kv_desc kv;
    struct attn_tensors tensors;
    struct attn_cp_params params;
    struct attn_cp_step step;
};

static void prefill_init(struct prefill *p, const struct rank *rank)
{
    memset(p, 0, sizeof *p);
    parse(PROBLEM, &p->problem);
    ATTN_INIT(&p->kv);
    p->kv.k_dtype = p->kv.v_dtype = ATTN_F32;
    p->kv.pages = PAGES;
    p->kv.block = BLOCK;
    p->kv.kv_heads = 1;
    p->kv.head_dim = DIM;
    p->kv.k.data = p->kv.v.data = p->k;
    p->kv.k_page_stride = p->kv.v_page_stride = sizeof p->k[0];
    p->kv.k_token_stride = p->kv.v_token_stride = sizeof p->k[0][0];
    p->kv.k_head_stride = p->kv.v_head_stride = sizeof p->k[0][0];
    ATTN_INIT(&p->tensors);
    p->tensors.softmax_scale = 1;
    p->tensors.q = fixture_tensor(p->q, sizeof p->q[0], sizeof p->q[0][0]);
    p->tensors.out = fixture_tensor(p->out, sizeof p->out[0], sizeof p->out[0][0]);
    p->tensors.kv_desc = &p->kv;
    ATTN_INIT(&p->params);
    p->params.queries = ATTN_CP_TOKENS;
    p->params.problem = &p->problem;
    p->params.collectives = &rank->net;
    p->params.interleave = 2;
    ATTN_INIT(&p->step);
    p->q_lens[0] = 7, p->kv_lens[0] = 16;
    p->q_lens[1] = 5, p->kv_lens[1] = 5;
    for (int i = 0; i < 6; i++)
        p->table[i / 3][i % 3] = i;
    p->step.seqs = 2;
    p->step.q_lens = p->q_lens;
    p->step.kv_lens = p->kv_lens;
    p->step.table = p->table[0];
    p->step.table_width = 3;
}

/* ---------------------------------------------------------------- creating */

static void check_params(struct prefill *p, int32_t status, const char *field, const char *message)
{
    struct attn_cp *cp = NULL;
    struct attn_error err;

    ATTN_INIT(&err);
    cr_assert_eq(attn_cp_create(cpu.backend, &p->params, &cp, &err), status, "%s: %s", field, err.message);
    cr_assert_null(cp);
    cr_assert_str_eq(err.field, field);
    cr_assert_str_eq(err.message, message);
}

static void check_problem(struct prefill *p, const char *text, const char *field, const char *accepted)
{
    char message[256];

    parse(text, &p->problem);
    snprintf(message, sizeof message,
             "this %s of the problem is not served with ATTN_CP_TOKENS; accepted: %s", field, accepted);
    check_params(p, ATTN_E_UNSUPPORTED, field, message);
    parse(PROBLEM, &p->problem);
}

static void create_wrong(struct rank *rank)
{
    struct attn_collectives net = rank->net;
    struct prefill p;

    prefill_init(&p, rank);
    p.params.collectives = &net;
    p.params.interleave = 3;
    check_params(&p, ATTN_E_INVALID, "interleave", "interleave is 3; accepted: a divisor of block=4");
    p.params.interleave = 2;
    p.params.pass = 4;
    check_params(&p, ATTN_E_INVALID, "pass",
                 "pass is 4; accepted: ATTN_CP_PASS_CHEAPER, ATTN_CP_PASS_KEYS, ATTN_CP_PASS_QUERIES or "
                 "ATTN_CP_PASS_HEADS");
    p.params.pass = ATTN_CP_PASS_HEADS;
    check_params(
        &p, ATTN_E_UNSUPPORTED, "heads",
        "heads is 4 and kv_heads 1 for 1 ranks; accepted with ATTN_CP_PASS_HEADS: multiples of 2 ranks "
        "and more, without MLA");
    p.params.pass = ATTN_CP_PASS_KEYS;
    net.shift = NULL;
    check_params(&p, ATTN_E_INVALID, "collectives",
                 "shift is NULL; a function is accepted, or ATTN_CP_PASS_QUERIES");
    net = rank->net;
    check_problem(&p, "heads=4 kv_heads=1 head_dim=16 q=f32 block=4 cp=1 lse=1", "positions",
                  "1, as query tokens of a rank do not follow each other");
    check_problem(&p, PROBLEM " mask=bits", "mask", "none, as rows of a mask are those of whole sequences");
    check_problem(&p,
                  "heads=4 head_dim=16 q=e4m3 kv=e4m3 out=f32 scales=unit q_scale=unit cp=1 lse=1 "
                  "positions=1",
                  "q", "f32, f16 or bf16");
    parse("heads=4 kv_heads=1 head_dim=32 q=f32 kv=q8_0 cp=1 lse=1 positions=1", &p.problem);
    p.params.pass = ATTN_CP_PASS_KEYS;
    check_params(&p, ATTN_E_UNSUPPORTED, "k",
                 "k is q8_0 and v q8_0, whose blocks are only read; accepted where keys are passed: other "
                 "types, or ATTN_CP_PASS_QUERIES");
}

Test(prefill, wrong_parameters_are_named)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 1, 30, create_wrong, NULL);
}

/* ---------------------------------------------------------------- steps and runs */

static struct attn_cp *make(struct prefill *p, struct attn_error *err)
{
    struct attn_cp *cp = NULL;

    cr_assert_eq(attn_cp_create(cpu.backend, &p->params, &cp, err), ATTN_OK, "%s", err->message);
    return cp;
}

static void check_step(struct attn_cp *cp, struct prefill *p, int32_t status, const char *message)
{
    struct attn_error err;

    ATTN_INIT(&err);
    cr_assert_eq(attn_cp_prefill_begin(cp, &p->step, NULL, &err), status, "%s", err.message);
    cr_assert_str_eq(err.message, message);
}

static void begin_wrong(struct rank *rank)
{
    struct attn_cp_prefill_info info;
    struct prefill p;

    ATTN_INIT(&info);
    prefill_init(&p, rank);
    struct attn_cp *cp = make(&p, &rank->err);
    cr_assert_eq(attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err), ATTN_E_STATE);
    cr_assert_eq(attn_cp_prefill_get_info(cp, &info, &rank->err), ATTN_E_STATE);
    cr_assert_eq(attn_cp_run(cp, NULL, NULL, &rank->err), ATTN_E_STATE);
    cr_assert_eq(attn_cp_prefill_begin(NULL, &p.step, NULL, &rank->err), ATTN_E_INVALID);
    p.step.seqs = 3;
    check_step(cp, &p, ATTN_E_SIZE, "seqs is 3; this rank was made for max_seqs=2");
    p.step.seqs = 2;
    p.q_lens[1] = 6;
    check_step(cp, &p, ATTN_E_INVALID, "q_lens[1] is 6; accepted: 0 to kv_lens[1]=5, at most max_q=12");
    p.q_lens[0] = 8, p.q_lens[1] = 5;
    check_step(cp, &p, ATTN_E_SIZE, "q_lens have 13 query tokens; this rank was made for max_rows=12");
    p.q_lens[0] = 7;
    p.kv_lens[0] = 17;
    check_step(cp, &p, ATTN_E_SIZE, "kv_lens[0] is 17; this rank was made for max_kv=16");
    p.kv_lens[0] = 16;
    p.step.table_width = 1;
    check_step(cp, &p, ATTN_E_INVALID, "table_width is 1; this rank's keys of sequence 0 have 2 pages");
    p.step.table_width = 3;
    p.table[0][1] = -1;
    check_step(
        cp, &p, ATTN_E_INVALID,
        "page 1 of sequence 0 is -1; other ranks see this rank's keys without its table, so that 0 and "
        "more are accepted");
    p.table[0][1] = 1;
    p.step.kv_lens = NULL;
    check_step(cp, &p, ATTN_E_INVALID,
               "q_lens, kv_lens or table is NULL; arrays of 2 sequences are accepted");
    attn_cp_destroy(cp);
}

Test(prefill, wrong_steps_are_named)
{
    struct rank ranks[MOST_RANKS];

    ranks_run(ranks, 2, 30, begin_wrong, NULL);
}

/* Keys of a sequence are all zeros, so that results are the mean of what values there are: zeros. */
static void run_wrong(struct rank *rank)
{
    struct prefill p;

    prefill_init(&p, rank);
    p.params.pass = *(uint32_t *)rank->arg;
    struct attn_cp *cp = make(&p, &rank->err);
    cr_assert_eq(attn_cp_prefill_begin(cp, &p.step, NULL, &rank->err), ATTN_OK, "%s", rank->err.message);
    p.tensors.out.buffer.data = NULL;
    cr_assert_eq(attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.field, "out");
    p.tensors.out.buffer.data = p.out;
    p.tensors.kv_desc = NULL;
    cr_assert_eq(attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.message, "kv and kv_desc are not given; one of them is accepted");
    p.tensors.kv_desc = &p.kv;
    p.tensors.q_rope = p.tensors.q;
    cr_assert_eq(attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err), ATTN_E_INVALID);
    cr_assert_str_eq(rank->err.field, "q_rope");
    memset(&p.tensors.q_rope, 0, sizeof p.tensors.q_rope);
    memset(p.out, 0x55, sizeof p.out);
    rank->status = attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err);
    if (rank->status == ATTN_OK)
        rank->status = attn_cp_wait(cp, NULL, &rank->err);
    if (rank->status == ATTN_OK && p.out[0][0][0] != 0)
        rank->status = ATTN_E_STATE;
    /* A step of nothing sends nothing. */
    p.step.seqs = 0;
    if (rank->status == ATTN_OK && rank->number == 0)
        rank->status = attn_cp_prefill_begin(cp, &p.step, NULL, &rank->err);
    if (rank->status == ATTN_OK && rank->number == 0)
        rank->status = attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err);
    attn_cp_destroy(cp);
}

Test(prefill, wrong_runs_leave_the_connection_as_it_was)
{
    struct rank ranks[MOST_RANKS];

    for (uint32_t pass = ATTN_CP_PASS_CHEAPER; pass <= ATTN_CP_PASS_QUERIES; pass++) {
        ranks_run(ranks, 3, 30, run_wrong, &pass);
        for (uint32_t r = 0; r < 3; r++)
            cr_assert_eq(ranks[r].status, ATTN_OK, "rank %u: %s", r, ranks[r].err.message);
    }
}

/* What the plan refuses is found when others wait already. */
static void fail_late(struct rank *rank)
{
    struct prefill p;

    prefill_init(&p, rank);
    p.params.pass = *(uint32_t *)rank->arg;
    struct attn_cp *cp = make(&p, &rank->err);
    cr_assert_eq(attn_cp_prefill_begin(cp, &p.step, NULL, &rank->err), ATTN_OK);
    if (rank->number == 1)
        p.tensors.softmax_scale = 0;
    rank->status = attn_cp_prefill_run(cp, &p.tensors, NULL, &rank->err);
    attn_cp_destroy(cp);
}

Test(prefill, a_rank_that_fails_ends_the_others)
{
    struct rank ranks[MOST_RANKS];

    for (uint32_t pass = ATTN_CP_PASS_KEYS; pass <= ATTN_CP_PASS_QUERIES; pass++) {
        ranks_run(ranks, 3, 300, fail_late, &pass);
        cr_assert_eq(ranks[1].status, ATTN_E_INVALID, "%s", ranks[1].err.message);
        cr_assert_str_eq(ranks[1].err.field, "softmax_scale");
        for (uint32_t r = 0; r < 3; r += 2) {
            cr_assert_eq(ranks[r].status, ATTN_E_PEER, "%s", ranks[r].err.message);
            cr_assert_not_null(strstr(ranks[r].err.message, "rank 1 of 3 ended the connection: "));
            cr_assert_lt(ranks[r].seconds, 100.0);
        }
    }
}
