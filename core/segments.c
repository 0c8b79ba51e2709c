/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Judges the program headers of a shared object. The dynamic linker believes them: it would map, clear and
 * protect memory of the host wherever a damaged header points to.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "elf-object.h"

/* No plugin needs as much. */
#define MEMORY_MOST (UINT64_C(1) << 40)

uint32_t attn__object_refuse(const struct attn__object *object, uint32_t reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(object->text, object->text_size, format, args);
    va_end(args);
    return reason;
}

#define BAD(object, ...) attn__object_refuse((object), ATTN_REASON_BAD_ELF, __VA_ARGS__)

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t page_up(uint64_t address)
{
    return (address + page_size() - 1) / page_size() * page_size();
}

const Elf64_Phdr *attn__object_segment(const struct attn__object *object, uint32_t type)
{
    for (unsigned i = 0; i < object->count; i++)
        if (object->headers[i].p_type == type)
            return &object->headers[i];
    return NULL;
}

const Elf64_Phdr *attn__object_holder(const struct attn__object *object, uint64_t address, uint64_t size)
{
    for (unsigned i = 0; i < object->count; i++) {
        const Elf64_Phdr *p = &object->headers[i];
        if (p->p_type == PT_LOAD && address >= p->p_vaddr && size <= p->p_memsz &&
            address - p->p_vaddr <= p->p_memsz - size)
            return p;
    }
    return NULL;
}

static uint32_t check_range(const struct attn__object *object, unsigned index)
{
    const Elf64_Phdr *p = &object->headers[index];
    if (p->p_offset <= object->file_size && p->p_filesz <= object->file_size - p->p_offset)
        return 0;
    return attn__object_refuse(object, ATTN_REASON_TRUNCATED,
                               "the file ends at byte %llu, its segment %u has %llu bytes from byte %llu on",
                               (unsigned long long)object->file_size, index, (unsigned long long)p->p_filesz,
                               (unsigned long long)p->p_offset);
}

/* `end` is where the memory of the segments before it ends. */
static uint32_t check_load(const struct attn__object *object, unsigned index, uint64_t *end)
{
    const Elf64_Phdr *p = &object->headers[index];
    if (p->p_filesz > p->p_memsz || p->p_vaddr + p->p_memsz < p->p_vaddr)
        return BAD(object, "segment %u of the file is larger than its memory", index);
    if (p->p_vaddr + p->p_memsz > MEMORY_MOST)
        return BAD(object, "segment %u of the file ends at address %#llx; %#llx is accepted", index,
                   (unsigned long long)(p->p_vaddr + p->p_memsz), (unsigned long long)MEMORY_MOST);
    if ((p->p_align & (p->p_align - 1)) != 0 || (p->p_align > 1 && p->p_align < page_size()))
        return BAD(object,
                   "segment %u of the file is aligned to %llu; a power of two from %llu on is accepted",
                   index, (unsigned long long)p->p_align, (unsigned long long)page_size());
    if ((p->p_vaddr - p->p_offset) % (p->p_align > 1 ? p->p_align : page_size()) != 0)
        return BAD(object,
                   "segment %u of the file has offset %#llx and address %#llx, which no page can have", index,
                   (unsigned long long)p->p_offset, (unsigned long long)p->p_vaddr);
    if (p->p_vaddr / page_size() * page_size() < *end)
        return BAD(object, "segment %u of the file begins at address %#llx, before the end of another one",
                   index, (unsigned long long)p->p_vaddr);
    *end = page_up(p->p_vaddr + p->p_memsz);
    return 0;
}

static uint32_t check_dynamic(const struct attn__object *object)
{
    const Elf64_Phdr *dynamic = attn__object_segment(object, PT_DYNAMIC);
    if (attn__object_segment(object, PT_LOAD) == NULL || dynamic == NULL)
        return BAD(object, "the file has no %s segment", dynamic != NULL ? "loadable" : "dynamic");
    const Elf64_Phdr *p = attn__object_holder(object, dynamic->p_vaddr, dynamic->p_memsz);
    if (p == NULL || dynamic->p_memsz > p->p_filesz ||
        dynamic->p_vaddr - p->p_vaddr > p->p_filesz - dynamic->p_memsz)
        return BAD(object, "the dynamic segment of the file is not loaded");
    if (dynamic->p_offset - p->p_offset != dynamic->p_vaddr - p->p_vaddr)
        return BAD(object, "the dynamic segment of the file has another place in memory than in the file");
    return 0;
}

/* What is made read-only after relocation may end with the page of its segment. */
static uint32_t check_relro(const struct attn__object *object, unsigned index)
{
    const Elf64_Phdr *relro = &object->headers[index];
    const Elf64_Phdr *p = attn__object_holder(object, relro->p_vaddr, 0);
    if (relro->p_memsz == 0)
        return 0;
    if (p == NULL || relro->p_memsz > MEMORY_MOST ||
        relro->p_vaddr + relro->p_memsz > page_up(p->p_vaddr + p->p_memsz))
        return BAD(object, "segment %u of the file, read-only after relocation, is not loaded", index);
    return 0;
}

static uint32_t check_tls(const struct attn__object *object, unsigned index)
{
    const Elf64_Phdr *tls = &object->headers[index];
    const Elf64_Phdr *p = attn__object_holder(object, tls->p_vaddr, tls->p_filesz);
    if (tls->p_filesz > tls->p_memsz || tls->p_memsz > MEMORY_MOST ||
        (tls->p_align & (tls->p_align - 1)) != 0 || tls->p_align > page_size())
        return BAD(object,
                   "segment %u of the file, thread-local storage, has %llu of %llu bytes, aligned to %llu",
                   index, (unsigned long long)tls->p_filesz, (unsigned long long)tls->p_memsz,
                   (unsigned long long)tls->p_align);
    if (tls->p_filesz > 0 && (p == NULL || tls->p_vaddr - p->p_vaddr > p->p_filesz - tls->p_filesz))
        return BAD(object, "segment %u of the file, thread-local storage, is not loaded", index);
    return 0;
}

uint32_t attn__segments_check(const struct attn__object *object)
{
    uint64_t end = 0;
    uint32_t reason = 0;
    for (unsigned i = 0; i < object->count && reason == 0; i++) {
        const uint32_t type = object->headers[i].p_type;
        if (type == PT_LOAD || type == PT_NOTE || type == PT_DYNAMIC)
            reason = check_range(object, i);
    }
    for (unsigned i = 0; i < object->count && reason == 0; i++)
        if (object->headers[i].p_type == PT_LOAD && object->headers[i].p_memsz != 0)
            reason = check_load(object, i, &end);
    if (reason == 0)
        reason = check_dynamic(object);
    for (unsigned i = 0; i < object->count && reason == 0; i++) {
        if (object->headers[i].p_type == PT_GNU_RELRO)
            reason = check_relro(object, i);
        else if (object->headers[i].p_type == PT_TLS)
            reason = check_tls(object, i);
    }
    return reason;
}
