/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A backend whose stream is as late as can be: copies and launches that are put on it are done when somebody
 * waits for them, and marks are reached then. Counts what is asked of the backend.
 */
#ifndef TEST_GRAPH_QUEUE_H
#define TEST_GRAPH_QUEUE_H

#include "attn/device.h"

/* Calls of the backend's tables since queue_clear, whatever the stream. */
struct queue_counts {
    uint32_t to_device;
    uint32_t to_host;
    uint32_t on_device;
    uint32_t launches;
    uint32_t prepares; /* plans, with or without a capture */
    uint32_t runs;
    uint32_t writes;
    uint64_t bytes; /* of the copies to the device */
};

/* Stands before the tables of the backend, one at a time, until queue_finish. `late`: streams are late. */
void queue_init(struct attn_backend *backend, int late);
void queue_finish(struct attn_backend *backend);
void queue_clear(void);
struct queue_counts queue_counts(void);
/* Faults: the next copies to the device fail; plans are refused without host copies. */
void queue_fail_copies(uint32_t count);
void queue_refuse_device_plans(int refuse);
/* The status of the first thing that went wrong behind somebody's back. */
int32_t queue_status(void);

#endif
