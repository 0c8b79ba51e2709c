/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Paged decode: two prompts, then one token of each at a time; a sequence takes a page when its last is full.
 */
#include <attn/attn.h>
#include <stdio.h>

enum { SEQS = 2, HEADS = 8, KV_HEADS = 2, DIM = 64, BLOCK = 16, PAGES = 8, WIDTH = 4, STEPS = 40, ROWS = 24 };

/* All keys weigh the same where q is 0, and a value is its position: row i of `out` is the mean of them. */
static float q[ROWS][HEADS][DIM], k[ROWS][KV_HEADS][DIM], v[ROWS][KV_HEADS][DIM], out[ROWS][HEADS][DIM];
static float k_cache[PAGES][BLOCK][KV_HEADS][DIM], v_cache[PAGES][BLOCK][KV_HEADS][DIM];

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

int main(void)
{
    struct attn_session *session;
    struct attn_error err;
    struct attn_forward_args args;
    int32_t q_lens[SEQS] = {20, 3}, kv_lens[SEQS] = {20, 3}, table[SEQS][WIDTH], pages = 0;
    int wrong = 0;

    ATTN_INIT(&err);
    /* "cpu": the arrays above are host memory. */
    if (attn_open("heads=8 kv_heads=2 head_dim=64 q=f32 block=16", "cpu", &session, &err) != ATTN_OK)
        return fprintf(stderr, "%s\n", err.message), 1;
    memset(table, -1, sizeof table); /* no page yet */

    ATTN_INIT(&args);
    args.seqs = SEQS;
    args.q_lens = q_lens;
    args.kv_lens = kv_lens;
    args.table = &table[0][0];
    args.table_width = WIDTH;
    args.q = attn_tensor_of(q, ATTN_F32, HEADS, DIM);
    args.k = attn_tensor_of(k, ATTN_F32, KV_HEADS, DIM);
    args.v = attn_tensor_of(v, ATTN_F32, KV_HEADS, DIM);
    args.out = attn_tensor_of(out, ATTN_F32, HEADS, DIM);
    args.k_cache.data = k_cache;
    args.v_cache.data = v_cache;
    args.pages = PAGES;
    for (int step = 0; step < STEPS; step++) {
        for (int s = 0, row = 0; s < SEQS; s++) {
            for (int page = 0; page < (kv_lens[s] + BLOCK - 1) / BLOCK; page++)
                if (table[s][page] < 0)
                    table[s][page] = pages++; /* the next free one */
            for (int i = kv_lens[s] - q_lens[s]; i < kv_lens[s]; i++, row++)
                for (int c = 0; c < KV_HEADS * DIM; c++)
                    v[row][c / DIM][c % DIM] = (float)i;
        }
        if (attn_forward(session, &args, NULL, &err) != ATTN_OK)
            return fprintf(stderr, "%s\n", err.message), 1;
        for (int s = 0, row = 0; s < SEQS; s++)
            for (int i = kv_lens[s] - q_lens[s]; i < kv_lens[s]; i++, row++)
                for (int c = 0; c < HEADS * DIM; c++)
                    wrong += differs(out[row][c / DIM][c % DIM], (float)i / 2);
        for (int s = 0; s < SEQS; s++) {
            q_lens[s] = 1; /* from now on a token each */
            kv_lens[s]++;
        }
    }
    printf("%d steps, %d keys in %d pages; %d numbers wrong\n", STEPS, kv_lens[0] + kv_lens[1] - SEQS, pages,
           wrong);
    attn_close(session);
    return wrong != 0;
}
