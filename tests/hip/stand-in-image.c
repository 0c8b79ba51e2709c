/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Whether a code object is for a device, judged by its ELF header as a HIP runtime does. */
#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "stand-in.h"

enum { MACHINE_AMDGPU = 224, OSABI_HSA = 64, CODE_OBJECT_4 = 2 };
/* Of e_flags: the processor, and what it says of two features: 1 any, 2 off, 3 on. */
enum { FLAG_PROCESSOR = 0xff, XNACK_SHIFT = 8, SRAMECC_SHIFT = 10 };
enum { FEATURE_ANY = 1, FEATURE_OFF = 2, FEATURE_ON = 3 };

static const struct {
    const char *name;
    unsigned processor;
} processors[] = {{"gfx803", 0x2a},  {"gfx900", 0x2c},  {"gfx906", 0x2f},  {"gfx908", 0x30},
                  {"gfx90a", 0x3f},  {"gfx942", 0x4c},  {"gfx950", 0x4f},  {"gfx1030", 0x36},
                  {"gfx1100", 0x41}, {"gfx1101", 0x46}, {"gfx1151", 0x4a}, {"gfx1200", 0x48},
                  {"gfx1201", 0x4e}};

static unsigned processor_of(const char *arch)
{
    const size_t length = strcspn(arch, ":");

    for (size_t i = 0; i < sizeof processors / sizeof processors[0]; i++)
        if (strlen(processors[i].name) == length && memcmp(processors[i].name, arch, length) == 0)
            return processors[i].processor;
    return 0;
}

/* Code that wants a feature on or off is for devices that have it so. */
static bool has_feature(const char *arch, const char *feature, unsigned wanted)
{
    const char *at = strstr(arch, feature);
    const char sign = at != NULL ? at[strlen(feature)] : '\0';

    if (wanted != FEATURE_OFF && wanted != FEATURE_ON)
        return true;
    return sign == (wanted == FEATURE_ON ? '+' : '-');
}

hip_result stand_image_check(const void *image, int device)
{
    Elf64_Ehdr header;
    char arch[64];

    if (image == NULL)
        return HIP_INVALID_VALUE;
    if (stand_word("any-image") != NULL)
        return HIP_SUCCESS;
    memcpy(header.e_ident, image, EI_NIDENT);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
        return HIP_INVALID_IMAGE;
    memcpy(&header, image, sizeof header);
    if (header.e_machine != MACHINE_AMDGPU || header.e_ident[EI_OSABI] != OSABI_HSA ||
        header.e_ident[EI_ABIVERSION] < CODE_OBJECT_4)
        return HIP_INVALID_IMAGE;
    stand_arch(device, arch, sizeof arch);
    if ((header.e_flags & FLAG_PROCESSOR) != processor_of(arch) ||
        !has_feature(arch, ":xnack", header.e_flags >> XNACK_SHIFT & 3) ||
        !has_feature(arch, ":sramecc", header.e_flags >> SRAMECC_SHIFT & 3))
        return HIP_NO_BINARY_FOR_GPU;
    return HIP_SUCCESS;
}
