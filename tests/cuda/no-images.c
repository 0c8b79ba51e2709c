/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Images without kernels, for the fake driver, which has its own: host code is tested without nvcc too. */
#define GPU_MODULE(name)                                                                                     \
    extern const unsigned char cuda_image_##name[];                                                          \
    const unsigned char cuda_image_##name[] = {0};
#include "instances.def"
