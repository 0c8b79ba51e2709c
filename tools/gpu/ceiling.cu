// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the memory gives at best: reading in order, and gathering pages of a cache, without any arithmetic.
#include <cuda_runtime.h>
#include <stdint.h>

enum { BULK = 8192, BULK_STAGES = 16 }; // bytes of a copy, and how many are on their way in an SM
enum { THREADS = 128, STAGES = 3, TILE = 64, ROW = 256, PIECE = 16 };

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// 16 bytes to shared memory, past L1.
static __device__ __forceinline__ void copy_piece(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

static __device__ __forceinline__ void commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> static __device__ __forceinline__ void wait_for(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
static __device__ __forceinline__ void bulk_start(char *to, const char *from, uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(BULK)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(BULK), "r"(shared_address(barrier))
                 : "memory");
}

static __device__ __forceinline__ void bulk_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni over;\n"
                 "bra.uni again;\n"
                 "over:\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
#endif

// Reads `chunks` pieces of BULK bytes, spread over all blocks. One thread of each keeps the copies going.
extern "C" __global__ void __launch_bounds__(THREADS) ceiling_read(const char *from, uint64_t chunks)
{
    extern __shared__ __align__(128) char stage[];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __shared__ uint64_t full[BULK_STAGES];
    const uint64_t mine = chunks > blockIdx.x ? (chunks - blockIdx.x - 1) / gridDim.x + 1 : 0;

    if (threadIdx.x != 0)
        return;
    for (int i = 0; i < BULK_STAGES; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[i])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (uint64_t i = 0; i < mine + BULK_STAGES; i++) {
        const uint32_t at = (uint32_t)(i % BULK_STAGES);
        if (i >= BULK_STAGES)
            bulk_wait(&full[at], (uint32_t)((i / BULK_STAGES - 1) & 1));
        if (i < mine)
            bulk_start(stage + at * BULK, from + (blockIdx.x + i * gridDim.x) * BULK, &full[at]);
    }
#else
    for (uint64_t i = blockIdx.x, turn = 0; i < chunks; i += gridDim.x, turn++) {
        char *to = stage + turn % BULK_STAGES * BULK;
        for (int piece = threadIdx.x * PIECE; piece < BULK; piece += THREADS * PIECE)
            copy_piece(to + piece, from + i * BULK + piece);
        commit();
        wait_for<BULK_STAGES - 1>();
    }
    wait_for<0>();
#endif
}

struct gather_args {
    const char *k, *v;
    const int32_t *table;
    int64_t page_stride, token_stride, head_stride; // of keys and values alike, in bytes
    uint32_t table_width, block, keys, splits;      // keys of every sequence
};

// Brings tiles of 64 rows of one head (256 bytes each) to shared memory, as a decode kernel does: block
// (split, head, sequence), keys and values in turn.
extern "C" __global__ void __launch_bounds__(THREADS) ceiling_gather(const gather_args args)
{
    extern __shared__ __align__(128) char stage[];
    const uint32_t tiles = (args.keys + TILE - 1) / TILE, share = (tiles + args.splits - 1) / args.splits;
    const uint32_t first = blockIdx.x * share, end = min(first + share, tiles);
    const int32_t *pages = args.table + (uint64_t)blockIdx.z * args.table_width;
    const int64_t head = (int64_t)blockIdx.y * args.head_stride;
    const uint32_t row = threadIdx.x / (ROW / PIECE), column = threadIdx.x % (ROW / PIECE) * PIECE;

    for (uint32_t turn = 0; turn < 2 * (end > first ? end - first : 0); turn++) {
        char *to = stage + turn % STAGES * (TILE * ROW);
        const char *side = turn % 2 != 0 ? args.v : args.k;
        for (uint32_t token = row; token < TILE; token += THREADS / (ROW / PIECE)) {
            const uint32_t key = min((first + turn / 2) * TILE + token, args.keys - 1);
            copy_piece(to + token * ROW + column, side + pages[key / args.block] * args.page_stride +
                                                      key % args.block * args.token_stride + head + column);
        }
        commit();
        wait_for<STAGES - 1>();
    }
    wait_for<0>();
}
