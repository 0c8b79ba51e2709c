/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The same for C++: one public header, HEADER, alone and twice. */
#include HEADER
#include HEADER

int attn_test_header_in_cpp();
int attn_test_header_in_cpp()
{
    return 0;
}
