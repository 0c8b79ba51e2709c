/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Judges the dynamic section of a shared object just before it is loaded. A trial in a child process does not
 * find all of this: where a damaged address leads to depends on what a process has mapped there.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "elf-object.h"

#define BAD(object, ...) attn__object_refuse((object), ATTN_REASON_BAD_ELF, __VA_ARGS__)

#define ENTRIES_MOST 4096

void *attn__object_copy(const struct attn__object *object, uint64_t address, uint64_t size)
{
    const Elf64_Phdr *p = attn__object_holder(object, address, size);
    if (p == NULL || size > p->p_filesz || address - p->p_vaddr > p->p_filesz - size)
        return NULL;
    char *copy = malloc(size > 0 ? size : 1);
    for (uint64_t done = 0; copy != NULL && done < size;) {
        ssize_t n =
            pread(object->fd, copy + done, size - done, (off_t)(p->p_offset + (address - p->p_vaddr) + done));
        if (n <= 0) {
            free(copy);
            return NULL;
        }
        done += (uint64_t)n;
    }
    return copy;
}

/* Keeps one entry; those that nobody here asks for are passed over. */
static void keep(struct attn__object *object, const Elf64_Dyn *entry)
{
    const uint64_t value = entry->d_un.d_val;
    switch (entry->d_tag) {
    case DT_GNU_HASH:
        object->gnu_hash = value;
        break;
    case DT_VERSYM:
        object->versym = value;
        break;
    case DT_VERDEF:
        object->verdef = value;
        break;
    case DT_VERDEFNUM:
        object->verdefnum = value;
        break;
    case DT_VERNEED:
        object->verneed = value;
        break;
    case DT_VERNEEDNUM:
        object->verneednum = value;
        break;
    case DT_FLAGS_1:
        object->flags_1 = value;
        break;
    default:
        if (entry->d_tag > 0 && entry->d_tag < ATTN__TAGS) {
            object->has[entry->d_tag] = true;
            object->value[entry->d_tag] = value;
        }
    }
}

static bool is_name(int64_t tag)
{
    return tag == DT_NEEDED || tag == DT_SONAME || tag == DT_RPATH || tag == DT_RUNPATH ||
           tag == DT_AUXILIARY || tag == DT_FILTER;
}

/* A table and its size in bytes; without the table nothing is judged. */
struct extent {
    const char *name;
    int address, size;
    uint64_t entry; /* bytes of one */
};

static uint32_t check_extents(const struct attn__object *object)
{
    static const struct extent extents[] = {
        {"STRTAB", DT_STRTAB, DT_STRSZ, 1},
        {"RELA", DT_RELA, DT_RELASZ, sizeof(Elf64_Rela)},
        {"JMPREL", DT_JMPREL, DT_PLTRELSZ, sizeof(Elf64_Rela)},
        {"RELR", DT_RELR, DT_RELRSZ, sizeof(uint64_t)},
        {"INIT_ARRAY", DT_INIT_ARRAY, DT_INIT_ARRAYSZ, sizeof(uint64_t)},
        {"FINI_ARRAY", DT_FINI_ARRAY, DT_FINI_ARRAYSZ, sizeof(uint64_t)},
    };
    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
        const struct extent *e = &extents[i];
        if (!object->has[e->address])
            continue;
        const uint64_t at = object->value[e->address];
        const uint64_t size = object->has[e->size] ? object->value[e->size] : 0;
        if (attn__object_holder(object, at, size) == NULL || size % e->entry != 0)
            return BAD(object, "DT_%s of the file has %llu bytes at address %#llx, which are not loaded",
                       e->name, (unsigned long long)size, (unsigned long long)at);
    }
    return 0;
}

static uint32_t check_sizes(const struct attn__object *object)
{
    static const struct {
        const char *name;
        int tag;
        uint64_t value;
    } sizes[] = {{"SYMENT", DT_SYMENT, sizeof(Elf64_Sym)},
                 {"RELAENT", DT_RELAENT, sizeof(Elf64_Rela)},
                 {"RELRENT", DT_RELRENT, sizeof(uint64_t)},
                 {"PLTREL", DT_PLTREL, DT_RELA}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (object->has[sizes[i].tag] && object->value[sizes[i].tag] != sizes[i].value)
            return BAD(object, "DT_%s of the file is %llu; %llu is accepted", sizes[i].name,
                       (unsigned long long)object->value[sizes[i].tag], (unsigned long long)sizes[i].value);
    if (object->has[DT_REL] && object->has[DT_RELSZ] && object->value[DT_RELSZ] != 0)
        return BAD(object,
                   "the file has relocations without addends (DT_REL), which this machine does not know");
    return 0;
}

static uint32_t check_code(const struct attn__object *object)
{
    static const struct {
        const char *name;
        int tag;
    } calls[] = {{"INIT", DT_INIT}, {"FINI", DT_FINI}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (!object->has[calls[i].tag])
            continue;
        const uint64_t at = object->value[calls[i].tag];
        const Elf64_Phdr *p = attn__object_holder(object, at, 1);
        if (p == NULL || (p->p_flags & PF_X) == 0)
            return BAD(object, "DT_%s of the file is %#llx, where no code is", calls[i].name,
                       (unsigned long long)at);
    }
    if ((object->flags_1 & DF_1_PIE) != 0)
        return BAD(object, "the file is a position-independent program, not a shared object");
    return 0;
}

static uint32_t read_entries(struct attn__object *object, const Elf64_Dyn *entries, uint64_t count)
{
    uint64_t i = 0;
    while (i < count && entries[i].d_tag != DT_NULL)
        keep(object, &entries[i++]);
    if (i == count)
        return BAD(object, "the dynamic section of the file has no end");
    if (!object->has[DT_STRTAB] || !object->has[DT_STRSZ] || !object->has[DT_SYMTAB])
        return BAD(object, "the file has no DT_STRTAB, DT_STRSZ or DT_SYMTAB");
    uint32_t reason = check_extents(object);
    if (reason == 0)
        reason = check_sizes(object);
    if (reason == 0)
        reason = check_code(object);
    if (reason != 0)
        return reason;
    const uint64_t size = object->value[DT_STRSZ];
    char *last = size > 0 ? attn__object_copy(object, object->value[DT_STRTAB] + size - 1, 1) : NULL;
    const bool ends = last != NULL && *last == '\0';
    free(last);
    if (!ends)
        return BAD(object, "DT_STRTAB of the file has no end");
    for (i = 0; entries[i].d_tag != DT_NULL; i++)
        if (is_name(entries[i].d_tag) && entries[i].d_un.d_val >= size)
            return BAD(object, "%s of the file is no string: its offset is %llu of %llu",
                       entries[i].d_tag == DT_NEEDED ? "DT_NEEDED" : "a name",
                       (unsigned long long)entries[i].d_un.d_val, (unsigned long long)size);
    return 0;
}

uint32_t attn__elf_check(int fd, char *text, size_t size)
{
    struct attn__object object = {.fd = fd, .text = text, .text_size = size};
    Elf64_Phdr headers[ATTN__HEADERS_MOST];
    uint32_t reason = attn__elf_headers(&object, headers);
    if (reason != 0)
        return reason;
    const Elf64_Phdr *dynamic = attn__object_segment(&object, PT_DYNAMIC);
    const uint64_t count = dynamic->p_memsz / sizeof(Elf64_Dyn);
    Elf64_Dyn *entries =
        count <= ENTRIES_MOST ? attn__object_copy(&object, dynamic->p_vaddr, count * sizeof *entries) : NULL;
    if (entries == NULL)
        return BAD(&object, "the dynamic section of the file has %llu entries, or cannot be read",
                   (unsigned long long)count);
    reason = read_entries(&object, entries, count);
    free(entries);
    if (reason == 0)
        reason = attn__symbols_check(&object);
    return reason == 0 ? attn__relocations_check(&object) : reason;
}
