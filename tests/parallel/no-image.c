/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An image without kernels, for the driver that stands in, which has its own. */
extern const unsigned char cuda_image_peer[];
const unsigned char cuda_image_peer[] = {0};
