/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reads the headers, the dynamic section and the notes of a shared object. */
#include "image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool copy_out(const struct image *image, uint64_t offset, void *out, size_t size)
{
    if (offset > image->size || size > image->size - offset)
        return false;
    memcpy(out, image->bytes + offset, size);
    return true;
}

static bool get_segment(const struct image *image, uint32_t index, Elf64_Phdr *out)
{
    Elf64_Ehdr header;

    return copy_out(image, 0, &header, sizeof header) && index < header.e_phnum &&
           copy_out(image, header.e_phoff + (uint64_t)index * sizeof *out, out, sizeof *out);
}

const void *image_at(const struct image *image, uint64_t address, uint64_t size)
{
    Elf64_Phdr segment;

    for (uint32_t i = 0; get_segment(image, i, &segment); i++) {
        uint64_t inside = address - segment.p_vaddr;
        if (segment.p_type != PT_LOAD || address < segment.p_vaddr || inside > segment.p_filesz ||
            size > segment.p_filesz - inside)
            continue;
        if (segment.p_offset > image->size || inside + size > image->size - segment.p_offset)
            return NULL;
        return image->bytes + segment.p_offset + inside;
    }
    return NULL;
}

const char *image_text(const struct image *image, uint64_t offset)
{
    const char *text = image_at(image, image->strings.address, image->strings.size);

    if (text == NULL || offset >= image->strings.size ||
        memchr(text + offset, '\0', image->strings.size - offset) == NULL)
        return "";
    return text + offset;
}

/* Texts have to wait until the string table is known. */
static void take_name(struct image *image, const Elf64_Dyn *entry)
{
    if (entry->d_tag == DT_SONAME)
        image->soname = image_text(image, entry->d_un.d_val);
    if (entry->d_tag == DT_NEEDED && image->needed_count < IMAGE_NEEDED)
        image->needed[image->needed_count++] = image_text(image, entry->d_un.d_val);
}

static void take_flags(struct image *image, uint64_t flags)
{
    image->static_tls |= (flags & DF_STATIC_TLS) != 0;
    image->text_relocations |= (flags & DF_TEXTREL) != 0;
    image->symbolic |= (flags & DF_SYMBOLIC) != 0;
}

static void take_entry(struct image *image, const Elf64_Dyn *entry, uint64_t *hash, uint64_t *gnu_hash)
{
    const struct {
        int64_t tag;
        uint64_t *to;
    } numbers[] = {
        {DT_SYMTAB, &image->symbols.address},
        {DT_STRTAB, &image->strings.address},
        {DT_STRSZ, &image->strings.size},
        {DT_RELA, &image->relocations.address},
        {DT_RELASZ, &image->relocations.size},
        {DT_JMPREL, &image->plt_relocations.address},
        {DT_PLTRELSZ, &image->plt_relocations.size},
        {DT_INIT_ARRAY, &image->init_array.address},
        {DT_INIT_ARRAYSZ, &image->init_array.size},
        {DT_FINI_ARRAY, &image->fini_array.address},
        {DT_FINI_ARRAYSZ, &image->fini_array.size},
        {DT_INIT, &image->init},
        {DT_HASH, hash},
        {DT_GNU_HASH, gnu_hash},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (entry->d_tag == numbers[i].tag)
            *numbers[i].to = entry->d_un.d_val;
    image->text_relocations |= entry->d_tag == DT_TEXTREL;
    image->symbolic |= entry->d_tag == DT_SYMBOLIC;
    if (entry->d_tag == DT_FLAGS)
        take_flags(image, entry->d_un.d_val);
}

static void read_dynamic(struct image *image, const Elf64_Phdr *segment)
{
    uint64_t hash = 0, gnu_hash = 0;
    Elf64_Dyn entry;

    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t at = 0; at + sizeof entry <= segment->p_filesz; at += sizeof entry) {
            if (!copy_out(image, segment->p_offset + at, &entry, sizeof entry) || entry.d_tag == DT_NULL)
                break;
            if (pass == 0)
                take_entry(image, &entry, &hash, &gnu_hash);
            else
                take_name(image, &entry);
        }
    }
    image->symbol_count = image_count_symbols(image, hash, gnu_hash);
}

static void read_notes(struct image *image, const Elf64_Phdr *segment)
{
    const uint64_t align = segment->p_align == 8 ? 8 : 4;
    Elf64_Nhdr note;

    for (uint64_t at = 0; at + sizeof note <= segment->p_filesz;) {
        char owner[sizeof ATTN_NOTE_OWNER];
        if (!copy_out(image, segment->p_offset + at, &note, sizeof note))
            return;
        uint64_t name = at + sizeof note;
        uint64_t bytes = name + (note.n_namesz + align - 1) / align * align;
        if (note.n_namesz == sizeof owner && note.n_type == ATTN_NOTE_TYPE &&
            note.n_descsz == sizeof image->note &&
            copy_out(image, segment->p_offset + name, owner, sizeof owner) &&
            memcmp(owner, ATTN_NOTE_OWNER, sizeof owner) == 0 &&
            copy_out(image, segment->p_offset + bytes, &image->note, sizeof image->note))
            image->note_count++;
        at = bytes + (note.n_descsz + align - 1) / align * align;
    }
}

/* Sections are not needed for loading; their names tell which toolchain was at work. */
static void read_sections(struct image *image)
{
    static const char *const fat[] = {".nv_fatbin", ".nvFatBinSegment", ".hip_fatbin", ".hipFatBinSegment"};
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    char name[20];

    if (!copy_out(image, 0, &header, sizeof header) ||
        !copy_out(image, header.e_shoff + (uint64_t)header.e_shstrndx * sizeof names, &names, sizeof names))
        return;
    for (uint32_t i = 0; i < header.e_shnum; i++) {
        memset(name, 0, sizeof name);
        if (!copy_out(image, header.e_shoff + (uint64_t)i * sizeof section, &section, sizeof section) ||
            !copy_out(image, names.sh_offset + section.sh_name, name, sizeof name - 1))
            continue;
        for (size_t n = 0; n < sizeof fat / sizeof fat[0]; n++)
            image->fat |= strcmp(name, fat[n]) == 0;
    }
}

static bool read_segments(struct image *image)
{
    bool has_dynamic = false, has_stack = false;
    Elf64_Phdr segment;

    for (uint32_t i = 0; get_segment(image, i, &segment); i++) {
        const bool executable = (segment.p_flags & PF_X) != 0;
        if (segment.p_type == PT_DYNAMIC) {
            has_dynamic = true;
            read_dynamic(image, &segment);
        } else if (segment.p_type == PT_NOTE) {
            read_notes(image, &segment);
        } else if (segment.p_type == PT_GNU_STACK) {
            has_stack = true;
            image->executable_stack = executable;
        } else if (segment.p_type == PT_LOAD) {
            image->writable_code |= executable && (segment.p_flags & PF_W) != 0;
        }
    }
    image->executable_stack |= !has_stack;
    return has_dynamic;
}

bool image_open(struct image *image, const char *path, char *why, size_t size)
{
    static const unsigned char magic[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB};
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    memset(image, 0, sizeof *image);
    image->soname = "";
    if (fd < 0 || fstat(fd, &status) != 0) {
        snprintf(why, size, "%s cannot be read: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED) {
        snprintf(why, size, "%s cannot be mapped: %s", path, strerror(errno));
        return false;
    }
    image->bytes = map;
    image->size = (size_t)status.st_size;
    if (image->size < sizeof(Elf64_Ehdr) || memcmp(map, magic, sizeof magic) != 0 || !read_segments(image)) {
        snprintf(why, size, "%s is no shared object for this machine", path);
        image_close(image);
        return false;
    }
    read_sections(image);
    return true;
}

void image_close(struct image *image)
{
    if (image->bytes != NULL)
        munmap((void *)(uintptr_t)image->bytes, image->size);
    image->bytes = NULL;
}
