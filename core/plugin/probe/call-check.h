/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Checks that functions of a plugin keep the calling convention: after each call the registers that belong to
 * the caller and the stack pointer must be as they were. For one thread; attn-probe's worker has no other.
 */
#ifndef ATTN_PLUGIN_CALL_CHECK_H
#define ATTN_PLUGIN_CALL_CHECK_H

/* So many functions are checked; what is added beyond is called as it is. */
#define CALL_CHECK_FUNCTIONS 256

/* Where the assembly keeps what it needs, in units of 8 bytes. */
#define CALL_CHECK_RETURN    0
#define CALL_CHECK_STACK     1
#define CALL_CHECK_INDEX     2
#define CALL_CHECK_REGISTERS 3

/* What each register holds during a call, beside its number. */
#define CALL_CHECK_MARK 0x5a00

#if defined(__x86_64__)
#define CALL_CHECK_COUNT 6 /* rbx rbp r12 to r15 */
#else
#define CALL_CHECK_COUNT 19 /* x19 to x29, d8 to d15 */
#endif

#ifndef __ASSEMBLER__
#include "core.h"

/* `tell` gets a sentence and must not return. */
void call_check_begin(void (*tell)(const char *text));
/* The checked form of a function; attn__check_call_fn. */
attn__function call_check_add(attn__function function, const char *table, const char *name);
#endif

#endif
