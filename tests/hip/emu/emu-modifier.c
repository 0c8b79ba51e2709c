/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The modifiers behind an instruction's operands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu-text.h"

/* What only caches and the wait counters see, and what may stand for itself. */
static const char *const ignored[] = {"glc", "slc", "dlc", "sc0", "sc1", "nt", "gds", "scc"};

static uint8_t bits_of(const char *list)
{
    uint8_t bits = 0;
    int at = 0;
    for (; *list != '\0'; list++) {
        if (*list == '1')
            bits = (uint8_t)(bits | 1 << at);
        at += *list == ',';
    }
    return bits;
}

static bool read_select(const char *value, uint8_t *out)
{
    if (strncmp(value, "BYTE_", 5) == 0)
        *out = (uint8_t)(value[5] - '0');
    else if (strncmp(value, "WORD_", 5) == 0)
        *out = (uint8_t)(4 + value[5] - '0');
    else
        *out = 6;
    return *out <= 6;
}

static bool read_swizzle(const char *s, struct text *out)
{
    unsigned mask[5], a, b;
    char pattern[6];
    out->swizzle = true;
    if (sscanf(s, "swizzle(SWAP,%u)", &a) == 1) {
        out->offset = (int32_t)(a << 10 | 31);
    } else if (sscanf(s, "swizzle(REVERSE,%u)", &a) == 1) {
        out->offset = (int32_t)((a - 1) << 10 | 31);
    } else if (sscanf(s, "swizzle(BROADCAST,%u,%u)", &a, &b) == 2) {
        out->offset = (int32_t)(b << 5 | (32 - a));
    } else if (sscanf(s, "swizzle(QUAD_PERM,%u,%u,%u,%u)", &mask[0], &mask[1], &mask[2], &mask[3]) == 4) {
        out->offset = (int32_t)(0x8000 | mask[0] | mask[1] << 2 | mask[2] << 4 | mask[3] << 6);
    } else if (sscanf(s, "swizzle(BITMASK_PERM,\"%5[pi01]\")", pattern) == 1 ||
               sscanf(s, "swizzle(BITMASK_PERM, \"%5[pi01]\")", pattern) == 1) {
        int and = 0, or = 0, xor = 0;
        for (int i = 0; i < 5; i++) {
            int bit = 16 >> i;
            and |= pattern[i] == 'p' || pattern[i] == 'i' ? bit : 0;
            or |= pattern[i] == '1' ? bit : 0;
            xor |= pattern[i] == 'i' ? bit : 0;
        }
        out->offset = and | or << 5 | xor << 10;
    } else {
        return false;
    }
    return true;
}

static bool read_dpp(const char *name, const char *value, struct text_dpp *d)
{
    static const struct {
        const char *name;
        uint16_t control;
    } rows[] = {{"row_shl", 0x100},      {"row_shr", 0x110},   {"row_ror", 0x120}, {"row_share", 0x150},
                {"row_newbcast", 0x150}, {"row_xmask", 0x160}, {"row_bcast", 0}};
    unsigned a[8];
    if (strcmp(name, "quad_perm") == 0 && sscanf(value, "[%u,%u,%u,%u]", a, a + 1, a + 2, a + 3) == 4) {
        d->control = (uint16_t)(a[0] | a[1] << 2 | a[2] << 4 | a[3] << 6);
    } else if (strcmp(name, "dpp8") == 0 && sscanf(value, "[%u,%u,%u,%u,%u,%u,%u,%u]", a, a + 1, a + 2, a + 3,
                                                   a + 4, a + 5, a + 6, a + 7) == 8) {
        d->control = TEXT_DPP8;
        for (int i = 0; i < 8; i++)
            d->lanes8 |= a[i] << (3 * i);
    } else if (strcmp(name, "row_bcast") == 0) {
        d->control = strcmp(value, "15") == 0 ? 0x142 : 0x143;
    } else {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (strcmp(name, rows[i].name) == 0) {
                d->control = (uint16_t)(rows[i].control + strtoul(value, NULL, 0));
                d->set = true;
                return true;
            }
        }
        return false;
    }
    d->set = true;
    return true;
}

static bool read_list(const char *name, const char *value, struct text *out)
{
    if (strcmp(name, "op_sel") == 0) {
        out->op_sel = bits_of(value);
        out->op_sel_set = true;
    } else if (strcmp(name, "op_sel_hi") == 0) {
        out->op_sel_hi = bits_of(value);
        out->op_sel_hi_set = true;
    } else if (strcmp(name, "neg_lo") == 0) {
        out->neg_lo = bits_of(value);
    } else if (strcmp(name, "neg_hi") == 0) {
        out->neg_hi = bits_of(value);
    } else {
        return false;
    }
    return true;
}

static bool read_value(const char *name, const char *value, struct text *out)
{
    long number = strtol(value, NULL, 0);
    if (strcmp(name, "offset") == 0) {
        if (strncmp(value, "swizzle", 7) == 0)
            return read_swizzle(value, out);
        out->offset = (int32_t)number;
    } else if (strcmp(name, "offset0") == 0) {
        out->offset = (int32_t)number;
    } else if (strcmp(name, "offset1") == 0) {
        out->offset1 = (int32_t)number;
    } else if (strcmp(name, "byte_sel") == 0 || strcmp(name, "bitop3") == 0) {
        out->byte_sel = (uint8_t)number;
    } else if (strcmp(name, "mul") == 0) {
        out->omod = number == 2 ? 1 : 2;
    } else if (strcmp(name, "div") == 0) {
        out->omod = 3;
    } else if (strcmp(name, "row_mask") == 0) {
        out->dpp.row_mask = (uint8_t)number;
    } else if (strcmp(name, "bank_mask") == 0) {
        out->dpp.bank_mask = (uint8_t)number;
    } else if (strcmp(name, "bound_ctrl") == 0) {
        out->dpp.bound_ctrl = true; /* written :0 or :1 by generation; absent where unset */
    } else if (strcmp(name, "fi") == 0) {
        out->dpp.fetch_inactive = number != 0;
    } else if (strcmp(name, "src0_sel") == 0) {
        return read_select(value, &out->src0_sel);
    } else if (strcmp(name, "src1_sel") == 0) {
        return read_select(value, &out->src1_sel);
    } else if (strcmp(name, "dst_sel") == 0) {
        return read_select(value, &out->dst_sel);
    } else if (strcmp(name, "dst_unused") == 0) {
        out->preserve = strcmp(value, "UNUSED_PRESERVE") == 0;
        return out->preserve || strcmp(value, "UNUSED_PAD") == 0;
    } else if (strcmp(name, "th") == 0) {
        out->returns = out->returns || strstr(value, "RETURN") != NULL;
    } else {
        return strcmp(name, "scope") == 0;
    }
    return true;
}

bool text_modifier(const char *word, struct text *out)
{
    char name[24];
    const char *colon = strchr(word, ':');
    if (colon == NULL) {
        if (strcmp(word, "row_mirror") == 0 || strcmp(word, "row_half_mirror") == 0) {
            out->dpp.control = word[4] == 'm' ? 0x140 : 0x141;
            out->dpp.set = true;
            return true;
        }
        out->clamp = out->clamp || strcmp(word, "clamp") == 0;
        out->offen = out->offen || strcmp(word, "offen") == 0;
        out->returns = out->returns || strcmp(word, "glc") == 0 || strcmp(word, "sc0") == 0;
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
            if (strcmp(word, ignored[i]) == 0)
                return true;
        return strcmp(word, "clamp") == 0 || strcmp(word, "offen") == 0;
    }
    if ((size_t)(colon - word) >= sizeof name)
        return false;
    memcpy(name, word, (size_t)(colon - word));
    name[colon - word] = '\0';
    return read_list(name, colon + 1, out) || read_dpp(name, colon + 1, &out->dpp) ||
           read_value(name, colon + 1, out);
}
