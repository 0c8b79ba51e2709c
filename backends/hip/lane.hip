/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The plain attention kernels. */
#include "../gpu/lane.h"

GPU_LANE_LIST(GPU_LANE_KERNEL)
