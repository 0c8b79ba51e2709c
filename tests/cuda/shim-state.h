/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the library between the plugin and a driver share. */
#ifndef SHIM_STATE_H
#define SHIM_STATE_H

#include "shim.h"

enum shim_kind {
    SHIM_MEMORY = 1,
    SHIM_PINNED,
    SHIM_STREAM,
    SHIM_EVENT,
    SHIM_GRAPH,
    SHIM_EXEC,
    SHIM_MODULE,
    SHIM_PRIMARY /* its handle is the ordinal */
};

struct shim_object {
    struct shim_object *next;
    enum shim_kind kind;
    uint64_t handle;
    gpu_handle context;
};

/* The current context of the driver behind. */
gpu_handle shim_current(void);

/* Begins a call: counts it, and answers what it is to return, GPU_SUCCESS if the driver is to be called. */
gpu_result shim_enter(const char *name);
/* The object that a call releases is there, in the current context. */
gpu_result shim_check(const char *name, uint64_t first);
/* The call succeeded: what it made or released is written down. */
void shim_leave(const char *name, uint64_t first, uint64_t second, gpu_result failed);
/* Whether a call lets go of something. */
bool shim_releases(const char *name);
/* A graph of a capture that was made to fail. */
void shim_drop_graph(uint64_t graph);

void shim_each(void (*fn)(const struct shim_object *object));
/* Releases what is left with a function, and forgets counts, offences and failures. */
void shim_forget(void (*release)(const struct shim_object *object));
void shim_fail(uint64_t call, gpu_result result);
uint64_t shim_calls(void);
uint64_t shim_calls_of(const char *name);
const char *shim_failed(void);
const char *shim_offence(void);
uint32_t shim_leaks(char *text, size_t size);
uint32_t shim_living(gpu_handle context);
gpu_handle shim_primary(void);

#endif
