/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Judges the tables that the dynamic section leads to: symbols, their hash table and versions, relocations.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "elf-object.h"

#define BAD(object, ...) attn__object_refuse((object), ATTN_REASON_BAD_ELF, __VA_ARGS__)

#define VERSION_MASK 0x7fff

/* ---------------------------------------------------------------- hash tables */

/* The number of symbols as the GNU hash table has it; 0 if it has none. */
static uint32_t count_by_gnu_hash(const struct attn__object *object, uint32_t *out_count)
{
    uint32_t *head = attn__object_copy(object, object->gnu_hash, 4 * sizeof *head);
    uint64_t buckets = head != NULL ? head[0] : 0, first = head != NULL ? head[1] : 0;
    uint64_t words = head != NULL ? head[2] : 0, last = 0, at = object->gnu_hash + 16 + words * 8;
    free(head);
    uint32_t *list = words != 0 && (words & (words - 1)) == 0 && buckets != 0
                         ? attn__object_copy(object, at, buckets * sizeof *list)
                         : NULL;
    if (list == NULL)
        return BAD(object, "DT_GNU_HASH of the file has %llu buckets and %llu words, which are not loaded",
                   (unsigned long long)buckets, (unsigned long long)words);
    bool good = true;
    for (uint64_t i = 0; i < buckets; i++) {
        good = good && (list[i] == 0 || list[i] >= first);
        last = list[i] > last ? list[i] : last;
    }
    free(list);
    at += buckets * sizeof *list;
    for (bool end = last == 0; good && !end; last++) {
        uint32_t *link = attn__object_copy(object, at + (last - first) * sizeof *link, sizeof *link);
        good = link != NULL;
        end = good && (*link & 1) != 0;
        free(link);
    }
    *out_count = (uint32_t)last;
    return good ? 0 : BAD(object, "DT_GNU_HASH of the file leads to symbols that it does not have");
}

static uint32_t count_by_hash(const struct attn__object *object, uint32_t *out_count)
{
    const uint64_t at = object->value[DT_HASH];
    uint32_t *head = attn__object_copy(object, at, 2 * sizeof *head);
    const uint64_t count = head != NULL ? (uint64_t)head[0] + head[1] : 0;
    const uint32_t symbols = head != NULL ? head[1] : 0;
    bool good = head != NULL && head[0] != 0;
    free(head);
    uint32_t *list = good ? attn__object_copy(object, at + 8, count * sizeof *list) : NULL;
    good = list != NULL;
    for (uint64_t i = 0; i < count && good; i++)
        good = list[i] < symbols;
    free(list);
    *out_count = symbols;
    return good ? 0 : BAD(object, "DT_HASH of the file leads to symbols that it does not have");
}

/* ---------------------------------------------------------------- versions */

static uint32_t read_needed_versions(struct attn__object *object)
{
    const uint64_t strings = object->value[DT_STRSZ];
    for (uint64_t at = object->verneed, next = 1; next != 0; at += next) {
        Elf64_Verneed *file = attn__object_copy(object, at, sizeof *file);
        bool good = file != NULL && file->vn_file < strings;
        uint64_t aux_at = good ? at + file->vn_aux : 0, aux_next = 1;
        next = good ? file->vn_next : 0;
        free(file);
        for (; good && aux_next != 0; aux_at += aux_next) {
            Elf64_Vernaux *aux = attn__object_copy(object, aux_at, sizeof *aux);
            good = aux != NULL && aux->vna_name < strings;
            if (good && (aux->vna_other & VERSION_MASK) > object->versions)
                object->versions = aux->vna_other & VERSION_MASK;
            aux_next = good ? aux->vna_next : 0;
            free(aux);
        }
        if (!good)
            return BAD(object, "DT_VERNEED of the file leads to versions that it does not have");
    }
    return 0;
}

static uint32_t read_own_versions(struct attn__object *object)
{
    const uint64_t strings = object->value[DT_STRSZ];
    for (uint64_t at = object->verdef, next = 1; next != 0; at += next) {
        Elf64_Verdef *own = attn__object_copy(object, at, sizeof *own);
        Elf64_Verdaux *aux = own != NULL ? attn__object_copy(object, at + own->vd_aux, sizeof *aux) : NULL;
        const bool good = aux != NULL && aux->vda_name < strings;
        if (good && (own->vd_ndx & VERSION_MASK) > object->versions)
            object->versions = own->vd_ndx & VERSION_MASK;
        next = good ? own->vd_next : 0;
        free(own);
        free(aux);
        if (!good)
            return BAD(object, "DT_VERDEF of the file leads to versions that it does not have");
    }
    return 0;
}

static uint32_t check_versions(struct attn__object *object)
{
    uint32_t reason = 0;
    object->versions = 1;
    if (object->verneed != 0)
        reason = read_needed_versions(object);
    if (reason == 0 && object->verdef != 0)
        reason = read_own_versions(object);
    if (reason != 0 || object->versym == 0)
        return reason;
    uint16_t *list = attn__object_copy(object, object->versym, object->symbols * sizeof *list);
    if (list == NULL)
        return BAD(object, "DT_VERSYM of the file is not loaded");
    for (uint32_t i = 0; i < object->symbols && reason == 0; i++)
        if ((list[i] & VERSION_MASK) > object->versions)
            reason = BAD(object, "symbol %u of the file has version %u of %u", i, list[i] & VERSION_MASK,
                         object->versions);
    free(list);
    return reason;
}

/* ---------------------------------------------------------------- symbols */

static bool is_symbol(const struct attn__object *object, const Elf64_Sym *symbol)
{
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (symbol->st_name >= object->value[DT_STRSZ])
        return false;
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS)
        return true;
    if (type == STT_TLS) {
        const Elf64_Phdr *tls = attn__object_segment(object, PT_TLS);
        return tls != NULL && symbol->st_value <= tls->p_memsz;
    }
    const Elf64_Phdr *p = attn__object_holder(object, symbol->st_value, 0);
    return p != NULL && (type != STT_GNU_IFUNC || (p->p_flags & PF_X) != 0);
}

static uint32_t find_last_symbol(const struct attn__object *object);

uint32_t attn__symbols_check(struct attn__object *object)
{
    uint32_t count = 0;
    uint32_t reason = object->gnu_hash != 0  ? count_by_gnu_hash(object, &count)
                      : object->has[DT_HASH] ? count_by_hash(object, &count)
                                             : BAD(object, "the file has no hash table of its symbols");
    if (reason != 0)
        return reason;
    /* A table without a symbol of its own does not count those of others. */
    object->symbols = count != 0 ? count : find_last_symbol(object) + 1;
    const uint64_t at = object->value[DT_SYMTAB];
    Elf64_Sym *list = attn__object_copy(object, at, object->symbols * (uint64_t)sizeof *list);
    if (list == NULL)
        return BAD(object, "DT_SYMTAB of the file has %u symbols at address %#llx, which are not loaded",
                   object->symbols, (unsigned long long)at);
    for (uint32_t i = 0; i < object->symbols && reason == 0; i++)
        if (!is_symbol(object, &list[i]))
            reason = BAD(object, "symbol %u of the file has name %u and value %#llx, which it does not have",
                         i, list[i].st_name, (unsigned long long)list[i].st_value);
    free(list);
    return reason == 0 ? check_versions(object) : reason;
}

/* ---------------------------------------------------------------- relocations */

/* Bytes that a type of relocation writes; 0: none, or the type is unknown. */
static unsigned width_of(uint32_t type)
{
    switch (type) {
#if defined(__x86_64__)
    case R_X86_64_64:
    case R_X86_64_PC64:
    case R_X86_64_GLOB_DAT:
    case R_X86_64_JUMP_SLOT:
    case R_X86_64_RELATIVE:
    case R_X86_64_IRELATIVE:
    case R_X86_64_DTPMOD64:
    case R_X86_64_DTPOFF64:
    case R_X86_64_TPOFF64:
    case R_X86_64_SIZE64:
        return 8;
    case R_X86_64_32:
    case R_X86_64_PC32:
    case R_X86_64_SIZE32:
        return 4;
    case R_X86_64_TLSDESC:
        return 16;
#elif defined(__aarch64__)
    case R_AARCH64_ABS64:
    case R_AARCH64_GLOB_DAT:
    case R_AARCH64_JUMP_SLOT:
    case R_AARCH64_RELATIVE:
    case R_AARCH64_IRELATIVE:
    case R_AARCH64_TLS_DTPMOD:
    case R_AARCH64_TLS_DTPREL:
    case R_AARCH64_TLS_TPREL:
        return 8;
    case R_AARCH64_TLSDESC:
        return 16;
#endif
    default:
        return 0;
    }
}

#if defined(__x86_64__)
enum { RELATIVE = R_X86_64_RELATIVE, RESOLVED = R_X86_64_IRELATIVE };
#else
enum { RELATIVE = R_AARCH64_RELATIVE, RESOLVED = R_AARCH64_IRELATIVE };
#endif

static const int tables[2][2] = {{DT_RELA, DT_RELASZ}, {DT_JMPREL, DT_PLTRELSZ}};

static Elf64_Rela *copy_relocations(const struct attn__object *object, int table, uint64_t *out_count)
{
    const uint64_t size = object->has[tables[table][1]] ? object->value[tables[table][1]] : 0;
    *out_count = size / sizeof(Elf64_Rela);
    return object->has[tables[table][0]] ? attn__object_copy(object, object->value[tables[table][0]], size)
                                         : NULL;
}

static uint32_t find_last_symbol(const struct attn__object *object)
{
    uint32_t last = 0;
    for (int t = 0; t < 2; t++) {
        uint64_t count;
        Elf64_Rela *list = copy_relocations(object, t, &count);
        for (uint64_t i = 0; i < count && list != NULL; i++)
            if (ELF64_R_SYM(list[i].r_info) > last && ELF64_R_SYM(list[i].r_info) < UINT32_MAX)
                last = (uint32_t)ELF64_R_SYM(list[i].r_info);
        free(list);
    }
    return last;
}

/* Text relocations write where nothing else may. */
static bool may_write(const struct attn__object *object, uint64_t address, uint64_t size)
{
    const bool text = object->has[DT_TEXTREL] || (object->value[DT_FLAGS] & DF_TEXTREL) != 0;
    const Elf64_Phdr *p = attn__object_holder(object, address, size);
    return p != NULL && (text || (p->p_flags & PF_W) != 0);
}

static bool is_relocation(const struct attn__object *object, const Elf64_Rela *relocation)
{
    const uint32_t type = (uint32_t)ELF64_R_TYPE(relocation->r_info);
    const uint64_t value = (uint64_t)relocation->r_addend;
    if (type == 0)
        return true;
    if (width_of(type) == 0 || !may_write(object, relocation->r_offset, width_of(type)))
        return false;
    const Elf64_Phdr *p = attn__object_holder(object, value, 0);
    if (type == RELATIVE)
        return p != NULL;
    return type != RESOLVED || (p != NULL && (p->p_flags & PF_X) != 0);
}

/* Addresses and bit maps of the words behind them. */
static uint32_t check_packed(const struct attn__object *object)
{
    const uint64_t count =
        object->has[DT_RELR] && object->has[DT_RELRSZ] ? object->value[DT_RELRSZ] / sizeof(uint64_t) : 0;
    uint64_t *list = count != 0 ? attn__object_copy(object, object->value[DT_RELR], count * 8) : NULL,
             next = 0;
    bool good = count == 0 || list != NULL;
    for (uint64_t i = 0; i < count && good; i++) {
        if ((list[i] & 1) == 0) {
            good = may_write(object, list[i], 8);
            next = list[i] + 8;
            continue;
        }
        for (unsigned bit = 1; bit < 64 && good; bit++)
            good = (list[i] >> bit & 1) == 0 || may_write(object, next + 8 * (uint64_t)(bit - 1), 8);
        next += 63 * 8;
    }
    free(list);
    return good ? 0 : BAD(object, "a packed relocation of the file changes what it does not own");
}

uint32_t attn__relocations_check(const struct attn__object *object)
{
    uint32_t reason = check_packed(object);
    for (int t = 0; t < 2 && reason == 0; t++) {
        uint64_t count;
        Elf64_Rela *list = copy_relocations(object, t, &count);
        if (list == NULL && object->has[tables[t][0]])
            reason = BAD(object, "the relocations of the file are not loaded");
        for (uint64_t i = 0; i < count && list != NULL && reason == 0; i++) {
            if (ELF64_R_SYM(list[i].r_info) >= object->symbols)
                reason =
                    BAD(object, "relocation %llu of the file uses symbol %llu of %u", (unsigned long long)i,
                        (unsigned long long)ELF64_R_SYM(list[i].r_info), object->symbols);
            else if (!is_relocation(object, &list[i]))
                reason =
                    BAD(object, "relocation %llu of the file, of type %llu at address %#llx, leads out of it",
                        (unsigned long long)i, (unsigned long long)ELF64_R_TYPE(list[i].r_info),
                        (unsigned long long)list[i].r_offset);
        }
        free(list);
    }
    return reason;
}
