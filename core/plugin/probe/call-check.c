/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The list of checked functions, and the message about one that broke the calling convention. */
#include <stdio.h>
#include <stdlib.h>

#include "plugin/probe/call-check.h"
#include "plugin/probe/worker.h"

enum { FRAME = CALL_CHECK_REGISTERS + CALL_CHECK_COUNT };

/* In call-check.S: entries of 16 bytes, one per function. */
extern const char call_check_entries[];

/* Read and written by call-check.S. */
attn__function call_check_targets[CALL_CHECK_FUNCTIONS];
uint64_t call_check_frame[FRAME];
uint64_t call_check_after[FRAME]; /* stack and registers as the function left them */
/* Returns to the caller of the function what the function returned. */
uint64_t call_check_judge(uint64_t answer);

static const char *tables[CALL_CHECK_FUNCTIONS], *names[CALL_CHECK_FUNCTIONS];
static uint32_t count;
static void (*tell_broken)(const char *text);

static const char *const registers[CALL_CHECK_COUNT] = {
#if defined(__x86_64__)
    "rbx", "rbp", "r12", "r13", "r14", "r15",
#else
    "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",
    "x29", "d8",  "d9",  "d10", "d11", "d12", "d13", "d14", "d15",
#endif
};

void call_check_begin(void (*tell)(const char *text))
{
    tell_broken = tell;
}

attn__function call_check_add(attn__function function, const char *table, const char *name)
{
    if (count == CALL_CHECK_FUNCTIONS)
        return function;
    tables[count] = table;
    names[count] = name;
    call_check_targets[count] = function;
    const char *entry = call_check_entries + 16 * (size_t)count++;
    memcpy(&function, &entry, sizeof function);
    return function;
}

uint64_t call_check_judge(uint64_t answer)
{
    const uint64_t index = call_check_frame[CALL_CHECK_INDEX];
    const int64_t moved = (int64_t)(call_check_after[CALL_CHECK_STACK] - call_check_frame[CALL_CHECK_STACK]);
    const char *dot = tables[index][0] != '\0' ? "." : "";
    char text[128];
    uint32_t i = 0;
    while (i < CALL_CHECK_COUNT && call_check_after[CALL_CHECK_REGISTERS + i] == CALL_CHECK_MARK + i)
        i++;
    if (moved == 0 && i == CALL_CHECK_COUNT)
        return answer;
    if (moved != 0)
        snprintf(text, sizeof text, "%s%s%s moves the stack pointer by %lld bytes", tables[index], dot,
                 names[index], (long long)moved);
    else
        snprintf(text, sizeof text, "%s%s%s does not preserve the register %s", tables[index], dot,
                 names[index], registers[i]);
    tell_broken(text);
    abort();
}
