/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info rescan: ends every quarantine, has the files tried anew, and lists what came of it. */
#include "info.h"

int rescan_command(const struct info *info)
{
    struct attn_error err;

    ATTN_INIT(&err);
    if (attn_context_rescan(info->context, &err) != ATTN_OK) {
        complain("%s", err.message);
        return EXIT_NO;
    }
    return list_command(info);
}
