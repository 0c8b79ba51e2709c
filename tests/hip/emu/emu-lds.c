/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What is wrong with an LDS access. */
#include "emu-lds.h"

void emu_lds_out(struct wave *w, uint32_t at, uint32_t bytes)
{
    uint32_t size = w->group->lds_bytes;
    if (at < size && bytes <= size - at)
        emu_fail(w, EMU_LDS, "LDS access of %u bytes at %u is not aligned", bytes, at);
    else
        emu_fail(w, EMU_LDS, "LDS access of %u bytes at %u, beyond the %u of the work-group", bytes, at,
                 size);
}

/* The notes were overwritten by this access: who was there before is told as far as it is left. */
void emu_lds_race(struct wave *w, uint32_t at, uint32_t bytes, bool write)
{
    emu_fail(w, EMU_RACE, "%s %u bytes of LDS at %u that another wave %s since the last barrier (%u)",
             write ? "writes" : "reads", bytes, at, write ? "read or wrote" : "wrote", w->group->epoch - 1);
}
