/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Decodes a kernel: its instructions into an array, branches into pointers. */
#include <stdio.h>
#include <stdlib.h>

#include "emu-image.h"

#define POOL_VALUES 32

struct pool {
    struct pool *next;
    size_t used;
    uint64_t values[POOL_VALUES];
    uint32_t lanes[POOL_VALUES][2 * EMU_ROW];
};

const uint32_t *pool_lanes(struct emu_kernel *kernel, uint64_t value)
{
    struct pool *p = kernel->pool;
    for (struct pool *q = p; q != NULL; q = q->next)
        for (size_t i = 0; i < q->used; i++)
            if (q->values[i] == value)
                return q->lanes[i];
    if (p == NULL || p->used == POOL_VALUES) {
        p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
        if (p == NULL)
            return NULL;
        p->next = kernel->pool;
        p->used = 0;
        kernel->pool = p;
    }
    p->values[p->used] = value;
    for (int i = 0; i < EMU_ROW; i++)
        lanes_put_u64(p->lanes[p->used], i, value);
    return p->lanes[p->used++];
}

void pool_free(struct emu_kernel *kernel)
{
    while (kernel->pool != NULL) {
        struct pool *next = kernel->pool->next;
        free(kernel->pool);
        kernel->pool = next;
    }
}

/* Texts one after the other, each with its length in front; counts instructions and dual ones. */
struct listing {
    char *texts;
    size_t used, room;
    size_t count, duals;
};

static bool listing_add(struct listing *l, const char *text, size_t bytes)
{
    while (*text == '\t' || *text == ' ')
        text++;
    size_t n = strlen(text) + 1;
    if (l->used + n + 1 > l->room) {
        size_t room = 2 * l->room + n + 4096;
        char *more = realloc(l->texts, room);
        if (more == NULL)
            return false;
        l->texts = more;
        l->room = room;
    }
    l->texts[l->used] = (char)bytes;
    memcpy(l->texts + l->used + 1, text, n);
    l->used += n + 1;
    l->count++;
    l->duals += strstr(text, " :: ") != NULL;
    return true;
}

static bool list_kernel(struct emu_kernel *k, struct listing *l)
{
    char text[256];
    bool wave64 = k->properties.wave_size == 64 && k->image->number >= 0x1000;
    struct disassembler *d = disassembler_open(k->image->arch, wave64, k->why, sizeof k->why);
    if (d == NULL)
        return false;
    uint64_t pc = k->entry;
    while (pc < k->end) {
        size_t n = disassembler_read(d, k->image->bytes + pc, k->end - pc, pc, text, sizeof text);
        if (n == 0) { /* listed, and unmodelled should it run */
            n = 4;
            snprintf(text, sizeof text, "(no instruction)");
        }
        if (!listing_add(l, text, n)) {
            snprintf(k->why, sizeof k->why, "out of memory");
            break;
        }
        pc += n;
    }
    disassembler_close(d);
    return pc >= k->end;
}

static bool dual_reads(const struct op *reader, const struct op *writer)
{
    for (unsigned i = 0; i < reader->count; i++)
        if (reader->at[i].kind == AT_VGPR && reader->at[i].index == writer->at[0].index)
            return true;
    return false;
}

/* Both halves read before either writes: the half whose result the other one reads goes last. */
static void build_dual(struct op *x, struct op *y)
{
    if (x->run == run_unmodelled || y->run == run_unmodelled) {
        x->run = run_unmodelled;
        return;
    }
    struct op *pair = y;
    if (dual_reads(y, x)) {
        x->dual_first = 1;
        if (dual_reads(x, y)) { /* x first, and y reads what x's result was before */
            x->dual_first = 2;
            for (unsigned i = 1; i < y->count; i++) {
                if (y->at[i].kind == AT_VGPR && y->at[i].index == x->at[0].index) {
                    y->at[i].kind = AT_SPARE;
                    y->at[i].plain = false;
                }
            }
        }
    }
    x->pair = pair;
    x->inner = x->run;
    x->run = run_dual;
}

static const struct op *target_of(const struct emu_kernel *k, const struct op *o)
{
    const char *space = strchr(o->text, ' ');
    if (space == NULL)
        return NULL;
    int64_t words = (int16_t)strtol(space, NULL, 0);
    uint64_t to = o->pc + 4 + (uint64_t)(words * 4);
    size_t low = 0, high = k->op_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (k->ops[middle].pc < to)
            low = middle + 1;
        else
            high = middle;
    }
    return low < k->op_count && k->ops[low].pc == to ? &k->ops[low] : NULL;
}

static void build_all(struct emu_kernel *k, size_t count)
{
    const char *text = k->texts;
    uint64_t pc = k->entry;
    struct op *spare = k->ops + count + 1;
    for (size_t i = 0; i < count; i++) {
        struct op *o = &k->ops[i];
        o->bytes = (uint8_t)*text++;
        o->text = text;
        o->pc = pc;
        pc += o->bytes;
        const char *dual = strstr(text, " :: ");
        op_build(k, text, dual != NULL ? (size_t)(dual - text) : strlen(text), o);
        if (dual != NULL) {
            op_build(k, dual + 4, strlen(dual + 4), spare);
            spare->text = text;
            spare->pc = o->pc;
            build_dual(o, spare++);
        }
        text += strlen(text) + 1;
    }
    k->ops[count].run = run_left;
    k->ops[count].text = "(behind the last instruction)";
    k->ops[count].pc = pc;
    k->op_count = count;
    for (size_t i = 0; i < count; i++) {
        struct op *o = &k->ops[i];
        if (strncmp(o->text, "s_branch", 8) == 0 || strncmp(o->text, "s_cbranch", 9) == 0) {
            o->target = target_of(k, o);
            if (o->target == NULL)
                o->run = run_unmodelled;
        }
    }
}

bool kernel_decode(struct emu_kernel *k)
{
    pthread_mutex_lock(&k->lock);
    if (k->ops == NULL && !k->failed) {
        struct listing l = {0};
        bool good = list_kernel(k, &l);
        k->texts = l.texts;
        if (good)
            k->ops = calloc(l.count + l.duals + 1, sizeof *k->ops);
        if (k->ops != NULL)
            build_all(k, l.count);
        else if (good)
            snprintf(k->why, sizeof k->why, "out of memory");
        k->failed = k->ops == NULL;
    }
    pthread_mutex_unlock(&k->lock);
    return !k->failed;
}

bool emu_kernel_list(const struct emu_kernel *kernel, emu_list_fn call, void *context, char *why,
                     size_t why_size)
{
    struct emu_kernel *k = (struct emu_kernel *)(uintptr_t)kernel;
    if (!kernel_decode(k)) {
        snprintf(why, why_size, "kernel %s: %s", k->name, k->why);
        return false;
    }
    for (size_t i = 0; i < k->op_count; i++)
        call(context, k->ops[i].pc, k->ops[i].text, k->ops[i].run != run_unmodelled);
    return true;
}
