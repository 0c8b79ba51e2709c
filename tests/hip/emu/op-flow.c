/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Branches, ends, barriers, and what has no effect on an emulated wave. */
#include "emu-wave.h"

static void nothing(struct wave *w, const struct op *o)
{
    (void)w;
    (void)o;
}

#define BRANCH(name, condition)                                                                              \
    static void name(struct wave *w, const struct op *o)                                                     \
    {                                                                                                        \
        if (condition)                                                                                       \
            w->next = o->target;                                                                             \
    }
BRANCH(s_branch, true)
BRANCH(s_execz, wave_exec(w) == 0)
BRANCH(s_execnz, wave_exec(w) != 0)
BRANCH(s_vccz, wave_mask(w, S_VCC) == 0)
BRANCH(s_vccnz, wave_mask(w, S_VCC) != 0)
BRANCH(s_scc0, w->s[S_SCC] == 0)
BRANCH(s_scc1, w->s[S_SCC] != 0)

static void s_endpgm(struct wave *w, const struct op *o)
{
    (void)o;
    w->state = WAVE_ENDED;
}

static void s_trap(struct wave *w, const struct op *o)
{
    (void)o;
    emu_fail(w, EMU_UNMODELLED, "the kernel trapped");
}

static void s_barrier(struct wave *w, const struct op *o)
{
    (void)o;
    if (w->group->written != NULL)
        w->state = WAVE_BARRIER;
}

/* gfx12: the signal says that a wave came, the wait is where it stays. */
static void s_barrier_signal(struct wave *w, const struct op *o)
{
    if (o->at[0].kind != AT_CONST || (uint32_t)o->at[0].value != ~0u)
        emu_fail(w, EMU_UNMODELLED, "only the barrier of the work-group (-1) is modelled");
    else if (w->signalled)
        emu_fail(w, EMU_BARRIER, "a second signal before a wait");
    w->signalled = true;
}

static void s_barrier_wait(struct wave *w, const struct op *o)
{
    if ((o->at[0].value & 0xffff) != 0xffff)
        emu_fail(w, EMU_UNMODELLED, "only the barrier of the work-group (-1) is modelled");
    else if (!w->signalled)
        emu_fail(w, EMU_BARRIER, "a wait without a signal");
    else
        s_barrier(w, o);
    w->signalled = false;
}

#define NOTHING(name)                                                                                        \
    {                                                                                                        \
        name, "*", nothing, 0, 0                                                                             \
    }
static const struct entry entries[] = {
    {"s_branch", "*", s_branch, 0, 0},
    {"s_cbranch_execz", "*", s_execz, 0, 0},
    {"s_cbranch_execnz", "*", s_execnz, 0, 0},
    {"s_cbranch_vccz", "*", s_vccz, 0, 0},
    {"s_cbranch_vccnz", "*", s_vccnz, 0, 0},
    {"s_cbranch_scc0", "*", s_scc0, 0, 0},
    {"s_cbranch_scc1", "*", s_scc1, 0, 0},
    {"s_endpgm", "*", s_endpgm, 0, 0},
    {"s_trap", "*", s_trap, 0, 0},
    {"s_barrier", "*", s_barrier, 0, 0},
    {"s_barrier_signal", ".", s_barrier_signal, E_SCALAR | E_STORE, 0},
    {"s_barrier_wait", ".", s_barrier_wait, E_SCALAR | E_STORE, 0},
    NOTHING("s_nop"),
    NOTHING("s_sleep"),
    NOTHING("s_clause"),
    NOTHING("s_delay_alu"),
    NOTHING("s_code_end"),
    NOTHING("s_setprio"),
    NOTHING("s_waitcnt"),
    NOTHING("s_waitcnt_vscnt"),
    NOTHING("s_waitcnt_vmcnt"),
    NOTHING("s_waitcnt_lgkmcnt"),
    NOTHING("s_waitcnt_expcnt"),
    NOTHING("s_waitcnt_depctr"),
    NOTHING("s_wait_alu"),
    NOTHING("s_wait_idle"),
    NOTHING("s_wait_dscnt"),
    NOTHING("s_wait_loadcnt"),
    NOTHING("s_wait_kmcnt"),
    NOTHING("s_wait_storecnt"),
    NOTHING("s_wait_samplecnt"),
    NOTHING("s_wait_bvhcnt"),
    NOTHING("s_wait_loadcnt_dscnt"),
    NOTHING("s_wait_storecnt_dscnt"),
    NOTHING("s_set_inst_prefetch_distance"),
    NOTHING("s_inst_prefetch"),
    NOTHING("s_sendmsg"),
    NOTHING("s_icache_inv"),
    NOTHING("s_dcache_inv"),
    NOTHING("s_dcache_wb"),
    NOTHING("s_gl1_inv"),
    NOTHING("s_prefetch_inst"),
    NOTHING("s_prefetch_inst_pc_rel"),
    NOTHING("buffer_gl0_inv"),
    NOTHING("buffer_gl1_inv"),
    NOTHING("buffer_wbl2"),
    NOTHING("buffer_inv"),
    NOTHING("buffer_wbinvl1"),
    NOTHING("buffer_wbinvl1_vol"),
    NOTHING("buffer_invl2"),
    NOTHING("global_wb"),
    NOTHING("global_inv"),
    NOTHING("global_wbinv"),
    NOTHING("v_nop"),
    NOTHING("v_pipeflush"),
};

const struct entry_list EMU_NAME(flow) = {entries, sizeof entries / sizeof *entries};
