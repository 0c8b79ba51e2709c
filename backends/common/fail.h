/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How a function of libattn or of a plugin says what went wrong. */
#ifndef ATTN_COMMON_FAIL_H
#define ATTN_COMMON_FAIL_H

#include <stdbool.h>

#include "attn/types.h"

/*
 * Fills err, which may be NULL, and returns status. field may be NULL. Arguments may point into the old
 * contents of err. The text is escaped as by attn__show.
 */
int32_t attn__fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                   const char *format, ...) __attribute__((format(printf, 5, 6), cold));

/* Clears only what is read of an error: clearing all 500 bytes would slow down attn_plan_run. */
static inline void attn__error_open(struct attn_error *own)
{
    own->struct_size = (uint32_t)sizeof *own;
    own->status = ATTN_OK;
    own->reason = 0;
    own->reserved = 0;
    own->field[0] = 0;
    own->message[0] = 0;
}

/* True if the reason is an explicit refusal: attn_reason_is_explicit. */
bool attn__reason_is_explicit(uint32_t reason);

#endif
