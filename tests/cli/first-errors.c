/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes the mistakes of a first program, one a run, and prints the message: first-errors NAME. */
#include <stdio.h>

#include "attn/attn.h"

enum { TOKENS = 3, HEADS = 8, DIM = 64 };

static struct attn_error err;

static int32_t open_session(const char *problem, struct attn_session **session)
{
    return attn_open(problem, NULL, session, &err);
}

static int32_t forward(const char *problem, uint32_t dtype, int32_t tokens, uint32_t struct_size)
{
    static float q[TOKENS * HEADS * DIM], out[TOKENS * HEADS * DIM];
    struct attn_forward_args args;
    struct attn_session *session;
    int32_t status = open_session(problem, &session);
    ATTN_INIT(&args);
    args.struct_size = struct_size;
    args.seqs = 1;
    args.q_lens = &tokens;
    args.q = attn_tensor_of(q, dtype, HEADS, DIM);
    args.k = args.v = args.q;
    args.out = attn_tensor_of(out, dtype, HEADS, DIM);
    if (status == ATTN_OK)
        status = attn_forward(session, &args, NULL, &err);
    attn_close(session);
    return status;
}

#define SELF     "heads=8 head_dim=64 kv_source=new "
#define OF_A_RUN (uint32_t)sizeof(struct attn_forward_args)

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    struct attn_session *session;
    int32_t status = ATTN_OK;
    ATTN_INIT(&err);
    if (strcmp(name, "no-dtype") == 0)
        status = open_session("heads=8 head_dim=64", &session);
    else if (strcmp(name, "unknown-key") == 0)
        status = open_session("heads=8 headdim=64 q=f32", &session);
    else if (strcmp(name, "f32-for-bf16") == 0)
        status = forward(SELF "q=bf16", ATTN_F32, TOKENS, OF_A_RUN);
    else if (strcmp(name, "no-struct-size") == 0)
        status = forward(SELF "q=f32", ATTN_F32, TOKENS, 0);
    else if (strcmp(name, "too-many-tokens") == 0)
        status = forward(SELF "q=f32 max_q=2", ATTN_F32, TOKENS, OF_A_RUN);
    else if (strcmp(name, "no-cache") == 0)
        status = forward("heads=8 head_dim=64 q=f32", ATTN_F32, TOKENS, OF_A_RUN);
    else if (strcmp(name, "no-backend") == 0)
        status = open_session("heads=8 head_dim=64 q=f32", &session);
    else
        return 2;
    if (status == ATTN_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return 1;
}
