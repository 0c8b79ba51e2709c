/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* An instruction as the disassembler writes it, taken apart. */
#ifndef EMU_TEXT_H
#define EMU_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum text_kind { TEXT_OFF, TEXT_VGPR, TEXT_SGPR, TEXT_INTEGER, TEXT_REAL, TEXT_WORD };

struct text_operand {
    uint8_t kind;
    uint8_t words;
    bool neg, abs, sext;
    int8_t half;    /* .l 0, .h 1, else -1 */
    uint16_t index; /* of the register, as in emu-wave.h; an AGPR after 256 VGPRs */
    uint64_t integer;
    double real;
    char word[48]; /* what is none of these */
};

#define TEXT_OPERANDS 6

struct text_dpp {
    bool set;
    uint16_t control; /* as encoded; TEXT_DPP8 and up: dpp8 */
    uint8_t row_mask, bank_mask;
    bool bound_ctrl, fetch_inactive;
    uint32_t lanes8; /* three bits a lane */
};

struct text {
    char name[40]; /* without the suffix of an encoding and without v_dual_ */
    bool sdwa, e64;
    uint8_t count;
    struct text_operand at[TEXT_OPERANDS];
    int32_t offset, offset1;
    bool swizzle; /* the offset is a pattern */
    bool op_sel_set, op_sel_hi_set;
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi;
    bool clamp;
    uint8_t omod; /* 1: twice, 2: four times, 3: half */
    uint8_t src0_sel, src1_sel, dst_sel;
    bool preserve;
    uint8_t byte_sel; /* and the table of bitop3 */
    bool returns;     /* glc, sc0, th:..._RETURN */
    bool offen;
    struct text_dpp dpp;
    const char *unknown; /* a modifier that was not understood */
};

#define TEXT_DPP8 0x200

/* One instruction, without " :: "; false where the form is beyond this reader. */
bool text_read(const char *from, size_t size, struct text *out);
bool text_modifier(const char *word, struct text *out);

#endif
