/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A code object in memory and what its notes and kernel descriptors say. */
#ifndef EMU_IMAGE_H
#define EMU_IMAGE_H

#include <pthread.h>

#include "emu-wave.h"

/* What a launch writes behind the explicit argument, where a kernel asks for it. */
enum hidden_kind {
    HIDDEN_OTHER, /* a value nobody knows here: poison */
    HIDDEN_BLOCK_COUNT_X,
    HIDDEN_BLOCK_COUNT_Y,
    HIDDEN_BLOCK_COUNT_Z,
    HIDDEN_GROUP_SIZE_X,
    HIDDEN_GROUP_SIZE_Y,
    HIDDEN_GROUP_SIZE_Z,
    HIDDEN_ZERO, /* remainders, global offsets */
    HIDDEN_GRID_DIMS,
    HIDDEN_DYNAMIC_LDS,
};

struct hidden {
    uint16_t kind, size;
    uint32_t offset;
};

#define HIDDEN_MAX 32

struct emu_kernel {
    struct emu_image *image;
    char name[120];
    struct emu_properties properties;
    struct hidden hidden[HIDDEN_MAX];
    size_t hidden_count;
    uint64_t entry, end; /* addresses in the image */
    uint32_t rsrc1, rsrc2, rsrc3;
    uint16_t code_properties, preload;
    pthread_mutex_t lock;
    struct op *ops; /* decoded, with one more that says that the program was left */
    size_t op_count;
    char *texts;
    struct pool *pool;
    bool failed;
    char why[256];
};

struct emu_image {
    uint8_t *bytes; /* as loaded: address a of the image is at bytes + a */
    uint64_t size;
    char arch[16];
    uint32_t number; /* of the architecture, as in struct wave */
    struct emu_kernel *kernels;
    size_t kernel_count;
};

/* The metadata note's msgpack; fills the properties of the kernels it names. */
bool notes_read(struct emu_image *image, const uint8_t *note, size_t size);

/* Decodes what has not been; false with kernel->why set. */
bool kernel_decode(struct emu_kernel *kernel);

/* The disassembler of LLVM. */
struct disassembler;
struct disassembler *disassembler_open(const char *arch, bool wave64, char *why, size_t why_size);
void disassembler_close(struct disassembler *d);
/* Bytes taken, 0 for what is no instruction. */
size_t disassembler_read(struct disassembler *d, const uint8_t *code, size_t size, uint64_t pc, char *text,
                         size_t text_size);

const struct entry *entry_find(const char *name);
/* Fills what runs from the text; what is not modelled gets run_unmodelled. */
void op_build(struct emu_kernel *kernel, const char *text, size_t size, struct op *o);
const uint32_t *pool_lanes(struct emu_kernel *kernel, uint64_t value);
void pool_free(struct emu_kernel *kernel);
const char *name_common(const char *name);

/* Ends the program that runs past its last instruction. */
void run_left(struct wave *w, const struct op *o);
void run_unmodelled(struct wave *w, const struct op *o);
/* Wrappers: DPP, a result in EXEC, dual instructions. */
op_fn wrapper_dpp(void);
void run_exec(struct wave *w, const struct op *o);
void run_dual(struct wave *w, const struct op *o);

#endif
