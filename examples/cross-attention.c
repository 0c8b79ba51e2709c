/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Cross-attention: an encoder's keys are written once, then each decoded token attends to all of them. */
#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 2, HEADS = 4, DIM = 64, BLOCK = 16, PAGES = 4, FRAMES = 40 + 10, STEPS = 3 };

/* All keys weigh the same where q is 0, and a value is its position: `out` is the mean of them. */
static float q[SEQS][HEADS][DIM], k[FRAMES][HEADS][DIM], v[FRAMES][HEADS][DIM], out[SEQS][HEADS][DIM];
static float k_cache[PAGES][BLOCK][HEADS][DIM], v_cache[PAGES][BLOCK][HEADS][DIM];

static int differs(float value, float wanted)
{
    return !(value - wanted < 1e-4F && wanted - value < 1e-4F);
}

static const int32_t lens[SEQS] = {40, 10}, table[SEQS][3] = {{2, 0, 3}, {1, -1, -1}};
static struct attn_error err;

static void check(int32_t status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "cross-attention: %s\n", err.message);
    exit(1);
}

/* Once: what the encoder made, to page * BLOCK + token for each frame. */
static void write_frames(struct attn_session *session)
{
    int64_t slots[FRAMES];
    struct attn_kv_desc cache;
    struct attn_kv_write_args write;

    for (int s = 0, row = 0; s < SEQS; s++)
        for (int i = 0; i < lens[s]; i++, row++) {
            slots[row] = (int64_t)table[s][i / BLOCK] * BLOCK + i % BLOCK;
            for (int c = 0; c < HEADS * DIM; c++)
                v[row][c / DIM][c % DIM] = (float)i;
        }
    ATTN_INIT(&cache);
    cache.k_dtype = cache.v_dtype = ATTN_F32;
    cache.pages = PAGES;
    cache.block = BLOCK;
    cache.kv_heads = HEADS;
    cache.head_dim = DIM;
    cache.k.data = k_cache;
    cache.v.data = v_cache;
    cache.k_head_stride = cache.v_head_stride = sizeof k_cache[0][0][0];
    cache.k_token_stride = cache.v_token_stride = sizeof k_cache[0][0];
    cache.k_page_stride = cache.v_page_stride = sizeof k_cache[0];
    ATTN_INIT(&write);
    write.k_dtype = write.v_dtype = ATTN_F32;
    write.num_tokens = FRAMES;
    write.k_new = attn_tensor_of(k, ATTN_F32, HEADS, DIM);
    write.v_new = attn_tensor_of(v, ATTN_F32, HEADS, DIM);
    write.kv_desc = &cache;
    write.slot_mapping.data = slots;
    check(attn_kv_write(attn_session_get_backend(session), &write, NULL, &err));
}

int main(void)
{
    struct attn_session *session;
    struct attn_forward_args args;
    int wrong = 0;

    ATTN_INIT(&err);
    /* "cpu": the arrays above are host memory. */
    check(attn_open("type=encoder_decoder heads=4 head_dim=64 q=f32 block=16", "cpu", &session, &err));

    write_frames(session);

    /* Each step: one token of each sequence; its keys are the encoder's. */
    ATTN_INIT(&args);
    args.seqs = SEQS;
    args.kv_lens = lens;
    args.table = &table[0][0];
    args.table_width = 3;
    args.q = attn_tensor_of(q, ATTN_F32, HEADS, DIM);
    args.out = attn_tensor_of(out, ATTN_F32, HEADS, DIM);
    args.k_cache.data = k_cache;
    args.v_cache.data = v_cache;
    args.pages = PAGES;
    for (int step = 0; step < STEPS; step++) {
        check(attn_forward(session, &args, NULL, &err));
        for (int s = 0; s < SEQS; s++)
            for (int c = 0; c < HEADS * DIM; c++)
                wrong += differs(out[s][c / DIM][c % DIM], (float)(lens[s] - 1) / 2);
    }
    printf("%d steps over %d and %d frames; %d numbers wrong\n", STEPS, lens[0], lens[1], wrong);
    attn_close(session);
    return wrong != 0;
}
