/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads and stores of global and flat memory. */
#include "emu-lds.h"
#include "emu-memory.h"

/* Adresses of all lanes into `to`, the whole of the active ones checked; false: failed. */
static bool global_addresses(struct wave *w, const struct op *o, unsigned at, unsigned base, uint32_t bytes,
                             bool write, uint64_t to[EMU_ROW])
{
    addresses(w, o, &o->at[at], &o->at[base], to);
    return check_addresses(w, to, bytes, write);
}

#define GET(words, to, at, i)                                                                                \
    do {                                                                                                     \
        uint32_t x[words];                                                                                   \
        memcpy(x, (const void *)(uintptr_t)(at), sizeof x);                                                  \
        for (uint32_t k = 0; k < (words); k++)                                                               \
            (to)[k * EMU_ROW + (i)] = x[k];                                                                  \
    } while (0)

#define LOAD(words)                                                                                          \
    static void load##words(struct wave *w, const struct op *o)                                              \
    {                                                                                                        \
        uint64_t at[EMU_ROW];                                                                                \
        if (!global_addresses(w, o, 1, 2, 4 * (words), false, at))                                           \
            return;                                                                                          \
        uint32_t *to = w->v + o->at[0].offset;                                                               \
        if (w->full) {                                                                                       \
            for (uint32_t i = 0; i < w->lanes; i++)                                                          \
                GET(words, to, at[i], i);                                                                    \
            return;                                                                                          \
        }                                                                                                    \
        for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {                                                \
            uint32_t i = (uint32_t)__builtin_ctzll(m);                                                       \
            GET(words, to, at[i], i);                                                                        \
        }                                                                                                    \
    }
LOAD(1)
LOAD(2)
LOAD(3)
LOAD(4)

#define STORE(words)                                                                                         \
    static void store##words(struct wave *w, const struct op *o)                                             \
    {                                                                                                        \
        uint64_t at[EMU_ROW];                                                                                \
        if (!global_addresses(w, o, 0, 2, 4 * (words), true, at))                                            \
            return;                                                                                          \
        const uint32_t *from = w->v + o->at[1].offset;                                                       \
        for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {                                                \
            uint32_t i = (uint32_t)__builtin_ctzll(m), x[words];                                             \
            for (uint32_t k = 0; k < (words); k++)                                                           \
                x[k] = from[k * EMU_ROW + i];                                                                \
            memcpy((void *)(uintptr_t)at[i], x, sizeof x);                                                   \
        }                                                                                                    \
    }
STORE(1)
STORE(2)
STORE(3)
STORE(4)

/* `part` is a C type of 8 or 16 bits; `place` puts it, as x, beside what the register had, as old. */
#define LOAD_PART(name, part, place)                                                                         \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t at[EMU_ROW];                                                                                \
        if (!global_addresses(w, o, 1, 2, sizeof(part), false, at))                                          \
            return;                                                                                          \
        uint32_t *to = w->v + o->at[0].offset;                                                               \
        for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {                                                \
            uint32_t i = (uint32_t)__builtin_ctzll(m), old = to[i];                                          \
            part read;                                                                                       \
            memcpy(&read, (const void *)(uintptr_t)at[i], sizeof read);                                      \
            uint32_t x = (uint32_t)read;                                                                     \
            (void)old;                                                                                       \
            to[i] = (place);                                                                                 \
        }                                                                                                    \
    }
LOAD_PART(load_u8, uint8_t, x)
LOAD_PART(load_i8, int8_t, x)
LOAD_PART(load_u16, uint16_t, x)
LOAD_PART(load_i16, int16_t, x)
LOAD_PART(load_low16, uint16_t, (old & 0xffff0000) | x)
LOAD_PART(load_high16, uint16_t, (old & 0xffff) | x << 16)
LOAD_PART(load_low8, uint8_t, (old & 0xffff0000) | x)
LOAD_PART(load_high8, uint8_t, (old & 0xffff) | x << 16)
LOAD_PART(load_low_i8, int8_t, (old & 0xffff0000) | (x & 0xffff))
LOAD_PART(load_high_i8, int8_t, (old & 0xffff) | x << 16)

#define STORE_PART(name, part, shift)                                                                        \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t at[EMU_ROW];                                                                                \
        if (!global_addresses(w, o, 0, 2, sizeof(part), true, at))                                           \
            return;                                                                                          \
        const uint32_t *from = w->v + o->at[1].offset;                                                       \
        for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {                                                \
            uint32_t i = (uint32_t)__builtin_ctzll(m);                                                       \
            part x = (part)(from[i] >> (shift));                                                             \
            memcpy((void *)(uintptr_t)at[i], &x, sizeof x);                                                  \
        }                                                                                                    \
    }
STORE_PART(store_b8, uint8_t, 0)
STORE_PART(store_b16, uint16_t, 0)
STORE_PART(store_high8, uint8_t, 16)
STORE_PART(store_high16, uint16_t, 16)

/* Flat memory: global, LDS or scratch, told by the high word of each lane's address. */
static uint8_t *flat_lane(struct wave *w, uint32_t lane, uint64_t at, uint32_t bytes, bool write)
{
    uint32_t low = (uint32_t)at;
    if (at >> 32 == EMU_SHARED_BASE)
        return lds_access(w, low, bytes, write) ? w->group->lds + low : NULL;
    if (at >> 32 == EMU_PRIVATE_BASE)
        return scratch_lane(w, lane, low, bytes);
    return emu_access(w, at, bytes, write) ? (uint8_t *)(uintptr_t)at : NULL;
}

static void flat_load(struct wave *w, const struct op *o)
{
    uint64_t at[EMU_ROW];
    uint32_t bytes = o->size & 31u, words = (bytes + 3) / 4, x[EMU_ROW][4] = {{0}};
    addresses(w, o, &o->at[1], NULL, at);
    uint64_t exec = wave_exec(w);
    for (uint64_t m = exec; m != 0; m &= m - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(m);
        const uint8_t *from = flat_lane(w, i, at[i], bytes, false);
        if (from == NULL)
            return;
        memcpy(x[i], from, bytes);
    }
    uint32_t *to = w->v + o->at[0].offset;
    for (uint64_t m = exec; m != 0; m &= m - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(m);
        for (uint32_t k = 0; k < words; k++)
            to[k * EMU_ROW + i] = x[i][k];
    }
}

static void flat_store(struct wave *w, const struct op *o)
{
    uint64_t at[EMU_ROW];
    uint32_t bytes = o->size & 31u;
    const uint32_t *from = w->v + o->at[1].offset;
    addresses(w, o, &o->at[0], NULL, at);
    for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(m), x[4];
        for (uint32_t k = 0; k < (bytes + 3) / 4; k++)
            x[k] = from[k * EMU_ROW + i];
        uint8_t *to = flat_lane(w, i, at[i], bytes, true);
        if (to == NULL)
            return;
        memcpy(to, x, bytes);
    }
}

#define G_LOAD(name, run)                                                                                    \
    {                                                                                                        \
        "global_load_" name, "aaa", run, E_SCALAR, 0                                                         \
    }
#define G_STORE(name, run)                                                                                   \
    {                                                                                                        \
        "global_store_" name, "aaa", run, E_SCALAR | E_STORE, 0                                              \
    }
#define F_LOAD(name, size)                                                                                   \
    {                                                                                                        \
        "flat_load_" name, "aa", flat_load, E_SCALAR, size                                                   \
    }
#define F_STORE(name, size)                                                                                  \
    {                                                                                                        \
        "flat_store_" name, "aa", flat_store, E_SCALAR | E_STORE, size                                       \
    }
static const struct entry entries[] = {
    G_LOAD("b32", load1),
    G_LOAD("b64", load2),
    G_LOAD("b96", load3),
    G_LOAD("b128", load4),
    G_LOAD("u8", load_u8),
    G_LOAD("i8", load_i8),
    G_LOAD("u16", load_u16),
    G_LOAD("i16", load_i16),
    G_LOAD("d16_b16", load_low16),
    G_LOAD("d16_hi_b16", load_high16),
    G_LOAD("d16_u8", load_low8),
    G_LOAD("d16_hi_u8", load_high8),
    G_LOAD("d16_i8", load_low_i8),
    G_LOAD("d16_hi_i8", load_high_i8),
    G_STORE("b32", store1),
    G_STORE("b64", store2),
    G_STORE("b96", store3),
    G_STORE("b128", store4),
    G_STORE("b8", store_b8),
    G_STORE("b16", store_b16),
    G_STORE("d16_hi_b8", store_high8),
    G_STORE("d16_hi_b16", store_high16),
    F_LOAD("b32", 4),
    F_LOAD("b64", 8),
    F_LOAD("b96", 12),
    F_LOAD("b128", 16),
    F_LOAD("u8", 1),
    F_LOAD("u16", 2),
    F_STORE("b32", 4),
    F_STORE("b64", 8),
    F_STORE("b96", 12),
    F_STORE("b128", 16),
    F_STORE("b8", 1),
    F_STORE("b16", 2),
};

const struct entry_list EMU_NAME(memory) = {entries, sizeof entries / sizeof *entries};
