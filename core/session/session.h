/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A session: one problem, one backend, and the memory that its calls share. */
#ifndef ATTN_SESSION_H
#define ATTN_SESSION_H

#include "attn/device.h"
#include "dispatch/call.h"

/* Host memory that copies to the device read: pinned where the backend has such memory. */
struct attn__host_block {
    void *data;
    uint64_t size;
    bool pinned;
};

struct attn_session {
    struct attn_context *context;
    struct attn_backend *backend;
    struct attn_problem problem; /* as opened: its maxima that are given are limits */

    struct attn_plan *plan;     /* of `maxima`; NULL until the first call */
    struct attn_problem maxima; /* the problem with the maxima of the plan */
    struct attn_span work;      /* device memory of schedule, scratch and counters */
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct attn__host_block staging;

    int32_t *next; /* the arrays of the call at hand, before it is known whether they are new */
    uint64_t next_words;
    struct attn__host_block arrays; /* the arrays of the step that was prepared last ... */
    struct attn_span device_arrays; /* ... and on the device */
    struct attn_batch batch;        /* points to device_arrays */
    struct attn_batch_host copies;  /* points to arrays */
    bool prepared;                  /* the schedule is that of `batch` */

    void *event;    /* reached when the step's arrays were copied; NULL: the backend has no events */
    void *stream;   /* of the last call */
    bool in_flight; /* copies of the step may still be read */
};

/* ---------------------------------------------------------------- workspace.c */

/* Makes a plan for the step in `batch` unless the one that is there is large enough, and its memory. */
int32_t attn__session_plan(struct attn_session *session, struct attn_error *err);
/* Makes room for `words` numbers of 32 bits in `arrays` and `device_arrays`. */
int32_t attn__session_room(struct attn_session *session, uint64_t words, struct attn_error *err);
/* Waits until the host memory of the last step is no longer read. */
int32_t attn__session_wait(struct attn_session *session, struct attn_error *err);
/* Marks the host memory as read until the stream has come here. */
int32_t attn__session_mark(struct attn_session *session, struct attn_error *err);
void attn__session_free(struct attn_session *session);

#endif
