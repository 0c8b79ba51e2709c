/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Writes values of the host into device memory. */
#include "../gpu/kernels/upload-kernel.h"
