/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Targets without code, for a runtime that has kernels of its own: host code is tested without clang too. */
#include "images.h"

static const unsigned char empty[64];

#define EMPTY(name, more) [GPU_MODULE_##name] = empty,
#define TARGET(number)                                                                                       \
    {                                                                                                        \
        number,                                                                                              \
        {                                                                                                    \
            HIP_MODULES(EMPTY, )                                                                             \
        }                                                                                                    \
    }

#include "modules.h"

static const struct hip_target targets[] = {TARGET(0x906),  TARGET(0x908),  TARGET(0x90a),  TARGET(0x942),
                                            TARGET(0x950),  TARGET(0x1030), TARGET(0x1100), TARGET(0x1101),
                                            TARGET(0x1151), TARGET(0x1200), TARGET(0x1201)};

const char hip_targets_text[] =
    " gfx906 gfx908 gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1151 gfx1200 gfx1201";

const struct hip_target *hip_target_find(uint32_t arch)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        if (targets[i].arch == arch)
            return &targets[i];
    }
    return NULL;
}
