/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What call-check.c and call-check.S share; the calls are in worker.h. */
#ifndef ATTN_PLUGIN_CALL_CHECK_H
#define ATTN_PLUGIN_CALL_CHECK_H

/* Largest number of functions that are checked; further ones are called directly. */
#define CALL_CHECK_FUNCTIONS 256

/* Where the assembly saves the state of the caller, in units of 8 bytes. */
#define CALL_CHECK_RETURN    0
#define CALL_CHECK_STACK     1
#define CALL_CHECK_INDEX     2
#define CALL_CHECK_REGISTERS 3

/* Register number i holds this + i when the function is called. */
#define CALL_CHECK_MARK 0x5a00

#if defined(__x86_64__)
#define CALL_CHECK_COUNT 6 /* rbx rbp r12 to r15 */
#else
#define CALL_CHECK_COUNT 19 /* x19 to x29, d8 to d15 */
#endif

#endif
