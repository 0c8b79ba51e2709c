/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The mma kernel: work tile by work tile. Entry points are made of the rows of instances.def. */
#ifndef ATTN_GPU_MMA_KERNEL_H
#define ATTN_GPU_MMA_KERNEL_H

#include "attend.h"
#include "combine-kernel.h"
#include "consumer.h"
#include "producer.h"
#include "schedule.h"
#include "small-m.h"

template <class C> GPU_INLINE void mma_kernel(const struct gpu_run *run)
{
    unsigned char *memory = gpu_shared();
    mma_shared<C> *shared = (mma_shared<C> *)(void *)memory;
    unsigned char *queries = memory + C::FIXED_BYTES;
    unsigned char *stages = queries + C::ROWS * mma_row_pitch<C>(C::Q_BYTES);
    const struct gpu_work_tile *p = &shared->work;
    static_assert(sizeof *shared <= C::FIXED_BYTES, "the host reserves less");

    for (bool begins = true;; begins = false) {
        if (gpu_thread() < GPU_WARP)
            mma_next_tile<C>(run, shared, begins);
        gpu_barrier();
        if (p->splits == 0)
            return;
        mma_attend<C>(run, shared, queries, stages, p);
        if (!mma_stores_directly<C>(run, p) && !mma_stores_partials<C>(p))
            mma_store_tile<C>(run, &shared->sequence, shared, (const float *)(void *)queries, p, C::GROUPS,
                              gpu_thread() / GPU_WARP, C::WARPS);
        if (C::PREFILL_ONLY)
            return;
        if (p->splits > 1 && run->phase != ATTN__PREFILL && run->combines_apart == 0 &&
            mma_is_last_split<C>(run, shared, p, false))
            mma_combine_tile<C>(run, &shared->sequence, p, false);
        if (p->next == 0)
            return;
        gpu_barrier(); /* the work tile is done */
    }
}

/* The same of prefill with a warp group that copies and two that multiply. */
template <class C> GPU_INLINE void mma_group_kernel(const struct gpu_run *run)
{
    unsigned char *memory = gpu_shared();
    mma_shared<C> *shared = (mma_shared<C> *)(void *)memory;
    unsigned char *queries = memory + C::FIXED_BYTES, *stages = queries + C::ROWS * C::Q_BYTES;
    static_assert(sizeof *shared <= C::FIXED_BYTES, "the host reserves less");

    if (gpu_thread() < GPU_WARP)
        shared->handover.all = mma_next_tile<C>(run, shared, true);
    if (gpu_thread() == GPU_WARP) {
        mma_pipeline_init<C>(shared);
        if (run->box_tokens != 0) {
            gpu_prefetch_map(&run->k_map);
            gpu_prefetch_map(&run->v_map);
        }
    }
    gpu_barrier();
    if (gpu_thread() < C::THREADS) {
        gpu_registers_lower<C::PRODUCER_REGISTERS>();
        mma_produce_tiles<C>(run, shared, queries, stages);
    } else {
        gpu_registers_raise<C::CONSUMER_REGISTERS>();
        mma_consume_tiles<C>(run, shared, queries, stages);
    }
}

/* What a kernel of a configuration does. */
template <class C> struct mma_entry {
    GPU_INLINE void run(const struct gpu_run *run)
    {
        if constexpr (!C::EXISTS)
            return;
        else if constexpr (C::SMALL_M)
            small_m_kernel<C>(run);
        else if (gpu_has_other_masks(run))
            return;
        else if constexpr (C::WGMMA)
            mma_group_kernel<C>(run);
        else
            mma_kernel<C>(run);
    }
};
template <class C> struct mma_entry<mma_combining<C>> {
    GPU_INLINE void run(const struct gpu_run *run)
    {
        if (!gpu_has_other_masks(run))
            mma_combine_kernel<C>(run);
    }
};

/* An entry point: its name, and its configuration, which has commas. */
#define MMA_KERNEL(name, ...)                                                                                \
    GPU_KERNEL(name, (__VA_ARGS__::CTA_THREADS), (__VA_ARGS__::CTAS))(GPU_ARGUMENT(struct gpu_run, run))     \
    {                                                                                                        \
        mma_entry<__VA_ARGS__>::run(&run);                                                                   \
    }

/* The kernels of a row of instances.def by each(name, configuration): for tiles of 8, 16, ... rows, and for
 * combining splits of prefill tiles. */
#define MMA_KERNELS(each, name, dk, dv, kv_size, rows)                                                       \
    MMA_KERNELS_OF_##kv_size(each, name, rows, dk, dv, kv_size)
#define MMA_KERNELS_OF_1(each, name, rows, ...)                                                              \
    MMA_KERNELS_##rows(each, name, __VA_ARGS__) MMA_PLAIN_1_##rows(each, name, __VA_ARGS__)
#define MMA_KERNELS_OF_2(each, name, rows, ...)                                                              \
    MMA_KERNELS_##rows(each, name, __VA_ARGS__) MMA_PLAIN_2_##rows(each, name, __VA_ARGS__)
#define MMA_KERNELS_OF_4(each, name, rows, ...)                                                              \
    each(name##_r16_f32, mma_config<16, __VA_ARGS__, false, true, ATTN_F32>)                                 \
        each(name##_r64_f32, mma_config<64, __VA_ARGS__, false, true, ATTN_F32>)                             \
            each(name##_r16, mma_config<16, __VA_ARGS__, false>)                                             \
                each(name##_r64, mma_config<64, __VA_ARGS__, false>)                                         \
                    MMA_COMBINING(each, name, 16, __VA_ARGS__) MMA_COMBINING(each, name, 64, __VA_ARGS__)
#define MMA_KERNELS_192(each, name, ...)                                                                     \
    MMA_KERNELS_128(each, name, __VA_ARGS__) MMA_COMBINING(each, name, 192, __VA_ARGS__)
#define MMA_KERNELS_128(each, name, ...)                                                                     \
    MMA_KERNELS_64(each, name, __VA_ARGS__)                                                                  \
    MMA_KERNELS_OF(each, name, 128, __VA_ARGS__) MMA_COMBINING(each, name, 128, __VA_ARGS__)
#define MMA_KERNELS_64(each, name, ...)                                                                      \
    MMA_KERNELS_OF(each, name, 8, __VA_ARGS__)                                                               \
    MMA_KERNELS_OF(each, name, 16, __VA_ARGS__)                                                              \
    MMA_KERNELS_OF(each, name, 64, __VA_ARGS__)                                                              \
    MMA_COMBINING(each, name, 16, __VA_ARGS__) MMA_COMBINING(each, name, 64, __VA_ARGS__)
#define MMA_COMBINING(each, name, rows, ...)                                                                 \
    each(name##_r##rows##_combine, mma_combining<mma_config<rows, __VA_ARGS__, false>>)
/* Without rules, of keys and values of a type: where the largest tile has 128 rows. */
#define MMA_PLAIN_1_128(each, name, ...)                                                                     \
    each(name##_r8_e4m3, mma_config<8, __VA_ARGS__, true, false, ATTN_E4M3>)                                 \
        each(name##_r8_int8, mma_config<8, __VA_ARGS__, true, false, ATTN_INT8>)                             \
            each(name##_r128_e4m3, mma_config<128, __VA_ARGS__, true, false, ATTN_E4M3>)
#define MMA_PLAIN_2_128(each, name, ...)                                                                     \
    MMA_PLAIN(each, name##_r8_plain, 8, __VA_ARGS__)                                                         \
    MMA_PLAIN(each, name##_r128_plain, 128, __VA_ARGS__)                                                     \
    each(name##_r128_scaled_bf16, mma_config<128, __VA_ARGS__, true, false, 0, true>)
#define MMA_PLAIN_2_192(each, name, ...)                                                                     \
    MMA_PLAIN_2_128(each, name, __VA_ARGS__) MMA_PLAIN(each, name##_r192_plain, 192, __VA_ARGS__)
#define MMA_PLAIN(each, name, rows, ...)                                                                     \
    each(name##_bf16, mma_config<rows, __VA_ARGS__, true, false>)                                            \
        each(name##_f16, mma_config<rows, __VA_ARGS__, false, false>)
#define MMA_PLAIN_1_64(each, name, ...)
#define MMA_PLAIN_2_64(each, name, ...)
/* One for each type of queries; over 8-bit keys and values all become f16. */
#define MMA_KERNELS_OF(each, name, rows, dk, dv, kv_size)                                                    \
    MMA_TYPES_##kv_size(each, name##_r##rows, rows, dk, dv, kv_size)
#define MMA_TYPES_1(each, name, ...) each(name, mma_config<__VA_ARGS__, true>)
#define MMA_TYPES_2(each, name, ...)                                                                         \
    each(name##_bf16, mma_config<__VA_ARGS__, true>) each(name##_f16, mma_config<__VA_ARGS__, false>)

#endif
