/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The device intrinsics (device.h) in CUDA C++, for sm_80 and newer. */
#ifndef ATTN_GPU_DEVICE_CUDA_H
#define ATTN_GPU_DEVICE_CUDA_H

#define GPU_INLINE static __device__ __forceinline__
#define GPU_COLD   static __device__ __noinline__
/* For headers that the host reads as well (backends/common). */
#define ATTN__DEVICE                    __device__
#define GPU_KERNEL(name, threads, ctas) extern "C" __global__ void __launch_bounds__(threads, ctas) name
#define GPU_ARGUMENT(type, arg)         const __grid_constant__ type arg
#define GPU_SHARED                      __shared__
#define GPU_UNROLL                      _Pragma("unroll")
#define GPU_LOOP                        _Pragma("unroll 1")
#define GPU_WARP                        32u
#define GPU_COPY_WAIT(n)                asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

struct gpu_u128 {
    uint32_t x[4];
};
struct gpu_u64 {
    uint32_t x[2];
};

/* ---------------------------------------------------------------- threads */

GPU_INLINE uint32_t gpu_thread(void)
{
    return threadIdx.x;
}
GPU_INLINE uint32_t gpu_threads(void)
{
    return blockDim.x;
}
GPU_INLINE uint32_t gpu_cta(void)
{
    return blockIdx.x;
}
GPU_INLINE uint32_t gpu_cta_y(void)
{
    return blockIdx.y;
}
GPU_INLINE uint32_t gpu_cta_z(void)
{
    return blockIdx.z;
}
GPU_INLINE uint32_t gpu_ctas(void)
{
    return gridDim.x;
}

GPU_INLINE unsigned char *gpu_shared(void)
{
    extern __shared__ __align__(1024) unsigned char gpu_shared_bytes[];
    return gpu_shared_bytes;
}

GPU_INLINE void gpu_barrier(void)
{
    __syncthreads();
}
GPU_INLINE void gpu_warp_barrier(void)
{
    __syncwarp();
}
GPU_INLINE void gpu_fence(void)
{
    asm volatile("fence.acq_rel.gpu;" ::: "memory"); /* __threadfence() would be sequentially consistent */
}
GPU_INLINE void gpu_barrier_part(uint32_t id, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
GPU_INLINE void gpu_barrier_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
GPU_INLINE uint32_t gpu_atomic_add(uint32_t *at, uint32_t value)
{
    return atomicAdd(at, value);
}
GPU_INLINE uint32_t gpu_atomic_or(uint32_t *at, uint32_t bits)
{
    return atomicOr(at, bits);
}

GPU_INLINE uint32_t gpu_atomic_wrap(uint32_t *at, uint32_t last)
{
    uint32_t was;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(was) : "l"(at), "r"(last) : "memory");
    return was;
}

/* The same, ordered with nothing. */
GPU_INLINE uint32_t gpu_atomic_count(uint32_t *at, uint32_t last)
{
    uint32_t was;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(was) : "l"(at), "r"(last) : "memory");
    return was;
}

#define gpu_argument(argument) ((const void *)(argument))
#define gpu_own_u32(x)         (x)
#define gpu_own_u64(x)         (x)
#define gpu_again(part)        ((const void *)(part))

#define GPU__ALL 0xffffffffu
GPU_INLINE float gpu_shuffle_f32(float value, uint32_t lane)
{
    return __shfl_sync(GPU__ALL, value, lane);
}
GPU_INLINE uint32_t gpu_shuffle_u32(uint32_t value, uint32_t lane)
{
    return __shfl_sync(GPU__ALL, value, lane);
}
GPU_INLINE uint64_t gpu_shuffle_u64(uint64_t value, uint32_t lane)
{
    return __shfl_sync(GPU__ALL, (unsigned long long)value, lane);
}
GPU_INLINE float gpu_shuffle_xor_f32(float value, uint32_t mask)
{
    return __shfl_xor_sync(GPU__ALL, value, mask);
}
GPU_INLINE uint32_t gpu_shuffle_xor_u32(uint32_t value, uint32_t mask)
{
    return __shfl_xor_sync(GPU__ALL, value, mask);
}
GPU_INLINE double gpu_shuffle_xor_f64(double value, uint32_t mask)
{
    return __shfl_xor_sync(GPU__ALL, value, mask);
}
GPU_INLINE uint32_t gpu_ballot(bool predicate)
{
    return __ballot_sync(GPU__ALL, predicate);
}

/* ---------------------------------------------------------------- numbers */

GPU_INLINE float gpu_exp2(float x)
{
    return exp2f(x);
}
GPU_INLINE float gpu_exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
GPU_INLINE float gpu_exp(float x)
{
    return expf(x);
}
GPU_INLINE float gpu_tanh(float x)
{
    return tanhf(x);
}
GPU_INLINE float gpu_tanh_large(float x)
{
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1 + gpu_exp2_fast(x * 2.8853900817779268f)));
    return __fmaf_rn(-2, inverse, 1); /* 1 - 2 / (1 + e^2x), which loses digits near 0 */
}
GPU_INLINE float gpu_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
GPU_INLINE float gpu_divide(float a, float b)
{
    return __fdiv_rn(a, b);
}
GPU_INLINE double gpu_exp_f64(double x)
{
    return exp(x);
}
GPU_INLINE double gpu_log_f64(double x)
{
    return log(x);
}
GPU_INLINE double gpu_tanh_f64(double x)
{
    return tanh(x);
}
GPU_INLINE uint32_t gpu_first_bit(uint32_t x)
{
    return (uint32_t)__ffs((int)x) - 1;
}
GPU_INLINE uint32_t gpu_f32_bits(float x)
{
    return __float_as_uint(x);
}
GPU_INLINE float gpu_f32_of_bits(uint32_t x)
{
    return __uint_as_float(x);
}

GPU_INLINE float gpu_f16_to_f32(uint16_t x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
GPU_INLINE uint16_t gpu_f32_to_f16(float x)
{
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
GPU_INLINE float gpu_bf16_to_f32(uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}
GPU_INLINE uint16_t gpu_f32_to_bf16(float x)
{
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
GPU_INLINE uint32_t gpu_pack_f16(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
GPU_INLINE uint32_t gpu_pack_bf16(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

GPU_INLINE uint32_t gpu_fma_f16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}
GPU_INLINE uint32_t gpu_fma_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}
GPU_INLINE void gpu_e4m3_to_f16(uint32_t codes, uint32_t out[2])
{
#if __CUDA_ARCH__ >= 890
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; "
        "cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(out[0]), "=r"(out[1])
        : "r"(codes));
#else
    /* f16 has the same fields with another bias; the highest code is NaN. */
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t pair = __byte_perm(codes, 0, i == 0 ? 0x4140 : 0x4342), rest = pair & 0x007f007fu;
        const uint32_t nan = (rest + 0x00010001u) & 0x00800080u;
        const uint32_t number = (pair & 0x00800080u) << 8 | rest << 7;
        out[i] = gpu_fma_f16(number, 0x5c005c00u, 0x80008000u) | (nan << 8) - (nan >> 7);
    }
#endif
}
/* Keeps the compiler from recomputing the value after this. */
GPU_INLINE uint32_t gpu_keep(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}
GPU_INLINE uint32_t gpu_permute(uint32_t low, uint32_t high, uint32_t selector)
{
    return __byte_perm(low, high, selector);
}

/* ---------------------------------------------------------------- memory */

GPU_INLINE struct gpu_u128 gpu_load_u128(const void *at)
{
    const uint4 v = *(const uint4 *)at;
    struct gpu_u128 to;
    to.x[0] = v.x, to.x[1] = v.y, to.x[2] = v.z, to.x[3] = v.w;
    return to;
}
GPU_INLINE void gpu_store_u128(void *at, struct gpu_u128 from)
{
    *(uint4 *)at = make_uint4(from.x[0], from.x[1], from.x[2], from.x[3]);
}
/* Not reordered, and without a test whether the address is in global memory. */
GPU_INLINE struct gpu_u128 gpu_load_global_u128(uint64_t at)
{
    struct gpu_u128 to;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x[0]), "=r"(to.x[1]), "=r"(to.x[2]), "=r"(to.x[3])
                 : "l"(at));
    return to;
}
GPU_INLINE void gpu_store_global_u128(uint64_t at, struct gpu_u128 from)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(from.x[0]), "r"(from.x[1]),
                 "r"(from.x[2]), "r"(from.x[3])
                 : "memory");
}

GPU_INLINE void gpu_store_global_f32x2(uint64_t at, float first, float second)
{
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(first), "f"(second) : "memory");
}
GPU_INLINE struct gpu_u64 gpu_load_volatile_u64(uint64_t at)
{
    struct gpu_u64 to;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(to.x[0]), "=r"(to.x[1]) : "l"(at));
    return to;
}
GPU_INLINE struct gpu_u128 gpu_load_volatile_u128(uint64_t at)
{
    struct gpu_u128 to;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x[0]), "=r"(to.x[1]), "=r"(to.x[2]), "=r"(to.x[3])
                 : "l"(at));
    return to;
}
GPU_INLINE uint32_t gpu__shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}
GPU_INLINE void gpu_copy_async16(void *shared, const void *global, uint32_t bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(gpu__shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}
GPU_INLINE void gpu_copy_async16_if(void *shared, uint64_t global, bool wanted)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(
                     gpu__shared_address(shared)),
                 "l"(global), "r"((uint32_t)wanted)
                 : "memory");
}
GPU_INLINE void gpu_prefetch(uint64_t global)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory");
}

GPU_INLINE void gpu_copy_async4(void *shared, uint64_t global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(gpu__shared_address(shared)), "l"(global)
                 : "memory");
}
GPU_INLINE void gpu_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* ---------------------------------------------------------------- matrices */

constexpr bool GPU_PRODUCTS_TRUNCATE = true;
constexpr bool GPU_READS_BLOCKS = true;

GPU_INLINE void gpu_load_matrix4(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(gpu__shared_address(row))
                 : "memory");
}
GPU_INLINE void gpu_load_matrix4_trans(uint32_t to[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(gpu__shared_address(row))
                 : "memory");
}
GPU_INLINE uint32_t gpu_transpose_matrix(uint32_t pair)
{
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(pair));
    return y;
}
GPU_INLINE void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GPU_INLINE void gpu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The low 13 bits of a and b are dropped. */
GPU_INLINE void gpu_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* ---------------------------------------------------------------- warp groups */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool GPU_HAS_WGMMA = true;
#else
constexpr bool GPU_HAS_WGMMA = false;
#endif

template <uint32_t registers> GPU_INLINE void gpu_registers_raise(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <uint32_t registers> GPU_INLINE void gpu_registers_lower(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

GPU_INLINE void gpu_mbarrier_init(uint64_t *at, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(gpu__shared_address(at)), "r"(arrivals)
                 : "memory");
}
GPU_INLINE void gpu_mbarrier_arrive(uint64_t *at)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(gpu__shared_address(at)) : "memory");
}
GPU_INLINE void gpu_copy_arrive(uint64_t *at)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(gpu__shared_address(at)) : "memory");
}
GPU_INLINE void gpu_mbarrier_arrive_as(uint64_t *at, uint32_t threads)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(gpu__shared_address(at)), "r"(threads)
                 : "memory");
}
GPU_INLINE void gpu_mbarrier_expect(uint64_t *at, uint32_t bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(gpu__shared_address(at)),
                 "r"(bytes)
                 : "memory");
}
struct gpu_tensor_map;
GPU_INLINE void gpu_prefetch_map(const struct gpu_tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
GPU_INLINE void gpu_copy_box(void *to, const struct gpu_tensor_map *map, uint32_t column, uint32_t token,
                             uint32_t head, uint32_t page, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(gpu__shared_address(to)),
                 "l"(map), "r"(column), "r"(token), "r"(head), "r"(page), "r"(gpu__shared_address(barrier))
                 : "memory");
}
/* Sleeps meanwhile, for a time at once that the chip limits. */
GPU_INLINE void gpu_mbarrier_wait(uint64_t *at, uint32_t parity)
{
    uint32_t done = 0;

    while (done == 0)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(gpu__shared_address(at)), "r"(parity)
            : "memory");
}

/* The descriptor of a matrix: rows of 128 bytes, swizzled; a block of 64 columns has `rows` of them. */
typedef uint64_t gpu_matrix;
template <uint32_t rows> GPU_INLINE gpu_matrix gpu__matrix_at(uint32_t place)
{
    const uint64_t block = rows * 128 / 16, eight_rows = 1024 / 16, swizzle_128 = UINT64_C(1) << 62;
    return swizzle_128 | eight_rows << 32 | block << 16 | place;
}
GPU_INLINE uint32_t gpu__matrix_place(const unsigned char *at)
{
    return (gpu__shared_address(at) & 0x3ffff) / 16;
}
template <uint32_t rows> GPU_INLINE gpu_matrix gpu_matrix_of(const unsigned char *at)
{
    return gpu__matrix_at<rows>(gpu__matrix_place(at));
}
/* What all lanes have, in a register that a warp has once: the assembler computes with descriptors there only
 * if it is given them so. */
GPU_INLINE uint32_t gpu__uniform(uint32_t x)
{
    uint32_t same;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(x));
    return same;
}
template <uint32_t rows> GPU_INLINE gpu_matrix gpu_matrix_of_all(const unsigned char *at)
{
    return gpu__matrix_at<rows>(gpu__uniform(gpu__matrix_place(at)));
}
template <uint32_t rows>
GPU_INLINE void gpu_matrices_of_all(const unsigned char *a, const unsigned char *b, gpu_matrix of[2])
{
    const uint32_t places = gpu__uniform(gpu__matrix_place(a) | gpu__matrix_place(b) << 16);
    of[0] = gpu__matrix_at<rows>(places & 0xffff);
    of[1] = gpu__matrix_at<rows>(places >> 16);
}
GPU_INLINE gpu_matrix gpu_matrix_from(gpu_matrix matrix, uint32_t bytes)
{
    return matrix + bytes / 16;
}
GPU_INLINE void gpu_wgmma_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
GPU_INLINE void gpu_wgmma_begin(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
GPU_INLINE void gpu_wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <uint32_t groups> GPU_INLINE void gpu_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
template <uint32_t tiles> GPU_INLINE void gpu_wgmma_keep(float (&d)[tiles][4])
{
    GPU_UNROLL
    for (uint32_t n = 0; n < tiles; n++)
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}
/* Accumulators as operands: four, of 64 columns, of 128, of 256; and what they are called in the text. */
#define GPU__WGMMA_4(d, n) "+f"((d)[n][0]), "+f"((d)[n][1]), "+f"((d)[n][2]), "+f"((d)[n][3])
#define GPU__WGMMA_16(d, n)                                                                                  \
    GPU__WGMMA_4(d, n), GPU__WGMMA_4(d, (n) + 1), GPU__WGMMA_4(d, (n) + 2), GPU__WGMMA_4(d, (n) + 3)
#define GPU__WGMMA_64(d)  GPU__WGMMA_16(d, 0), GPU__WGMMA_16(d, 4)
#define GPU__WGMMA_128(d) GPU__WGMMA_64(d), GPU__WGMMA_16(d, 8), GPU__WGMMA_16(d, 12)
#define GPU__WGMMA_256(d)                                                                                    \
    GPU__WGMMA_128(d), GPU__WGMMA_16(d, 16), GPU__WGMMA_16(d, 20), GPU__WGMMA_16(d, 24), GPU__WGMMA_16(d, 28)
#define GPU__WGMMA_NAMES_64                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                 \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GPU__WGMMA_NAMES_128                                                                                 \
    GPU__WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GPU__WGMMA_136(d)    GPU__WGMMA_128(d), GPU__WGMMA_4(d, 16)
#define GPU__WGMMA_NAMES_136 GPU__WGMMA_NAMES_128 ", %64, %65, %66, %67"
#define GPU__WGMMA_NAMES_256                                                                                 \
    GPU__WGMMA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "     \
                         "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, "  \
                         "%95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "   \
                         "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "    \
                         "%122, %123, %124, %125, %126, %127"
/*
 * The instructions: 64 rows of a in registers, or in shared memory, times so many columns of b, whose rows
 * these columns are unless it is `transposed`; operands of the text that follow the accumulators are named.
 */
#define GPU__WGMMA_REGISTERS(columns, type, names, second, transposed)                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type                       \
                 " {" GPU__WGMMA_NAMES_##columns "}, {" names "}, " second ", 1, 1, 1, " transposed ";"      \
                 : GPU__WGMMA_##columns(d)                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define GPU__WGMMA_SHARED(columns, type, first, second, adds, transposed)                                    \
    asm volatile("{ .reg .pred p; setp.ne.u32 p, " adds ", 0; wgmma.mma_async.sync.aligned.m64n" #columns    \
                 "k16.f32." type "." type " {" GPU__WGMMA_NAMES_##columns "}, " first ", " second            \
                                                                          ", p, 1, 1, 0, " transposed "; }"  \
                 : GPU__WGMMA_##columns(d)                                                                   \
                 : "l"(a), "l"(b), "r"((uint32_t)adds_to))

template <bool bf16>
GPU_INLINE void gpu_wgmma_rows(float (&d)[8][4], gpu_matrix a, gpu_matrix b, bool adds_to)
{
    if constexpr (bf16)
        GPU__WGMMA_SHARED(64, "bf16", "%32", "%33", "%34", "0");
    else
        GPU__WGMMA_SHARED(64, "f16", "%32", "%33", "%34", "0");
}
template <bool bf16>
GPU_INLINE void gpu_wgmma_rows(float (&d)[16][4], gpu_matrix a, gpu_matrix b, bool adds_to)
{
    if constexpr (bf16)
        GPU__WGMMA_SHARED(128, "bf16", "%64", "%65", "%66", "0");
    else
        GPU__WGMMA_SHARED(128, "f16", "%64", "%65", "%66", "0");
}
template <bool bf16> GPU_INLINE void gpu_wgmma_rows(float (&d)[8][4], const uint32_t a[4], gpu_matrix b)
{
    if constexpr (bf16)
        GPU__WGMMA_REGISTERS(64, "bf16", "%32, %33, %34, %35", "%36", "0");
    else
        GPU__WGMMA_REGISTERS(64, "f16", "%32, %33, %34, %35", "%36", "0");
}
template <bool bf16> GPU_INLINE void gpu_wgmma_columns(float (&d)[8][4], const uint32_t a[4], gpu_matrix b)
{
    if constexpr (bf16)
        GPU__WGMMA_REGISTERS(64, "bf16", "%32, %33, %34, %35", "%36", "1");
    else
        GPU__WGMMA_REGISTERS(64, "f16", "%32, %33, %34, %35", "%36", "1");
}
template <bool bf16> GPU_INLINE void gpu_wgmma_columns(float (&d)[16][4], const uint32_t a[4], gpu_matrix b)
{
    if constexpr (bf16)
        GPU__WGMMA_REGISTERS(128, "bf16", "%64, %65, %66, %67", "%68", "1");
    else
        GPU__WGMMA_REGISTERS(128, "f16", "%64, %65, %66, %67", "%68", "1");
}
template <bool bf16> GPU_INLINE void gpu_wgmma_columns(float (&d)[32][4], const uint32_t a[4], gpu_matrix b)
{
    if constexpr (bf16)
        GPU__WGMMA_REGISTERS(256, "bf16", "%128, %129, %130, %131", "%132", "1");
    else
        GPU__WGMMA_REGISTERS(256, "f16", "%128, %129, %130, %131", "%132", "1");
}
template <bool bf16> GPU_INLINE void gpu_wgmma_columns(float (&d)[32][4], gpu_matrix a, gpu_matrix b)
{
    constexpr bool adds_to = true;

    if constexpr (bf16)
        GPU__WGMMA_SHARED(256, "bf16", "%128", "%129", "%130", "1");
    else
        GPU__WGMMA_SHARED(256, "f16", "%128", "%129", "%130", "1");
}

/* Products of e4m3: of 32 columns, which are as many bytes as 16 of the others. */
GPU_INLINE void gpu_wgmma_rows_e4m3(float (&d)[16][4], gpu_matrix a, gpu_matrix b, bool adds_to)
{
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"
        " {" GPU__WGMMA_NAMES_128 "}, %64, %65, p, 1, 1; }"
        : GPU__WGMMA_128(d)
        : "l"(a), "l"(b), "r"((uint32_t)adds_to));
}
GPU_INLINE void gpu_wgmma_rows_e4m3(float (&d)[8][4], gpu_matrix a, gpu_matrix b, bool adds_to)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"
                 " {" GPU__WGMMA_NAMES_64 "}, %32, %33, p, 1, 1; }"
                 : GPU__WGMMA_64(d)
                 : "l"(a), "l"(b), "r"((uint32_t)adds_to));
}
GPU_INLINE void gpu_wgmma_rows_e4m3(float (&d)[16][4], const uint32_t a[4], gpu_matrix b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3"
                 " {" GPU__WGMMA_NAMES_128 "}, {%64, %65, %66, %67}, %68, 1, 1, 1;"
                 : GPU__WGMMA_128(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
GPU_INLINE void gpu_wgmma_rows_e4m3(float (&d)[17][4], const uint32_t a[4], gpu_matrix b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n136k32.f32.e4m3.e4m3"
                 " {" GPU__WGMMA_NAMES_136 "}, {%68, %69, %70, %71}, %72, 1, 1, 1;"
                 : GPU__WGMMA_136(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Two numbers of 16 bits times zero, and what was there: NaN for each of them that is not finite. */
GPU_INLINE uint32_t gpu_mark_nonfinite(uint32_t marks, uint32_t pair, bool bf16)
{
    if (bf16)
        asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(marks) : "r"(pair), "r"(0));
    else
        asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(marks) : "r"(pair), "r"(0));
    return marks;
}

/* The largest of three numbers that are not negative. */
GPU_INLINE float gpu_max3_positive(float x, float y, float z)
{
    return __int_as_float(__vimax3_s32(__float_as_int(x), __float_as_int(y), __float_as_int(z)));
}

/* Four numbers as codes of e4m3, the first in the low byte. */
GPU_INLINE uint32_t gpu_pack_e4m3(float x, float y, float z, float w)
{
    uint32_t codes;
    asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, "
        "%4, %3; "
        "mov.b32 %0, {low, high}; }"
        : "=r"(codes)
        : "f"(x), "f"(y), "f"(z), "f"(w));
    return codes;
}

#endif
