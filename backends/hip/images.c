/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The table of code objects. hip-targets.def is the build's: HIP_TARGET(gfx90a, 90a) for every target. */
#include "images.h"
#include "modules.h"

#define DECLARE(module, target)    extern const unsigned char hip_image_##module##_##target[];
#define HIP_TARGET(target, number) HIP_MODULES(DECLARE, target)
#include "hip-targets.def"
#undef HIP_TARGET

#define NAME(module, target) [GPU_MODULE_##module] = hip_image_##module##_##target,
static const struct hip_target targets[] = {
#define HIP_TARGET(target, number) {0x##number, {HIP_MODULES(NAME, target)}},
#include "hip-targets.def"
#undef HIP_TARGET
};

const char hip_targets_text[] = "gfx"
#define HIP_TARGET(target, number) " " #number
#include "hip-targets.def"
#undef HIP_TARGET
    ;

const struct hip_target *hip_target_find(uint32_t arch)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        if (targets[i].arch == arch)
            return &targets[i];
    }
    return NULL;
}
