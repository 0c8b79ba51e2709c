/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Loads an AMD GPU code object: segments, kernel descriptors, notes. */
#include "emu-image.h"

#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    uint32_t mach, number;
    const char *name;
} archs[] = {
    {0x2f, 0x906, "gfx906"},   {0x30, 0x908, "gfx908"},   {0x3f, 0x90a, "gfx90a"},
    {0x4c, 0x942, "gfx942"},   {0x4f, 0x950, "gfx950"},   {0x36, 0x1030, "gfx1030"},
    {0x41, 0x1100, "gfx1100"}, {0x46, 0x1101, "gfx1101"}, {0x4a, 0x1151, "gfx1151"},
    {0x48, 0x1200, "gfx1200"}, {0x4e, 0x1201, "gfx1201"},
};

#define NT_AMDGPU_METADATA_TYPE 32

__attribute__((format(printf, 3, 4))) static bool refuse(char *why, size_t why_size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, why_size, format, list);
    va_end(list);
    return false;
}

static bool check_header(const Elf64_Ehdr *h, struct emu_image *image, char *why, size_t why_size)
{
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64)
        return refuse(why, why_size, "the image is no 64-bit ELF file");
    if (h->e_machine != 224)
        return refuse(why, why_size, "the image is for ELF machine %u, not for AMD GPUs (224)", h->e_machine);
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (archs[i].mach == (h->e_flags & 0xff)) {
            image->number = archs[i].number;
            snprintf(image->arch, sizeof image->arch, "%s", archs[i].name);
            return true;
        }
    }
    return refuse(why, why_size, "the image is for an architecture that is not modelled (e_flags %#x)",
                  h->e_flags);
}

static bool load_segments(const uint8_t *file, struct emu_image *image, char *why, size_t why_size)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)file;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(file + h->e_phoff);
    for (size_t i = 0; i < h->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && p[i].p_vaddr + p[i].p_memsz > image->size)
            image->size = p[i].p_vaddr + p[i].p_memsz;
    uint64_t bytes = (image->size + 4095) / 4096 * 4096;
    image->bytes = bytes == 0 || bytes > 1u << 30 ? NULL : aligned_alloc(4096, bytes);
    if (image->bytes == NULL)
        return refuse(why, why_size, "the image's segments take %llu bytes", (unsigned long long)image->size);
    memset(image->bytes, 0, bytes);
    for (size_t i = 0; i < h->e_phnum; i++)
        if (p[i].p_type == PT_LOAD)
            memcpy(image->bytes + p[i].p_vaddr, file + p[i].p_offset, p[i].p_filesz);
    return true;
}

static void read_descriptor(struct emu_kernel *k, uint64_t at)
{
    const uint8_t *d = k->image->bytes + at;
    int64_t entry;
    memcpy(&k->properties.lds_bytes, d, 4);
    memcpy(&k->properties.scratch_bytes, d + 4, 4);
    memcpy(&k->properties.kernarg_bytes, d + 8, 4);
    memcpy(&entry, d + 16, 8);
    memcpy(&k->rsrc3, d + 44, 4);
    memcpy(&k->rsrc1, d + 48, 4);
    memcpy(&k->rsrc2, d + 52, 4);
    memcpy(&k->code_properties, d + 56, 2);
    memcpy(&k->preload, d + 58, 2);
    k->entry = at + (uint64_t)entry;
}

static const Elf64_Shdr *section(const uint8_t *file, uint32_t type)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)file;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(const void *)(file + h->e_shoff);
    for (size_t i = 0; i < h->e_shnum; i++)
        if (s[i].sh_type == type)
            return &s[i];
    return NULL;
}

/* Kernels are the symbols NAME.kd; NAME itself tells how long the code is. */
static bool find_kernels(const uint8_t *file, struct emu_image *image, char *why, size_t why_size)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)file;
    const Elf64_Shdr *table = section(file, SHT_DYNSYM);
    if (table == NULL)
        return refuse(why, why_size, "the image has no dynamic symbols");
    const Elf64_Sym *symbols = (const Elf64_Sym *)(const void *)(file + table->sh_offset);
    const Elf64_Shdr *strings = (const Elf64_Shdr *)(const void *)(file + h->e_shoff) + table->sh_link;
    const char *names = (const char *)file + strings->sh_offset;
    size_t count = table->sh_size / sizeof *symbols;
    image->kernels = calloc(count + 1, sizeof *image->kernels);
    if (image->kernels == NULL)
        return refuse(why, why_size, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const char *name = names + symbols[i].st_name;
        size_t n = strlen(name);
        struct emu_kernel *k = &image->kernels[image->kernel_count];
        if (n < 4 || n - 3 >= sizeof k->name || strcmp(name + n - 3, ".kd") != 0 ||
            symbols[i].st_value + 64 > image->size)
            continue;
        image->kernel_count++;
        k->image = image;
        pthread_mutex_init(&k->lock, NULL);
        memcpy(k->name, name, n - 3);
        read_descriptor(k, symbols[i].st_value);
        for (size_t j = 0; j < count; j++)
            if (strcmp(names + symbols[j].st_name, k->name) == 0)
                k->end = k->entry + symbols[j].st_size;
        if (k->end <= k->entry || k->end > image->size)
            return refuse(why, why_size, "kernel %s has no code", k->name);
    }
    return true;
}

static bool read_notes(const uint8_t *file, struct emu_image *image, char *why, size_t why_size)
{
    const Elf64_Shdr *notes = section(file, SHT_NOTE);
    if (notes == NULL || notes->sh_size < 12)
        return refuse(why, why_size, "the image has no notes");
    const uint8_t *at = file + notes->sh_offset, *end = at + notes->sh_size;
    while (end - at >= 12) {
        uint32_t head[3];
        memcpy(head, at, sizeof head);
        uint64_t name = (head[0] + 3ull) / 4 * 4, body = (head[1] + 3ull) / 4 * 4;
        if ((uint64_t)(end - at) < 12 + name + body)
            break;
        if (head[2] == NT_AMDGPU_METADATA_TYPE) {
            if (notes_read(image, at + 12 + name, head[1]))
                return true;
            break;
        }
        at += 12 + name + body;
    }
    return refuse(why, why_size, "the image has no metadata of kernels that can be read");
}

bool emu_image_open(const void *file, struct emu_image **out, char *why, size_t why_size)
{
    struct emu_image *image = calloc(1, sizeof *image);
    *out = NULL;
    if (image == NULL)
        return refuse(why, why_size, "out of memory");
    if (check_header(file, image, why, why_size) && load_segments(file, image, why, why_size) &&
        find_kernels(file, image, why, why_size) && read_notes(file, image, why, why_size)) {
        *out = image;
        return true;
    }
    emu_image_close(image);
    return false;
}

void emu_image_close(struct emu_image *image)
{
    if (image == NULL)
        return;
    for (size_t i = 0; i < image->kernel_count; i++) {
        struct emu_kernel *k = &image->kernels[i];
        pthread_mutex_destroy(&k->lock);
        free(k->ops);
        free(k->texts);
        pool_free(k);
    }
    free(image->kernels);
    free(image->bytes);
    free(image);
}

const char *emu_image_arch(const struct emu_image *image)
{
    return image->arch;
}

const struct emu_kernel *emu_kernel_find(struct emu_image *image, const char *name)
{
    for (size_t i = 0; i < image->kernel_count; i++)
        if (strcmp(image->kernels[i].name, name) == 0)
            return &image->kernels[i];
    return NULL;
}

size_t emu_kernel_count(const struct emu_image *image)
{
    return image->kernel_count;
}

const struct emu_kernel *emu_kernel_at(struct emu_image *image, size_t index)
{
    return &image->kernels[index];
}

const char *emu_kernel_name(const struct emu_kernel *kernel)
{
    return kernel->name;
}

struct emu_properties emu_kernel_properties(const struct emu_kernel *kernel)
{
    return kernel->properties;
}
