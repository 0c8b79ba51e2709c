/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the fake driver share. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include "fake.h"
#include "fiber.h"

/* The driver's interface under the names that its file exports. */
#define GPU_ENTRY(name, call, symbol, optional, parameters)                                                  \
    FAKE_API gpu_result call parameters __asm__(symbol);
#include "driver.def"

#define FAKE_DEVICES_MAX  8
#define FAKE_MEMORY_BYTES (UINT64_C(1) << 30)

enum fake_kind {
    FAKE_CONTEXT = 1,
    FAKE_MEMORY,
    FAKE_PINNED,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_GRAPH,
    FAKE_EXEC,
    FAKE_MODULE,
    FAKE_FUNCTION /* goes with its module */
};

/* One call that a capture keeps. */
struct fake_work {
    struct fake_work *next;
    enum { FAKE_COPY = 1, FAKE_SET, FAKE_LAUNCH, FAKE_HOST } what;
    void *to;
    const void *from;
    size_t size;
    int value;
    const void *kernel;
    const void *code; /* of an emulator, in place of a kernel */
    struct fiber_grid grid;
    void (*host)(void *arg);
    void *arg;
    _Alignas(64) unsigned char argument[4096];
};

struct fake_object {
    struct fake_object *next;
    enum fake_kind kind;
    struct fake_object *context;
    void *memory;                         /* FAKE_MEMORY, FAKE_PINNED */
    size_t size;                          /* of it; context: the ordinal of its device */
    struct fake_work *works, **last_work; /* graph, exec */
    struct fake_object
        *capture; /* stream: the graph that it keeps calls for; memory: that frees it; function: its module */
    const void *kernel; /* function */
    const void *code;   /* function of a module that is emulated */
    void *image;        /* module: the emulator's, NULL = all kernels on fibers */
    gpu_result lost;    /* context: the error that it answers from now on */
};

/* Begins a call: counts it, and answers what it is to return, GPU_SUCCESS if it is to be done. */
gpu_result fake_enter(const char *name, bool needs_context);
void fake_offend(const char *format, ...) __attribute__((format(printf, 1, 2)));
struct fake_object *fake_new(enum fake_kind kind, void *memory, size_t size);
/* Of a module, listed with its kernel. */
struct driver_kernel;
struct fake_object *fake_new_function(const struct driver_kernel *kernel, const void *code,
                                      struct fake_object *module);
/* The live object of a handle, or NULL after saying so. */
struct fake_object *fake_take(gpu_handle handle, enum fake_kind kind, const char *name);
/* The device memory at an address, of `size` bytes at least; NULL after saying so. */
void *fake_reach(gpu_pointer address, size_t size, const char *name);
/* The live allocation that begins at an address, or NULL. */
struct fake_object *fake_find_memory(const void *memory, enum fake_kind kind);
/* The current one. */
struct fake_object *fake_context(void);
/* Forgets an object: a handle of it is one that does not exist. */
void fake_drop(struct fake_object *object);
/* Those of a module that goes. */
void fake_drop_functions(const struct fake_object *module);
/* Bytes of device memory in use, of all contexts. */
uint64_t fake_taken(void);
void fake_release_works(struct fake_object *object);

/* A stream that is not captured does a work at once; one that is keeps it. */
gpu_result fake_submit(const char *name, gpu_handle stream, const struct fake_work *work);

extern struct fake_machine fake_machine;

/* fake-device.c */
void fake_devices_reset(void);
uint32_t fake_retained(int ordinal);
gpu_handle fake_current(uint32_t *out_depth);
gpu_handle fake_context_push(int ordinal);
void fake_context_pop(void);

/* fake-keep.c: what the variable FAKE_CUDA says, for programs that are no tests of this driver. */
void fake_keep_at_start(void);
void fake_keep_at_open(void);
bool fake_is_strict(void);

gpu_result fake_kernel_run(const struct fake_work *work);

/*
 * Code of AMD's GPUs, which an emulator runs: fake-emulate.c, or fake-no-emulator.c, which takes none. A run
 * answers what a device would, after saying what was wrong.
 */
bool fake_emulator_open(const void *image, void **out);
void fake_emulator_close(void *image);
const void *fake_emulator_find(void *image, const char *name);
size_t fake_emulator_argument(const void *code);
gpu_result fake_emulator_run(const struct fake_work *work);
/* Live memory that a kernel of the current context may touch, at most `room` of it; returns how much there
 * is. */
struct fake_extent {
    uint64_t begin, end;
};
size_t fake_list_memory(size_t room, struct fake_extent *out);

#endif
