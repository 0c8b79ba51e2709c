/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A context that sees the no-op plugin and nothing else, whatever the environment says. */
#ifndef NOOP_CONTEXT_H
#define NOOP_CONTEXT_H

#include "attn/attn.h"

/* `directory` is the search path. */
int32_t noop_context_create(const char *directory, struct attn_context **out, struct attn_error *err);

#endif
