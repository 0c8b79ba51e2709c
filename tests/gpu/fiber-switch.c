/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Steps between stacks: callee-saved registers on the one, the stack pointer, and those of the other. */
#define _GNU_SOURCE
#include "fiber-switch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
void __asan_unpoison_memory_region(void const volatile *base, size_t size);

enum { ENTRY_FRAMES = 8192 }; /* bytes, of an entry and fiber_leave */
#endif

/* void fiber_swap(void **from, void *to) */
void fiber_swap(void **from, void *to);

#if defined(__x86_64__)
enum { SAVED = 6, ENTRY = 6 }; /* words; which of them is returned to */
__asm__(".text\n"
        ".globl fiber_swap\n"
        ".hidden fiber_swap\n"
        ".type fiber_swap, @function\n"
        "fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_swap, .-fiber_swap\n");
#elif defined(__aarch64__)
enum { SAVED = 20, ENTRY = 11 };
__asm__(".text\n"
        ".globl fiber_swap\n"
        ".hidden fiber_swap\n"
        ".type fiber_swap, %function\n"
        "fiber_swap:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size fiber_swap, .-fiber_swap\n");
#endif
/* The stack stays one of data. */
__asm__(".section .note.GNU-stack,\"\",%progbits\n.text\n");

void fiber_stack_create(struct fiber_stack *stack, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory =
        mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
        fputs("fiber: no memory for stacks\n", stderr);
        abort();
    }
    *stack = (struct fiber_stack){.base = memory + page, .size = size};
}

void fiber_stack_destroy(struct fiber_stack *stack)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    munmap(stack->base - page, stack->size + page);
}

void fiber_stack_start(struct fiber_stack *stack, void (*entry)(void))
{
    /* Above the saved words as a call leaves it: 16-byte aligned but for a return address. */
    uintptr_t *top = (uintptr_t *)(void *)(stack->base + stack->size) - 8;
    uintptr_t *words = top - SAVED - (ENTRY == SAVED ? 2 : 0);

#ifdef WITH_ASAN
    /* What its last user left behind: of one that left, the frames of its entry. The whole stack of each of
     * many fibers takes a quarter of the time of all that they do. */
    const size_t behind = stack->left && stack->size > ENTRY_FRAMES ? ENTRY_FRAMES : stack->size;
    if (stack->place != NULL)
        __asan_unpoison_memory_region(stack->base + stack->size - behind, behind);
    stack->left = false;
#endif
    for (uintptr_t *at = words; at < top; at++)
        *at = 0;
    words[ENTRY] = (uintptr_t)entry;
    stack->place = words;
}

void fiber_step(struct fiber_stack *from, struct fiber_stack *to)
{
#ifdef WITH_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, to->base, to->size);
#endif
    fiber_swap(&from->place, to->place);
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

void fiber_arrive(struct fiber_stack *from)
{
#ifdef WITH_ASAN
    const void *base;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &base, &size);
    if (from->base == NULL) { /* the first to arrive comes from there */
        from->base = (char *)(uintptr_t)base;
        from->size = size;
    }
#else
    (void)from;
#endif
}

void fiber_leave(struct fiber_stack *from, struct fiber_stack *to)
{
    from->left = true;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(NULL, to->base, to->size);
#endif
    fiber_swap(&from->place, to->place);
    abort();
}
