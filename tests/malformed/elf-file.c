/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Edits the bytes of a shared object. */
#define _GNU_SOURCE
#include "elf-file.h"

#include <stdio.h>
#include <stdlib.h>

#include "attn/plugin.h"

static void *need(void *found, const char *what)
{
    if (found == NULL) {
        fprintf(stderr, "elf-file: no %s\n", what);
        exit(99);
    }
    return found;
}

void elf_read(struct elf_file *file, const char *kind)
{
    file->bytes = malformed_read(kind, &file->size);
}

void elf_free(struct elf_file *file)
{
    free(file->bytes);
}

void elf_write(const struct elf_file *file, const struct malformed *malformed, const char *name)
{
    malformed_write(malformed, name, file->bytes, file->size);
}

void elf_resize(struct elf_file *file, size_t size)
{
    file->bytes = need(realloc(file->bytes, size + 1), "memory");
    if (size > file->size)
        memset(file->bytes + file->size, 0, size - file->size);
    file->size = size;
}

void elf_rename(struct elf_file *file, const char *name)
{
    static const char old[] = "try000";
    unsigned char *end = file->bytes + file->size, *p = file->bytes;

    while ((p = memmem(p, (size_t)(end - p), old, sizeof old - 1)) != NULL) {
        memcpy(p, name, sizeof old - 1);
        p += sizeof old - 1;
    }
}

Elf64_Ehdr *elf_header(const struct elf_file *file)
{
    return (Elf64_Ehdr *)(void *)file->bytes;
}

static Elf64_Phdr *headers(const struct elf_file *file)
{
    return (Elf64_Phdr *)(void *)(file->bytes + elf_header(file)->e_phoff);
}

Elf64_Phdr *elf_segment(const struct elf_file *file, uint32_t type, unsigned turn)
{
    Elf64_Phdr *found = NULL;

    for (unsigned i = 0; i < elf_header(file)->e_phnum && found == NULL; i++)
        if (headers(file)[i].p_type == type && turn-- == 0)
            found = &headers(file)[i];
    return need(found, "segment of that type");
}

Elf64_Dyn *elf_dynamic(const struct elf_file *file, int64_t tag)
{
    const Elf64_Phdr *segment = elf_segment(file, PT_DYNAMIC, 0);
    Elf64_Dyn *entries = (Elf64_Dyn *)(void *)(file->bytes + segment->p_offset), *found = NULL;

    for (size_t i = 0; i < segment->p_filesz / sizeof *entries && found == NULL; i++) {
        if (entries[i].d_tag == tag)
            found = &entries[i];
        if (entries[i].d_tag == DT_NULL)
            break;
    }
    return need(found, "entry of that tag");
}

void *elf_at(const struct elf_file *file, uint64_t address)
{
    void *found = NULL;

    for (unsigned i = 0; i < elf_header(file)->e_phnum && found == NULL; i++) {
        const Elf64_Phdr *p = &headers(file)[i];
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && address - p->p_vaddr < p->p_filesz)
            found = file->bytes + p->p_offset + (address - p->p_vaddr);
    }
    return need(found, "such address");
}

Elf64_Nhdr *elf_note_header(const struct elf_file *file)
{
    static const char start[] = "\1\0\0\0" ATTN_NOTE_OWNER; /* type and owner */
    unsigned char *found = memmem(file->bytes, file->size, start, sizeof start);

    return (Elf64_Nhdr *)(void *)((unsigned char *)need(found, "note") - 2 * sizeof(uint32_t));
}

struct attn_note *elf_note(const struct elf_file *file)
{
    return (struct attn_note *)(void *)((unsigned char *)(elf_note_header(file) + 1) +
                                        sizeof ATTN_NOTE_OWNER);
}

size_t elf_loaded_size(const struct elf_file *file)
{
    size_t end = 0;

    for (unsigned i = 0; i < elf_header(file)->e_phnum; i++) {
        const Elf64_Phdr *p = &headers(file)[i];
        if (p->p_type == PT_LOAD && p->p_offset + p->p_filesz > end)
            end = p->p_offset + p->p_filesz;
    }
    return end;
}

void elf_grow_headers(struct elf_file *file, unsigned more)
{
    size_t size = elf_header(file)->e_phnum * sizeof(Elf64_Phdr), at = (file->size + 15) / 16 * 16;

    elf_resize(file, at + size + more * sizeof(Elf64_Phdr));
    memcpy(file->bytes + at, headers(file), size);
    elf_header(file)->e_phoff = at;
    elf_header(file)->e_phnum = (uint16_t)(elf_header(file)->e_phnum + more);
}
