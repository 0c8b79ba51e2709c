/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Finds what a mnemonic means: a hash over the tables of the best tier that the host can run. */
#include <pthread.h>
#include <stdlib.h>

#include "emu-image.h"

#define SLOTS 4096

#define DECLARE_BASE(name) extern const struct entry_list name##_base;
EMU_LISTS(DECLARE_BASE)
extern const op_fn run_dpp_base;
#ifdef EMU_FAST_TIER
#define DECLARE_FAST(name) extern const struct entry_list name##_fast;
EMU_LISTS(DECLARE_FAST)
extern const op_fn run_dpp_fast;
#endif

static const struct entry *slots[SLOTS];
static op_fn dpp;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static size_t hash(const char *name)
{
    size_t h = 5381;
    for (; *name != '\0'; name++)
        h = h * 33 + (unsigned char)*name;
    return h % SLOTS;
}

static void add(const struct entry_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        size_t at = hash(list->entries[i].name);
        while (slots[at] != NULL) {
            if (strcmp(slots[at]->name, list->entries[i].name) == 0)
                abort(); /* a name that two tables give */
            at = (at + 1) % SLOTS;
        }
        slots[at] = &list->entries[i];
    }
}

static void fill(void)
{
#ifdef EMU_FAST_TIER
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && getenv("EMU_PLAIN") == NULL) {
#define ADD_FAST(name) add(&name##_fast);
        EMU_LISTS(ADD_FAST)
        dpp = run_dpp_fast;
        return;
    }
#endif
#define ADD_BASE(name) add(&name##_base);
    EMU_LISTS(ADD_BASE)
    dpp = run_dpp_base;
}

const struct entry *entry_find(const char *name)
{
    pthread_once(&once, fill);
    for (size_t at = hash(name); slots[at] != NULL; at = (at + 1) % SLOTS)
        if (strcmp(slots[at]->name, name) == 0)
            return slots[at];
    return NULL;
}

op_fn wrapper_dpp(void)
{
    pthread_once(&once, fill);
    return dpp;
}
