/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The axes that the plugin reports: each key of the problem string with its values, or with ranges in which
 * the answer of a query is the same. */
#include "axes.h"

#include "host.h"

static const struct attn_axis axes[] = {ATTN__AXIS_LIST("type", GPU_VENDOR_TYPES), ATTN__AXES(576),
                                        ATTN__AXES_BLOCKS,
                                        ATTN__AXIS_LIST("graph", "never", "single", "uniform", "always")};

int32_t gpu_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    *out = axes;
    *out_count = sizeof axes / sizeof axes[0];
    return ATTN_OK;
}
