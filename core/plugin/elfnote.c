/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the headers of a shared object and the note of a plugin by pread alone: nothing is mapped or run. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/loader.h"

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#else
#error "libattn knows x86-64 and aarch64"
#endif

enum { HEADERS_MOST = 128 };
#define NOTES_MOST 65536U
/* No plugin needs as much address space. */
#define MEMORY_MOST (UINT64_C(1) << 40)

/* An open file, and its first bytes: headers and notes mostly lie there, so that one read is enough. */
struct file {
    int fd;
    uint64_t size;
    size_t have;
    unsigned char head[4096];
    struct attn__words words;
};

static bool lies_inside(const struct file *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset;
}

static bool read_at(const struct file *file, uint64_t offset, void *out, size_t size)
{
    if (offset <= file->have && size <= file->have - offset) {
        memcpy(out, file->head + offset, size);
        return true;
    }
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(file->fd, (char *)out + done, size - done, (off_t)(offset + done));
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static uint32_t check_header(const struct file *file, const Elf64_Ehdr *header)
{
    if (file->have < SELFMAG || memcmp(file->head, ELFMAG, SELFMAG) != 0)
        return attn__refuse(&file->words, ATTN_REASON_NOT_ELF,
                            "the file (%llu bytes) does not begin as an ELF file",
                            (unsigned long long)file->size);
    if (file->have < sizeof *header)
        return attn__refuse(&file->words, ATTN_REASON_TRUNCATED,
                            "the file ends at byte %llu, inside of its ELF header",
                            (unsigned long long)file->size);
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
        return attn__refuse(
            &file->words, ATTN_REASON_WRONG_ARCH,
            "the file has ELF class %u and byte order %u; 64 bit (%u), little-endian (%u) is accepted",
            header->e_ident[EI_CLASS], header->e_ident[EI_DATA], ELFCLASS64, ELFDATA2LSB);
    if (header->e_machine != OWN_MACHINE)
        return attn__refuse(&file->words, ATTN_REASON_WRONG_ARCH,
                            "the file is for ELF machine %u; %u is accepted here", header->e_machine,
                            (unsigned)OWN_MACHINE);
    if (header->e_ident[EI_VERSION] != EV_CURRENT || header->e_version != EV_CURRENT)
        return attn__refuse(&file->words, ATTN_REASON_BAD_ELF, "the file has ELF version %u; %u is accepted",
                            (unsigned)header->e_version, EV_CURRENT);
    if (header->e_ident[EI_OSABI] != ELFOSABI_SYSV && header->e_ident[EI_OSABI] != ELFOSABI_GNU)
        return attn__refuse(&file->words, ATTN_REASON_WRONG_ARCH,
                            "the file is for operating system %u; %u and %u are accepted",
                            header->e_ident[EI_OSABI], ELFOSABI_SYSV, ELFOSABI_GNU);
    if (header->e_type != ET_DYN)
        return attn__refuse(&file->words, ATTN_REASON_BAD_ELF,
                            "the file has ELF type %u; a shared object (%u) is accepted", header->e_type,
                            ET_DYN);
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 || header->e_phnum > HEADERS_MOST)
        return attn__refuse(&file->words, ATTN_REASON_BAD_ELF,
                            "the file has %u program headers of %u bytes; 1 to %d of %zu bytes are accepted",
                            header->e_phnum, header->e_phentsize, HEADERS_MOST, sizeof(Elf64_Phdr));
    if (!lies_inside(file, header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr)))
        return attn__refuse(&file->words, ATTN_REASON_TRUNCATED,
                            "the file ends at byte %llu, its program headers lie behind that",
                            (unsigned long long)file->size);
    return 0;
}

static uint32_t read_notes(const struct file *file, const Elf64_Phdr *header, struct attn__elf *out)
{
    unsigned char small[1024], *bytes = small;
    size_t size = (size_t)header->p_filesz;
    uint32_t reason = 0;
    if (header->p_filesz > NOTES_MOST)
        return attn__refuse(&file->words, ATTN_REASON_BAD_NOTE,
                            "the file has %llu bytes of notes; at most %u are accepted",
                            (unsigned long long)header->p_filesz, NOTES_MOST);
    if (size > sizeof small && (bytes = malloc(size)) == NULL)
        return attn__refuse(&file->words, ATTN_REASON_UNREADABLE, "no memory for %zu bytes of notes", size);
    if (!read_at(file, header->p_offset, bytes, size))
        reason = attn__refuse(&file->words, ATTN_REASON_UNREADABLE, "the notes of the file cannot be read");
    else if (!attn__note_find(bytes, size, (size_t)header->p_align, &out->note, &out->notes))
        reason = attn__refuse(&file->words, ATTN_REASON_BAD_NOTE,
                              "the notes of the file are no list, or the plugin note has not %zu bytes",
                              sizeof out->note);
    if (bytes != small)
        free(bytes);
    return reason;
}

static uint32_t find_note(const struct file *file, const Elf64_Phdr *headers, unsigned count,
                          struct attn__elf *out)
{
    bool is_program = false;
    for (unsigned i = 0; i < count; i++) {
        is_program = is_program || headers[i].p_type == PT_INTERP;
        if (headers[i].p_type != PT_NOTE || attn__note_is_covered(headers, count, i))
            continue;
        uint32_t reason = read_notes(file, &headers[i], out);
        if (reason != 0)
            return reason;
    }
    if (out->notes == 0)
        return attn__refuse(&file->words, ATTN_REASON_NO_NOTE, "the file%s has no note of libattn",
                            is_program ? " (a program)" : "");
    if (out->notes > 1)
        return attn__refuse(&file->words, ATTN_REASON_BAD_NOTE,
                            "the file has %u notes of libattn; 1 is accepted", out->notes);
    if (out->note.note_version > ATTN_NOTE_VERSION)
        return attn__refuse(&file->words, ATTN_REASON_ABI_TOO_NEW,
                            "the note has version %u; this libattn reads %u", out->note.note_version,
                            ATTN_NOTE_VERSION);
    if (out->note.note_version != ATTN_NOTE_VERSION)
        return attn__refuse(&file->words, ATTN_REASON_BAD_NOTE, "the note has version %u; %u is accepted",
                            out->note.note_version, ATTN_NOTE_VERSION);
    return attn__note_check(&out->note, file->words.text, file->words.size);
}

/* ---------------------------------------------------------------- segments: what would be mapped where */

static uint64_t page_up(uint64_t address)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (address + page - 1) / page * page;
}

/* `end` is where the memory of the segments before it ends: the linker maps each over whatever is there. */
static uint32_t check_load(const struct file *file, const Elf64_Phdr *p, unsigned index, uint64_t *end)
{
    const uint64_t page = page_up(1), align = p->p_align > 1 ? p->p_align : page;
    if (p->p_filesz > p->p_memsz)
        return attn__refuse(&file->words, ATTN_REASON_BAD_ELF,
                            "segment %u of the file is larger than its memory", index);
    if (p->p_vaddr > MEMORY_MOST || p->p_memsz > MEMORY_MOST - p->p_vaddr)
        return attn__refuse(
            &file->words, ATTN_REASON_BAD_ELF,
            "segment %u of the file has %#llx bytes from address %#llx on; an end up to %#llx is accepted",
            index, (unsigned long long)p->p_memsz, (unsigned long long)p->p_vaddr,
            (unsigned long long)MEMORY_MOST);
    if ((align & (align - 1)) != 0 || align < page || (p->p_vaddr - p->p_offset) % align != 0)
        return attn__refuse(
            &file->words, ATTN_REASON_BAD_ELF,
            "segment %u of the file, from byte %#llx on at address %#llx, is not aligned to %#llx", index,
            (unsigned long long)p->p_offset, (unsigned long long)p->p_vaddr, (unsigned long long)align);
    if (p->p_vaddr / page * page < *end)
        return attn__refuse(&file->words, ATTN_REASON_BAD_ELF,
                            "segment %u of the file begins at address %#llx, before the end of another one",
                            index, (unsigned long long)p->p_vaddr);
    *end = page_up(p->p_vaddr + p->p_memsz);
    return 0;
}

/* What the linker makes read-only after relocation must be the file's own. */
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
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *p = &headers[i];
        if ((p->p_type == PT_LOAD || p->p_type == PT_NOTE || p->p_type == PT_DYNAMIC) &&
            !lies_inside(file, p->p_offset, p->p_filesz))
            return attn__refuse(&file->words, ATTN_REASON_TRUNCATED,
                                "the file ends at byte %llu, its segment %u has %llu bytes from byte %llu on",
                                (unsigned long long)file->size, i, (unsigned long long)p->p_filesz,
                                (unsigned long long)p->p_offset);
    }
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *p = &headers[i];
        uint32_t reason = 0;
        if (p->p_type == PT_LOAD && p->p_memsz != 0)
            reason = check_load(file, p, i, end);
        else if (p->p_type == PT_GNU_RELRO && !is_relro_loaded(headers, count, p))
            reason = attn__refuse(&file->words, ATTN_REASON_BAD_ELF,
                                  "segment %u of the file, read-only after relocation, is not loaded", i);
        if (reason != 0)
            return reason;
    }
    return 0;
}

/* Size, first bytes and program headers of a file, judged. */
static uint32_t read_headers(struct file *file, Elf64_Phdr *headers, unsigned *out_count, uint64_t *out_end)
{
    struct stat status;
    Elf64_Ehdr header;
    if (fstat(file->fd, &status) != 0 || status.st_size < 0)
        return attn__refuse(&file->words, ATTN_REASON_UNREADABLE, "the file cannot be read");
    /* Files of the kernel have no size; some lose what is read of them. */
    ssize_t have = status.st_size > 0 ? pread(file->fd, file->head, sizeof file->head, 0) : 0;
    if (have < 0)
        return attn__refuse(&file->words, ATTN_REASON_UNREADABLE, "the file cannot be read: %s",
                            strerrordesc_np(errno));
    file->have = (size_t)have;
    file->size = (uint64_t)status.st_size;
    memset(&header, 0, sizeof header);
    memcpy(&header, file->head, file->have < sizeof header ? file->have : sizeof header);
    uint32_t reason = check_header(file, &header);
    if (reason == 0 && !read_at(file, header.e_phoff, headers, header.e_phnum * sizeof headers[0]))
        reason = attn__refuse(&file->words, ATTN_REASON_UNREADABLE,
                              "the program headers of the file cannot be read");
    *out_count = header.e_phnum;
    return reason == 0 ? check_segments(file, headers, header.e_phnum, out_end) : reason;
}

uint32_t attn__elf_read(int fd, struct attn__elf *out, char *text, size_t size)
{
    struct file file = {.fd = fd, .words = {text, size}};
    Elf64_Phdr headers[HEADERS_MOST];
    unsigned count = 0;
    memset(out, 0, sizeof *out);
    text[0] = '\0';
    uint32_t reason = read_headers(&file, headers, &count, &out->memory);
    if (reason == 0)
        reason = find_note(&file, headers, count, out);
    /* What was refused for other causes than its version may hold anything. */
    if (reason != 0 && reason != ATTN_REASON_CPU_LEVEL &&
        ((reason != ATTN_REASON_ABI_TOO_NEW && reason != ATTN_REASON_ABI_TOO_OLD) ||
         out->note.note_version != ATTN_NOTE_VERSION))
        memset(&out->note, 0, sizeof out->note);
    return reason;
}
