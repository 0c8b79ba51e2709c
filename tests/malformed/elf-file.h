/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Edits the bytes of a shared object: what a careless tool or a bad disk does to plugins. */
#ifndef ATTN_TEST_ELF_FILE_H
#define ATTN_TEST_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>

#include "malformed.h"

struct elf_file {
    unsigned char *bytes;
    size_t size;
};

/* A copy of the mock `kind`. Each of these functions ends the program if the file lacks what is asked for. */
void elf_read(struct elf_file *file, const char *kind);
void elf_free(struct elf_file *file);
void elf_write(const struct elf_file *file, const struct malformed *malformed, const char *name);
/* Makes the file `size` bytes long; what is new is zero. */
void elf_resize(struct elf_file *file, size_t size);
/* Gives the mock "named" (try000) another name of six characters, wherever it stands. */
void elf_rename(struct elf_file *file, const char *name);

Elf64_Ehdr *elf_header(const struct elf_file *file);
/* The program header number `turn` of a type. */
Elf64_Phdr *elf_segment(const struct elf_file *file, uint32_t type, unsigned turn);
/* The entry of the dynamic section with that tag. */
Elf64_Dyn *elf_dynamic(const struct elf_file *file, int64_t tag);
/* Where the bytes of an address of memory stand. */
void *elf_at(const struct elf_file *file, uint64_t address);
/* The header of the note of libattn, and what it describes. */
Elf64_Nhdr *elf_note_header(const struct elf_file *file);
struct attn_note *elf_note(const struct elf_file *file);
/* Bytes that the dynamic linker needs: the end of the last loaded segment. */
size_t elf_loaded_size(const struct elf_file *file);
/* Moves the program headers to the end of the file, with place for `more` empty ones (PT_NULL). */
void elf_grow_headers(struct elf_file *file, unsigned more);

#endif
