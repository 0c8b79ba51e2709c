/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tells ranks where the memory of the others is, maps it, and lets all decide the same. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fail.h"
#include "peer-state.h"

enum { PEER_IS_ENABLED = 704, LAZY_PEER_ACCESS = 1 };

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int32_t await_stream(const struct attn__peer *peer, struct attn_error *err)
{
    const uint64_t began = now_ns();
    const struct timespec pause = {0, 50000};
    gpu_result result;

    while ((result = peer->cuda.stream_query(peer->stream)) == GPU_NOT_READY) {
        if (now_ns() - began > peer->setup.timeout_ns)
            return attn__fail(err, ATTN_E_PEER, 0, "comm",
                              "rank %u of %u waited %.3g s for others to call attn_nccl_ranks_create",
                              peer->setup.rank, peer->setup.size, (double)peer->setup.timeout_ns * 1e-9);
        nanosleep(&pause, NULL);
    }
    return result == GPU_SUCCESS ? ATTN_OK : attn__peer_fail(peer, "attn_nccl_ranks_create", result, err);
}

/* Own records to all. */
static int32_t exchange(struct attn__peer *peer, struct attn_error *err)
{
    const struct gpu_driver *cuda = &peer->cuda;
    const struct attn__peer_setup *setup = &peer->setup;
    const gpu_pointer own = peer->desk + offsetof(struct desk, own),
                      all = peer->desk + offsetof(struct desk, all);
    gpu_result result = cuda->memcpy_htod_async(own, &peer->own, sizeof peer->own, peer->stream);

    if (result != GPU_SUCCESS)
        return attn__peer_fail(peer, "cuMemcpyHtoDAsync", result, err);
    int32_t status = setup->gather(setup->arg, own, all, sizeof peer->own, peer->stream, err);
    if (status == ATTN_OK)
        status = await_stream(peer, err);
    if (status != ATTN_OK)
        return status;
    result =
        cuda->memcpy_dtoh_async(peer->all, all, (uint64_t)setup->size * sizeof peer->all[0], peer->stream);
    return result == GPU_SUCCESS ? await_stream(peer, err)
                                 : attn__peer_fail(peer, "cuMemcpyDtoHAsync", result, err);
}

/* Whether all are able, as all ranks have been told. */
static bool all_are_able(const struct attn__peer *peer, char *why, size_t size)
{
    for (uint32_t i = 0; i < peer->setup.size; i++) {
        const struct record *record = &peer->all[i];
        if (record->version != RECORD_VERSION || record->able == 0) {
            snprintf(why, size, "rank %u cannot: %.*s", i, (int)sizeof record->why,
                     record->version == RECORD_VERSION ? record->why : "its library is another version");
            return false;
        }
    }
    return true;
}

static bool map(struct attn__peer *peer, uint32_t other)
{
    const struct gpu_driver *cuda = &peer->cuda;
    const struct record *record = &peer->all[other];
    gpu_ordinal device;
    int can = 0;

    if (memcmp(record->boot, peer->own.boot, sizeof record->boot) != 0)
        return attn__peer_refuse(peer, "another rank is on another host");
    if (cuda->device_get_by_pci_bus_id(&device, record->bus) != GPU_SUCCESS)
        return attn__peer_refuse(peer, "it does not see the device of another rank");
    if (cuda->device_can_access_peer(&can, peer->device, device) != GPU_SUCCESS || can == 0)
        return attn__peer_refuse(peer, "its device cannot access that of another rank");
    if (memcmp(record->process, peer->own.process, sizeof record->process) == 0) {
        const gpu_result result = cuda->ctx_enable_peer_access((gpu_handle)(uintptr_t)record->context, 0);
        peer->mapped[other] = record->staging;
        return result == GPU_SUCCESS || result == PEER_IS_ENABLED ||
               attn__peer_refuse(peer, "its driver refuses access to the device of another rank");
    }
    peer->opened[other] =
        cuda->ipc_open_mem_handle(&peer->mapped[other], record->handle, LAZY_PEER_ACCESS) == GPU_SUCCESS;
    return peer->opened[other] ||
           attn__peer_refuse(peer, "its driver does not map memory of another process");
}

static void map_all(struct attn__peer *peer)
{
    bool good = true;

    peer->mapped[peer->setup.rank] = peer->staging;
    for (uint32_t i = 0; i < peer->setup.size && good; i++)
        good = i == peer->setup.rank || map(peer, i);
}

/* Two exchanges: who is able, and who could map all. Both are judged by all ranks alike. */
int32_t attn__peer_agree(struct attn__peer *peer, bool *on, char *why, size_t size, struct attn_error *err)
{
    int32_t status = exchange(peer, err);

    if (status != ATTN_OK || !all_are_able(peer, why, size))
        return status;
    map_all(peer);
    status = exchange(peer, err);
    *on = status == ATTN_OK && all_are_able(peer, why, size);
    return status;
}
