/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The shapes of instructions that do the same to every lane: a, b and c are its operands. */
#ifndef EMU_VECTOR_H
#define EMU_VECTOR_H

#include "emu-half.h"
#include "emu-wave.h"

#define VECTOR1(name, member, expression)                                                                    \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[EMU_ROW];                                                                                \
        const uint32_t *pa = src(w, &o->at[1], ta);                                                          \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            union lane a = {.u = pa[i]};                                                                     \
            union lane r = {.member = (expression)};                                                         \
            d[i] = r.u;                                                                                      \
        }                                                                                                    \
        done(w, o, d, 1);                                                                                    \
    }
#define VECTOR2(name, member, expression)                                                                    \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[EMU_ROW], tb[EMU_ROW];                                                                   \
        const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);                             \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            union lane a = {.u = pa[i]}, b = {.u = pb[i]};                                                   \
            union lane r = {.member = (expression)};                                                         \
            d[i] = r.u;                                                                                      \
        }                                                                                                    \
        done(w, o, d, 1);                                                                                    \
    }
#define VECTOR3(name, member, expression)                                                                    \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[EMU_ROW], tb[EMU_ROW], tc[EMU_ROW];                                                      \
        const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);                             \
        const uint32_t *pc = src(w, &o->at[3], tc);                                                          \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            union lane a = {.u = pa[i]}, b = {.u = pb[i]}, c = {.u = pc[i]};                                 \
            union lane r = {.member = (expression)};                                                         \
            d[i] = r.u;                                                                                      \
        }                                                                                                    \
        done(w, o, d, 1);                                                                                    \
    }
/* c is what the destination held. */
#define VECTOR2_ON(name, member, expression)                                                                 \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[EMU_ROW], tb[EMU_ROW];                                                                   \
        const uint32_t *pa = src(w, &o->at[1], ta), *pb = src(w, &o->at[2], tb);                             \
        const uint32_t *pc = w->v + o->at[0].offset;                                                         \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            union lane a = {.u = pa[i]}, b = {.u = pb[i]}, c = {.u = pc[i]};                                 \
            union lane r = {.member = (expression)};                                                         \
            d[i] = r.u;                                                                                      \
        }                                                                                                    \
        done(w, o, d, 1);                                                                                    \
    }

/* a, b and c as doubles, a double result. */
#define VECTOR1_F64(name, expression)                                                                        \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[2 * EMU_ROW];                                                                            \
        const uint32_t *pa = src(w, &o->at[1], ta);                                                          \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            double a = f64_of_lanes(pa, i);                                                                  \
            lanes_put_f64(d, i, (expression));                                                               \
        }                                                                                                    \
        done(w, o, d, 2);                                                                                    \
    }
#define VECTOR2_F64(name, expression)                                                                        \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[2 * EMU_ROW], tb[2 * EMU_ROW];                                                           \
        const uint32_t *pa = src(w, &o->at[1], ta);                                                          \
        const uint32_t *pb = src(w, &o->at[2], tb);                                                          \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            double a = f64_of_lanes(pa, i), b = f64_of_lanes(pb, i);                                         \
            lanes_put_f64(d, i, (expression));                                                               \
        }                                                                                                    \
        done(w, o, d, 2);                                                                                    \
    }
#define VECTOR3_F64(name, expression)                                                                        \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint32_t ta[2 * EMU_ROW], tb[2 * EMU_ROW], tc[2 * EMU_ROW];                                          \
        const uint32_t *pa = src(w, &o->at[1], ta);                                                          \
        const uint32_t *pb = src(w, &o->at[2], tb);                                                          \
        const uint32_t *pc = o->count > 3 ? src(w, &o->at[3], tc) : w->v + o->at[0].offset;                  \
        uint32_t *d = dst(w, o);                                                                             \
        LANES(i)                                                                                             \
        {                                                                                                    \
            double a = f64_of_lanes(pa, i), b = f64_of_lanes(pb, i), c = f64_of_lanes(pc, i);                \
            lanes_put_f64(d, i, (expression));                                                               \
        }                                                                                                    \
        done(w, o, d, 2);                                                                                    \
    }

/* The mask of lanes that an operand holds, or a constant's. */
static inline uint64_t mask_of(const struct wave *w, const struct operand *s)
{
    return s->kind == AT_SGPR ? wave_mask(w, s->index) : s->value;
}

/* A bit for each lane whose word is not 0. */
static inline uint64_t mask_of_lanes(const struct wave *w, const uint8_t flags[EMU_ROW])
{
    uint64_t mask = 0;
    for (uint32_t i = 0; i < w->lanes; i += 8) {
        uint64_t eight;
        memcpy(&eight, flags + i, 8);
        mask |= (eight * 0x0102040810204080ull >> 56) << i;
    }
    return mask & wave_exec(w);
}

#endif
