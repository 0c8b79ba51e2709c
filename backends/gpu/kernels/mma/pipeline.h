/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * How the warp group that copies and those that multiply wait for each other: keys and values have a circular
 * buffer of two stages each, which one fills and the others empty, from one work tile to the next.
 */
#ifndef ATTN_GPU_MMA_PIPELINE_H
#define ATTN_GPU_MMA_PIPELINE_H

#include "load.h"

/* KV iterations of a work tile. */
template <class C> GPU_INLINE uint32_t mma_iterations(const struct gpu_work_tile *p)
{
    return p->end > p->first ? (p->end - p->first + C::TILES - 1) / C::TILES : 0;
}

/* Of the n-th use of a buffer: its stage of keys, or of values. */
template <class C>
GPU_INLINE unsigned char *mma_pipeline_stage(unsigned char *stages, bool values, uint32_t n)
{
    return stages + (2 * values + n % 2) * C::STAGE_BYTES;
}

/* Whether the queries of a work tile are copied while the one before is multiplied. */
template <class C> GPU_INLINE bool mma_has_two_query_buffers(const struct gpu_run *run)
{
    return C::QUERY_STAGES > 1 && run->query_buffers > 1;
}

/* The queries of the CTA's n-th work tile. */
template <class C>
GPU_INLINE unsigned char *mma_query_stage(const struct gpu_run *run, unsigned char *queries, uint32_t n)
{
    return queries + (mma_has_two_query_buffers<C>(run) ? n % 2 * C::SECOND_QUERIES : 0);
}

/* By one thread, before a barrier of the CTA. */
template <class C> GPU_INLINE void mma_pipeline_init(mma_shared<C> *shared)
{
    mma_handover<C, true> *handover = &shared->handover;

    gpu_mbarrier_init(&handover->looked_up, 1);
    gpu_mbarrier_init(&handover->queries_full[0], C::THREADS);
    gpu_mbarrier_init(&handover->queries_full[1], C::THREADS);
    gpu_mbarrier_init(&handover->taken, C::WARPS);
    gpu_mbarrier_init(&handover->done, C::WARPS);
    handover->again[0] = handover->again[1] = 0;
    for (uint32_t i = 0; i < 4; i++) {
        gpu_mbarrier_init(&shared->pipeline[i / 2].full[i % 2], C::THREADS + 1);
        gpu_mbarrier_init(&shared->pipeline[i / 2].empty[i % 2], C::WARPS);
    }
}

/* Waits until the stage of the n-th use is filled, with what can be multiplied then. What boxes copy needs no
 * fence, and e4m3 has no other copies. */
template <class C> GPU_INLINE void mma_wait_full(struct mma_pipeline *pipeline, uint32_t n)
{
    gpu_mbarrier_wait(&pipeline->full[n % 2], n / 2 % 2);
    if (!C::E4M3)
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

#endif
