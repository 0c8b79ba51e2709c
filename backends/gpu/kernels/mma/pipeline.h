/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How the warp group that copies and those that multiply wait for each other: keys and values have a circular
 * buffer of two stages each, which one fills and the others empty.
 */
#ifndef ATTN_GPU_MMA_PIPELINE_H
#define ATTN_GPU_MMA_PIPELINE_H

#include "load.h"

/* KV iterations of a work tile. */
template <class C> GPU_INLINE uint32_t mma_iterations(const struct gpu_work_tile *p)
{
    return p->end > p->first ? (p->end - p->first + C::TILES - 1) / C::TILES : 0;
}

/* Of the n-th use of a buffer: its stage of keys, or of values. Descriptors of matrices are made of what all
 * lanes have. */
template <class C>
GPU_INLINE unsigned char *mma_pipeline_stage(unsigned char *stages, bool values, uint32_t n)
{
    return stages + (2 * values + gpu_shuffle_u32(n % 2, 0)) * C::STAGE_BYTES;
}

/* By one thread, before a barrier of the CTA. */
template <class C> GPU_INLINE void mma_pipeline_init(mma_shared<C> *shared)
{
    gpu_mbarrier_init(&shared->meeting, C::CTA_THREADS / GPU_WARP);
    gpu_mbarrier_init(&shared->queries_full, C::THREADS);
    for (uint32_t i = 0; i < 4; i++) {
        gpu_mbarrier_init(&shared->pipeline[i / 2].full[i % 2], C::THREADS + 1);
        gpu_mbarrier_init(&shared->pipeline[i / 2].empty[i % 2], C::WARPS);
    }
}

/* Waits until the queries of the n-th work tile are there, with their scales, and can be multiplied. */
template <class C> GPU_INLINE void mma_wait_queries(mma_shared<C> *shared, uint32_t n)
{
    gpu_mbarrier_wait(&shared->queries_full, n % 2);
    gpu_wgmma_fence();
}

/* Waits until the stage of the n-th use is filled, with what can be multiplied then. */
GPU_INLINE void mma_wait_full(struct mma_pipeline *pipeline, uint32_t n)
{
    gpu_mbarrier_wait(&pipeline->full[n % 2], n / 2 % 2);
    gpu_wgmma_fence();
}

/* The warp has read it. */
GPU_INLINE void mma_release(struct mma_pipeline *pipeline, uint32_t n)
{
    gpu_warp_barrier();
    if (gpu_thread() % GPU_WARP == 0)
        gpu_mbarrier_arrive(&pipeline->empty[n % 2]);
}

/* Waits until the n-th use is over. */
GPU_INLINE void mma_wait_released(struct mma_pipeline *pipeline, uint32_t n)
{
    gpu_mbarrier_wait(&pipeline->empty[n % 2], n / 2 % 2);
}

/* A barrier of all threads, which they reach from code of their own: synccheck reports others that are. Of
 * two calls the first has the parity 0. */
template <class C> GPU_INLINE void mma_meet(mma_shared<C> *shared, uint32_t parity)
{
    gpu_warp_barrier();
    if (gpu_thread() % GPU_WARP == 0)
        gpu_mbarrier_arrive(&shared->meeting);
    gpu_mbarrier_wait(&shared->meeting, parity);
}

/*
 * Whether to compute the work tile once more, checking values: a row may have got NaN from a key that it does
 * not see, if a masked tile was taken for finite and a result is not, which the threads that compute have
 * `found`. By all threads.
 */
template <class C> GPU_INLINE bool mma_begins_again_together(mma_shared<C> *shared, bool found)
{
    if (found)
        shared->trust = MMA_NOT_FINITE;
    mma_meet<C>(shared, 0);
    const bool again = shared->trust == MMA_NOT_FINITE;
    mma_meet<C>(shared, 1);                 /* all have read it */
    if (again && gpu_thread() < C::THREADS) /* the others know it with the first keys */
        shared->trust = MMA_CHECKED;
    return again;
}

#endif
