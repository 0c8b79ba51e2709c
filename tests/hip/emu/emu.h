/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Runs AMD GPU code objects on the host: decodes a kernel once, interprets it wave by wave, and stops with a
 * sentence at anything that a GPU would fault at, race over or leave undefined.
 *
 *   EMU_THREADS   host threads that run work-groups (default: the processors)
 *   EMU_LIMIT     instructions a wave may take in one launch, in millions (default 2000)
 *   EMU_SEED      another order of waves and work-groups, another poison
 *   EMU_LLVM      the LLVM library whose disassembler is used
 */
#ifndef EMU_H
#define EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct emu_image;
struct emu_kernel; /* belongs to its image */

/* Global memory that may be touched; a list of them is sorted by `begin` and does not overlap. */
struct emu_range {
    uint64_t begin, end;
    bool writable;
};

struct emu_launch {
    const struct emu_kernel *kernel;
    const void *argument;
    size_t argument_size;
    uint32_t grid[3]; /* work-groups */
    uint32_t threads; /* of a work-group, along x */
    uint32_t shared_bytes;
    const struct emu_range *ranges;
    size_t range_count;
};

struct emu_properties {
    uint32_t wave_size;
    uint32_t vgprs, agprs, sgprs; /* agprs: those beside the vgprs */
    uint32_t vgpr_spills, sgpr_spills;
    uint32_t lds_bytes, scratch_bytes, kernarg_bytes;
    uint32_t argument_bytes; /* of kernarg_bytes what the caller gives */
    uint32_t max_threads;    /* of a work-group; 0: not told */
};

enum emu_result { EMU_OK, EMU_ADDRESS, EMU_LDS, EMU_RACE, EMU_BARRIER, EMU_UNMODELLED, EMU_LIMIT };

/* The image's size is taken from its headers; it is copied. */
bool emu_image_open(const void *image, struct emu_image **out, char *why, size_t why_size);
void emu_image_close(struct emu_image *image);
const char *emu_image_arch(const struct emu_image *image); /* "gfx90a" */

const struct emu_kernel *emu_kernel_find(struct emu_image *image, const char *name);
size_t emu_kernel_count(const struct emu_image *image);
const struct emu_kernel *emu_kernel_at(struct emu_image *image, size_t index);
const char *emu_kernel_name(const struct emu_kernel *kernel);
struct emu_properties emu_kernel_properties(const struct emu_kernel *kernel);

/* Called for each instruction of the kernel; `modelled` says whether emu_run could take it. */
typedef void (*emu_list_fn)(void *context, uint64_t pc, const char *text, bool modelled);
bool emu_kernel_list(const struct emu_kernel *kernel, emu_list_fn call, void *context, char *why,
                     size_t why_size);

/* `why` names the kernel, work-group, pc, instruction and address of what is not EMU_OK. */
enum emu_result emu_run(const struct emu_launch *launch, char *why, size_t why_size);

uint64_t emu_instructions(void); /* that waves of this process have run so far */

#endif
