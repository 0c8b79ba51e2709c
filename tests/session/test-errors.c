/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Every refusal of attn_open and attn_forward: its status, its field, and what it says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "../graph/tap.h"
#include "pair.h"

static void expect(int32_t status, int32_t wanted, const char *field, const char *piece)
{
    char detail[300];
    snprintf(detail, sizeof detail, "%s / %s", field, piece);
    check(status == wanted &&
              (status == ATTN_OK || (strcmp(err.field, field) == 0 && strstr(err.message, piece) != NULL &&
                                     (err.reason == 0 || wanted != ATTN_E_INVALID ||
                                      strstr(err.message, "the plan's maximum") != NULL))),
          "status, field, message and no reason of a backend", detail);
    ATTN_INIT(&err);
}

static void refuse_open(const char *problem, const char *backend, int32_t wanted, const char *field,
                        const char *piece)
{
    struct attn_session *session = (struct attn_session *)&session;
    if (backend != NULL)
        setenv("ATTN_BACKEND", backend, 1);
    const int32_t status = attn_open(problem, NULL, &session, &err);
    unsetenv("ATTN_BACKEND");
    check(session == NULL, "no session", problem != NULL ? problem : "NULL");
    expect(status, wanted, field, piece);
}

static void test_open(void)
{
    static const char good[] = "heads=4 head_dim=16 q=f32";
    struct attn_session *session;
    expect(attn_open(good, NULL, NULL, &err), ATTN_E_INVALID, "out", "out is NULL");
    expect(attn_open(good, "nothing:7", &session, &err), ATTN_E_NO_BACKEND, "device", "nothing:7");
    refuse_open(NULL, NULL, ATTN_E_INVALID, "text", "NULL");
    refuse_open("heads=4 head_dim=16", NULL, ATTN_E_INVALID, "q", "q");
    refuse_open("heads=4 head_dim=16 q=f32 blok=4", NULL, ATTN_E_INVALID, "blok", "block");
    refuse_open("heads=4 head_dim=16 q=f32 addr=csr", NULL, ATTN_E_UNSUPPORTED, "addr",
                "attn_forward does not serve addr=csr; addr=table or addr=dense is accepted");
    refuse_open("heads=4 head_dim=16 q=f32 positions=1", NULL, ATTN_E_UNSUPPORTED, "positions",
                "positions=1");
    refuse_open("heads=4 head_dim=16 q=f32 seq_causal=1", NULL, ATTN_E_UNSUPPORTED, "seq_causal",
                "seq_causal=1");
    refuse_open("heads=4 head_dim=16 q=f32 cp=1", NULL, ATTN_E_UNSUPPORTED, "cp", "cp=1");
    refuse_open(good, "none", ATTN_E_STATE, "decision", "none");
    refuse_open(good, "nobody", ATTN_E_NO_BACKEND, "backend", "nobody");
    attn_close(NULL);
    check(attn_session_get_backend(NULL) == NULL, "no backend of no session", "");
}

/* ---------------------------------------------------------------- attn_forward */

static const struct pair_step step = {2, {1, 3}, {9, 12}};

/* Another problem, arguments that are good but for one change. */
#define WITH(problem_, change, wanted, field, piece)                                                         \
    do {                                                                                                     \
        const struct pair_case sample = {.problem = (problem_), .scale = 0.25F};                             \
        struct pair pair;                                                                                    \
        struct attn_forward_args args;                                                                       \
        pair_open(&pair, &sample, 0);                                                                        \
        pair_args(&pair, &step, &args);                                                                      \
        change;                                                                                              \
        expect(attn_forward(pair.session, &args, NULL, &err), (wanted), (field), (piece));                   \
        pair_args(&pair, &step, &args);                                                                      \
        expect(attn_forward(pair.session, &args, NULL, &err), ATTN_OK, "", "");                              \
        pair_close(&pair);                                                                                   \
    } while (0)

#define TABLE  "heads=4 kv_heads=2 head_dim=64 q=f32 lse=1"
#define MLA    "heads=4 kv_heads=1 head_dim=96/64 mla=1 q=f32"
#define NEW    "heads=4 kv_heads=2 head_dim=64 q=bf16 kv_source=new"
#define LIMITS TABLE " max_seqs=2 max_q=3 max_kv=12 max_rows=5"

static void test_lengths(void)
{
    static const int32_t negative[] = {1, -2}, many[] = {INT32_MAX, 1}, few[] = {9, 2},
                         most[] = {INT32_MAX, INT32_MAX};
    WITH(TABLE, args.seqs = 0, ATTN_E_INVALID, "seqs", "seqs is 0; accepted: 1 to 2147483647");
    WITH(TABLE, args.seqs = UINT32_MAX, ATTN_E_INVALID, "seqs", "seqs is 4294967295");
    WITH(TABLE, args.q_lens = negative, ATTN_E_INVALID, "q_lens", "q_lens[1] is -2; accepted: at least 0");
    WITH(TABLE, args.kv_lens = negative, ATTN_E_INVALID, "kv_lens", "kv_lens[1] is -2; accepted: at least 3");
    WITH(TABLE, args.kv_lens = few, ATTN_E_INVALID, "kv_lens", "kv_lens[1] is 2; accepted: at least 3");
    WITH(NEW, (args.q_lens = many, args.kv_lens = NULL), ATTN_E_INVALID, "q_lens", "split the step");
    WITH(NEW, args.kv_lens = most, ATTN_E_INVALID, "kv_lens",
         "kv_lens has more than 2147483647 keys up to sequence 1");
    WITH(NEW, args.kv_lens = negative, ATTN_E_INVALID, "kv_lens", "kv_lens[1] is -2; accepted: at least 0");
    WITH(TABLE, args.table = NULL, ATTN_E_INVALID, "table", "table is not given");
    WITH(TABLE, args.table_width = 0, ATTN_E_INVALID, "table", "table is not given");
    WITH(TABLE, args.pages = 4, ATTN_E_INVALID, "table", "4");
    WITH(
        TABLE,
        {
            args.k.buffer.data = NULL; /* a write would refuse it too */
            check(attn_forward(pair.session, &args, NULL, &err) == ATTN_OK, "pages enough", "");
            args.pages = 4;
        },
        ATTN_E_INVALID, "table", "4");
    WITH(TABLE, args.pages = 0, ATTN_E_INVALID, "pages", "pages");
    WITH(TABLE, args.block = 8, ATTN_E_INVALID, "block", "8");
}

static void test_tensors(void)
{
    static struct attn_tensors old = {.struct_size = 3};
    WITH(TABLE, args.q.dtype = ATTN_BF16, ATTN_E_INVALID, "q",
         "q is a tensor of bf16, but the call takes f32");
    WITH(NEW, args.q.dtype = ATTN_F32, ATTN_E_INVALID, "q", "q is a tensor of f32, but the call takes bf16");
    WITH(NEW, args.k.dtype = ATTN_F32, ATTN_E_INVALID, "k_new", "f32");
    WITH(TABLE, args.out.dtype = ATTN_F16, ATTN_E_INVALID, "out", "f16");
    WITH(TABLE, args.q.buffer.data = NULL, ATTN_E_INVALID, "q", "q is not given");
    WITH(TABLE, args.out.buffer.data = NULL, ATTN_E_INVALID, "out", "out is not given");
    WITH(TABLE, args.lse.buffer.data = NULL, ATTN_E_INVALID, "lse", "lse is not given");
    WITH(TABLE, args.v.buffer.data = NULL, ATTN_E_INVALID, "v_new", "v_new is not given");
    WITH(NEW, args.k.buffer.data = NULL, ATTN_E_INVALID, "k", "kv_source=new needs new keys: give k and v");
    WITH(TABLE, args.extras = &old, ATTN_E_INVALID, "extras", "struct_size 3");
    WITH(TABLE " sinks=1", args.extras = NULL, ATTN_E_INVALID, "sinks", "sinks");
    WITH(TABLE, args.softmax_scale = -1, ATTN_E_INVALID, "softmax_scale", "-1");
    WITH(MLA, args.softmax_scale = 0, ATTN_E_INVALID, "softmax_scale",
         "softmax_scale is 0; mla=1 needs that of the model");
}

static void test_caches(void)
{
    WITH(NEW, args.k_cache = pair.q, ATTN_E_INVALID, "k_cache",
         "the problem says kv_source=new; leave it out");
    WITH(NEW, args.v_cache = pair.q, ATTN_E_INVALID, "k_cache",
         "the problem says kv_source=new; leave it out");
    WITH(NEW, args.kv = (struct attn_kv *)&pair, ATTN_E_INVALID, "k_cache", "leave it out");
    WITH(TABLE, args.kv = (struct attn_kv *)&pair, ATTN_E_INVALID, "kv", "k_cache and kv are both given");
    WITH(TABLE, args.k_cache.data = NULL, ATTN_E_INVALID, "k_cache", "k_cache and v_cache are needed, or kv");
    WITH(TABLE, args.v_cache.data = NULL, ATTN_E_INVALID, "v_cache", "k_cache and v_cache are needed, or kv");
    WITH(MLA, args.v_cache = pair.q, ATTN_E_INVALID, "v_cache", "mla=1 needs k_cache alone, or kv");
}

/* Caches that only a handle describes; and what is no session or no arguments. */
static void test_handles(void)
{
    static const char *const problems[] = {"heads=4 kv_heads=2 head_dim=64 q=bf16 kv=int8 scales=token-head",
                                           "heads=4 kv_heads=2 head_dim=64 q=bf16 layout=paged-x"};
    struct attn_forward_args args;
    struct pair pair;
    for (int i = 0; i < 2; i++) {
        const struct pair_case sample = {.problem = problems[i]};
        pair_open(&pair, &sample, 0);
        pair_args(&pair, &step, &args);
        expect(attn_forward(pair.session, &args, NULL, &err), ATTN_E_INVALID, "k_cache",
               "k_cache is contiguous and has no scales; with layout=paged-x or scales give kv");
        pair_close(&pair);
    }
    const struct pair_case cross = {.problem = "type=encoder_decoder heads=4 head_dim=64 q=f32"};
    pair_open(&pair, &cross, 0);
    expect(pair_forward(&pair, &step), ATTN_E_INVALID, "k",
           "the keys of cross-attention are not those of the query tokens");
    pair_close(&pair);
    const struct pair_case sample = {.problem = TABLE};
    pair_open(&pair, &sample, 0);
    pair_args(&pair, &step, &args);
    expect(attn_forward(NULL, &args, NULL, &err), ATTN_E_INVALID, "session", "the session is NULL");
    expect(attn_forward(pair.session, NULL, NULL, &err), ATTN_E_INVALID, "args", "args is NULL");
    args.struct_size = 0;
    expect(attn_forward(pair.session, &args, NULL, &err), ATTN_E_INVALID, "args", "struct_size 0");
    check(attn_forward(pair.session, &args, NULL, NULL) == ATTN_E_INVALID, "an error is optional", "");
    pair_close(&pair);
}

/* Maxima that the problem gives are limits. */
static void test_limits(void)
{
    static const int32_t three[] = {1, 1, 1}, longer[] = {1, 4}, keys[] = {9, 13}, rows[] = {3, 3};
    WITH(LIMITS, (args.seqs = 3, args.q_lens = three, args.kv_lens = three), ATTN_E_INVALID, "seqs", "3");
    WITH(LIMITS, args.q_lens = longer, ATTN_E_INVALID, "max_q", "4");
    WITH(LIMITS, args.kv_lens = keys, ATTN_E_INVALID, "max_kv", "13");
    WITH(LIMITS, args.q_lens = rows, ATTN_E_INVALID, "num_tokens", "6");
}

int main(void)
{
    ATTN_INIT(&err);
    test_open();
    test_lengths();
    test_tensors();
    test_caches();
    test_handles();
    test_limits();
    return finish_checks();
}
