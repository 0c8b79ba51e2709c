/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Stacks, and the step from one to another: what a fiber is made of. */
#ifndef FIBER_SWITCH_H
#define FIBER_SWITCH_H

#include <stdbool.h>
#include <stddef.h>

struct fiber_stack {
    void *place; /* stack pointer while it waits */
    char *base;  /* lowest address */
    size_t size;
    void *fake; /* the address sanitizer's */
    bool left;  /* by fiber_leave, since it was started last */
};

/* Memory with a page below it that no access survives. Ends the program without memory. */
void fiber_stack_create(struct fiber_stack *stack, size_t size);
void fiber_stack_destroy(struct fiber_stack *stack);
/* The next step to this stack calls `entry`, which does not return. */
void fiber_stack_start(struct fiber_stack *stack, void (*entry)(void));
/* Leaves `from`, goes on at `to`; returns when something steps to `from` again. */
void fiber_step(struct fiber_stack *from, struct fiber_stack *to);
/* What an entry calls first; a `from` without a base is where it was stepped to from, and gets its own. */
void fiber_arrive(struct fiber_stack *from);
/* The same as fiber_step, never to come back. */
void fiber_leave(struct fiber_stack *from, struct fiber_stack *to);

#endif
