/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The axes that the plugin reports: for each key of the problem string its values, or a range of one answer.
 */
#include "axes.h"

#include "cpu.h"

static const struct attn_axis axes[] = {ATTN__AXIS_TYPES, ATTN__AXES(65536), ATTN__AXES_BLOCKS,
                                        ATTN__AXIS_LIST("graph", "never", "single", "uniform", "always")};

int32_t cpu_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *out_count)
{
    (void)instance;
    *out = axes;
    *out_count = sizeof axes / sizeof axes[0];
    return ATTN_OK;
}
