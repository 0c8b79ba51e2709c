/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Entries in front of functions of a plugin. An entry saves the return address and the registers that a
 * function must preserve, fills these registers with known values, calls the function with all arguments in
 * place, and stores for call_check_judge what the function left in them.
 */
#include "plugin/probe/call-check.h"

    .section .note.GNU-stack, "", %progbits
    .text
    .globl call_check_entries
    .hidden call_check_entries
    .p2align 4

#if defined(__x86_64__)

call_check_entries:
    .set index, 0
    .rept CALL_CHECK_FUNCTIONS
    .p2align 4
    endbr64
    movl $index, %r11d
    jmp enter
    .set index, index + 1
    .endr

enter:
    leaq call_check_frame(%rip), %r10
    popq 8 * CALL_CHECK_RETURN(%r10)
    movq %rsp, 8 * CALL_CHECK_STACK(%r10)
    movq %r11, 8 * CALL_CHECK_INDEX(%r10)
    .set index, 0
    .irp register, rbx, rbp, r12, r13, r14, r15
    movq %\register, 8 * (CALL_CHECK_REGISTERS + index)(%r10)
    movq $CALL_CHECK_MARK + index, %\register
    .set index, index + 1
    .endr
    leaq call_check_targets(%rip), %r10
    call *(%r10, %r11, 8)
    leaq call_check_frame(%rip), %r10
    leaq call_check_after(%rip), %r11
    movq %rsp, 8 * CALL_CHECK_STACK(%r11)
    movq 8 * CALL_CHECK_STACK(%r10), %rsp
    .set index, 0
    .irp register, rbx, rbp, r12, r13, r14, r15
    movq %\register, 8 * (CALL_CHECK_REGISTERS + index)(%r11)
    movq 8 * (CALL_CHECK_REGISTERS + index)(%r10), %\register
    .set index, index + 1
    .endr
    pushq 8 * CALL_CHECK_RETURN(%r10)
    movq %rax, %rdi
    jmp call_check_judge

#elif defined(__aarch64__)

call_check_entries:
    .set index, 0
    .rept CALL_CHECK_FUNCTIONS
    .p2align 4
    hint #34 /* bti c */
    mov w16, #index
    b enter
    .set index, index + 1
    .endr

    .macro load_address register, symbol
    adrp \register, \symbol
    add \register, \register, :lo12:\symbol
    .endm

enter:
    load_address x17, call_check_frame
    mov x9, sp
    str x30, [x17, #8 * CALL_CHECK_RETURN]
    str x9, [x17, #8 * CALL_CHECK_STACK]
    str x16, [x17, #8 * CALL_CHECK_INDEX]
    .set index, 0
    .irp register, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, x29
    str \register, [x17, #8 * (CALL_CHECK_REGISTERS + index)]
    mov \register, #CALL_CHECK_MARK + index
    .set index, index + 1
    .endr
    .irp register, d8, d9, d10, d11, d12, d13, d14, d15
    str \register, [x17, #8 * (CALL_CHECK_REGISTERS + index)]
    mov x9, #CALL_CHECK_MARK + index
    fmov \register, x9
    .set index, index + 1
    .endr
    load_address x9, call_check_targets
    ldr x9, [x9, x16, lsl #3]
    blr x9
    load_address x17, call_check_frame
    load_address x16, call_check_after
    mov x9, sp
    str x9, [x16, #8 * CALL_CHECK_STACK]
    ldr x9, [x17, #8 * CALL_CHECK_STACK]
    mov sp, x9
    .set index, 0
    .irp register, x19, x20, x21, x22, x23, x24, x25, x26, x27, x28, x29, d8, d9, d10, d11, d12, d13, d14, d15
    str \register, [x16, #8 * (CALL_CHECK_REGISTERS + index)]
    ldr \register, [x17, #8 * (CALL_CHECK_REGISTERS + index)]
    .set index, index + 1
    .endr
    ldr x30, [x17, #8 * CALL_CHECK_RETURN]
    b call_check_judge

#else
#error "libattn knows x86-64 and aarch64"
#endif
