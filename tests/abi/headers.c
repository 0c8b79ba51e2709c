/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One public header, HEADER, alone and twice: it needs nothing before it and does no harm to itself. */
#include HEADER
#include HEADER

int attn_test_header_in_c(void);
int attn_test_header_in_c(void)
{
    return 0;
}
