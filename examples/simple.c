/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The shortest program: two prompts, of three and two tokens, each attend to themselves. */
/* clang-format off */
/* begin */
#include <attn/attn.h>
#include <stdio.h>
int main(void)
{
    static float q[5 * 8 * 64], k[5 * 2 * 64], v[5 * 2 * 64] = {1}, out[5 * 8 * 64];
    const int32_t lens[] = {3, 2};
    struct attn_session *session;
    struct attn_error err = {.struct_size = sizeof err};
    struct attn_forward_args args = {.struct_size = sizeof args, .seqs = 2, .q_lens = lens,
        .q = attn_tensor_of(q, ATTN_F32, 8, 64), .k = attn_tensor_of(k, ATTN_F32, 2, 64),
        .v = attn_tensor_of(v, ATTN_F32, 2, 64), .out = attn_tensor_of(out, ATTN_F32, 8, 64)};
    if (attn_open("heads=8 kv_heads=2 head_dim=64 q=f32 kv_source=new", "cpu", &session, &err) != ATTN_OK ||
        attn_forward(session, &args, NULL, &err) != ATTN_OK)
        return fprintf(stderr, "%s\n", err.message), 1;
    printf("%g\n", out[0]);
    attn_close(session);
}
/* end */
