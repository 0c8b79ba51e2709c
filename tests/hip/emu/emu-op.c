/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* From an instruction's text to what runs: operands resolved to places and constants. */
#include <stdio.h>
#include <stdlib.h>

#include "emu-half.h"
#include "emu-image.h"
#include "emu-text.h"

static bool is_half(char type)
{
    return type == 'h' || type == 'w';
}

static uint64_t constant(const struct text_operand *t, char type)
{
    uint64_t d;
    if (t->kind == TEXT_REAL) {
        memcpy(&d, &t->real, 8);
        if (is_half(type) || type == 'p')
            return f16_of_f64(t->real);
        uint32_t f = bits_of_f32((float)t->real);
        return type == 'd' || type == 'q' ? d : type == 'g' ? f | (uint64_t)f << 32 : f;
    }
    uint64_t x = t->integer;
    bool is_inline = (int64_t)x >= -16 && (int64_t)x <= 64;
    switch (type) {
    case 'd':
        return is_inline || x >> 32 != 0 ? x : x << 32;
    case 'q':
    case 'm':
        return x;
    case 'g':
        return (uint32_t)x | x << 32;
    case 'h':
    case 'w':
        return x & 0xffff;
    default:
        return (uint32_t)x;
    }
}

/* Sources that are null read as 0. */
static bool build_operand(struct emu_kernel *k, const struct text_operand *t, char type, bool source,
                          struct operand *to)
{
    *to = (struct operand){.type = type, .words = t->words};
    to->mods = (uint8_t)((t->neg ? MOD_NEG : 0) | (t->abs ? MOD_ABS : 0) | (t->sext ? MOD_SEXT : 0));
    switch (t->kind) {
    case TEXT_OFF:
        return true;
    case TEXT_VGPR:
        to->kind = AT_VGPR;
        to->index = t->index;
        to->offset = (uint64_t)t->index * EMU_ROW;
        if (source && is_half(type) && t->half == 1) {
            to->mods |= MOD_SELECT;
            to->select = 5;
        }
        to->plain = to->mods == 0;
        return true;
    case TEXT_SGPR:
        to->kind = AT_SGPR;
        to->index = t->index;
        if (!source || t->index != S_SINK)
            return true;
        to->kind = AT_CONST;
        to->index = 0;
        break;
    case TEXT_INTEGER:
    case TEXT_REAL:
        to->kind = AT_CONST;
        to->value = constant(t, type);
        break;
    default:
        return type == '.';
    }
    if (to->mods == 0 && type != '.' && type != 'm') {
        to->lanes = pool_lanes(k, to->value);
        to->plain = to->lanes != NULL;
        return to->plain;
    }
    return true;
}

static bool select_sdwa(const struct text *t, struct op *o, unsigned first)
{
    const uint8_t selects[2] = {t->src0_sel, t->src1_sel};
    for (unsigned i = 0; i < 2 && first + i < o->count; i++) {
        struct operand *s = &o->at[first + i];
        if (s->type == 'm')
            break;
        if (selects[i] != 6 && !(is_half(s->type) && selects[i] == 4 && s->mods == 0)) {
            s->mods |= MOD_SELECT;
            s->select = selects[i];
            s->plain = false;
        }
        s->plain = s->plain && (s->mods & MOD_SEXT) == 0;
    }
    o->dst_select = t->dst_sel;
    o->dst_preserve = t->preserve;
    return true;
}

/* Which half of a 16-bit result is written, and whether the other one stays. */
static void select_half(const struct emu_kernel *k, const struct text *t, const struct entry *e, struct op *o,
                        unsigned first)
{
    unsigned sources = o->count - first;
    for (unsigned i = 0; i < sources; i++) {
        struct operand *s = &o->at[first + i];
        if (is_half(s->type) && (t->op_sel >> i & 1) && s->kind != AT_CONST) {
            s->mods |= MOD_SELECT;
            s->select = 5;
            s->plain = false;
        }
    }
    if (!is_half(o->at[0].type))
        return;
    bool zeroes = (e->flags & E_HALF) && k->image->number < 0x1000;
    bool high = t->at[0].half == 1 || (t->at[0].half < 0 && (t->op_sel >> sources & 1));
    o->dst_select = high ? 5 : 4;
    o->dst_preserve = high || !zeroes;
}

static bool build_dpp(const struct text *t, struct op *o, unsigned first)
{
    o->dpp = t->dpp.control;
    o->dpp8 = t->dpp.lanes8;
    o->row_mask = t->dpp.row_mask;
    o->bank_mask = t->dpp.bank_mask;
    o->bound_ctrl = t->dpp.bound_ctrl;
    o->fetch_inactive = t->dpp.fetch_inactive;
    struct operand *s = &o->at[first];
    if (s->kind != AT_VGPR)
        return false;
    o->from = *s;
    o->from.mods = 0;
    o->from.plain = true;
    s->kind = AT_SPARE;
    s->plain = false;
    o->inner = o->run;
    o->run = wrapper_dpp();
    return true;
}

static bool registers_exist(const struct emu_kernel *k, const struct op *o)
{
    uint32_t vgprs = k->properties.vgprs < 256 ? k->properties.vgprs : 256;
    for (unsigned i = 0; i < o->count; i++) {
        const struct operand *s = &o->at[i];
        uint32_t words = s->words > 1 ? s->words : s->type == 'd' || s->type == 'q' || s->type == 'g' ? 2 : 1;
        uint32_t end = s->index + words;
        if (s->kind == AT_VGPR && (s->index < 256 ? end > vgprs : end - 256 > k->properties.agprs))
            return false;
    }
    return true;
}

static bool writes_exec(const struct op *o, const struct entry *e)
{
    return o->count > 0 && !(e->flags & E_STORE) && o->at[0].kind == AT_SGPR &&
           (o->at[0].index == S_EXEC || o->at[0].index == S_EXEC + 1);
}

static bool build(struct emu_kernel *k, struct text *t, const struct entry *e, struct op *o)
{
    size_t types = strlen(e->types);
    if ((e->flags & E_VCC) && t->count + 1u == types)
        t->at[t->count++] = (struct text_operand){.kind = TEXT_SGPR, .index = S_VCC, .words = 2, .half = -1};
    if (strncmp(t->name, "v_cmpx_", 7) == 0 && t->count + 1u == types) {
        memmove(t->at + 1, t->at, t->count * sizeof *t->at);
        t->at[0] = (struct text_operand){.kind = TEXT_SGPR, .index = S_EXEC, .words = 2, .half = -1};
        t->count++;
    }
    if (t->count != types || types > OP_OPERANDS || t->unknown != NULL)
        return false;
    o->count = t->count;
    bool carry = types > 1 && e->types[1] == 'm' && e->types[0] != 'm';
    unsigned first = e->flags & E_STORE ? 0 : carry ? 2 : 1;
    for (unsigned i = 0; i < t->count; i++)
        if (!build_operand(k, &t->at[i], e->types[i], i >= first, &o->at[i]))
            return false;
    o->offset = t->offset;
    o->offset1 = t->offset1;
    o->op_sel = t->op_sel;
    o->op_sel_hi = t->op_sel_hi_set ? t->op_sel_hi : (e->flags & E_MIX) ? 0 : 7;
    o->neg_lo = t->neg_lo;
    o->neg_hi = t->neg_hi;
    o->byte_sel = t->byte_sel;
    o->clamp = t->clamp;
    o->omod = t->omod;
    o->returns = t->returns;
    o->offen = t->offen;
    o->size = e->size;
    o->dst_select = 6;
    o->run = e->run;
    if (!(e->flags & E_PACKED) && !(e->flags & E_SCALAR))
        select_half(k, t, e, o, first);
    if (t->sdwa && !select_sdwa(t, o, first))
        return false;
    char to = o->count > 0 ? o->at[0].type : '.';
    bool real = to == 'f' || to == 'h' || to == 'd' || to == 'g' || to == 'p';
    if ((o->clamp || o->omod) && !real && !(e->flags & E_CLAMP))
        return false;
    o->dst_plain = o->count > 0 && o->at[0].kind == AT_VGPR && o->dst_select == 6 && !o->clamp && !o->omod;
    if (o->count > 0 && strchr("fhduqwgp", to) != NULL && !(e->flags & (E_SCALAR | E_STORE)) &&
        o->at[0].kind != AT_VGPR)
        return false;
    if (t->dpp.set && !build_dpp(t, o, first))
        return false;
    if (writes_exec(o, e)) {
        if (o->inner != NULL)
            return false;
        o->inner = o->run;
        o->run = run_exec;
    }
    return registers_exist(k, o);
}

/* Atomics of memory have an operand more where they return what was there. */
static bool returns(const struct text *t)
{
    return (strncmp(t->name, "global_atomic", 13) == 0 && t->count == 4) ||
           (strncmp(t->name, "flat_atomic", 11) == 0 && t->count == 3);
}

void op_build(struct emu_kernel *k, const char *text, size_t size, struct op *o)
{
    struct text t;
    const struct entry *e = NULL;
    o->run = run_unmodelled;
    if (text_read(text, size, &t)) {
        char name[80];
        snprintf(name, sizeof name, "%s%s", name_common(t.name), returns(&t) ? "_rtn" : "");
        e = entry_find(name);
    }
    if (e == NULL)
        return;
    if (strcmp(e->types, "*") == 0) {
        o->run = e->run;
        return;
    }
    if (!build(k, &t, e, o)) {
        o->run = run_unmodelled;
        o->inner = NULL;
    }
}
