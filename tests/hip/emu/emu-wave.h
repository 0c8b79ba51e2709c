/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A wave, a decoded instruction, and how instructions reach their operands: shared by all files that execute.
 */
#ifndef EMU_WAVE_H
#define EMU_WAVE_H

#include <stdint.h>
#include <string.h>

#include "emu.h"

/* The files that execute are compiled once for any host and once for hosts with FMA and AVX2. */
#ifndef EMU_TIER
#define EMU_TIER base
#endif
#define EMU_JOIN2(a, b) a##_##b
#define EMU_JOIN(a, b)  EMU_JOIN2(a, b)
#define EMU_NAME(name)  EMU_JOIN(name, EMU_TIER)

#define EMU_ROW 64 /* lanes between two registers */

/* Places in the scalar file beside s0 ... s105. */
enum {
    S_VCC = 106,
    S_TTMP = 108,
    S_M0 = 124,
    S_EXEC = 126,
    S_SCC = 128,
    S_SINK = 130,
    S_FLAT = 134,
    S_SHARED = 136,
    S_PRIVATE = 138,
    S_COUNT = 140
};

union lane {
    uint32_t u;
    int32_t i;
    float f;
};

enum operand_kind { AT_NONE, AT_VGPR, AT_SGPR, AT_CONST, AT_SPARE };
enum { MOD_NEG = 1, MOD_ABS = 2, MOD_SEXT = 4, MOD_SELECT = 8 };

struct operand {
    uint8_t kind;
    uint8_t words;
    uint8_t mods;
    uint8_t select; /* with MOD_SELECT: byte 0 to 3, half 4 or 5 */
    char type;      /* f h d: numbers of 32, 16, 64 bits; u w q: integers alike */
    bool plain;     /* a VGPR or constant that needs nothing done to it */
    uint16_t index; /* of the register */
    union {
        uint64_t value;  /* of a constant */
        uint64_t offset; /* of a VGPR, in lanes */
    };
    const uint32_t *lanes; /* a constant in every lane, two rows */
};

struct wave;
struct op;
typedef void (*op_fn)(struct wave *w, const struct op *o);

#define OP_OPERANDS 5

struct op {
    op_fn run;
    struct operand at[OP_OPERANDS]; /* in the order of the text */
    op_fn inner;                    /* what a wrapper (DPP, a write of EXEC) calls */
    struct operand from;            /* what DPP permutes */
    const struct op *pair;          /* of a dual instruction */
    uint8_t count;
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi;
    uint8_t clamp, omod;
    uint8_t dst_select; /* byte 0 to 3, half 4 or 5, 6 for all */
    uint8_t dst_preserve;
    uint8_t dst_plain;
    uint8_t size; /* of a memory access, bytes */
    uint8_t
        dual_first; /* which half of a dual instruction goes first; 2: the first one's old result is kept */
    uint8_t returns, offen, byte_sel;
    uint8_t row_mask, bank_mask, bound_ctrl, fetch_inactive;
    uint16_t dpp;
    uint32_t dpp8;
    int32_t offset, offset1;
    const struct op *target; /* of a branch */
    uint64_t pc;
    uint32_t bytes;
    const char *text;
};

/* What the scratch buffer's descriptor is filled with, so that no other one is taken for it. */
#define EMU_SCRATCH_BUFFER 0x5c7a7c40u

struct group;

enum wave_state { WAVE_READY, WAVE_BARRIER, WAVE_ENDED, WAVE_FAILED };

struct wave {
    uint32_t *v;
    uint32_t s[S_COUNT];
    uint32_t lanes;
    uint32_t arch; /* 90a as 0x90a, 1100 as 0x1100 */
    uint64_t all;  /* EXEC of a wave with every lane */
    bool full;
    bool mask_known;
    bool signalled; /* the barrier of gfx12 */
    uint8_t state;
    uint32_t index; /* in its group */
    uint32_t threads;
    const struct op *next;
    const struct op *now;
    struct group *group;
    uint64_t budget;
    uint8_t *scratch;
    uint32_t scratch_bytes; /* of a lane */
    uint32_t mask[EMU_ROW];
    uint32_t tmp[8 * EMU_ROW];
    uint32_t spare[2 * EMU_ROW];
};

/* One work-group under way; LDS shadow as written in emu-lds.c. */
struct group {
    const struct emu_launch *launch;
    uint8_t *lds;
    uint32_t lds_bytes;
    uint32_t *written, *read; /* per byte of LDS; NULL for a group of one wave */
    uint32_t epoch;
    uint32_t id[3];
    uint64_t kernarg, kernarg_end;
    uint64_t packet, packet_end;
    uint64_t image, image_end;
    uint64_t code; /* what the image's address 0 is loaded at */
    size_t range;  /* where the last access was found */
    enum emu_result result;
    char *why;
    size_t why_size;
};

/* Ends the wave and its launch; only the first failure of a launch is kept. */
__attribute__((format(printf, 3, 4))) void emu_fail(struct wave *w, enum emu_result result,
                                                    const char *format, ...);

/* High words of flat addresses that are LDS and scratch. */
#define EMU_SHARED_BASE  0x20000000u
#define EMU_PRIVATE_BASE 0x10000000u

/* Whether `bytes` at `address` may be touched; where not, the wave has failed. */
bool emu_access(struct wave *w, uint64_t address, uint64_t bytes, bool write);
/* The same without a failure, for a first look at all lanes at once. */
bool emu_may_access(struct wave *w, uint64_t address, uint64_t bytes, bool write);

#if defined(__clang__)
#define EMU_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define EMU_IVDEP _Pragma("GCC ivdep")
#endif

/* All lanes of the wave, 32 at a time so that compilers vectorise without a rest. */
#define LANES(i)                                                                                             \
    for (int i##_row = 0; i##_row < (int)w->lanes; i##_row += 32)                                            \
    EMU_IVDEP for (int i = i##_row; i < i##_row + 32; i++)

static inline uint64_t wave_exec(const struct wave *w)
{
    return w->s[S_EXEC] | (uint64_t)w->s[S_EXEC + 1] << 32;
}

/* A mask of lanes in scalar registers. */
static inline uint64_t wave_mask(const struct wave *w, uint32_t index)
{
    return w->lanes == 64 ? w->s[index] | (uint64_t)w->s[index + 1] << 32 : w->s[index];
}

static inline void exec_changed(struct wave *w)
{
    if (w->lanes == 32)
        w->s[S_EXEC + 1] = 0;
    w->full = wave_exec(w) == w->all;
    w->mask_known = false;
}

static inline void exec_set(struct wave *w, uint64_t mask)
{
    w->s[S_EXEC] = (uint32_t)mask;
    w->s[S_EXEC + 1] = (uint32_t)(mask >> 32);
    exec_changed(w);
}

static inline void wave_mask_set(struct wave *w, uint32_t index, uint64_t mask)
{
    w->s[index] = (uint32_t)mask;
    if (w->lanes == 64)
        w->s[index + 1] = (uint32_t)(mask >> 32);
}

const uint32_t *EMU_NAME(emu_src_slow)(struct wave *w, const struct operand *s, uint32_t *tmp);
void EMU_NAME(emu_done_slow)(struct wave *w, const struct op *o, uint32_t *d, uint32_t words);

/* The lanes of a source; its second word, where it has one, EMU_ROW further on. */
static inline const uint32_t *src(struct wave *w, const struct operand *s, uint32_t *tmp)
{
    if (s->plain)
        return s->kind == AT_VGPR ? w->v + s->offset : s->lanes;
    return EMU_NAME(emu_src_slow)(w, s, tmp);
}

/* Where a result goes: the register itself, or lanes that done() merges under EXEC. */
static inline uint32_t *dst(struct wave *w, const struct op *o)
{
    return w->full && o->dst_plain ? w->v + o->at[0].offset : w->tmp;
}

static inline void done(struct wave *w, const struct op *o, uint32_t *d, uint32_t words)
{
    if (d == w->tmp)
        EMU_NAME(emu_done_slow)(w, o, d, words);
}

static inline uint32_t scalar(const struct wave *w, const struct operand *s)
{
    return s->kind == AT_SGPR ? w->s[s->index] : (uint32_t)s->value;
}

static inline uint64_t scalar64(const struct wave *w, const struct operand *s)
{
    return s->kind == AT_SGPR ? w->s[s->index] | (uint64_t)w->s[s->index + 1] << 32 : s->value;
}

static inline uint32_t bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float f32_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline double f64_of_lanes(const uint32_t *p, int i)
{
    uint64_t u = p[i] | (uint64_t)p[i + EMU_ROW] << 32;
    double d;
    memcpy(&d, &u, 8);
    return d;
}

static inline uint64_t u64_of_lanes(const uint32_t *p, int i)
{
    return p[i] | (uint64_t)p[i + EMU_ROW] << 32;
}

static inline void lanes_put_u64(uint32_t *p, int i, uint64_t x)
{
    p[i] = (uint32_t)x;
    p[i + EMU_ROW] = (uint32_t)(x >> 32);
}

static inline void lanes_put_f64(uint32_t *p, int i, double d)
{
    uint64_t u;
    memcpy(&u, &d, 8);
    lanes_put_u64(p, i, u);
}

/* What a mnemonic means. Types: a letter for each operand of the text (see struct operand), further `p` two
 * halves, `g` two f32, `m` a mask of lanes, `a` an address or data whose words the text tells, `.` anything.
 */
enum {
    E_STORE = 1,   /* operand 0 is a source */
    E_HALF = 2,    /* gfx9 zeroes the other half of a 16-bit result */
    E_SCALAR = 8,  /* no VGPRs: no modifiers */
    E_VCC = 16,    /* dual: the last operand is VCC, unwritten */
    E_MIX = 4,     /* op_sel_hi is 0 where it is not written */
    E_PACKED = 32, /* op_sel and neg are the instruction's own */
    E_BRANCH = 64,
    E_CLAMP = 128, /* sees to clamping itself */
};

struct entry {
    const char *name;
    const char *types;
    op_fn run;
    uint16_t flags;
    uint8_t size;
};

struct entry_list {
    const struct entry *entries;
    size_t count;
};

#define EMU_LISTS(X)    EMU_SCALARS(X) EMU_INTEGERS(X) EMU_NUMBERS(X) EMU_MEMORIES(X) X(matrix)
#define EMU_SCALARS(X)  X(salu) X(salu64) X(flow) X(smem)
#define EMU_INTEGERS(X) X(vint) X(vint64) X(vcmp) X(vlane)
#define EMU_NUMBERS(X)  X(vf32) X(vf64) X(vf16) X(vpk) X(vcvt) X(vfp8)
#define EMU_MEMORIES(X) X(lds) X(lds2) X(memory) X(atomic) X(scratch)

#endif
