/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The files of kernels: X(name, more) for every name.hip of meson.build. */
#ifndef ATTN_HIP_MODULES_H
#define ATTN_HIP_MODULES_H

#define HIP_MODULES(X, more)                                                                                 \
    X(put, more)                                                                                             \
    X(reference, more)                                                                                       \
    X(kv, more)                                                                                              \
    X(move, more)                                                                                            \
    X(merge, more)                                                                                           \
    X(step, more)                                                                                            \
    X(plan, more)                                                                                            \
    X(tile_64, more)                                                                                         \
    X(tile_64_kv8, more)                                                                                     \
    X(tile_128, more)                                                                                        \
    X(tile_128_kv8, more)                                                                                    \
    X(tile_192, more)                                                                                        \
    X(tile_192_kv8, more)                                                                                    \
    X(tile_256, more)                                                                                        \
    X(tile_256_kv8, more)

#define HIP_MODULE_ALONE(name, more) GPU_MODULE(name)

#endif
