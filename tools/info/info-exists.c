/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info exists: is a backend of that name ready? The exit code is the answer. */
#include "info.h"

int exists_command(const struct info *info)
{
    struct attn_report *report;
    const struct attn_backend_record *backend;
    int code = report_everything(info, &report);

    if (code != EXIT_YES)
        return code;
    code = EXIT_NO;
    for (uint32_t i = 0; (backend = attn_report_get_backend(report, i)) != NULL; i++)
        if (backend->state == ATTN_BACKEND_READY && backend_matches(info->args[0], backend->name))
            code = EXIT_YES;
    attn_report_destroy(report);
    return code;
}
