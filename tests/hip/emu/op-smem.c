/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Scalar loads. */
#include "emu-wave.h"

static uint64_t address_of(struct wave *w, const struct op *o)
{
    const struct operand *by = &o->at[2];
    uint64_t at = scalar64(w, &o->at[1]) + (uint64_t)(int64_t)o->offset;
    if (by->kind == AT_SGPR)
        return at + w->s[by->index];
    return at + (uint64_t)(int64_t)(int32_t)by->value;
}

static void load(struct wave *w, const struct op *o)
{
    uint64_t at = address_of(w, o) & ~3ull;
    if (emu_access(w, at, o->size * 4u, false))
        memcpy(&w->s[o->at[0].index], (const void *)(uintptr_t)at, o->size * 4u);
}

static void load_u8(struct wave *w, const struct op *o)
{
    uint64_t at = address_of(w, o);
    if (emu_access(w, at, 1, false))
        w->s[o->at[0].index] = *(const uint8_t *)(uintptr_t)at;
}

static void load_i8(struct wave *w, const struct op *o)
{
    uint64_t at = address_of(w, o);
    if (emu_access(w, at, 1, false))
        w->s[o->at[0].index] = (uint32_t)(int32_t) * (const int8_t *)(uintptr_t)at;
}

static void load_u16(struct wave *w, const struct op *o)
{
    uint16_t x;
    uint64_t at = address_of(w, o) & ~1ull;
    if (emu_access(w, at, 2, false)) {
        memcpy(&x, (const void *)(uintptr_t)at, 2);
        w->s[o->at[0].index] = x;
    }
}

static void load_i16(struct wave *w, const struct op *o)
{
    load_u16(w, o);
    w->s[o->at[0].index] = (uint32_t)(int32_t)(int16_t)w->s[o->at[0].index];
}

static void nothing(struct wave *w, const struct op *o)
{
    (void)w;
    (void)o;
}

static const struct entry entries[] = {
    {"s_load_b32", "aqa", load, E_SCALAR, 1},     {"s_load_b64", "aqa", load, E_SCALAR, 2},
    {"s_load_b96", "aqa", load, E_SCALAR, 3},     {"s_load_b128", "aqa", load, E_SCALAR, 4},
    {"s_load_b256", "aqa", load, E_SCALAR, 8},    {"s_load_b512", "aqa", load, E_SCALAR, 16},
    {"s_load_u8", "aqa", load_u8, E_SCALAR, 1},   {"s_load_i8", "aqa", load_i8, E_SCALAR, 1},
    {"s_load_u16", "aqa", load_u16, E_SCALAR, 2}, {"s_load_i16", "aqa", load_i16, E_SCALAR, 2},
    {"s_prefetch_data", "*", nothing, 0, 0},
};

const struct entry_list EMU_NAME(smem) = {entries, sizeof entries / sizeof *entries};
