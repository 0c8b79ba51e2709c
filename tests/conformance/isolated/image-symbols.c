/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Symbols of a shared object, what binds to them, and the functions that run by themselves. */
#include <elf.h>
#include <string.h>

#include "image.h"

static bool get(const struct image *image, uint64_t address, void *out, size_t size)
{
    const void *at = image_at(image, address, size);

    if (at == NULL)
        return false;
    memcpy(out, at, size);
    return true;
}

/* The last chain of the table ends with the last symbol. */
static uint32_t count_gnu(const struct image *image, uint64_t table)
{
    uint32_t header[4], bucket, last = 0, hash = 0;

    if (!get(image, table, header, sizeof header))
        return 0;
    const uint64_t buckets = table + sizeof header + header[2] * UINT64_C(8);
    const uint64_t chains = buckets + header[0] * UINT64_C(4);
    for (uint32_t i = 0; i < header[0] && get(image, buckets + i * UINT64_C(4), &bucket, sizeof bucket); i++)
        last = bucket > last ? bucket : last;
    if (last < header[1])
        return header[1];
    while ((hash & 1) == 0 && get(image, chains + (last - header[1]) * UINT64_C(4), &hash, sizeof hash))
        last++;
    return last;
}

uint32_t image_count_symbols(const struct image *image, uint64_t hash, uint64_t gnu_hash)
{
    uint32_t header[2];

    if (hash != 0 && get(image, hash, header, sizeof header))
        return header[1];
    return gnu_hash != 0 ? count_gnu(image, gnu_hash) : 0;
}

static bool get_entry(const struct image *image, uint32_t index, Elf64_Sym *out)
{
    return index < image->symbol_count &&
           get(image, image->symbols.address + index * (uint64_t)sizeof *out, out, sizeof *out);
}

bool image_get_symbol(const struct image *image, uint32_t index, struct image_symbol *out)
{
    Elf64_Sym entry;

    if (!get_entry(image, index, &entry))
        return false;
    const uint32_t binding = ELF64_ST_BIND(entry.st_info);
    out->name = binding == STB_LOCAL ? "" : image_text(image, entry.st_name);
    out->defined = entry.st_shndx != SHN_UNDEF;
    out->unique = binding == STB_GNU_UNIQUE;
    return true;
}

/* ---------------------------------------------------------------- relocations */

static bool get_relocation(const struct image *image, uint32_t index, Elf64_Rela *out)
{
    const uint64_t first = image->relocations.size / sizeof *out;
    const uint64_t second = image->plt_relocations.size / sizeof *out;

    if (index < first)
        return get(image, image->relocations.address + index * sizeof *out, out, sizeof *out);
    return index - first < second &&
           get(image, image->plt_relocations.address + (index - first) * sizeof *out, out, sizeof *out);
}

const char *image_find_open_binding(const struct image *image)
{
    Elf64_Rela relocation;

    if (image->symbolic)
        return NULL;
    for (uint32_t i = 0; get_relocation(image, i, &relocation); i++) {
        Elf64_Sym entry;
        if (ELF64_R_SYM(relocation.r_info) == 0 ||
            !get_entry(image, (uint32_t)ELF64_R_SYM(relocation.r_info), &entry))
            continue;
        if (entry.st_shndx != SHN_UNDEF && ELF64_ST_BIND(entry.st_info) != STB_LOCAL &&
            ELF64_ST_VISIBILITY(entry.st_other) == STV_DEFAULT)
            return image_text(image, entry.st_name);
    }
    return NULL;
}

/* ---------------------------------------------------------------- functions that run by themselves */

/* Name of the function at an address, from the full symbol table, which a stripped file lacks. */
static const char *name_at(const struct image *image, uint64_t address)
{
    Elf64_Ehdr header;
    Elf64_Shdr section, strings;
    Elf64_Sym entry;

    memcpy(&header, image->bytes, sizeof header);
    for (uint64_t i = 0; i < header.e_shnum; i++) {
        uint64_t at = header.e_shoff + i * sizeof section;
        if (at > image->size - sizeof section)
            return "";
        memcpy(&section, image->bytes + at, sizeof section);
        at = header.e_shoff + (uint64_t)section.sh_link * sizeof strings;
        if (section.sh_type != SHT_SYMTAB || at > image->size - sizeof strings ||
            section.sh_offset > image->size || section.sh_size > image->size - section.sh_offset)
            continue;
        memcpy(&strings, image->bytes + at, sizeof strings);
        for (uint64_t s = 0; s + sizeof entry <= section.sh_size; s += sizeof entry) {
            memcpy(&entry, image->bytes + section.sh_offset + s, sizeof entry);
            uint64_t name = strings.sh_offset + entry.st_name;
            if (entry.st_value == address && ELF64_ST_TYPE(entry.st_info) == STT_FUNC && name < image->size &&
                memchr(image->bytes + name, '\0', image->size - name) != NULL)
                return (const char *)image->bytes + name;
        }
    }
    return "";
}

/* The relocation of a slot says which function is there; a packed one leaves it in the slot. */
static const char *name_of_slot(const struct image *image, uint64_t slot)
{
    Elf64_Rela relocation;
    uint64_t address = 0;

    for (uint32_t i = 0; get_relocation(image, i, &relocation); i++) {
        Elf64_Sym entry;
        if (relocation.r_offset != slot)
            continue;
        if (ELF64_R_SYM(relocation.r_info) == 0)
            return name_at(image, (uint64_t)relocation.r_addend);
        return get_entry(image, (uint32_t)ELF64_R_SYM(relocation.r_info), &entry)
                   ? image_text(image, entry.st_name)
                   : "";
    }
    return get(image, slot, &address, sizeof address) ? name_at(image, address) : "";
}

static bool get_slot(const struct image *image, const struct image_part *array, uint32_t index,
                     const char **out_name)
{
    if (index >= array->size / sizeof(uint64_t))
        return false;
    *out_name = name_of_slot(image, array->address + index * sizeof(uint64_t));
    return true;
}

bool image_get_constructor(const struct image *image, uint32_t index, const char **out_name)
{
    if (index < image->init_array.size / sizeof(uint64_t))
        return get_slot(image, &image->init_array, index, out_name);
    if (index > image->init_array.size / sizeof(uint64_t) || image->init == 0)
        return false;
    *out_name = name_at(image, image->init);
    if ((*out_name)[0] == '\0')
        *out_name = "_init";
    return true;
}

bool image_get_destructor(const struct image *image, uint32_t index, const char **out_name)
{
    return get_slot(image, &image->fini_array, index, out_name);
}
