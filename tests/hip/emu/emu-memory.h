/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Addresses of vector memory instructions. */
#ifndef EMU_MEMORY_H
#define EMU_MEMORY_H

#include "emu-wave.h"

/* A pair of VGPRs, or a base in SGPRs and a VGPR's unsigned offset from it. */
static inline void addresses(struct wave *w, const struct op *o, const struct operand *at,
                             const struct operand *base, uint64_t to[EMU_ROW])
{
    const uint32_t *v = w->v + at->offset;
    uint64_t offset = (uint64_t)(int64_t)o->offset;
    if (base != NULL && base->kind == AT_SGPR) {
        offset += scalar64(w, base);
        if (at->kind == AT_VGPR)
            LANES(i) to[i] = offset + v[i];
        else
            LANES(i) to[i] = offset;
    } else {
        LANES(i) to[i] = u64_of_lanes(v, i) + offset;
    }
}

/* Most often the lanes' accesses lie in one range from the lowest to the highest. */
static inline bool check_addresses(struct wave *w, const uint64_t at[EMU_ROW], uint32_t bytes, bool write)
{
    uint64_t low = ~0ull, high = 0, exec = wave_exec(w);
    if (w->full) {
        for (uint32_t i = 0; i < w->lanes; i++) {
            low = at[i] < low ? at[i] : low;
            high = at[i] > high ? at[i] : high;
        }
    } else {
        for (uint64_t m = exec; m != 0; m &= m - 1) {
            uint64_t a = at[__builtin_ctzll(m)];
            low = a < low ? a : low;
            high = a > high ? a : high;
        }
    }
    if (exec == 0 || emu_may_access(w, low, high - low + bytes, write))
        return true;
    for (uint64_t m = exec; m != 0; m &= m - 1)
        if (!emu_access(w, at[__builtin_ctzll(m)], bytes, write))
            return false;
    return true;
}

/* A lane's own scratch; NULL: failed. */
static inline uint8_t *scratch_lane(struct wave *w, uint32_t lane, uint32_t at, uint32_t bytes)
{
    if (at <= w->scratch_bytes && bytes <= w->scratch_bytes - at)
        return w->scratch + (size_t)lane * w->scratch_bytes + at;
    emu_fail(w, EMU_ADDRESS, "scratch access of %u bytes at %u, beyond %u", bytes, at, w->scratch_bytes);
    return NULL;
}

#endif
