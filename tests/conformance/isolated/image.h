/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A shared object as a file: what the dynamic linker would do with it, without letting it. */
#ifndef IMAGE_H
#define IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn/plugin.h"

/* A part of the file; size 0 = not there. */
struct image_part {
    uint64_t address; /* in memory */
    uint64_t size;
};

enum { IMAGE_NEEDED = 64 };

struct image {
    const unsigned char *bytes;
    size_t size;
    struct image_part symbols, strings, relocations, plt_relocations, init_array, fini_array;
    uint64_t init;
    uint32_t symbol_count;
    struct attn_note note;
    uint32_t note_count;
    bool static_tls, text_relocations, executable_stack, writable_code;
    bool symbolic; /* -Bsymbolic */
    bool fat;      /* device code of a GPU toolchain, whose runtime registers itself */
    const char *soname;
    const char *needed[IMAGE_NEEDED];
    uint32_t needed_count;
};

/* False with a text if the file cannot be read as a shared object for 64-bit little-endian machines. */
bool image_open(struct image *image, const char *path, char *why, size_t size);
void image_close(struct image *image);

/* Bytes of the file behind an address of the loaded image, or NULL. */
const void *image_at(const struct image *image, uint64_t address, uint64_t size);
/* A text of the dynamic string table, "" if it lies outside. */
const char *image_text(const struct image *image, uint64_t offset);

/* ---------------------------------------------------------------- image-symbols.c */

struct image_symbol {
    const char *name; /* "" for local ones */
    bool defined;
    bool unique; /* STB_GNU_UNIQUE: keeps the file from being unloaded */
};

/* Number of entries of the dynamic symbol table, from its hash table. */
uint32_t image_count_symbols(const struct image *image, uint64_t hash, uint64_t gnu_hash);
/* False past the last one. */
bool image_get_symbol(const struct image *image, uint32_t index, struct image_symbol *out);
/* A defined symbol that a relocation looks up by name, so that another library's may be found; or NULL. */
const char *image_find_open_binding(const struct image *image);
/*
 * Function number `index` that runs when the file is loaded or unloaded; false past the last one. The name is
 * "" in a stripped file.
 */
bool image_get_constructor(const struct image *image, uint32_t index, const char **out_name);
bool image_get_destructor(const struct image *image, uint32_t index, const char **out_name);

#endif
