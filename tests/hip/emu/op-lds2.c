/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the LDS unit does beside loads and stores: lanes to lanes, and atomics. */
#include "emu-lds.h"

static void bpermute(struct wave *w, const struct op *o)
{
    uint32_t x[EMU_ROW];
    uint64_t exec = wave_exec(w);
    const uint32_t *at = w->v + o->at[1].offset, *from = w->v + o->at[2].offset;
    for (uint32_t i = 0; i < w->lanes; i++) {
        uint32_t l = (at[i] + (uint32_t)o->offset) / 4 & (w->lanes - 1);
        x[i] = exec >> l & 1 ? from[l] : 0;
    }
    uint32_t *to = w->v + o->at[0].offset;
    for (uint32_t i = 0; i < w->lanes; i++)
        to[i] = exec >> i & 1 ? x[i] : to[i];
}

/* Pushes where bpermute pulls: the last of two lanes that push to one wins. */
static void permute(struct wave *w, const struct op *o)
{
    uint32_t x[EMU_ROW] = {0};
    uint64_t exec = wave_exec(w);
    const uint32_t *at = w->v + o->at[1].offset, *from = w->v + o->at[2].offset;
    for (uint32_t i = 0; i < w->lanes; i++)
        if (exec >> i & 1)
            x[(at[i] + (uint32_t)o->offset) / 4 & (w->lanes - 1)] = from[i];
    uint32_t *to = w->v + o->at[0].offset;
    for (uint32_t i = 0; i < w->lanes; i++)
        to[i] = exec >> i & 1 ? x[i] : to[i];
}

static void swizzle(struct wave *w, const struct op *o)
{
    uint32_t x[EMU_ROW];
    uint64_t exec = wave_exec(w);
    uint32_t by = (uint32_t)o->offset;
    const uint32_t *from = w->v + o->at[1].offset;
    if (by >= 0xc000) {
        emu_fail(w, EMU_UNMODELLED, "swizzle mode %#x is not modelled", by);
        return;
    }
    for (uint32_t i = 0; i < w->lanes; i++) {
        uint32_t l = by & 0x8000 ? (i & ~3u) | (by >> (2 * (i & 3)) & 3)
                                 : (i & 32) | ((((i & 31) & by) | (by >> 5 & 31)) ^ (by >> 10 & 31));
        x[i] = exec >> l & 1 ? from[l] : 0;
    }
    uint32_t *to = w->v + o->at[0].offset;
    for (uint32_t i = 0; i < w->lanes; i++)
        to[i] = exec >> i & 1 ? x[i] : to[i];
}

/* Atomics race with loads and stores of other waves, but not with each other. */
static bool atomic_access(struct wave *w, uint32_t at, uint32_t bytes)
{
    struct group *g = w->group;
    uint32_t key = g->epoch << 8 | 0x80, bad = 0;
    if (at >= g->lds_bytes || bytes > g->lds_bytes - at || at % bytes != 0) {
        emu_lds_out(w, at, bytes);
        return false;
    }
    if (g->written == NULL)
        return true;
    for (uint32_t j = at; j < at + bytes; j++) {
        bad |= g->written[j] != lds_key(w) && (g->written[j] ^ key) - 1 < 255;
        bad |= g->read[j] != lds_key(w) && (g->read[j] ^ key) - 1 < 255;
        g->written[j] = key;
    }
    if (bad)
        emu_lds_race(w, at, bytes, true);
    return !bad;
}

#define ATOMIC(name, type, address, data, returned, expression)                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        const uint32_t *at = w->v + o->at[address].offset, *from = w->v + o->at[data].offset;                \
        for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {                                                \
            uint32_t i = (uint32_t)__builtin_ctzll(m), to = at[i] + (uint32_t)o->offset;                     \
            type old, x;                                                                                     \
            memcpy(&x, &from[i], sizeof x);                                                                  \
            if (!atomic_access(w, to, sizeof old))                                                           \
                return;                                                                                      \
            memcpy(&old, w->group->lds + to, sizeof old);                                                    \
            type made = (expression);                                                                        \
            memcpy(w->group->lds + to, &made, sizeof made);                                                  \
            if (returned)                                                                                    \
                memcpy(&w->v[o->at[0].offset + i], &old, sizeof old);                                        \
        }                                                                                                    \
    }
#define ATOMICS(name, type, expression)                                                                      \
    ATOMIC(name, type, 0, 1, false, expression) ATOMIC(name##_rtn, type, 1, 2, true, expression)
ATOMICS(add, uint32_t, old + x)
ATOMICS(sub, uint32_t, old - x)
ATOMICS(or, uint32_t, old | x)
ATOMICS(and, uint32_t, old &x)
ATOMICS(xor, uint32_t, old ^ x)
ATOMICS(min_u, uint32_t, old < x ? old : x)
ATOMICS(max_u, uint32_t, old > x ? old : x)
ATOMICS(min_i, int32_t, old < x ? old : x)
ATOMICS(max_i, int32_t, old > x ? old : x)
ATOMICS(add_f, float, old + x)

#define A(name, run, suffix)                                                                                 \
    {"ds_" name "_" suffix, "aa", run, E_SCALAR | E_STORE, 0},                                               \
    {                                                                                                        \
        "ds_" name "_rtn_" suffix, "aaa", run##_rtn, E_SCALAR, 0                                             \
    }
static const struct entry entries[] = {
    {"ds_bpermute_b32", "aaa", bpermute, E_SCALAR, 0},
    {"ds_permute_b32", "aaa", permute, E_SCALAR, 0},
    {"ds_swizzle_b32", "aa", swizzle, E_SCALAR, 0},
    A("add", add, "u32"),
    A("sub", sub, "u32"),
    A("or", or, "b32"),
    A("and", and, "b32"),
    A("xor", xor, "b32"),
    A("min", min_u, "u32"),
    A("max", max_u, "u32"),
    A("min", min_i, "i32"),
    A("max", max_i, "i32"),
    A("add", add_f, "f32"),
};

const struct entry_list EMU_NAME(lds2) = {entries, sizeof entries / sizeof *entries};
