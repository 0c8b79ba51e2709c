/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Kernels that move small blocks between GPUs whose memory is mapped into each other: a rank stores lines
 * into the receivers' staging, and each receiver waits at its own for lines that have the number of the call.
 *
 * A word of 64 bits is stored and loaded whole, and has 4 bytes of data and the number: whoever sees the
 * number sees the data. So nothing is fenced, and a line takes one way over the link.
 *
 * Two slots are enough. A call with number n uses slot n % 2, and a sender overwrites it in call n + 2. It
 * begins that when its own call n + 1 has ended, in which it got lines of every other rank; these were sent
 * when the other rank's call n had ended, for calls of a rank follow each other on its stream. So nobody
 * reads what is overwritten. It does not matter what the calls are and how long: each exchanges at least a
 * line between every two ranks.
 *
 * A line that a short call leaves alone keeps an older number, of the same slot. It would be taken for a new
 * one if 2^32 calls passed without a longer one, so that once in PEER_RENEWAL calls one of each slot sends
 * all lines, and waits for all.
 *
 * The number lies in device memory, and the last CTA of a launch advances it when all have read it: graphs
 * are replayed. CTA (x, y) sends to and receives from the rank y before it starts to wait, and waits for CTA
 * (x, y) of another rank alone: CTAs need not be on a device at the same time, only start in their order.
 *
 * In front of this comes a header with the device intrinsics: those of backends/gpu/kernels/device.h, and
 *   void peer_store_line(uint64_t at, uint64_t a, uint64_t b)      two words of a line, each stored whole
 *   void peer_load_line(uint64_t at, uint64_t *a, uint64_t *b)     alike, of what other devices store
 *   uint32_t peer_load_host(uint64_t at), void peer_store_host(uint64_t at, uint32_t)   memory of the host
 *   uint32_t peer_load_own(uint64_t at)                            what other CTAs store
 *   uint64_t peer_now_ns(void)
 *   void peer_pause(void)                                          in a loop that waits
 */
#ifndef ATTN_NCCL_PEER_KERNEL_H
#define ATTN_NCCL_PEER_KERNEL_H

#include "peer-call.h"

/* A thread looks at the clock after so many looks at a line, and at the host's memory after so long. */
enum { PEER_LOOKS = 256, PEER_HOST_NS = 1000000 };

/* How long a thread has waited for another rank. */
struct peer_wait {
    uint32_t looks, from;
    uint64_t began, asked;
};

/* A thread's share of lines. */
struct peer_share {
    uint32_t first, step, words, lines;
};

/* ---------------------------------------------------------------- blocks */

/* WORDS: addresses and sizes are multiples of 8. Otherwise the last word may be short. */
template <bool WORDS> GPU_INLINE uint64_t peer_read(uint64_t block, uint32_t index, uint64_t bytes)
{
    const uint64_t first = (uint64_t)index * 8, at = block + first;

    if constexpr (WORDS) {
        return *(const uint64_t *)(uintptr_t)at;
    } else {
        uint64_t word = 0;
        for (uint32_t i = 0; i < 8 && first + i < bytes; i++)
            word |= (uint64_t) * (const uint8_t *)(uintptr_t)(at + i) << 8 * i;
        return word;
    }
}

template <bool WORDS>
GPU_INLINE void peer_write(uint64_t block, uint32_t index, uint64_t bytes, uint64_t word)
{
    const uint64_t first = (uint64_t)index * 8, at = block + first;

    if constexpr (WORDS)
        *(uint64_t *)(uintptr_t)at = word;
    else
        for (uint32_t i = 0; i < 8 && first + i < bytes; i++)
            *(uint8_t *)(uintptr_t)(at + i) = (uint8_t)(word >> 8 * i);
}

/* ---------------------------------------------------------------- giving up */

GPU_INLINE void peer_fail(const struct attn_peer_call *call, uint32_t why)
{
    struct attn_peer_state *state = (struct attn_peer_state *)(uintptr_t)call->state;

    if (gpu_atomic_or(&state->failed, 1) == 0) /* the first one says why */
        peer_store_host(call->words + offsetof(struct attn_peer_words, failed), why);
}

/* Called after every look in vain. The clock starts at the first time that it is looked at. */
GPU_INLINE bool peer_gives_up(const struct attn_peer_call *call, struct peer_wait *wait)
{
    peer_pause();
    if (++wait->looks % PEER_LOOKS != 0)
        return false;
    const uint64_t now = peer_now_ns();
    if (wait->looks == PEER_LOOKS)
        wait->began = wait->asked = now;
    if (now - wait->began > call->timeout_ns)
        peer_fail(call, 1 + wait->from);
    if (now - wait->asked > PEER_HOST_NS) {
        wait->asked = now;
        if (peer_load_host(call->words + offsetof(struct attn_peer_words, ended)) != 0)
            peer_fail(call, PEER_ENDED);
    }
    return peer_load_own(call->state + offsetof(struct attn_peer_state, failed)) != 0;
}

/* ---------------------------------------------------------------- a call */

/* The region of sender `from` in the staging of rank `at`. */
GPU_INLINE uint64_t peer_region(const struct attn_peer_call *call, uint32_t number, uint32_t at,
                                uint32_t from)
{
    return call->staging[at] + (uint64_t)(number % 2 * call->size + from) * call->lines * PEER_LINE;
}

template <bool WORDS>
GPU_INLINE void peer_send(const struct attn_peer_call *call, uint32_t number, uint32_t to,
                          const struct peer_share *share)
{
    const uint64_t block = call->send + call->step * to, region = peer_region(call, number, to, call->rank);
    const uint64_t flag = (uint64_t)number << 32;

    for (uint32_t i = share->first; i < share->lines; i += share->step) {
        const uint64_t word = i < share->words ? peer_read<WORDS>(block, i, call->bytes) : 0;
        peer_store_line(region + (uint64_t)i * PEER_LINE, (word & 0xffffffffu) | flag, word >> 32 | flag);
    }
}

template <bool WORDS>
GPU_INLINE void peer_receive(const struct attn_peer_call *call, uint32_t number, uint32_t from,
                             const struct peer_share *share)
{
    const uint64_t block = call->receive + call->bytes * from,
                   region = peer_region(call, number, call->rank, from);
    struct peer_wait wait = {0, from, 0, 0};

    for (uint32_t i = share->first; i < share->lines; i += share->step) {
        uint64_t a, b;
        for (;;) {
            peer_load_line(region + (uint64_t)i * PEER_LINE, &a, &b);
            if ((uint32_t)(a >> 32) == number && (uint32_t)(b >> 32) == number)
                break;
            if (peer_gives_up(call, &wait))
                return;
        }
        if (i < share->words)
            peer_write<WORDS>(block, i, call->bytes, (a & 0xffffffffu) | b << 32);
    }
}

template <bool WORDS>
GPU_INLINE void peer_copy_own(const struct attn_peer_call *call, const struct peer_share *share)
{
    const uint64_t from = call->send + call->step * call->rank, to = call->receive + call->bytes * call->rank;

    for (uint32_t i = share->first; i < share->words; i += share->step)
        peer_write<WORDS>(to, i, call->bytes, peer_read<WORDS>(from, i, call->bytes));
}

/* The last CTA to come here ends the call. */
GPU_INLINE void peer_finish(const struct attn_peer_call *call, uint32_t number)
{
    struct attn_peer_state *state = (struct attn_peer_state *)(uintptr_t)call->state;

    gpu_barrier();
    if (gpu_thread() == 0 && gpu_atomic_count(&state->done, call->ctas - 1) == call->ctas - 1)
        state->number = number + 1;
}

template <bool WORDS> GPU_INLINE void peer_exchange(const struct attn_peer_call *call)
{
    const uint32_t number = peer_load_own(call->state + offsetof(struct attn_peer_state, number));
    const uint32_t other = gpu_cta_y(), words = (uint32_t)((call->bytes + 7) / 8);
    const struct peer_share share = {gpu_cta() * gpu_threads() + gpu_thread(), gpu_ctas() * gpu_threads(),
                                     words, (number + PEER_AHEAD) % PEER_RENEWAL < 2 ? call->lines : words};

    if (peer_load_own(call->state + offsetof(struct attn_peer_state, failed)) == 0) {
        if (other == 0) {
            peer_copy_own<WORDS>(call, &share);
        } else {
            peer_send<WORDS>(call, number, (call->rank + other) % call->size, &share);
            peer_receive<WORDS>(call, number, (call->rank + call->size - other) % call->size, &share);
        }
    }
    peer_finish(call, number);
}

GPU_KERNEL(attn_peer_words, 512, 1)(GPU_ARGUMENT(struct attn_peer_call, call))
{
    peer_exchange<true>(&call);
}

GPU_KERNEL(attn_peer_bytes, 512, 1)(GPU_ARGUMENT(struct attn_peer_call, call))
{
    peer_exchange<false>(&call);
}

#endif
