/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds the code objects of an architecture in the table that the build makes. */
#include "images.h"

const struct hip_target *hip_target_find(uint32_t arch)
{
    for (const struct hip_target *target = hip_targets; target->arch != 0; target++)
        if (target->arch == arch)
            return target;
    return NULL;
}
