/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One work-group: the state its waves start with, and their turns from barrier to barrier. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "emu-run.h"

void emu_fail(struct wave *w, enum emu_result result, const char *format, ...)
{
    struct group *g = w->group;
    w->state = WAVE_FAILED;
    if (g->result != EMU_OK)
        return;
    g->result = result;
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    snprintf(g->why, g->why_size, "kernel %s, work-group %u,%u,%u, wave %u, pc %#llx, '%s': %s",
             g->launch->kernel->name, g->id[0], g->id[1], g->id[2], w->index, (unsigned long long)w->now->pc,
             w->now->text, text);
}

void run_left(struct wave *w, const struct op *o)
{
    (void)o;
    emu_fail(w, EMU_UNMODELLED, "the program was left");
}

void run_unmodelled(struct wave *w, const struct op *o)
{
    (void)o;
    emu_fail(w, EMU_UNMODELLED, "this instruction or form is not modelled");
}

void run_exec(struct wave *w, const struct op *o)
{
    o->inner(w, o);
    exec_changed(w);
}

void run_dual(struct wave *w, const struct op *o)
{
    if (o->dual_first == 2)
        memcpy(w->spare, w->v + o->at[0].offset, sizeof *w->spare * EMU_ROW);
    if (o->dual_first == 1)
        o->pair->run(w, o->pair);
    o->inner(w, o);
    if (o->dual_first != 1)
        o->pair->run(w, o->pair);
}

bool worker_prepare(struct worker *k, const struct running *r, uint32_t waves)
{
    const struct emu_properties *p = &r->kernel->properties;
    size_t rows = (size_t)waves * (p->agprs > 0 ? 256 + p->agprs : p->vgprs);
    size_t scratch = (size_t)waves * p->wave_size * p->scratch_bytes;
    size_t lds = p->lds_bytes + r->launch->shared_bytes + 64u;
    if (rows > k->register_rows) {
        free(k->registers);
        k->registers = aligned_alloc(64, rows * EMU_ROW * sizeof *k->registers);
        k->register_rows = k->registers != NULL ? rows : 0;
    }
    if (scratch > k->scratch_bytes) {
        free(k->scratch);
        k->scratch = malloc(scratch);
        k->scratch_bytes = k->scratch != NULL ? scratch : 0;
    }
    if (lds > k->lds_bytes) {
        free(k->lds);
        free(k->shadow);
        k->lds = malloc(lds);
        k->shadow = malloc(lds * 2 * sizeof *k->shadow);
        k->lds_bytes = k->lds != NULL && k->shadow != NULL ? lds : 0;
    }
    return k->register_rows >= rows && k->scratch_bytes >= scratch && k->lds_bytes >= lds;
}

static void poison(void *to, size_t bytes, uint64_t with)
{
    uint64_t *at = to;
    for (size_t i = 0; i < bytes / 8; i++)
        at[i] = with;
    if (bytes % 8 != 0)
        memcpy(at + bytes / 8, &with, bytes % 8);
}

static void put_pointer(struct wave *w, uint32_t *at, uint64_t value)
{
    w->s[(*at)++] = (uint32_t)value;
    w->s[(*at)++] = (uint32_t)(value >> 32);
}

/* The scalar registers in the order of the kernel descriptor's bits. */
static void start_scalars(struct wave *w, const struct emu_kernel *k, const struct group *g)
{
    uint32_t at = 0;
    uint16_t want = k->code_properties;
    if (want & 1) { /* the private segment's buffer: recognised by what is in it */
        w->s[0] = EMU_SCRATCH_BUFFER;
        w->s[1] = w->s[2] = w->s[3] = EMU_SCRATCH_BUFFER;
        at = 4;
    }
    if (want & 2)
        put_pointer(w, &at, g->packet);
    if (want & 4)
        at += 2;
    if (want & 8)
        put_pointer(w, &at, g->kernarg);
    if (want & 16)
        put_pointer(w, &at, 0);
    if (want & 32)
        put_pointer(w, &at, 0);
    if (want & 64)
        w->s[at++] = w->scratch_bytes;
    for (uint32_t i = 0; i < (k->preload & 127u) && at < 100; i++)
        memcpy(&w->s[at++], (const uint8_t *)(uintptr_t)g->kernarg + 4 * ((k->preload >> 7) + i), 4);
    at = k->rsrc2 >> 1 & 31;
    if (w->arch >= 0x1200) {
        w->s[S_TTMP + 9] = g->id[0];
        w->s[S_TTMP + 7] = g->id[1] | g->id[2] << 16;
        w->s[S_TTMP + 8] = w->index << 25;
        return;
    }
    for (uint32_t i = 0; i < 3; i++)
        if (k->rsrc2 >> (7 + i) & 1)
            w->s[at++] = g->id[i];
    if (k->rsrc2 >> 10 & 1)
        at++;
    if (k->rsrc2 & 1)
        w->s[at] = 0;
}

static void start_wave(struct worker *k, const struct running *r, uint32_t index)
{
    const struct emu_kernel *kernel = r->kernel;
    const struct emu_properties *p = &kernel->properties;
    struct wave *w = &k->waves[index];
    size_t rows = p->agprs > 0 ? 256 + p->agprs : p->vgprs;
    uint32_t vgprs = p->vgprs < 256 ? p->vgprs : 256;
    w->v = k->registers + index * rows * EMU_ROW;
    poison(w->v, (size_t)vgprs * EMU_ROW * 4, r->poison);
    if (p->agprs > 0)
        poison(w->v + 256 * EMU_ROW, (size_t)p->agprs * EMU_ROW * 4, r->poison);
    poison(w->s, sizeof w->s, r->poison);
    w->lanes = p->wave_size;
    w->arch = kernel->image->number;
    w->all = w->lanes == 64 ? ~0ull : 0xffffffff;
    w->state = WAVE_READY;
    w->signalled = false;
    w->index = index;
    w->threads = r->launch->threads - index * w->lanes;
    w->threads = w->threads > w->lanes ? w->lanes : w->threads;
    w->group = &k->group;
    w->budget = r->settings->limit;
    w->scratch_bytes = p->scratch_bytes;
    w->scratch = p->scratch_bytes > 0 ? k->scratch + (size_t)index * w->lanes * p->scratch_bytes : NULL;
    poison(w->scratch, (size_t)w->lanes * p->scratch_bytes, r->poison);
    w->s[S_SCC] = 0;
    w->s[S_SHARED] = w->s[S_PRIVATE] = 0;
    w->s[S_SHARED + 1] = EMU_SHARED_BASE;
    w->s[S_PRIVATE + 1] = EMU_PRIVATE_BASE;
    start_scalars(w, kernel, &k->group);
    exec_set(w, w->threads == 64 ? ~0ull : (1ull << w->threads) - 1);
    bool packed = (w->arch >= 0x90a && w->arch < 0x1000) || w->arch >= 0x1100;
    for (uint32_t l = 0; l < w->lanes; l++) {
        w->v[l] = index * w->lanes + l;
        for (uint32_t i = 1; !packed && i <= (kernel->rsrc2 >> 11 & 3); i++)
            w->v[i * EMU_ROW + l] = 0;
    }
    w->next = kernel->ops;
    if ((kernel->preload & 127) != 0) /* older firmware starts here and loads what is preloaded */
        while (w->next->pc < kernel->entry + 256)
            w->next++;
}

static uint64_t run_wave(struct wave *w)
{
    uint64_t budget = w->budget;
    while (w->state == WAVE_READY) {
        const struct op *o = w->next;
        w->now = o;
        w->next = o + 1;
        o->run(w, o);
        if (--budget == 0) {
            emu_fail(w, EMU_LIMIT, "the wave ran for more instructions than EMU_LIMIT allows");
            break;
        }
    }
    uint64_t ran = w->budget - budget;
    w->budget = budget;
    return ran;
}

/* True while waves wait at a barrier that now opens. */
static bool barrier_opens(struct worker *k, uint32_t waves)
{
    uint32_t waiting = 0, at = 0, ended = 0;
    for (uint32_t i = 0; i < waves; i++) {
        if (k->waves[i].state == WAVE_BARRIER) {
            waiting++;
            at = i;
        } else {
            ended = i;
        }
    }
    if (waiting == 0 || k->group.result != EMU_OK)
        return false;
    if (waiting < waves) {
        emu_fail(&k->waves[at], EMU_BARRIER, "%u of %u waves wait at a barrier, and wave %u ended without it",
                 waiting, waves, ended);
        return false;
    }
    for (uint32_t i = 0; i < waves; i++)
        k->waves[i].state = WAVE_READY;
    k->group.epoch++;
    return true;
}

void worker_run(struct worker *k, const struct running *r, uint32_t waves, uint64_t *instructions)
{
    struct group *g = &k->group;
    uint32_t seed = r->settings->seed;
    g->lds = k->lds;
    g->lds_bytes = r->kernel->properties.lds_bytes + r->launch->shared_bytes;
    poison(g->lds, g->lds_bytes, r->poison);
    g->written = waves > 1 ? k->shadow : NULL;
    g->read = waves > 1 ? k->shadow + k->lds_bytes : NULL;
    g->epoch = 1;
    if (waves > 1) {
        memset(g->written, 0, g->lds_bytes * sizeof *g->written);
        memset(g->read, 0, g->lds_bytes * sizeof *g->read);
    }
    for (uint32_t i = 0; i < waves; i++)
        start_wave(k, r, i);
    do {
        for (uint32_t i = 0; i < waves && g->result == EMU_OK; i++) {
            uint32_t at = (i + seed / 4 + g->epoch * (seed / 4)) % waves;
            *instructions += run_wave(&k->waves[seed & 2 ? waves - 1 - at : at]);
        }
    } while (barrier_opens(k, waves));
}
