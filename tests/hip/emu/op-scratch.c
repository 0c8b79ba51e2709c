/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A lane's own memory: scratch instructions, and the buffer ones that older GPUs reach it with. */
#include "emu-memory.h"

/* A VGPR, a scalar register, both or neither. */
static uint32_t offset_of(const struct wave *w, const struct op *o, const struct operand *v,
                          const struct operand *s, uint32_t lane)
{
    uint32_t at = (uint32_t)o->offset;
    if (v->kind == AT_VGPR)
        at += w->v[v->offset + lane];
    if (s->kind == AT_SGPR)
        at += w->s[s->index];
    else if (s->kind == AT_CONST)
        at += (uint32_t)s->value;
    return at;
}

static void load_from(struct wave *w, const struct op *o, const struct operand *v, const struct operand *s)
{
    uint32_t words = (o->size + 3u) / 4;
    uint32_t *to = w->v + o->at[0].offset;
    for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(m), x[4] = {0};
        const uint8_t *from = scratch_lane(w, i, offset_of(w, o, v, s, i), o->size);
        if (from == NULL)
            return;
        memcpy(x, from, o->size);
        for (uint32_t k = 0; k < words; k++)
            to[k * EMU_ROW + i] = x[k];
    }
}

static void store_to(struct wave *w, const struct op *o, const struct operand *data, const struct operand *v,
                     const struct operand *s)
{
    uint32_t words = (o->size + 3u) / 4;
    const uint32_t *from = w->v + data->offset;
    for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(m), x[4];
        uint8_t *to = scratch_lane(w, i, offset_of(w, o, v, s, i), o->size);
        if (to == NULL)
            return;
        for (uint32_t k = 0; k < words; k++)
            x[k] = from[k * EMU_ROW + i];
        memcpy(to, x, o->size);
    }
}

static void load(struct wave *w, const struct op *o)
{
    load_from(w, o, &o->at[1], &o->at[2]);
}

static void store(struct wave *w, const struct op *o)
{
    store_to(w, o, &o->at[1], &o->at[0], &o->at[2]);
}

/* Of buffers only the one that the kernel was started with is known: scratch. */
static bool is_scratch(struct wave *w, const struct op *o)
{
    const struct operand *buffer = &o->at[2];
    if (buffer->kind == AT_SGPR && w->s[buffer->index] == EMU_SCRATCH_BUFFER &&
        w->s[buffer->index + 2] == EMU_SCRATCH_BUFFER)
        return true;
    emu_fail(w, EMU_UNMODELLED, "only the buffer of scratch memory is modelled");
    return false;
}

static void buffer_load(struct wave *w, const struct op *o)
{
    if (is_scratch(w, o))
        load_from(w, o, &o->at[1], &o->at[3]);
}

static void buffer_store(struct wave *w, const struct op *o)
{
    if (is_scratch(w, o))
        store_to(w, o, &o->at[0], &o->at[1], &o->at[3]);
}

#define SCRATCH(name, size)                                                                                  \
    {"scratch_load_" name, "aaa", load, E_SCALAR, size},                                                     \
        {"scratch_store_" name, "aaa", store, E_SCALAR | E_STORE, size},                                     \
        {"buffer_load_" name, "aaaa", buffer_load, E_SCALAR, size},                                          \
    {                                                                                                        \
        "buffer_store_" name, "aaaa", buffer_store, E_SCALAR | E_STORE, size                                 \
    }
static const struct entry entries[] = {
    SCRATCH("b32", 4),
    SCRATCH("b64", 8),
    SCRATCH("b96", 12),
    SCRATCH("b128", 16),
    {"scratch_load_u8", "aaa", load, E_SCALAR, 1},
    {"scratch_load_u16", "aaa", load, E_SCALAR, 2},
    {"scratch_store_b8", "aaa", store, E_SCALAR | E_STORE, 1},
    {"scratch_store_b16", "aaa", store, E_SCALAR | E_STORE, 2},
    {"buffer_load_u8", "aaaa", buffer_load, E_SCALAR, 1},
    {"buffer_load_u16", "aaaa", buffer_load, E_SCALAR, 2},
    {"buffer_store_b8", "aaaa", buffer_store, E_SCALAR | E_STORE, 1},
    {"buffer_store_b16", "aaaa", buffer_store, E_SCALAR | E_STORE, 2},
};

const struct entry_list EMU_NAME(scratch) = {entries, sizeof entries / sizeof *entries};
