/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Architectures as traits: lanes of a wave, registers, and the instructions of a 16x16x16 product. The matrix
 * kernels take what depends on the architecture from these traits, not from the compiler's macros.
 */
#ifndef ATTN_HIP_ARCH_H
#define ATTN_HIP_ARCH_H

#include "dot.h"
#if defined(__AMDGCN__)
#include "mfma.h"
#include "wmma.h"
#endif

template <uint32_t WaveSize, bool LargeRegisters> struct tile_arch_dot {
    static constexpr uint32_t wave_size = WaveSize;
    static constexpr bool large_registers = LargeRegisters;
    template <bool Bf16> using mma = tile_dot<Bf16, WaveSize>;
};

#if defined(__AMDGCN__)

template <bool ShortBf16, bool LargeRegisters> struct tile_arch_mfma {
    static constexpr uint32_t wave_size = 64;
    static constexpr bool large_registers = LargeRegisters;
    template <bool Bf16> using mma = tile_mfma<Bf16, ShortBf16>;
};

template <template <bool> class Wmma> struct tile_arch_wmma {
    static constexpr uint32_t wave_size = 32;
    static constexpr bool large_registers = true;
    template <bool Bf16> using mma = Wmma<Bf16>;
};

#if defined(__gfx908__)
using tile_target = tile_arch_mfma<true, false>;
#elif defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
using tile_target = tile_arch_mfma<false, true>;
#elif defined(__GFX11__)
using tile_target = tile_arch_wmma<tile_wmma11>;
#elif defined(__GFX12__)
using tile_target = tile_arch_wmma<tile_wmma12>;
#elif defined(__gfx906__)
using tile_target = tile_arch_dot<64, false>;
#else
using tile_target = tile_arch_dot<GPU_WAVE, true>;
#endif

#endif

#endif
