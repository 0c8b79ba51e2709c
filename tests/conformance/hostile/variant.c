/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What one hostile plugin has of its own: its act, its fault of the interface, or a fault of its file. */
#include "hostile.h"

#ifndef HOSTILE_ACT
#define HOSTILE_ACT behave
#endif
#ifndef HOSTILE_FAULT
#define HOSTILE_FAULT NO_FAULT
#endif

extern act_fn HOSTILE_ACT;
act_fn *const hostile_act = HOSTILE_ACT;
const enum fault hostile_fault = HOSTILE_FAULT;

#ifdef HOSTILE_CONSTRUCTOR
__attribute__((constructor)) static void begin(void)
{
    __asm__ volatile("");
}
#endif
#ifdef HOSTILE_DESTRUCTOR
__attribute__((destructor)) static void end(void)
{
    __asm__ volatile("");
}
#endif

#ifdef HOSTILE_EXPORT
ATTN_PLUGIN_EXPORT int32_t hostile_export(void);
ATTN_PLUGIN_EXPORT int32_t hostile_export(void)
{
    return 1;
}
#endif
#ifdef HOSTILE_OPEN_SYMBOL
ATTN_PLUGIN_EXPORT int32_t attn_plugin_entry_v99(int32_t value);
ATTN_PLUGIN_EXPORT __attribute__((noinline)) int32_t attn_plugin_entry_v99(int32_t value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}
#else
#define attn_plugin_entry_v99(value) (value)
#endif
#ifdef HOSTILE_STATIC_TLS
__attribute__((tls_model("initial-exec"))) static __thread volatile int32_t of_thread;
#else
static int32_t of_thread;
#endif
#ifdef HOSTILE_RELOCATED_CODE
__asm__(".text\n.balign 8\nhostile_data:\n.quad hostile_data\n");
#endif
#ifdef HOSTILE_UNIQUE
__asm__(".data\n.globl attn_plugin_entry_v98\n.type attn_plugin_entry_v98, %gnu_unique_object\n"
        "attn_plugin_entry_v98: .long 1\n.size attn_plugin_entry_v98, 4\n.text\n");
#endif
#ifdef HOSTILE_NEED
int32_t attn_reason_is_absence(uint32_t reason);
#else
#define attn_reason_is_absence(reason) ((int32_t)(reason))
#endif

int32_t hostile_use(void)
{
    of_thread = attn_plugin_entry_v99(of_thread + attn_reason_is_absence(0));
    return of_thread;
}
