/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads and stores of LDS. */
#include "emu-lds.h"

#define EACH_LANE(i)                                                                                         \
    for (uint64_t m_##i = wave_exec(w); m_##i != 0; m_##i &= m_##i - 1)                                      \
        for (uint32_t i = (uint32_t)__builtin_ctzll(m_##i), once_##i = 1; once_##i; once_##i = 0)

/* Results go to the registers after all lanes have read: the address may be in one of them. */
#define LOAD(words)                                                                                          \
    static void load##words(struct wave *w, const struct op *o)                                              \
    {                                                                                                        \
        uint32_t x[EMU_ROW][words];                                                                          \
        const uint32_t *at = w->v + o->at[1].offset;                                                         \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            uint32_t from = at[i] + (uint32_t)o->offset;                                                     \
            if (!lds_access(w, from, 4 * (words), false))                                                    \
                return;                                                                                      \
            memcpy(x[i], w->group->lds + from, 4 * (words));                                                 \
        }                                                                                                    \
        uint32_t *to = w->v + o->at[0].offset;                                                               \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            for (uint32_t k = 0; k < (words); k++)                                                           \
                to[k * EMU_ROW + i] = x[i][k];                                                               \
        }                                                                                                    \
    }
LOAD(1)
LOAD(2)
LOAD(3)
LOAD(4)

#define STORE(words)                                                                                         \
    static void store##words(struct wave *w, const struct op *o)                                             \
    {                                                                                                        \
        const uint32_t *at = w->v + o->at[0].offset, *from = w->v + o->at[1].offset;                         \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            uint32_t to = at[i] + (uint32_t)o->offset, x[words];                                             \
            for (uint32_t k = 0; k < (words); k++)                                                           \
                x[k] = from[k * EMU_ROW + i];                                                                \
            if (!lds_write(w, to, 4 * (words), x))                                                           \
                return;                                                                                      \
            memcpy(w->group->lds + to, x, sizeof x);                                                         \
        }                                                                                                    \
    }
STORE(1)
STORE(2)
STORE(3)
STORE(4)

/* Two of `words` words each, at offsets counted in units of `unit` bytes. */
#define LOAD_TWO(name, words, unit)                                                                          \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t x[EMU_ROW][2 * (words)];                                                                    \
        const uint32_t *at = w->v + o->at[1].offset;                                                         \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            uint32_t one = at[i] + (uint32_t)o->offset * (unit),                                             \
                     two = at[i] + (uint32_t)o->offset1 * (unit);                                            \
            if (!lds_access(w, one, 4 * (words), false) || !lds_access(w, two, 4 * (words), false))          \
                return;                                                                                      \
            memcpy(x[i], w->group->lds + one, 4 * (words));                                                  \
            memcpy(x[i] + (words), w->group->lds + two, 4 * (words));                                        \
        }                                                                                                    \
        uint32_t *to = w->v + o->at[0].offset;                                                               \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            for (uint32_t k = 0; k < 2 * (words); k++)                                                       \
                to[k * EMU_ROW + i] = x[i][k];                                                               \
        }                                                                                                    \
    }
LOAD_TWO(load_two1, 1, 4)
LOAD_TWO(load_two2, 2, 8)
LOAD_TWO(load_two1_far, 1, 256)
LOAD_TWO(load_two2_far, 2, 512)

#define STORE_TWO(name, words, unit)                                                                         \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        const uint32_t *at = w->v + o->at[0].offset, *a = w->v + o->at[1].offset,                            \
                       *b = w->v + o->at[2].offset;                                                          \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            uint32_t one = at[i] + (uint32_t)o->offset * (unit),                                             \
                     two = at[i] + (uint32_t)o->offset1 * (unit);                                            \
            if (!lds_access(w, one, 4 * (words), true) || !lds_access(w, two, 4 * (words), true))            \
                return;                                                                                      \
            for (uint32_t k = 0; k < (words); k++) {                                                         \
                memcpy(w->group->lds + one + 4 * k, &a[k * EMU_ROW + i], 4);                                 \
                memcpy(w->group->lds + two + 4 * k, &b[k * EMU_ROW + i], 4);                                 \
            }                                                                                                \
        }                                                                                                    \
    }
STORE_TWO(store_two1, 1, 4)
STORE_TWO(store_two2, 2, 8)
STORE_TWO(store_two1_far, 1, 256)
STORE_TWO(store_two2_far, 2, 512)

#define LOAD_PART(name, part, place)                                                                         \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        const uint32_t *at = w->v + o->at[1].offset;                                                         \
        uint32_t *to = w->v + o->at[0].offset;                                                               \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            uint32_t from = at[i] + (uint32_t)o->offset, old = to[i];                                        \
            part read;                                                                                       \
            if (!lds_access(w, from, sizeof read, false))                                                    \
                return;                                                                                      \
            memcpy(&read, w->group->lds + from, sizeof read);                                                \
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

#define STORE_PART(name, part, shift)                                                                        \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        const uint32_t *at = w->v + o->at[0].offset, *from = w->v + o->at[1].offset;                         \
        EACH_LANE(i)                                                                                         \
        {                                                                                                    \
            uint32_t to = at[i] + (uint32_t)o->offset;                                                       \
            part x = (part)(from[i] >> (shift));                                                             \
            if (!lds_access(w, to, sizeof x, true))                                                          \
                return;                                                                                      \
            memcpy(w->group->lds + to, &x, sizeof x);                                                        \
        }                                                                                                    \
    }
STORE_PART(store_b8, uint8_t, 0)
STORE_PART(store_b16, uint16_t, 0)
STORE_PART(store_high8, uint8_t, 16)
STORE_PART(store_high16, uint16_t, 16)

#define L(name, run)                                                                                         \
    {                                                                                                        \
        "ds_load_" name, "aa", run, E_SCALAR, 0                                                              \
    }
#define S(name, run)                                                                                         \
    {                                                                                                        \
        "ds_store_" name, "aa", run, E_SCALAR | E_STORE, 0                                                   \
    }
#define T(name, run)                                                                                         \
    {                                                                                                        \
        "ds_store_" name, "aaa", run, E_SCALAR | E_STORE, 0                                                  \
    }
static const struct entry entries[] = {
    L("b32", load1),
    L("b64", load2),
    L("b96", load3),
    L("b128", load4),
    L("2addr_b32", load_two1),
    L("2addr_b64", load_two2),
    L("2addr_stride64_b32", load_two1_far),
    L("2addr_stride64_b64", load_two2_far),
    L("u8", load_u8),
    L("i8", load_i8),
    L("u16", load_u16),
    L("i16", load_i16),
    L("u16_d16", load_low16),
    L("u16_d16_hi", load_high16),
    L("u8_d16", load_low8),
    L("u8_d16_hi", load_high8),
    S("b32", store1),
    S("b64", store2),
    S("b96", store3),
    S("b128", store4),
    S("b8", store_b8),
    S("b16", store_b16),
    S("b8_d16_hi", store_high8),
    S("b16_d16_hi", store_high16),
    T("2addr_b32", store_two1),
    T("2addr_b64", store_two2),
    T("2addr_stride64_b32", store_two1_far),
    T("2addr_stride64_b64", store_two2_far),
};

const struct entry_list EMU_NAME(lds) = {entries, sizeof entries / sizeof *entries};
