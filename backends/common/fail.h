/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How a function of libattn or of a plugin says what went wrong. */
#ifndef ATTN_COMMON_FAIL_H
#define ATTN_COMMON_FAIL_H

#include "attn/types.h"

/*
 * Fills err (may be NULL) and returns status. field may be NULL. The text may be made from the old contents
 * of err; what it cites of others is shown as attn__show does.
 */
int32_t attn__fail(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                   const char *format, ...) __attribute__((format(printf, 5, 6), cold));

#endif
