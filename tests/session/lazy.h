/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the test reads of the plugin whose streams do nothing before they have to. */
#ifndef LAZY_H
#define LAZY_H

#include <stdint.h>

/* The plugin finds it by its address in this variable. */
#define LAZY_VARIABLE "SESSION_LAZY_COUNTS"

struct lazy_counts {
    uint32_t no_events; /* set by the test: events are refused */
    uint32_t launches, copies, writes, runs;
    uint32_t clears; /* runs that clear counters first */
    uint32_t waits;  /* for streams and events */
    uint32_t pending;
    uint32_t streams, events; /* that live */
    uint32_t strays;          /* calls with a stream that does not live */
};

#endif
