/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Sources and results that need work: scalars, signs, parts of registers, lanes that EXEC leaves out, DPP. */
#include "emu-half.h"
#include "emu-wave.h"

static void copy_lanes(struct wave *w, const struct operand *s, uint32_t *tmp, bool two)
{
    if (s->kind == AT_VGPR || s->kind == AT_SPARE) {
        const uint32_t *from = s->kind == AT_VGPR ? w->v + s->offset : w->spare;
        LANES(i) tmp[i] = from[i];
        if (two)
            LANES(i) tmp[EMU_ROW + i] = from[EMU_ROW + i];
        return;
    }
    uint64_t x = s->kind == AT_CONST ? s->value : two && s->type != 'g' ? scalar64(w, s) : w->s[s->index];
    if (s->kind == AT_SGPR && s->type == 'g')
        x = scalar64(w, s);
    LANES(i) tmp[i] = (uint32_t)x;
    if (two)
        LANES(i) tmp[EMU_ROW + i] = (uint32_t)(x >> 32);
}

static void select_part(struct wave *w, const struct operand *s, uint32_t *tmp)
{
    uint32_t shift = s->select < 4 ? 8u * s->select : 16u * (s->select - 4u);
    uint32_t bits = s->select < 4 ? 8 : 16;
    if (s->select >= 6) {
        bits = 32;
        shift = 0;
    }
    uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1, sign = 1u << (bits - 1);
    if (s->mods & MOD_SEXT)
        LANES(i) tmp[i] = ((tmp[i] >> shift & mask) ^ sign) - sign;
    else
        LANES(i) tmp[i] = tmp[i] >> shift & mask;
}

const uint32_t *EMU_NAME(emu_src_slow)(struct wave *w, const struct operand *s, uint32_t *tmp)
{
    bool two = s->type == 'd' || s->type == 'q' || s->type == 'g';
    copy_lanes(w, s, tmp, two);
    if (s->mods & (MOD_SELECT | MOD_SEXT))
        select_part(w, s, tmp);
    if ((s->mods & (MOD_NEG | MOD_ABS)) == 0)
        return tmp;
    uint32_t sign = s->type == 'h' ? 0x8000 : 0x80000000;
    uint32_t keep = s->mods & MOD_ABS ? ~sign : ~0u, flip = s->mods & MOD_NEG ? sign : 0;
    uint32_t *at = s->type == 'd' ? tmp + EMU_ROW : tmp;
    LANES(i) at[i] = (at[i] & keep) ^ flip;
    return tmp;
}

static void modify_f32(struct wave *w, const struct op *o, uint32_t *d)
{
    float by = o->omod == 1 ? 2 : o->omod == 2 ? 4 : o->omod == 3 ? 0.5f : 1;
    LANES(i) d[i] = bits_of_f32(f32_of_bits(d[i]) * (by));
    if (o->clamp)
        LANES(i)
    d[i] = bits_of_f32(f32_of_bits(d[i]) > 0 ? f32_of_bits(d[i]) < 1 ? f32_of_bits(d[i]) : 1 : 0);
}

static void modify_f16(struct wave *w, const struct op *o, uint32_t *d)
{
    float by = o->omod == 1 ? 2 : o->omod == 2 ? 4 : o->omod == 3 ? 0.5f : 1;
    LANES(i)
    {
        float f = f32_of_f16(d[i] & 0xffff) * by;
        f = o->clamp ? f > 0 ? f < 1 ? f : 1 : 0 : f;
        d[i] = f16_of_f32(f);
    }
}

static void modify_f64(struct wave *w, const struct op *o, uint32_t *d)
{
    double by = o->omod == 1 ? 2 : o->omod == 2 ? 4 : o->omod == 3 ? 0.5 : 1;
    LANES(i)
    {
        double f = f64_of_lanes(d, i) * by;
        f = o->clamp ? f > 0 ? f < 1 ? f : 1 : 0 : f;
        lanes_put_f64(d, i, f);
    }
}

static void place_part(struct wave *w, const struct op *o, uint32_t *d, const uint32_t *old)
{
    uint32_t shift = o->dst_select < 4 ? 8u * o->dst_select : 16u * (o->dst_select - 4u);
    uint32_t mask = (o->dst_select < 4 ? 0xffu : 0xffffu) << shift;
    uint32_t keep = o->dst_preserve ? ~mask : 0;
    LANES(i) d[i] = (old[i] & keep) | (d[i] << shift & mask);
}

static void know_mask(struct wave *w)
{
    uint32_t low = w->s[S_EXEC], high = w->s[S_EXEC + 1];
    for (uint32_t i = 0; i < 32; i++)
        w->mask[i] = 0u - (low >> i & 1);
    for (uint32_t i = 0; i < 32; i++)
        w->mask[32 + i] = 0u - (high >> i & 1);
    w->mask_known = true;
}

void EMU_NAME(emu_done_slow)(struct wave *w, const struct op *o, uint32_t *d, uint32_t words)
{
    uint32_t *to = w->v + o->at[0].offset;
    if (!o->dst_plain) {
        if (o->clamp || o->omod) {
            if (o->at[0].type == 'f')
                modify_f32(w, o, d);
            else if (o->at[0].type == 'h')
                modify_f16(w, o, d);
            else if (o->at[0].type == 'd')
                modify_f64(w, o, d);
        }
        if (o->dst_select != 6)
            place_part(w, o, d, to);
    }
    if (w->full) {
        for (uint32_t k = 0; k < words; k++, to += EMU_ROW, d += EMU_ROW)
            LANES(i) to[i] = d[i];
        return;
    }
    if (!w->mask_known)
        know_mask(w);
    for (uint32_t k = 0; k < words; k++, to += EMU_ROW, d += EMU_ROW)
        LANES(i) to[i] = (d[i] & w->mask[i]) | (to[i] & ~w->mask[i]);
}

/* The lane that DPP reads for lane l; -1 where that is outside of its row. */
static int dpp_lane(const struct op *o, int l, int lanes)
{
    int row = l & ~15, p = l & 15, n = o->dpp & 15;
    if (o->dpp >= 0x200)
        return (l & ~7) + (int)(o->dpp8 >> (3 * (l & 7)) & 7);
    if (o->dpp < 0x100)
        return (l & ~3) + (o->dpp >> (2 * (l & 3)) & 3);
    switch (o->dpp & 0x1f0) {
    case 0x100:
        return p + n < 16 ? l + n : -1;
    case 0x110:
        return p >= n ? l - n : -1;
    case 0x120:
        return row + ((p - n) & 15);
    case 0x150:
        return row + n;
    case 0x160:
        return row + (p ^ n);
    default:
        break;
    }
    if (o->dpp == 0x140)
        return row + 15 - p;
    if (o->dpp == 0x141)
        return (l & ~7) + 7 - (l & 7);
    if (o->dpp == 0x142) /* row_bcast:15: the last lane of the row before */
        return row >= 16 ? row - 1 : -1;
    if (o->dpp == 0x143) /* row_bcast:31 */
        return l >= 32 ? 31 : -1;
    return lanes;
}

static void run_dpp(struct wave *w, const struct op *o)
{
    uint64_t exec = wave_exec(w), write = 0;
    const uint32_t *from = w->v + o->from.offset;
    int lanes = (int)w->lanes;
    for (int l = 0; l < lanes; l++) {
        int q = dpp_lane(o, l, lanes);
        if (q == lanes) {
            emu_fail(w, EMU_UNMODELLED, "DPP control %#x is not modelled", o->dpp);
            return;
        }
        bool valid = q >= 0 && (o->fetch_inactive || (exec >> q & 1));
        bool wanted = (o->row_mask >> (l / 16 & 3) & 1) && (o->bank_mask >> (l / 4 & 3) & 1);
        w->spare[l] = valid ? from[q] : 0;
        if (wanted && (valid || o->bound_ctrl || o->dpp >= 0x200))
            write |= 1ull << l;
    }
    if ((write & exec) == exec) {
        o->inner(w, o);
        return;
    }
    exec_set(w, exec & write);
    o->inner(w, o);
    exec_set(w, exec);
}

extern const op_fn EMU_NAME(run_dpp);
const op_fn EMU_NAME(run_dpp) = run_dpp;
