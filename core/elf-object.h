/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * What a shared object says about itself, judged before the dynamic linker believes it: segments.c has the
 * program headers, elf-dynamic.c the dynamic section, elf-tables.c symbols, versions and relocations.
 */
#ifndef ATTN_ELF_OBJECT_H
#define ATTN_ELF_OBJECT_H

#include <elf.h>

#include "loader.h"

/* Tags of the dynamic section below that are kept in a list. */
enum { ATTN__TAGS = 40 };

/* More program headers than that has no plugin. */
enum { ATTN__HEADERS_MOST = 128 };

struct attn__object {
    int fd;
    uint64_t file_size;
    const Elf64_Phdr *headers;
    unsigned count;
    char *text; /* of a refusal */
    size_t text_size;

    /* Of the dynamic section. */
    bool has[ATTN__TAGS];
    uint64_t value[ATTN__TAGS];
    uint64_t gnu_hash, versym, verdef, verdefnum, verneed, verneednum; /* 0: none */
    uint64_t flags_1;
    uint32_t symbols;  /* how many there are */
    uint32_t versions; /* the highest index of one */
};

/* Writes the text and hands the reason back. */
uint32_t attn__object_refuse(const struct attn__object *object, uint32_t reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The first program header of a type, or NULL. */
const Elf64_Phdr *attn__object_segment(const struct attn__object *object, uint32_t type);
/* The loaded segment that has all of these bytes of memory, or NULL. */
const Elf64_Phdr *attn__object_holder(const struct attn__object *object, uint64_t address, uint64_t size);
/* A copy of bytes that the file gives to memory, for free(); NULL if it does not give them all. */
void *attn__object_copy(const struct attn__object *object, uint64_t address, uint64_t size);

/*
 * Reads the program headers of object->fd into an array of ATTN__HEADERS_MOST, and judges them. 0 or a
 * reason.
 */
uint32_t attn__elf_headers(struct attn__object *object, Elf64_Phdr *headers);
/* 0, TRUNCATED or BAD_ELF. */
uint32_t attn__segments_check(const struct attn__object *object);
/* The same of symbols, their hash table and versions, and of relocations; after the dynamic section. */
uint32_t attn__symbols_check(struct attn__object *object);
uint32_t attn__relocations_check(const struct attn__object *object);

#endif
