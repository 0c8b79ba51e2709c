/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of a hostile plugin share: the stages of its life, its faults, and what variant.c chooses.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <stdbool.h>

#include "attn/plugin.h"

enum stage { AT_ENTRY, AT_DEVICES, AT_QUERY, AT_OPEN, AT_RUN, AFTER_TASKS, AT_CLOSE, AT_FINISH };

/* False makes the stage fail. */
typedef bool act_fn(enum stage stage, const struct attn_host *host);

/* Faults of the interface. Those of the file are in variant.c. */
enum fault {
    NO_FAULT,
    OTHER_VERSION, /* in the table than in the note */
    OLD_SIZE,      /* of the problem */
    NO_CLOSE,      /* a required entry is NULL */
    MOVING_AXES,   /* a new list at every call */
    HEAP_TABLE,    /* the table of the first instance is not that of the second */
    ONE_INSTANCE,  /* refuses to be entered twice */
    WHOLE_HOST,    /* copies more of the host's table than there is */
    FEW_DEVICES,   /* counts no more than it may write */
    DEVICE_BEYOND, /* writes a record that has no room */
    FEW_KERNELS,   /* counts no more than it may write */
    ODD_SPEED,     /* states a speed that there is not */
    REASON_BEYOND, /* writes a reason that has no room */
    ANY_VALUE,     /* serves what it has never heard of */
    WORDLESS,      /* fails without words */
    ALWAYS_WORDS   /* does not ask whether err is there */
};

extern act_fn *const hostile_act;
extern const enum fault hostile_fault;
/* Uses what a fault of the file needs. */
int32_t hostile_use(void);

#endif
