/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A rank's part of calls over peer memory: driver, kernels and staging, and the launches. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "fail.h"
#include "peer-state.h"

enum { HOST_PORTABLE_MAPPED = 3 };

/* ---------------------------------------------------------------- the driver */

static const struct {
    const char *symbol;
    size_t offset;
    bool optional;
} entries[] = {
#define GPU_ENTRY(name_, call_, symbol_, optional_, parameters_)                                             \
    {symbol_, offsetof(struct gpu_driver, name_), (optional_) != 0},
#include "driver.def"
};

/* The driver that NCCL has loaded, which stays. */
static bool open_driver(struct gpu_driver *cuda, char *why, size_t size)
{
    const char *given = secure_getenv("ATTN_CUDA_LIBRARY");
    const bool named = given != NULL && given[0] != '\0';

    cuda->library = named ? dlopen(given, RTLD_NOW) : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (cuda->library == NULL) {
        snprintf(why, size, "no driver of CUDA is loaded");
        return false;
    }
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *function = dlsym(cuda->library, entries[i].symbol);
        if (function == NULL && !entries[i].optional) {
            snprintf(why, size, "the driver of CUDA has no %s", entries[i].symbol);
            return false;
        }
        memcpy((char *)cuda + entries[i].offset, &function, sizeof function);
    }
    return true;
}

static bool enter(const struct attn__peer *peer)
{
    return peer->context != NULL && peer->cuda.ctx_push_current(peer->context) == GPU_SUCCESS;
}

static void leave(const struct attn__peer *peer)
{
    gpu_handle was;

    (void)peer->cuda.ctx_pop_current(&was);
}

int32_t attn__peer_fail(const struct attn__peer *peer, const char *what, gpu_result result,
                        struct attn_error *err)
{
    return attn__fail(err, ATTN_E_DEVICE, 0, "collectives", "%s on rank %u of %u: the driver of CUDA says %d",
                      what, peer->setup.rank, peer->setup.size, result);
}

/* ---------------------------------------------------------------- this rank's part */

bool attn__peer_refuse(struct attn__peer *peer, const char *why)
{
    if (peer->own.able != 0)
        snprintf(peer->own.why, sizeof peer->own.why, "%s", why);
    peer->own.able = 0;
    return false;
}

static void fill_identity(struct record *own)
{
    static uint64_t process; /* differs from processes of the same number elsewhere */
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file != NULL) {
        if (fgets(own->boot, sizeof own->boot, file) == NULL)
            own->boot[0] = '\0';
        fclose(file);
    }
    uint64_t fresh = 0, none = 0;
    if (getrandom(&fresh, sizeof fresh, 0) == (ssize_t)sizeof fresh)
        __atomic_compare_exchange_n(&process, &none, fresh | 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    own->process[0] = __atomic_load_n(&process, __ATOMIC_SEQ_CST);
    own->process[1] = (uint64_t)getpid();
}

#ifdef ATTN__PEER_KERNELS
extern const unsigned char cuda_image_peer[];

/* Loaded here, or the first call would: that may be in a capture, or wait for a kernel that waits itself. */
static bool load_kernel(struct attn__peer *peer, const char *name, gpu_handle *out)
{
    const struct gpu_driver *cuda = &peer->cuda;

    return cuda->module_get_function(out, peer->module, name) == GPU_SUCCESS &&
           (cuda->func_load == NULL || cuda->func_load(*out) == GPU_SUCCESS);
}

static bool load_kernels(struct attn__peer *peer)
{
    return (peer->cuda.module_load_data(&peer->module, cuda_image_peer) == GPU_SUCCESS &&
            load_kernel(peer, "attn_peer_words", &peer->words_kernel) &&
            load_kernel(peer, "attn_peer_bytes", &peer->bytes_kernel)) ||
           attn__peer_refuse(peer, "the kernels do not load on its device (sm_targets)");
}
#else
static bool load_kernels(struct attn__peer *peer)
{
    return attn__peer_refuse(peer, "its library was built without nvcc");
}
#endif

static uint64_t staging_bytes(const struct attn__peer *peer)
{
    return UINT64_C(2) * peer->setup.size * peer_lines(peer->setup.size) * PEER_LINE;
}

static bool make_staging(struct attn__peer *peer)
{
    const struct gpu_driver *cuda = &peer->cuda;
    void *words = NULL;

    if (cuda->mem_alloc(&peer->staging, staging_bytes(peer)) != GPU_SUCCESS)
        return attn__peer_refuse(peer, "no device memory for staging");
    if (cuda->mem_host_alloc(&words, sizeof *peer->words, HOST_PORTABLE_MAPPED) != GPU_SUCCESS)
        return attn__peer_refuse(peer, "no memory that its device shares with the host");
    memset(words, 0, sizeof *peer->words);
    peer->words = words;
    if (cuda->memset_d8_async(peer->staging, 0, staging_bytes(peer), peer->stream) != GPU_SUCCESS)
        return attn__peer_refuse(peer, "staging cannot be written");
    peer->own.staging = peer->staging;
    return true;
}

/* What others need to map this rank's staging; what cannot be had is the reason that they get. */
static void prepare(struct attn__peer *peer)
{
    struct record *own = &peer->own;
    const struct gpu_driver *cuda = &peer->cuda;

    own->version = RECORD_VERSION;
    own->able = 1;
    own->context = (uint64_t)(uintptr_t)peer->context;
    fill_identity(own);
    if (peer->setup.never)
        attn__peer_refuse(peer, "ATTN_NCCL_PEER is never");
    else if (own->boot[0] == '\0')
        attn__peer_refuse(peer, "its host has no boot_id");
    else if (cuda->device_get_pci_bus_id(own->bus, sizeof own->bus, peer->device) != GPU_SUCCESS)
        attn__peer_refuse(peer, "its device has no bus id");
    else if (load_kernels(peer) && make_staging(peer) &&
             cuda->ipc_get_mem_handle(&own->handle, peer->staging) != GPU_SUCCESS)
        memset(&own->handle, 0, sizeof own->handle); /* in one process nobody wants it */
}

/* ---------------------------------------------------------------- the connection */

static int32_t open_device(struct attn__peer *peer, struct attn_error *err)
{
    const struct gpu_driver *cuda = &peer->cuda;
    const struct attn_peer_state state = {.number = PEER_FIRST};
    gpu_result result = cuda->device_get(&peer->device, peer->setup.device);

    if (result == GPU_SUCCESS)
        result = cuda->device_primary_ctx_retain(&peer->context, peer->device);
    if (result != GPU_SUCCESS)
        return attn__peer_fail(peer, "cuDevicePrimaryCtxRetain", result, err);
    result = cuda->ctx_push_current(peer->context);
    if (result != GPU_SUCCESS)
        return attn__peer_fail(peer, "cuCtxPushCurrent", result, err);
    result = cuda->stream_create(&peer->stream, GPU_STREAM_NON_BLOCKING);
    if (result == GPU_SUCCESS)
        result = cuda->mem_alloc(&peer->desk, sizeof(struct desk));
    if (result == GPU_SUCCESS)
        result = cuda->memcpy_htod_async(peer->desk, &state, sizeof state, peer->stream);
    leave(peer);
    return result == GPU_SUCCESS ? ATTN_OK : attn__peer_fail(peer, "a stream and memory of it", result, err);
}

int32_t attn__peer_create(const struct attn__peer_setup *setup, struct attn__peer **out, char *why,
                          size_t why_size, struct attn_error *err)
{
    bool on = false;

    *out = NULL;
    struct attn__peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "ranks", "no memory for a connection");
    peer->setup = *setup;
    if (!open_driver(&peer->cuda, why, why_size)) { /* the others of this host find none either */
        attn__peer_destroy(peer);
        return ATTN_OK;
    }
    int32_t status = open_device(peer, err);
    if (status == ATTN_OK && !enter(peer))
        status = attn__peer_fail(peer, "cuCtxPushCurrent", GPU_UNKNOWN, err);
    if (status == ATTN_OK) {
        prepare(peer);
        status = attn__peer_agree(peer, &on, why, why_size, err);
        leave(peer);
    }
    if (on)
        *out = peer;
    else
        attn__peer_destroy(peer);
    return status;
}

static void free_all(struct attn__peer *peer)
{
    const struct gpu_driver *cuda = &peer->cuda;

    for (uint32_t i = 0; i < PEER_RANKS; i++)
        if (peer->opened[i])
            (void)cuda->ipc_close_mem_handle(peer->mapped[i]);
    if (peer->module != NULL)
        (void)cuda->module_unload(peer->module);
    if (peer->words != NULL)
        (void)cuda->mem_free_host(peer->words);
    if (peer->staging != 0)
        (void)cuda->mem_free(peer->staging);
    if (peer->desk != 0)
        (void)cuda->mem_free(peer->desk);
    if (peer->stream != NULL)
        (void)cuda->stream_destroy(peer->stream);
}

void attn__peer_destroy(struct attn__peer *peer)
{
    if (peer == NULL)
        return;
    if (enter(peer)) {
        free_all(peer);
        leave(peer);
    }
    if (peer->context != NULL)
        (void)peer->cuda.device_primary_ctx_release(peer->device);
    if (peer->cuda.library != NULL)
        dlclose(peer->cuda.library);
    free(peer);
}

/* ---------------------------------------------------------------- calls */

bool attn__peer_takes(const struct attn__peer *peer, uint64_t bytes)
{
    return peer != NULL && bytes > 0 && bytes <= PEER_BOUND / peer->setup.size;
}

static uint32_t count_ctas(const struct attn__peer *peer, uint64_t bytes)
{
    const uint64_t wanted = (bytes + 8 * PEER_THREADS - 1) / (8 * PEER_THREADS);
    const uint32_t most = PEER_CTAS / peer->setup.size;

    return wanted < most ? (uint32_t)wanted : most;
}

int32_t attn__peer_call(struct attn__peer *peer, const void *send, void *receive, uint64_t bytes,
                        uint64_t step, void *stream, struct attn_error *err)
{
    const struct attn__peer_setup *setup = &peer->setup;
    const uint32_t ctas = count_ctas(peer, bytes);
    struct attn_peer_call call = {.send = (uintptr_t)send,
                                  .receive = (uintptr_t)receive,
                                  .bytes = bytes,
                                  .step = step,
                                  .timeout_ns = setup->timeout_ns,
                                  .state = peer->desk + offsetof(struct desk, state),
                                  .words = (uintptr_t)peer->words,
                                  .rank = setup->rank,
                                  .size = setup->size,
                                  .lines = peer_lines(setup->size),
                                  .ctas = ctas * setup->size};
    void *arguments[] = {&call};

    memcpy(call.staging, peer->mapped, sizeof call.staging);
    if (!enter(peer))
        return attn__peer_fail(peer, "cuCtxPushCurrent", GPU_UNKNOWN, err);
    const gpu_result result = peer->cuda.launch_kernel(
        (call.send | call.receive | bytes) % 8 == 0 ? peer->words_kernel : peer->bytes_kernel, ctas,
        setup->size, 1, PEER_THREADS, 1, 1, 0, stream, arguments, NULL);
    leave(peer);
    return result == GPU_SUCCESS ? ATTN_OK : attn__peer_fail(peer, "a call over peer memory", result, err);
}

int32_t attn__peer_check(const struct attn__peer *peer, struct attn_error *err)
{
    const uint32_t failed = peer != NULL ? __atomic_load_n(&peer->words->failed, __ATOMIC_RELAXED) : 0;

    if (failed == 0)
        return ATTN_OK;
    if (failed == PEER_ENDED)
        return attn__fail(err, ATTN_E_PEER, 0, "collectives",
                          "rank %u of %u: the connection was ended in a call over peer memory",
                          peer->setup.rank, peer->setup.size);
    return attn__fail(err, ATTN_E_PEER, 0, "collectives",
                      "rank %u did not come to a call over peer memory in which rank %u of %u waited %.3g s",
                      failed - 1, peer->setup.rank, peer->setup.size, (double)peer->setup.timeout_ns * 1e-9);
}

void attn__peer_end(struct attn__peer *peer)
{
    if (peer != NULL)
        __atomic_store_n(&peer->words->ended, 1, __ATOMIC_SEQ_CST);
}
