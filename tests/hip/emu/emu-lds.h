/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * LDS accesses: bounds, alignment, races. For each byte the shadow has who wrote it last and who read it
 * since when: an epoch (the barriers passed) in the upper bits, a wave in the lower eight; 0xff: several
 * waves read, 0x80: an atomic. Two waves conflict over a byte if both touch it in the same epoch and one of
 * them writes; but waves that all write the same words, which nobody reads meanwhile, leave no doubt.
 */
#ifndef EMU_LDS_H
#define EMU_LDS_H

#include <string.h>

#include "emu-wave.h"

void emu_lds_out(struct wave *w, uint32_t at, uint32_t bytes);
void emu_lds_race(struct wave *w, uint32_t at, uint32_t bytes, bool write);

static inline uint32_t lds_key(const struct wave *w)
{
    return w->group->epoch << 8 | (w->index + 1);
}

/* Notes an access; true where it races. Same epoch and not the same wave: the difference is 1 to 255. */
static inline bool lds_note(struct group *g, uint32_t at, uint32_t bytes, bool write, uint32_t key)
{
    uint32_t bad = 0;
    uint32_t *written = g->written + at, *read = g->read + at;
    if (write) {
        for (uint32_t j = 0; j < bytes; j++)
            bad |= ((written[j] ^ key) - 1 < 255) | ((read[j] ^ key) - 1 < 255);
        for (uint32_t j = 0; j < bytes; j++)
            written[j] = key;
    } else {
        for (uint32_t j = 0; j < bytes; j++)
            bad |= (written[j] ^ key) - 1 < 255;
        for (uint32_t j = 0; j < bytes; j++)
            read[j] = (read[j] ^ key) - 1 < 255 ? key | 0xff : key;
    }
    return bad != 0;
}

/* One lane's access; false: failed. `bytes` is a constant where this is inlined. */
static inline bool lds_access(struct wave *w, uint32_t at, uint32_t bytes, bool write)
{
    struct group *g = w->group;
    uint32_t align = bytes < 4 ? bytes : 4;
    if (at >= g->lds_bytes || bytes > g->lds_bytes - at || (at & (align - 1)) != 0) {
        emu_lds_out(w, at, bytes);
        return false;
    }
    if (g->written != NULL && lds_note(g, at, bytes, write, lds_key(w))) {
        emu_lds_race(w, at, bytes, write);
        return false;
    }
    return true;
}

/* One lane's write of words. */
static inline bool lds_write(struct wave *w, uint32_t at, uint32_t bytes, const uint32_t *words)
{
    const struct group *g = w->group;
    const uint32_t key = lds_key(w);
    bool same = g->written != NULL && at < g->lds_bytes && bytes <= g->lds_bytes - at && (at & 3) == 0 &&
                memcmp(g->lds + at, words, bytes) == 0;

    for (uint32_t j = 0; same && j < bytes; j++)
        same = (g->written[at + j] ^ key) - 1 < 255 && (g->written[at + j] & 0xff) != 0x80 &&
               (g->read[at + j] ^ key) - 1 >= 255;
    return same || lds_access(w, at, bytes, true);
}

#endif
