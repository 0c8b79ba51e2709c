/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Options that put the no-op plugin in place of all others. */
#include "noop-context.h"

int32_t noop_context_create(const char *directory, struct attn_context **out, struct attn_error *err)
{
    static const char *const variables[] = {"ATTN_BACKEND=noop/flash-attn", "ATTN_DISABLE=", "ATTN_STRICT=0"};
    struct attn_context_options options;

    ATTN_INIT(&options);
    options.plugin_path = directory;
    options.variables = variables;
    options.variable_count = sizeof variables / sizeof *variables;
    return attn_context_create(&options, out, err);
}
