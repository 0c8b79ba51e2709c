/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A good plugin whose ELF structure was damaged: what reading does not find, the probe does. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>

#include "elf-file.h"

/* Far outside of any plugin, where a host has other things. */
#define AWAY UINT64_C(0x40000000)

static void edit(const struct malformed *malformed, void (*change)(struct elf_file *file))
{
    struct elf_file file;

    elf_read(&file, "good");
    change(&file);
    elf_write(&file, malformed, CASE_FILE);
    elf_free(&file);
}

#define EDIT(name, ...)                                                                                      \
    static void change_##name(struct elf_file *file)                                                         \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }                                                                                                        \
    static void name(const struct malformed *malformed, const char *unused)                                  \
    {                                                                                                        \
        (void)unused;                                                                                        \
        edit(malformed, change_##name);                                                                      \
    }

/* ---------------------------------------------------------------- the file header */

EDIT(machine, elf_header(file)->e_machine = EM_RISCV;)
EDIT(narrow, elf_header(file)->e_ident[EI_CLASS] = ELFCLASS32;)
EDIT(big_endian, elf_header(file)->e_ident[EI_DATA] = ELFDATA2MSB;)
EDIT(other_system, elf_header(file)->e_ident[EI_OSABI] = ELFOSABI_FREEBSD;)
EDIT(version, elf_header(file)->e_version = 7;)
EDIT(object, elf_header(file)->e_type = ET_REL;)
EDIT(program, elf_header(file)->e_type = ET_EXEC;)
EDIT(core_dump, elf_header(file)->e_type = ET_CORE;)
EDIT(no_headers, elf_header(file)->e_phnum = 0;)
EDIT(many_headers, elf_header(file)->e_phnum = 0xffff;)
EDIT(headers_away, elf_header(file)->e_phoff = AWAY;)
EDIT(header_size, elf_header(file)->e_phentsize = 32;)
EDIT(no_sections, elf_header(file)->e_shoff = 0; elf_header(file)->e_shnum = 0;
     elf_header(file)->e_shstrndx = 0;)
EDIT(sections_away, elf_header(file)->e_shoff = UINT64_MAX - 63;)

/* ---------------------------------------------------------------- segments */

EDIT(segment_away, elf_segment(file, PT_LOAD, 1)->p_offset = AWAY;)
EDIT(segment_small, elf_segment(file, PT_LOAD, 1)->p_memsz = 1;)
EDIT(segment_huge, elf_segment(file, PT_LOAD, 0)->p_memsz = UINT64_C(1) << 46;)
EDIT(segment_overlaps, elf_segment(file, PT_LOAD, 1)->p_vaddr = elf_segment(file, PT_LOAD, 0)->p_vaddr;)
EDIT(segment_order, elf_segment(file, PT_LOAD, 0)->p_vaddr += AWAY;)
EDIT(segment_crooked, elf_segment(file, PT_LOAD, 1)->p_vaddr += 8;)
EDIT(segment_align, elf_segment(file, PT_LOAD, 1)->p_align = 12345;)
EDIT(no_dynamic, elf_segment(file, PT_DYNAMIC, 0)->p_type = PT_NULL;)
EDIT(dynamic_away, elf_segment(file, PT_DYNAMIC, 0)->p_vaddr += AWAY;)
EDIT(relro_away, elf_segment(file, PT_GNU_RELRO, 0)->p_vaddr += AWAY;)
EDIT(relro_huge, elf_segment(file, PT_GNU_RELRO, 0)->p_memsz += AWAY;)

/* ---------------------------------------------------------------- the dynamic section */

EDIT(no_strings, elf_dynamic(file, DT_STRTAB)->d_un.d_ptr += AWAY;)
EDIT(no_symbols, elf_dynamic(file, DT_SYMTAB)->d_un.d_ptr += AWAY;)
EDIT(no_hash, elf_dynamic(file, DT_GNU_HASH)->d_un.d_ptr += AWAY;)
EDIT(no_relocations, elf_dynamic(file, DT_RELA)->d_un.d_ptr += AWAY;)
EDIT(relocations_huge, elf_dynamic(file, DT_RELASZ)->d_un.d_val += AWAY;)
EDIT(relocation_size, elf_dynamic(file, DT_RELAENT)->d_un.d_val = 16;)
EDIT(constructors_away, elf_dynamic(file, DT_INIT_ARRAY)->d_un.d_ptr += AWAY;)
EDIT(constructors_huge, elf_dynamic(file, DT_INIT_ARRAYSZ)->d_un.d_val += AWAY;)
EDIT(init_away, elf_dynamic(file, DT_INIT)->d_un.d_ptr += AWAY;)
EDIT(strings_huge, elf_dynamic(file, DT_STRSZ)->d_un.d_val += AWAY;)
EDIT(library_name_away, elf_dynamic(file, DT_NEEDED)->d_un.d_val += AWAY;)

/* ---------------------------------------------------------------- tables */

static Elf64_Rela *relocation(const struct elf_file *file, uint32_t type)
{
    const uint64_t size = elf_dynamic(file, DT_RELASZ)->d_un.d_val;
    Elf64_Rela *list = elf_at(file, elf_dynamic(file, DT_RELA)->d_un.d_ptr);

    for (uint64_t i = 0; i < size / sizeof *list; i++)
        if (ELF64_R_TYPE(list[i].r_info) == type)
            return &list[i];
    fprintf(stderr, "no relocation of type %u\n", type);
    exit(99);
}

#if defined(__x86_64__)
#define RELATIVE R_X86_64_RELATIVE
#define NAMED    R_X86_64_GLOB_DAT
#else
#define RELATIVE R_AARCH64_RELATIVE
#define NAMED    R_AARCH64_GLOB_DAT
#endif

static Elf64_Sym *symbols(const struct elf_file *file)
{
    return elf_at(file, elf_dynamic(file, DT_SYMTAB)->d_un.d_ptr);
}

EDIT(target_away, relocation(file, RELATIVE)->r_offset += AWAY;)
EDIT(target_in_headers, relocation(file, RELATIVE)->r_offset = 0;)
EDIT(value_away, relocation(file, RELATIVE)->r_addend += (int64_t)AWAY;)
EDIT(relocation_type, relocation(file, RELATIVE)->r_info = 200;)
EDIT(symbol_away, relocation(file, NAMED)->r_info |= UINT64_C(1) << 55;)
EDIT(symbol_name_away, symbols(file)[1].st_name += (uint32_t)AWAY;)
EDIT(buckets_huge, memset(elf_at(file, elf_dynamic(file, DT_GNU_HASH)->d_un.d_ptr), 0xff, 4);)

/* ---------------------------------------------------------------- more entries than the compiler wrote */

/* Uses one of the spare entries at the end. */
static void add_entry(struct elf_file *file, int64_t tag, uint64_t value)
{
    Elf64_Dyn *end = elf_dynamic(file, DT_NULL);

    if (end[1].d_tag != DT_NULL)
        exit(99);
    end->d_tag = tag;
    end->d_un.d_val = value;
}

EDIT(position_independent_program, add_entry(file, DT_FLAGS_1, DF_1_PIE);)
EDIT(not_for_dlopen, add_entry(file, DT_FLAGS_1, DF_1_NOOPEN);)

#define READY ATTN_STAGE_READY
#define NOTE  ATTN_STAGE_NOTE
#define TRUST ATTN_STAGE_TRUSTED
#define R(x)  ATTN_REASON_##x

const struct malformed_case elf_cases[] = {
    {"another machine", machine, NULL, R(WRONG_ARCH), TRUST, "ELF machine 243", 0},
    {"32 bit", narrow, NULL, R(WRONG_ARCH), TRUST, "class 1", 0},
    {"big-endian", big_endian, NULL, R(WRONG_ARCH), TRUST, "byte order 2", 0},
    {"another operating system", other_system, NULL, R(WRONG_ARCH), TRUST, "system 9", 0},
    {"an ELF version to come", version, NULL, R(BAD_ELF), TRUST, "version 7", 0},
    {"an object file", object, NULL, R(BAD_ELF), TRUST, "ELF type 1", 0},
    {"a program", program, NULL, R(BAD_ELF), TRUST, "ELF type 2", 0},
    {"a core dump", core_dump, NULL, R(BAD_ELF), TRUST, "ELF type 4", 0},
    {"no program headers", no_headers, NULL, R(BAD_ELF), TRUST, "0 program headers", 0},
    {"65535 program headers", many_headers, NULL, R(BAD_ELF), TRUST, "65535 program headers", 0},
    {"program headers behind the end", headers_away, NULL, R(TRUNCATED), TRUST, "program headers", 0},
    {"program headers of another size", header_size, NULL, R(BAD_ELF), TRUST, "of 32 bytes", 0},
    {"no section headers", no_sections, NULL, 0, READY, "", 0},
    {"section headers behind the end", sections_away, NULL, 0, READY, "", 0},
    {"a segment behind the end", segment_away, NULL, R(TRUNCATED), TRUST, "segment", 0},
    {"a segment larger than its memory", segment_small, NULL, R(BAD_ELF), TRUST, "larger than its memory", 0},
    {"a segment of 64 TiB", segment_huge, NULL, R(BAD_ELF), TRUST, "segment", 0},
    {"segments that overlap", segment_overlaps, NULL, R(BAD_ELF), TRUST, "segment", 0},
    {"segments out of order", segment_order, NULL, R(BAD_ELF), TRUST, "segment", 0},
    {"a segment that no page can hold", segment_crooked, NULL, R(BAD_ELF), TRUST, "segment", 0},
    {"an alignment that is none", segment_align, NULL, R(BAD_ELF), TRUST, "align", 0},
    {"no dynamic section", no_dynamic, NULL, R(DLOPEN_FAILED), NOTE, "no dynamic section", 0},
    {"a dynamic section that is not loaded", dynamic_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load",
     0},
    {"protection of foreign memory", relro_away, NULL, R(BAD_ELF), TRUST, "segment", 0},
    {"protection beyond the end", relro_huge, NULL, R(BAD_ELF), TRUST, "segment", 0},
    {"strings outside", no_strings, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"more strings than there are", strings_huge, NULL, 0, READY, "", 0},
    {"symbols outside", no_symbols, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a hash table outside", no_hash, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a hash table of 4 Gi buckets", buckets_huge, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"relocations outside", no_relocations, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a gigabyte of relocations", relocations_huge, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"relocations of another size", relocation_size, NULL, R(EXITED), NOTE, "in step load", 0},
    {"constructors outside", constructors_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a gigabyte of constructors", constructors_huge, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a start outside", init_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"the name of a library outside", library_name_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a relocation of foreign memory", target_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a relocation of what is read-only", target_in_headers, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load",
     0},
    {"a relocation to a foreign place", value_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load", 0},
    {"a relocation of no kind", relocation_type, NULL, R(EXITED), NOTE, "in step load", 0},
    {"a relocation by a symbol that is not there", symbol_away, NULL, R(CRASHED), NOTE,
     "SIGSEGV) in step load", 0},
    {"a symbol whose name is not there", symbol_name_away, NULL, R(CRASHED), NOTE, "SIGSEGV) in step load",
     0},
    {"a position-independent program", position_independent_program, NULL, R(DLOPEN_FAILED), NOTE,
     "position-independent executable", 0},
    {"an object that refuses dlopen", not_for_dlopen, NULL, R(DLOPEN_FAILED), NOTE, "dlopen", 0},
    {NULL, NULL, NULL, 0, 0, NULL, 0},
};
