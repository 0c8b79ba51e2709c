/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Errors of the shared parts, which know neither libattn nor a plugin. */
#ifndef ATTN_COMMON_FAIL_H
#define ATTN_COMMON_FAIL_H

#include <stdarg.h>

#include "attn/types.h"

/* Fills err (may be NULL) and returns status. */
int32_t attn__common_fail(struct attn_error *err, int32_t status, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

/* The same with a reason. */
int32_t attn__common_refuse(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                            const char *format, ...) __attribute__((format(printf, 5, 6), cold));

/* The same for functions of a plugin's own. */
int32_t attn__common_tell(struct attn_error *err, int32_t status, uint32_t reason, const char *field,
                          const char *format, va_list args) __attribute__((format(printf, 5, 0), cold));

#endif
