/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Vector arithmetic on integers of 64 bits, carries, and selections by masks. */
#include "emu-vector.h"

#define WIDE1(name, expression)                                                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[2 * EMU_ROW];                                                                            \
        const uint32_t *pa = src(w, &o->at[1], ta);                                                          \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            uint64_t a = u64_of_lanes(pa, i);                                                                \
            lanes_put_u64(d, i, (expression));                                                               \
        }                                                                                                    \
        done(w, o, d, 2);                                                                                    \
    }
#define WIDE_SHIFT(name, expression)                                                                         \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[EMU_ROW], tb[2 * EMU_ROW];                                                               \
        const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);                             \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            uint32_t a = pa[i] & 63;                                                                         \
            uint64_t b = u64_of_lanes(pb, i);                                                                \
            lanes_put_u64(d, i, (uint64_t)(expression));                                                     \
        }                                                                                                    \
        done(w, o, d, 2);                                                                                    \
    }
WIDE1(v_mov64, a)
WIDE_SHIFT(v_lshlrev64, b << a)
WIDE_SHIFT(v_lshrrev64, b >> a)
WIDE_SHIFT(v_ashrrev64, (int64_t)b >> a)

static void v_lshl_add64(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW], tb[EMU_ROW], tc[2 * EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb), *pc = src(w, &o->at[3], tc);
    uint32_t *d = dst(w, o);
    LANES(i) lanes_put_u64(d, i, (u64_of_lanes(pa, i) << (pb[i] & 7)) + u64_of_lanes(pc, i));
    done(w, o, d, 2);
}

static void v_add_sub64(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW], tb[2 * EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    uint32_t *d = dst(w, o);
    uint64_t flip = o->size == 1 ? ~0ull : 0;
    LANES(i) lanes_put_u64(d, i, u64_of_lanes(pa, i) + (u64_of_lanes(pb, i) ^ flip) - flip);
    done(w, o, d, 2);
}

/* Product of 32 bits each and a sum of 64, with the carry out where it is asked for. */
static void v_mad_u64(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[2 * EMU_ROW];
    uint8_t carry[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[2], ta), *pb = src(w, &o->at[3], tb), *pc = src(w, &o->at[4], tc);
    uint32_t *d = dst(w, o);
    LANES(i)
    {
        uint64_t c = u64_of_lanes(pc, i), x = (uint64_t)pa[i] * pb[i] + c;
        carry[i] = x < c;
        lanes_put_u64(d, i, x);
    }
    done(w, o, d, 2);
    wave_mask_set(w, o->at[1].index, mask_of_lanes(w, carry));
}

static void v_mad_i64(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[2 * EMU_ROW];
    uint8_t carry[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[2], ta), *pb = src(w, &o->at[3], tb), *pc = src(w, &o->at[4], tc);
    uint32_t *d = dst(w, o);
    LANES(i)
    {
        int64_t p = (int64_t)(int32_t)pa[i] * (int32_t)pb[i];
        uint64_t c = u64_of_lanes(pc, i), x = (uint64_t)p + c;
        carry[i] = (uint8_t)((~((uint64_t)p ^ c) & (c ^ x)) >> 63);
        lanes_put_u64(d, i, x);
    }
    done(w, o, d, 2);
    wave_mask_set(w, o->at[1].index, mask_of_lanes(w, carry));
}

/* d, carry out, a, b, carry in. */
#define CARRY(name, expression, in)                                                                          \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[EMU_ROW], tb[EMU_ROW];                                                                   \
        uint8_t carry[EMU_ROW];                                                                              \
        const uint32_t *pa = src(w, &o->at[2], ta), *pb = src(w, &o->at[3], tb);                             \
        uint64_t m = (in) ? mask_of(w, &o->at[4]) : 0;                                                       \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            uint64_t a = pa[i], b = pb[i], c = m >> i & 1, x = (expression);                                 \
            (void)c;                                                                                         \
            d[i] = (uint32_t)x;                                                                              \
            carry[i] = x >> 32 & 1;                                                                          \
        }                                                                                                    \
        done(w, o, d, 1);                                                                                    \
        wave_mask_set(w, o->at[1].index, mask_of_lanes(w, carry));                                           \
    }
CARRY(v_add_co, a + b, false)
CARRY(v_sub_co, a - b, false)
CARRY(v_subrev_co, b - a, false)
CARRY(v_addc_co, a + b + c, true)
CARRY(v_subb_co, a - b - c, true)
CARRY(v_subbrev_co, b - a - c, true)

static void v_cndmask(struct wave *w, const struct op *o)
{
    uint32_t ta[EMU_ROW], tb[EMU_ROW], picks[EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    uint64_t m = mask_of(w, &o->at[3]);
    uint32_t low = (uint32_t)m, high = (uint32_t)(m >> 32);
    for (uint32_t i = 0; i < 32; i++)
        picks[i] = 0u - (low >> i & 1);
    for (uint32_t i = 0; i < 32; i++)
        picks[32 + i] = 0u - (high >> i & 1);
    uint32_t *d = dst(w, o);
    LANES(i) d[i] = (pb[i] & picks[i]) | (pa[i] & ~picks[i]);
    done(w, o, d, 1);
}

/* op_sel tells the word of each source: lane's words are (a's, b's). */
static void v_pk_mov(struct wave *w, const struct op *o)
{
    uint32_t ta[2 * EMU_ROW], tb[2 * EMU_ROW];
    const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);
    uint32_t *d = w->tmp;
    pa += o->op_sel & 1 ? EMU_ROW : 0;
    pb += o->op_sel & 2 ? EMU_ROW : 0;
    LANES(i)
    {
        d[i] = pa[i];
        d[EMU_ROW + i] = pb[i];
    }
    EMU_NAME(emu_done_slow)(w, o, d, 2);
}

static const struct entry entries[] = {
    {"v_mov_b64", "qq", v_mov64, 0, 0},
    {"v_lshlrev_b64", "quq", v_lshlrev64, 0, 0},
    {"v_lshrrev_b64", "quq", v_lshrrev64, 0, 0},
    {"v_ashrrev_i64", "quq", v_ashrrev64, 0, 0},
    {"v_lshl_add_u64", "qquq", v_lshl_add64, 0, 0},
    {"v_add_nc_u64", "qqq", v_add_sub64, 0, 0},
    {"v_sub_nc_u64", "qqq", v_add_sub64, 0, 1},
    {"v_mad_u64_u32", "qmuuq", v_mad_u64, 0, 0},
    {"v_mad_i64_i32", "qmuuq", v_mad_i64, 0, 0},
    {"v_add_co_u32", "umuu", v_add_co, 0, 0},
    {"v_sub_co_u32", "umuu", v_sub_co, 0, 0},
    {"v_subrev_co_u32", "umuu", v_subrev_co, 0, 0},
    {"v_addc_co_u32", "umuum", v_addc_co, 0, 0},
    {"v_subb_co_u32", "umuum", v_subb_co, 0, 0},
    {"v_subbrev_co_u32", "umuum", v_subbrev_co, 0, 0},
    {"v_cndmask_b32", "fffm", v_cndmask, E_VCC, 0},
    {"v_pk_mov_b32", "ggg", v_pk_mov, E_PACKED, 0},
};

const struct entry_list EMU_NAME(vint64) = {entries, sizeof entries / sizeof *entries};
