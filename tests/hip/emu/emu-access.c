/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which global memory a launch may touch. */
#include "emu-wave.h"

static bool inside(uint64_t address, uint64_t bytes, uint64_t begin, uint64_t end)
{
    return address >= begin && address < end && bytes <= end - address;
}

bool emu_may_access(struct wave *w, uint64_t address, uint64_t bytes, bool write)
{
    struct group *g = w->group;
    const struct emu_range *ranges = g->launch->ranges;
    size_t low = 0, high = g->launch->range_count;
    if (g->range < high && inside(address, bytes, ranges[g->range].begin, ranges[g->range].end))
        return !write || ranges[g->range].writable;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < g->launch->range_count && inside(address, bytes, ranges[low].begin, ranges[low].end)) {
        g->range = low;
        return !write || ranges[low].writable;
    }
    return !write && (inside(address, bytes, g->kernarg, g->kernarg_end) ||
                      inside(address, bytes, g->packet, g->packet_end) ||
                      inside(address, bytes, g->image, g->image_end));
}

bool emu_access(struct wave *w, uint64_t address, uint64_t bytes, bool write)
{
    if (emu_may_access(w, address, bytes, write))
        return true;
    bool readable = write && emu_may_access(w, address, bytes, false);
    emu_fail(w, EMU_ADDRESS, "%s %llu bytes at %#llx, which %s", write ? "writes" : "reads",
             (unsigned long long)bytes, (unsigned long long)address,
             readable ? "may only be read" : "is no memory of the launch");
    return false;
}
