/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The device intrinsics: all that device code uses beyond C and C++ themselves. Headers that host code reads
 * too are C11 and C++ at once (no templates, no designated initialisers, no compound literals); kernels are
 * C++ templates over what varies at compile time. Each target implements the intrinsics:
 *
 *   device-cuda.h                 CUDA C++, sm_80 and newer
 *   device-hip.h                  AMD, gfx906 and newer: without those of kernels/mma and kernels/mla alone
 *   tests/gpu/device-fiber.h      the host, one fiber per thread: tests run the same source without a GPU
 *
 * Global memory is addressed by integers, and address.h makes pointers of them.
 *
 * Intrinsics of every target
 *   GPU_KERNEL(name, threads, ctas)   head of a kernel: a function `name` with one argument, struct gpu_run,
 *                                     written GPU_ARGUMENT(type, arg); `ctas` of `threads` threads are to fit
 *                                     a multiprocessor
 *   GPU_ARGUMENT(type, arg)           that argument, constant
 *   GPU_INLINE                        a function that is always inlined into device code
 *   GPU_SHARED                        in front of a static array in a kernel's shared memory
 *   GPU_UNROLL                        in front of a loop that is unrolled whole; its bounds are constants
 *   GPU_LOOP                          in front of a loop that stays one
 *   GPU_WARP                          32
 *
 *   uint32_t gpu_thread(void)  gpu_threads(void)      index in the CTA and its threads, one dimension
 *   uint32_t gpu_cta(void)  gpu_cta_y(void)  gpu_cta_z(void)  gpu_ctas(void)   index in the grid; x extent
 *   unsigned char *gpu_shared(void)                   the dynamic shared memory of the CTA, 128-byte aligned
 *   void gpu_barrier(void)                            all threads of the CTA
 *   void gpu_warp_barrier(void)
 *   void gpu_fence(void)                              orders memory for the whole device
 *   uint32_t gpu_atomic_add(uint32_t *at, uint32_t value)     device-wide; returns what was there
 *   uint32_t gpu_atomic_or(uint32_t *at, uint32_t bits)       alike
 *   const void *gpu_argument(const void *argument)    the kernel's argument, where it lies in memory
 *   const void *gpu_again(const void *part)           a part of that, the same for all threads of the CTA:
 *                                                     the compiler does not move reads of it before this call
 *   uint32_t gpu_own_u32(uint32_t)  gpu_own_u64       the value, kept in a register of each lane and not in
 *                                                     one that all lanes share
 *
 * All lanes of a warp call these together:
 *   float gpu_shuffle_f32(float value, uint32_t lane)       gpu_shuffle_u32, gpu_shuffle_u64
 *   float gpu_shuffle_xor_f32(float value, uint32_t mask)   gpu_shuffle_xor_u32, gpu_shuffle_xor_f64
 *   uint32_t gpu_ballot(bool predicate)                     bit per lane
 *
 * Numbers (IEEE unless said otherwise; no flush to zero):
 *   float gpu_exp2(float)        to 2 ulp          float gpu_fma(float, float, float)
 *   float gpu_exp2_fast(float)   to 2^-22 relative, results below 2^-126 are 0
 *   float gpu_exp(float)         to 2 ulp          double gpu_log_f64(double)  double gpu_exp_f64(double)
 *   double gpu_tanh_f64(double)                       f64: to 4 ulp, edges as in C
 *   float gpu_tanh(float)        to 2^-20 relative or better, on CUDA to 2 ulp
 *   float gpu_tanh_large(float)  to 2^-20.8 relative from 0.45 on, of CUDA alone
 *   float gpu_divide(float, float)                    correctly rounded
 *   float gpu_f16_to_f32(uint16_t)  uint16_t gpu_f32_to_f16(float)   bf16 alike; nearest even, NaN stays NaN
 *   uint32_t gpu_pack_f16(float low, float high)      two at once; gpu_pack_bf16
 *   uint32_t gpu_fma_f16(uint32_t a, uint32_t b, uint32_t c)   a * b + c of two at once; gpu_fma_bf16
 *   void gpu_e4m3_to_f16(uint32_t codes, uint32_t out[2])   bytes 0 and 1, then 2 and 3
 *   uint32_t gpu_permute(uint32_t low, uint32_t high, uint32_t selector)
 *       bytes of low (0 to 3) and high (4 to 7), one for each of four digits, the lowest first
 *   uint32_t gpu_first_bit(uint32_t)       of a number that is not 0
 *   uint32_t gpu_f32_bits(float)           float gpu_f32_of_bits(uint32_t)
 *
 * Memory; u64 and u128 are structs of as many bits, uint32_t x[2] and x[4]:
 *   gpu_load_u128(const void *), gpu_store_u128: 16-byte aligned
 *   gpu_load_global_u128(uint64_t), gpu_store_global_u128: by address, in global memory, in their order
 *   gpu_load_volatile_u64(uint64_t), gpu_load_volatile_u128: global memory that other CTAs wrote
 *   gpu_store_global_f32x2(uint64_t, float, float)   two numbers, 8-byte aligned; packed into 64 bits,
 * the assembler would move those of matrix products into the loop that computes them. Targets of kernels/mma
 * alone
 *
 * Intrinsics of targets that have the kernels of kernels/mma and kernels/mla (CUDA and the host)
 *   GPU_COLD                               a function that is seldom called: its code lies apart
 *   void gpu_barrier_part(uint32_t id, uint32_t threads)  named barrier 1 ... 15, a multiple of GPU_WARP
 *   void gpu_barrier_arrive(uint32_t id, uint32_t threads)   counts as there, and does not wait; every thread
 *       arrives once until those that wait at the barrier, gpu_barrier_part, go on
 *   uint32_t gpu_atomic_wrap(uint32_t *at, uint32_t last)   in global memory: adds 1, or after `last` becomes
 *       0; returns what was there. Fences of the whole device before and after it are part of it
 *   uint32_t gpu_atomic_count(uint32_t *at, uint32_t last)   the same, ordered with nothing
 *   uint32_t gpu_keep(uint32_t)                       the value, kept in a register and not recomputed
 *   void gpu_prefetch(uint64_t global)     the 32 bytes there into the L2 cache
 *   void gpu_copy_async16(void *shared, const void *global, uint32_t bytes)
 *       16 bytes, of which `bytes` (0 to 16) are read and the rest is zero; both sides 16-byte aligned
 *   void gpu_copy_async16_if(void *shared, uint64_t global, bool wanted)   16 bytes, or nothing
 *   void gpu_copy_async4(void *shared, uint64_t global)                    4 bytes, aligned
 *   void gpu_copy_commit(void)             closes a group of copies
 *   GPU_COPY_WAIT(n)                       until at most the n latest groups of this thread are under way
 *   Matrices (a warp together; fragments as the PTX manual lays out m16n8k16):
 *   void gpu_load_matrix4(uint32_t to[4], const void *row)         four 8x8 of 16-bit: lane l gives the
 *       address of row l % 8 of matrix l / 8, in shared memory; gpu_load_matrix4_trans
 *   uint32_t gpu_transpose_matrix(uint32_t pair)                   8x8, a lane has two elements
 *   GPU_READS_BLOCKS                whether kernels read caches of types with blocks
 *   GPU_PRODUCTS_TRUNCATE           whether these round the sums of 16-bit products towards zero
 *   void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
 *       d += a b with f32 sums; gpu_mma_bf16
 *
 * Matrices of shared memory that four warps multiply together, 16 rows each: C++ only, where GPU_HAS_WGMMA is
 * true (sm_90a). A matrix has rows of 64 columns of 16 bits, whose 16-byte chunk c lies at place c ^ row % 8;
 * it begins at a multiple of 1 KB, and the block of the next 64 columns behind its last row. Accumulators d,
 * float[columns / 8][4], and rows in registers, uint32_t[4], are laid out as of m16n8k16.
 *   void gpu_wgmma_fence(void)      what the thread has written, and what others have that it waited for, can
 *                                   be multiplied, and overwritten by gpu_copy_box: by itself, and by others
 *                                   from a barrier on
 *   void gpu_wgmma_begin(void)      before products whose registers have been written
 *   gpu_matrix gpu_matrix_of<rows>(const unsigned char *at)         a matrix of so many rows
 *   gpu_matrix gpu_matrix_of_all<rows>(const unsigned char *at)
 *                                   the same, of an address that all lanes have
 *   void gpu_matrices_of_all<rows>(a, b, gpu_matrix of[2])
 *                                   two of them
 *   gpu_matrix gpu_matrix_from(gpu_matrix matrix, uint32_t bytes)   from so many bytes on
 *   void gpu_wgmma_rows<bf16>(d, gpu_matrix a, gpu_matrix b, bool adds_to)
 *                                   begins d = a b^T, or adds it: 64 rows of a, 64 or 128 of b, 16 columns of
 *                                   both; with `a` in registers, of 64 rows of b, it adds
 *   void gpu_wgmma_columns<bf16>(d, a, gpu_matrix b)
 *                                   begins d += a b: 16 columns of a in registers, 16 rows of b, which has 64
 *                                   columns, 128 or 256; of 256 also with `a` in shared memory
 *   void gpu_wgmma_rows_e4m3(d, a, gpu_matrix b), and with adds_to
 *                                   the same of codes of e4m3, of which 32 columns are as many bytes: 64 or
 *                                   128 rows of b, with `a` in registers 128 or 136, four codes of a lane in
 *                                   a word. Sums have 14 bits
 *   uint32_t gpu_mark_nonfinite(uint32_t marks, uint32_t pair, bool bf16)
 *                                   of two numbers of 16 bits those that are not finite: NaN in `marks`, or
 *                                   what was there, which is zeros first
 *   uint32_t gpu_pack_e4m3(float x, float y, float z, float w)
 *                                   four numbers as codes, to nearest even, 448 for larger ones
 *   void gpu_wgmma_commit(void)     closes a group of products
 *   void gpu_wgmma_wait<n>(void)    until at most the n latest groups are under way
 *   void gpu_wgmma_keep(d)          the compiler moves no use of d across this
 *   void gpu_registers_raise<n>(void)
 *                                   from here on each thread of the warp group has n registers, of those that
 *                                   others gave up by gpu_registers_lower<n>; a multiple of 8
 *
 * Barriers in shared memory, there too, which threads arrive at without waiting. A phase is over when as many
 * threads have arrived as said at first, and all bytes; phases are counted from 0, and a wait names one by
 * its parity: for 1 it goes on at once before the first is over.
 *   void gpu_mbarrier_init(uint64_t *at, uint32_t arrivals)
 *                                   by one thread, before a barrier of the CTA
 *   void gpu_mbarrier_arrive(uint64_t *at)
 *                                   what the thread did before is seen by those that wait
 *   void gpu_mbarrier_arrive_as(uint64_t *at, uint32_t threads)
 *                                   the same for so many threads
 *   void gpu_copy_arrive(uint64_t *at)
 *                                   arrives when what the thread copies until now has arrived; only that is
 *                                   seen
 *   void gpu_mbarrier_expect(uint64_t *at, uint32_t bytes)
 *                                   bytes of boxes, said before the last arrival of a phase
 *   void gpu_mbarrier_wait(uint64_t *at, uint32_t parity)
 *
 * The copy engine for tensors, there too: a box of 64 columns and the tokens of its map becomes rows of a
 * matrix, at a multiple of 1 KB. Columns that the tensor does not have are zeros, and count as bytes.
 *   void gpu_prefetch_map(const gpu_tensor_map *map)
 *   void gpu_copy_box(void *to, map, uint32_t column, uint32_t token, uint32_t head, uint32_t page, barrier)
 *                                   its bytes arrive at the barrier
 */
#ifndef ATTN_GPU_DEVICE_H
#define ATTN_GPU_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__AMDGCN__)
#include "device-hip.h"
#elif defined(__CUDACC__)
#include "device-cuda.h"
#else
#include "device-fiber.h"
#endif

#endif
