/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the headers of a shared object and the note of a plugin by pread alone: nothing is mapped or run. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <unistd.h>

#include "plugin/loader.h"

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "libattn knows x86-64 and aarch64"
#endif

enum { HEADERS_MOST = 128, NOTES_MOST = 16384 };
/* No plugin needs as much address space. */
#define MEMORY_MOST (1ULL << 40)

/* An open file. */
struct file {
    int fd;
    uint64_t size;
    const struct attn__words *words;
};

#define REFUSE(file, reason, ...) attn__refuse((file)->words, ATTN_REASON_##reason, __VA_ARGS__)

static bool lies_inside(const struct file *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset;
}

static bool read_at(const struct file *file, uint64_t offset, void *out, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(file->fd, (char *)out + done, size - done, (off_t)(offset + done));
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* ---------------------------------------------------------------- the header of the file */

/* Members of the header that lie beyond the end of the file are 0. */
static uint32_t check_header(const struct file *file, const Elf64_Ehdr *header)
{
    const unsigned long long size = file->size;
    const unsigned class = header->e_ident[EI_CLASS], order = header->e_ident[EI_DATA];
    const unsigned system = header->e_ident[EI_OSABI];
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return REFUSE(file, NOT_ELF, "the file (%llu bytes) does not begin as an ELF file", size);
    if (size < sizeof *header)
        return REFUSE(file, TRUNCATED, "the file ends at byte %llu, inside of its ELF header", size);
    if (class != ELFCLASS64 || order != ELFDATA2LSB)
        return REFUSE(
            file, WRONG_ARCH,
            "the file has ELF class %u and byte order %u; 64 bit (%u), little-endian (%u) is accepted", class,
            order, ELFCLASS64, ELFDATA2LSB);
    if (header->e_machine != OWN_MACHINE)
        return REFUSE(file, WRONG_ARCH, "the file is for ELF machine %u; %u is accepted here",
                      header->e_machine, (unsigned)OWN_MACHINE);
    if (header->e_ident[EI_VERSION] != EV_CURRENT || header->e_version != EV_CURRENT)
        return REFUSE(file, BAD_ELF, "the file has ELF version %u; %u is accepted",
                      (unsigned)header->e_version, EV_CURRENT);
    if (system != ELFOSABI_SYSV && system != ELFOSABI_GNU)
        return REFUSE(file, WRONG_ARCH, "the file is for operating system %u; %u and %u are accepted", system,
                      ELFOSABI_SYSV, ELFOSABI_GNU);
    if (header->e_type != ET_DYN)
        return REFUSE(file, BAD_ELF, "the file has ELF type %u; a shared object (%u) is accepted",
                      header->e_type, ET_DYN);
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 || header->e_phnum > HEADERS_MOST)
        return REFUSE(file, BAD_ELF,
                      "the file has %u program headers of %u bytes; 1 to %d of %zu bytes are accepted",
                      header->e_phnum, header->e_phentsize, HEADERS_MOST, sizeof(Elf64_Phdr));
    if (!lies_inside(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr)))
        return REFUSE(file, TRUNCATED, "the file ends at byte %llu, its program headers lie behind that",
                      size);
    return 0;
}

/* ---------------------------------------------------------------- segments: what would be mapped where */

static uint64_t page_up(uint64_t address)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (address + page - 1) / page * page;
}

/* `end` is where the segments before it end in memory. The linker would map this one over them. */
static uint32_t check_load(const struct file *file, const Elf64_Phdr *p, unsigned index, uint64_t *end)
{
    const unsigned long long address = p->p_vaddr, page = page_up(1),
                             align = p->p_align > 1 ? p->p_align : page;
    if (p->p_filesz > p->p_memsz)
        return REFUSE(file, BAD_ELF, "segment %u of the file is larger than its memory", index);
    if (address > MEMORY_MOST || p->p_memsz > MEMORY_MOST - address)
        return REFUSE(
            file, BAD_ELF,
            "segment %u of the file has %#llx bytes from address %#llx on; an end up to %#llx is accepted",
            index, (unsigned long long)p->p_memsz, address, MEMORY_MOST);
    if ((align & (align - 1)) != 0 || align < page || (address - p->p_offset) % align != 0)
        return REFUSE(file, BAD_ELF,
                      "segment %u of the file, from byte %#llx on at address %#llx, is not aligned to %#llx",
                      index, (unsigned long long)p->p_offset, address, align);
    if (address / page * page < *end)
        return REFUSE(file, BAD_ELF,
                      "segment %u of the file begins at address %#llx, before the end of another one", index,
                      address);
    *end = page_up(address + p->p_memsz);
    return 0;
}

/* Whether the range that the linker makes read-only after relocation lies within a loaded segment. */
static bool is_relro_loaded(const Elf64_Phdr *headers, unsigned count, const Elf64_Phdr *relro)
{
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *p = &headers[i];
        const uint64_t end = page_up(p->p_vaddr + p->p_memsz);
        if (p->p_type == PT_LOAD && relro->p_vaddr >= p->p_vaddr && relro->p_vaddr <= end &&
            relro->p_memsz <= end - relro->p_vaddr)
            return true;
    }
    return relro->p_memsz == 0;
}

static uint32_t check_segments(const struct file *file, const Elf64_Phdr *headers, unsigned count,
                               uint64_t *end)
{
    uint32_t reason = 0;
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *p = &headers[i];
        if ((p->p_type == PT_LOAD || p->p_type == PT_NOTE || p->p_type == PT_DYNAMIC) &&
            !lies_inside(file, p->p_offset, p->p_filesz))
            return REFUSE(file, TRUNCATED,
                          "the file ends at byte %llu, its segment %u has %llu bytes from byte %llu on",
                          (unsigned long long)file->size, i, (unsigned long long)p->p_filesz,
                          (unsigned long long)p->p_offset);
    }
    for (unsigned i = 0; i < count && reason == 0; i++) {
        const Elf64_Phdr *p = &headers[i];
        if (p->p_type == PT_LOAD && p->p_memsz != 0)
            reason = check_load(file, p, i, end);
        else if (p->p_type == PT_GNU_RELRO && !is_relro_loaded(headers, count, p))
            reason =
                REFUSE(file, BAD_ELF, "segment %u of the file, read-only after relocation, is not loaded", i);
    }
    return reason;
}

/* ---------------------------------------------------------------- notes */

static uint32_t read_notes(const struct file *file, const Elf64_Phdr *header, struct attn__elf *out)
{
    unsigned char bytes[NOTES_MOST];
    const size_t size = (size_t)header->p_filesz;
    if (size > sizeof bytes)
        return REFUSE(file, BAD_NOTE, "the file has %zu bytes of notes; at most %zu are accepted", size,
                      sizeof bytes);
    if (!read_at(file, header->p_offset, bytes, size))
        return REFUSE(file, UNREADABLE, "the notes of the file cannot be read");
    if (!attn__note_find(bytes, size, (size_t)header->p_align, &out->note, &out->notes))
        return REFUSE(file, BAD_NOTE,
                      "the notes of the file are no list, or the plugin note has not %zu bytes",
                      sizeof out->note);
    return 0;
}

/* Whether a note segment lies within another one, as some tools leave it: its notes must be counted once. */
static bool is_covered(const Elf64_Phdr *headers, unsigned count, unsigned index)
{
    const Elf64_Phdr *own = &headers[index];
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *p = &headers[i];
        if (i == index || p->p_type != PT_NOTE || own->p_offset < p->p_offset ||
            own->p_filesz > p->p_filesz || own->p_offset - p->p_offset > p->p_filesz - own->p_filesz)
            continue;
        if (own->p_filesz < p->p_filesz || i < index)
            return true;
    }
    return false;
}

static uint32_t find_note(const struct file *file, const Elf64_Phdr *headers, unsigned count,
                          struct attn__elf *out)
{
    bool is_program = false;
    for (unsigned i = 0; i < count; i++) {
        is_program = is_program || headers[i].p_type == PT_INTERP;
        if (headers[i].p_type != PT_NOTE || is_covered(headers, count, i))
            continue;
        const uint32_t reason = read_notes(file, &headers[i], out);
        if (reason != 0)
            return reason;
    }
    if (out->notes == 0)
        return REFUSE(file, NO_NOTE, "the file%s has no note of libattn", is_program ? " (a program)" : "");
    if (out->notes > 1)
        return REFUSE(file, BAD_NOTE, "the file has %u notes of libattn; 1 is accepted", out->notes);
    return attn__note_check(&out->note, file->words);
}

/* Header, segments and note, in this order: each is used only after it was checked. */
static uint32_t read_all(const struct file *file, struct attn__elf *out)
{
    Elf64_Phdr headers[HEADERS_MOST];
    Elf64_Ehdr header;
    memset(&header, 0, sizeof header);
    /* Files in /proc and the like have size 0: they are not read, because that may consume their data. */
    if (!read_at(file, 0, &header, file->size < sizeof header ? (size_t)file->size : sizeof header))
        return REFUSE(file, UNREADABLE, "the file cannot be read: %s", strerrordesc_np(errno));
    uint32_t reason = check_header(file, &header);
    if (reason == 0 && !read_at(file, header.e_phoff, headers, header.e_phnum * sizeof headers[0]))
        reason = REFUSE(file, UNREADABLE, "the program headers of the file cannot be read");
    if (reason == 0)
        reason = check_segments(file, headers, header.e_phnum, &out->memory);
    return reason == 0 ? find_note(file, headers, header.e_phnum, out) : reason;
}

uint32_t attn__elf_read(int fd, uint64_t file_size, struct attn__elf *out, const struct attn__words *words)
{
    const struct file file = {.fd = fd, .size = file_size, .words = words};
    memset(out, 0, sizeof *out);
    words->text[0] = '\0';
    const uint32_t reason = read_all(&file, out);
    /* Only a note refused for its interface version or CPU level has texts that the report can show. */
    if (reason != 0 && reason != ATTN_REASON_CPU_LEVEL &&
        ((reason != ATTN_REASON_ABI_TOO_NEW && reason != ATTN_REASON_ABI_TOO_OLD) ||
         out->note.note_version != ATTN_NOTE_VERSION))
        memset(&out->note, 0, sizeof out->note);
    return reason;
}
