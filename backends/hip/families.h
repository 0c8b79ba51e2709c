/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Families of kernels that HIP has beside those of all vendors, one file each. */
#ifndef ATTN_HIP_FAMILIES_H
#define ATTN_HIP_FAMILIES_H

#include "host.h"

extern const struct gpu_family hip_tile;

#endif
