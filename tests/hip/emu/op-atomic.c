/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Atomics of global memory: work-groups of several host threads see them as the GPU's would. */
#include "emu-memory.h"

#define ATOMIC(name, type, first, step)                                                                      \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        uint64_t at[EMU_ROW];                                                                                \
        addresses(w, o, &o->at[first], o->count > (first) + 2 ? &o->at[(first) + 2] : NULL, at);             \
        if (!check_addresses(w, at, sizeof(type), true))                                                     \
            return;                                                                                          \
        const uint32_t *from = w->v + o->at[(first) + 1].offset;                                             \
        for (uint64_t m = wave_exec(w); m != 0; m &= m - 1) {                                                \
            uint32_t i = (uint32_t)__builtin_ctzll(m);                                                       \
            type *to = (type *)(uintptr_t)at[i];                                                             \
            if (at[i] % sizeof(type) != 0) {                                                                 \
                emu_fail(w, EMU_ADDRESS, "atomic at %#llx is not aligned", (unsigned long long)at[i]);       \
                return;                                                                                      \
            }                                                                                                \
            type x = (type)(sizeof(type) == 8 ? u64_of_lanes(from, (int)i) : from[i]);                       \
            type old = step(to, x, __ATOMIC_SEQ_CST);                                                        \
            if (first) {                                                                                     \
                w->v[o->at[0].offset + i] = (uint32_t)old;                                                   \
                if (sizeof(type) == 8)                                                                       \
                    w->v[o->at[0].offset + EMU_ROW + i] = (uint32_t)((uint64_t)old >> 32);                   \
            }                                                                                                \
        }                                                                                                    \
    }

/* What compilers have no builtin for. */
#define LOOPED(name, type, expression)                                                                       \
    static inline type name(type *to, type x, int order)                                                     \
    {                                                                                                        \
        type old = __atomic_load_n(to, order);                                                               \
        while (!__atomic_compare_exchange_n(to, &old, (expression), false, order, order)) {                  \
        }                                                                                                    \
        return old;                                                                                          \
    }
LOOPED(least_u, uint32_t, old < x ? old : x)
LOOPED(most_u, uint32_t, old > x ? old : x)
LOOPED(least_i, int32_t, old < x ? old : x)
LOOPED(most_i, int32_t, old > x ? old : x)

#define ATOMICS(name, type, step) ATOMIC(name, type, 0, step) ATOMIC(name##_rtn, type, 1, step)
ATOMICS(add, uint32_t, __atomic_fetch_add)
ATOMICS(sub, uint32_t, __atomic_fetch_sub)
ATOMICS(or, uint32_t, __atomic_fetch_or)
ATOMICS(and, uint32_t, __atomic_fetch_and)
ATOMICS(xor, uint32_t, __atomic_fetch_xor)
ATOMICS(swap, uint32_t, __atomic_exchange_n)
ATOMICS(umin, uint32_t, least_u)
ATOMICS(umax, uint32_t, most_u)
ATOMICS(smin, int32_t, least_i)
ATOMICS(smax, int32_t, most_i)
ATOMICS(add_x2, uint64_t, __atomic_fetch_add)

#define G(name, run)                                                                                         \
    {"global_atomic_" name, "aaa", run, E_SCALAR | E_STORE, 0},                                              \
    {                                                                                                        \
        "global_atomic_" name "_rtn", "aaaa", run##_rtn, E_SCALAR, 0                                         \
    }
#define F(name, run)                                                                                         \
    {"flat_atomic_" name, "aa", run, E_SCALAR | E_STORE, 0},                                                 \
    {                                                                                                        \
        "flat_atomic_" name "_rtn", "aaa", run##_rtn, E_SCALAR, 0                                            \
    }
static const struct entry entries[] = {
    G("add", add),       G("sub", sub),        G("or", or),        G("and", and),      G("xor", xor),
    G("swap", swap),     G("umin", umin),      G("umax", umax),    G("smin", smin),    G("smax", smax),
    G("add_x2", add_x2), F("add", add),        F("or", or),        G("and_b32", and),  G("xor_b32", xor),
    G("swap_b32", swap), G("sub_u32", sub),    G("min_u32", umin), G("max_u32", umax), G("min_i32", smin),
    G("max_i32", smax),  G("add_u64", add_x2),
};

const struct entry_list EMU_NAME(atomic) = {entries, sizeof entries / sizeof *entries};
